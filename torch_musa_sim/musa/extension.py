"""Compiles extensions with kernels for the device: what `torch_musa.utils.musa_extension` is.

An extension is C++ for the host: its kernels are functions that `musa::launch_host_kernel` (or the C function
`musaLaunchHostKernel`) runs on card memory, see docs/extending.md. Device code for Moore Threads' compiler (`.mu`
files, `musa_sources`) can't be compiled for a simulated card and is refused. Everything else is
torch.utils.cpp_extension, with our headers and libraries added; the flags for the device compiler are accepted.
"""

import os
import platform
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.utils import cpp_extension
from torch.utils.file_baton import FileBaton

from torch_musa_sim import _C
from torch_musa_sim.musa.architecture import _get_musa_arch

__all__ = [
    "MUDNN_HOME",
    "MUSA_HOME",
    "BuildExtension",
    "FileBaton",
    "MUSAExtension",
    "include_paths",
    "library_paths",
    "load",
    "load_inline",
]

_PACKAGE = Path(__file__).resolve().parent.parent
_LIBRARIES = ["torch_musa_sim", "musart"]

COMMON_MCC_FLAGS: list[str] = []
RERUN_CMAKE = False
SUBPROCESS_DECODE_ARGS: tuple[str, ...] = ()
install_requires = ["packaging"]

_get_build_directory = cpp_extension._get_build_directory
_maybe_write = cpp_extension._maybe_write
get_cxx_compiler = cpp_extension.get_cxx_compiler


def _setting(name: str) -> str | None:
    """The value of an environment variable that is set and not empty."""
    return next(entry["value"] for entry in _C._settings() if entry["name"] == name) or None


def _find_musa_home() -> str:
    """The folder with `include` and `lib`: MUSA_HOME, MUSA_PATH, else this package."""
    return _setting("MUSA_HOME") or _setting("MUSA_PATH") or str(_PACKAGE)


MUSA_HOME = _find_musa_home()
MUDNN_HOME = _setting("MUDNN_HOME") or _setting("MUDNN_PATH")


def _join_musa_home(*paths: str) -> str:
    return os.path.join(MUSA_HOME, *paths)


def _get_cpu_arch() -> str:
    return platform.machine()


def _get_musa_arch_flags() -> list[str]:
    """What the device compiler would be told about the cards: TORCH_MUSA_ARCH_LIST, else their own architecture."""
    told = next(str(entry["value"]) for entry in _C._settings() if entry["name"] == "TORCH_MUSA_ARCH_LIST")
    names = [name.strip() for name in told.split(";") if name.strip()] or [f"mp_{_get_musa_arch()}"]
    return [f"--offload-arch={name}" for name in names]


def _is_musa_file(path: str) -> bool:
    """Whether `path` is named as device code."""
    return os.path.splitext(path)[1] in (".mu", ".muh")


def include_paths(musa: bool = False) -> list[str]:
    """Folders of headers: torch's and, with `musa`, ours."""
    return cpp_extension.include_paths() + ([str(_PACKAGE / "include")] if musa else [])


def library_paths(musa: bool = False) -> list[str]:
    """Folders of libraries: torch's and, with `musa`, ours."""
    return cpp_extension.library_paths() + ([str(_PACKAGE / "lib")] if musa else [])


def MUSAExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    """A setuptools.Extension for `setup(ext_modules=[...], cmdclass={"build_ext": BuildExtension})`.

    As torch.utils.cpp_extension.CppExtension, with our headers and libraries. Raises ValueError for device code.
    """
    _refuse_device_code(sources)
    for option, ours in (("include_dirs", "include"), ("library_dirs", "lib")):
        kwargs[option] = [*(kwargs.get(option) or []), str(_PACKAGE / ours)]
    kwargs["libraries"] = [*(kwargs.get("libraries") or []), *_LIBRARIES]
    return cpp_extension.CppExtension(name, list(sources), *args, **kwargs)


class BuildExtension(cpp_extension.BuildExtension):  # type: ignore[misc]
    """The `build_ext` of setup.py that compiles MUSAExtension."""

    def build_extensions(self) -> None:
        for extension in self.extensions:
            _refuse_device_code(extension.sources)
        super().build_extensions()


