"""Builds the native libraries with CMake; everything else about the package is in pyproject.toml."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import setuptools
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "cmake"
PACKAGE = "torch_musa_sim"


def check_setuptools() -> None:
    """Stops with the command to run where a fresh environment has a setuptools from before wheels were built in."""
    if int(setuptools.__version__.split(".")[0]) < 77:
        raise SystemExit(
            f"setuptools {setuptools.__version__} is too old to build this package. Run "
            "`pip install --upgrade 'setuptools>=77'` first."
        )


def find_tool(name: str) -> str:
    """Path of `cmake` or `ninja`: from PATH, else from the pip package of that name in this environment."""
    found = shutil.which(name)
    if found:
        return found
    beside_python = Path(sys.executable).parent / name
    if beside_python.is_file():
        return str(beside_python)
    spec = importlib.util.find_spec(name)
    for place in (spec.submodule_search_locations or []) if spec else []:
        for inside in (Path(place) / "data" / "bin" / name, Path(place).parent / "bin" / name):
            if inside.is_file():
                return str(inside)
    raise SystemExit(f"{name} was not found. Install it with `pip install {name}` (or your system's package {name!r}).")


def check_compiler() -> None:
    """Stops with the package to install when there is no C++ compiler."""
    wanted = os.environ.get("CXX")
    if wanted:
        if shutil.which(wanted.split()[-1]) is None:
            raise SystemExit(f"The C++ compiler named by CXX={wanted!r} was not found. Correct or unset CXX.")
    elif not any(map(shutil.which, ("c++", "g++", "clang++"))):
        raise SystemExit(
            "No C++ compiler was found. Install g++ 11 or newer: the package `g++` or `build-essential` on Debian and "
            "Ubuntu, `gcc-c++` on Fedora."
        )


def check_torch() -> None:
    """Stops with the command to run when torch is missing (as it is without --no-build-isolation and no network)."""
    if importlib.util.find_spec("torch") is None:
        raise SystemExit(
            f"torch is not installed for {sys.executable}. Install it first (`pip install torch==2.13.0`), then run "
            "`pip install --no-build-isolation .`"
        )


def check_real_torch_musa() -> None:
    """Stops where the real torch_musa is installed: both provide the device and the package torch_musa."""
    spec = importlib.util.spec_from_file_location("_real_package", ROOT / PACKAGE / "_real_package.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    found = module.find()
    if found is not None:
        raise SystemExit(f"{found}.")


def jobs() -> int:
    """Compilers to run at once: MAX_JOBS, else the cores this process may use."""
    wanted = os.environ.get("MAX_JOBS", "")
    if wanted and not (wanted.isdigit() and int(wanted) > 0):
        raise SystemExit(f"MAX_JOBS={wanted!r} is not a positive whole number.")
    return int(wanted) if wanted else len(os.sched_getaffinity(0))


def forget_moved_build() -> None:
    """CMake refuses a build folder that was configured for another source tree; such a folder is of no use."""
    cache = BUILD / "CMakeCache.txt"
    if cache.is_file() and f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n" not in cache.read_text():
        shutil.rmtree(BUILD)


class CMakeBuild(build_ext):
    """Runs CMake, whose libraries land in the source package, and copies them for anything but an editable install."""

    def run(self) -> None:
        check_compiler()
        check_torch()
        check_real_torch_musa()
        forget_moved_build()
        cmake, ninja, parallel = find_tool("cmake"), find_tool("ninja"), str(jobs())
        configure = [cmake, "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja"]
        configure += [f"-DCMAKE_MAKE_PROGRAM={ninja}", f"-DPython_EXECUTABLE={sys.executable}"]
        for command in (configure, [cmake, "--build", str(BUILD), "-j", parallel]):
            if subprocess.run(command).returncode != 0:
                raise SystemExit(f"The build of the native libraries failed at: {' '.join(command)}")
        if not (self.inplace or self.editable_mode):
            for source, target in self._products():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)

    def _products(self) -> list[tuple[Path, Path]]:
        package = ROOT / PACKAGE
        suffix = self.get_ext_filename("_C")
        sources = [package / suffix, package / "_build_info.py", *sorted((package / "lib").glob("*.so*"))]
        sources += sorted((package / "include").rglob("*.h"))
        return [(source, Path(self.build_lib) / source.relative_to(ROOT)) for source in sources]

    def get_outputs(self) -> list[str]:
        return [str(target) for _, target in self._products()]

    def get_output_mapping(self) -> dict[str, str]:
        return {str(target): str(source) for source, target in self._products()} if self.editable_mode else {}

    def get_source_files(self) -> list[str]:
        files = [ROOT / "CMakeLists.txt", *(ROOT / "csrc").rglob("*.cpp"), *(ROOT / "csrc").rglob("*.h")]
        return [str(file.relative_to(ROOT)) for file in files]


check_setuptools()
setup(
    # What outside programs look for is a top-level package named torch_musa; its source is a folder of ours.
    packages=[
        *find_packages(include=[f"{PACKAGE}*", "model_zoo*"], exclude=[f"{PACKAGE}.compat*"]),
        "torch_musa",
        *(f"torch_musa.{package}" for package in find_packages(f"{PACKAGE}/compat")),
    ],
    package_dir={"torch_musa": f"{PACKAGE}/compat"},
    ext_modules=[Extension(f"{PACKAGE}._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