def load(
    name: str,
    sources: str | Sequence[str],
    extra_cflags: list[str] | None = None,
    extra_musa_cflags: list[str] | None = None,
    extra_sycl_cflags: list[str] | None = None,
    extra_ldflags: list[str] | None = None,
    extra_include_paths: list[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_musa: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> Any:
    """Compiles `sources` and imports the result; as torch.utils.cpp_extension.load.

    Raises ValueError for device code and for `with_sycl`. `with_musa` and `extra_musa_cflags` change nothing: the
    headers and libraries of the device are always there, and no source goes through the device compiler.
    """
    files = [sources] if isinstance(sources, str) else list(sources)
    _refuse_device_code(files)
    _refuse_sycl(with_sycl, extra_sycl_cflags)
    return cpp_extension.load(
        name,
        files,
        extra_cflags=extra_cflags,
        extra_ldflags=[*(extra_ldflags or []), *_link_flags()],
        extra_include_paths=[*(extra_include_paths or []), str(_PACKAGE / "include")],
        build_directory=build_directory,
        verbose=verbose,
        with_cuda=False,
        with_sycl=False,
        is_python_module=is_python_module,
        is_standalone=is_standalone,
        keep_intermediates=keep_intermediates,
    )


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    musa_sources: str | Sequence[str] | None = None,
    sycl_sources: str | Sequence[str] | None = None,
    functions: Any = None,
    extra_cflags: list[str] | None = None,
    extra_musa_cflags: list[str] | None = None,
    extra_sycl_cflags: list[str] | None = None,
    extra_ldflags: list[str] | None = None,
    extra_include_paths: list[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_musa: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
) -> Any:
    """Compiles C++ source text and imports the result; as torch.utils.cpp_extension.load_inline.

    Raises ValueError for `musa_sources` (device code) and `sycl_sources`; otherwise as `load`.
    """
    if musa_sources:
        raise ValueError(f"musa_sources {_DEVICE_CODE}")
    _refuse_sycl(with_sycl, extra_sycl_cflags or sycl_sources)
    return cpp_extension.load_inline(
        name,
        cpp_sources if isinstance(cpp_sources, str) else list(cpp_sources),
        functions=functions,
        extra_cflags=extra_cflags,
        extra_ldflags=[*(extra_ldflags or []), *_link_flags()],
        extra_include_paths=[*(extra_include_paths or []), str(_PACKAGE / "include")],
        build_directory=build_directory,
        verbose=verbose,
        with_cuda=False,
        with_sycl=False,
        is_python_module=is_python_module,
        with_pytorch_error_handling=with_pytorch_error_handling,
        keep_intermediates=keep_intermediates,
        use_pch=use_pch,
    )


_DEVICE_CODE = (
    "is device code for Moore Threads' compiler, which a simulated card can't run; write the kernel as a C++ function "
    "of the host in a .cpp file (docs/extending.md)"
)


def _refuse_device_code(sources: Sequence[str]) -> None:
    for source in sources:
        if _is_musa_file(str(source)):
            raise ValueError(f"{source} {_DEVICE_CODE}")


def _refuse_sycl(*asked: object) -> None:
    if any(asked):
        raise ValueError("SYCL sources can't be built for a musa device; leave the sycl arguments out")


def _link_flags() -> list[str]:
    return [f"-L{_PACKAGE / 'lib'}", *(f"-l{name}" for name in _LIBRARIES)]


# ---- the steps of `load`, for tools that call them one by one; the arguments for device and SYCL code stay unused ----

_NONE = (None,) * 6  # flags for the device and the SYCL compiler


def _prepare_ldflags(extra_ldflags: list[str], with_musa: bool, verbose: bool, is_standalone: bool) -> list[str]:
    flags: list[str] = cpp_extension._prepare_ldflags(extra_ldflags, False, False, verbose, is_standalone)
    return [*flags, *_link_flags()] if with_musa else flags


def _jit_compile(
    name: str,
    sources: list[str],
    extra_cflags: list[str] | None,
    extra_musa_cflags: list[str] | None,
    extra_sycl_cflags: list[str] | None,
    extra_ldflags: list[str] | None,
    extra_include_paths: list[str] | None,
    build_directory: str,
    verbose: bool,
    with_musa: bool | None,
    with_sycl: bool | None,
    is_python_module: bool,
    is_standalone: bool,
    keep_intermediates: bool = True,
) -> types.ModuleType | str:
    result: types.ModuleType | str = load(
        name,
        sources,
        extra_cflags,
        extra_musa_cflags,
        extra_sycl_cflags,
        extra_ldflags,
        extra_include_paths,
        build_directory,
        verbose,
        with_musa,
        with_sycl,
        is_python_module,
        is_standalone,
        keep_intermediates,
    )
    return result


def _write_ninja_file(
    path: str,
    cflags: list[str],
    post_cflags: list[str] | None,
    musa_cflags: list[str] | None,
    musa_post_cflags: list[str] | None,
    musa_dlink_post_cflags: list[str] | None,
    sycl_cflags: list[str] | None,
    sycl_post_cflags: list[str] | None,
    sycl_dlink_post_cflags: list[str] | None,
    sources: list[str],
    objects: list[str],
    ldflags: list[str] | None,
    library_target: str | None,
    with_musa: bool,
    with_sycl: bool,
    force_mcc: bool,
) -> None:
    _refuse_device_code(sources)
    _refuse_sycl(with_sycl)
    cpp_extension._write_ninja_file(
        path,
        cflags,
        post_cflags,
        None,
        None,
        None,
        None,
        None,
        None,
        sources,
        objects,
        ldflags,
        library_target,
        False,
        False,
    )


def _write_ninja_file_and_compile_objects(
    sources: list[str],
    objects: list[str],
    cflags: list[str],
    post_cflags: list[str] | None,
    musa_cflags: list[str] | None,
    musa_post_cflags: list[str] | None,
    musa_dlink_post_cflags: list[str] | None,
    sycl_cflags: list[str] | None,
    sycl_post_cflags: list[str] | None,
    sycl_dlink_post_cflags: list[str] | None,
    build_directory: str,
    verbose: bool,
    with_musa: bool | None,
    with_sycl: bool | None,
    force_mcc: bool,
) -> None:
    _refuse_device_code(sources)
    _refuse_sycl(with_sycl)
    cpp_extension._write_ninja_file_and_compile_objects(
        sources,
        objects,
        cflags,
        post_cflags,
        None,
        None,
        None,
        None,
        None,
        None,
        build_directory,
        verbose,
        False,
        False,
    )


def _write_ninja_file_to_build_library(
    path: str,
    name: str,
    sources: list[str],
    extra_cflags: list[str],
    extra_musa_cflags: list[str] | None,
    extra_sycl_cflags: list[str] | None,
    extra_ldflags: list[str],
    extra_include_paths: list[str],
    with_musa: bool,
    with_sycl: bool,
    is_standalone: bool,
) -> None:
    _refuse_device_code(sources)
    _refuse_sycl(with_sycl)
    includes = [*extra_include_paths, *([str(_PACKAGE / "include")] if with_musa else [])]
    cpp_extension._write_ninja_file_to_build_library(
        path, name, sources, extra_cflags, [], [], extra_ldflags, includes, False, False, is_standalone
    )


def _write_ninja_file_and_build_library(
    name: str,
    sources: list[str],
    extra_cflags: list[str],
    extra_musa_cflags: list[str] | None,
    extra_sycl_cflags: list[str] | None,
    extra_ldflags: list[str],
    extra_include_paths: list[str],
    build_directory: str,
    verbose: bool,
    with_musa: bool | None,
    with_sycl: bool | None,
    is_standalone: bool = False,
) -> None:
    _refuse_device_code(sources)
    _refuse_sycl(with_sycl)
    includes = [*extra_include_paths, str(_PACKAGE / "include")]
    links = [*extra_ldflags, *_link_flags()]
    cpp_extension._write_ninja_file_and_build_library(
        name, sources, extra_cflags, [], [], links, includes, build_directory, verbose, False, False, is_standalone
    )
