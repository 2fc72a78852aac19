"""Options of the C++ compiler for code that includes the card's runtime."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch._inductor.cpp_builder import CppTorchOptions
from torch._inductor.cpu_vec_isa import VecISA, invalid_vec_isa

from ..utils import musa_extension


def _transform_musa_paths(lpaths: list[str]) -> None:
    """Changes, in place, each directory of libraries that isn't there to its sibling lib or lib64 if that one is."""
    siblings = {"lib": "lib64", "lib64": "lib"}
    for i, text in enumerate(lpaths):
        path = Path(text)
        sibling = path.with_name(siblings.get(path.name, path.name))
        if not path.is_dir() and sibling.is_dir():
            lpaths[i] = str(sibling)


Options = tuple[list[str], list[str], list[str], list[str], list[str], list[str], list[str]]


def get_cpp_torch_musa_options(musa: bool, aot_mode: bool = False) -> Options:
    """What code for musa adds to torch's options; without `musa` nothing.

    Returns definitions, include directories, flags of the compiler, of the linker, directories of libraries, libraries,
    and what is passed through. aot_mode: code that is compiled ahead of time takes the same.
    """
    definitions: list[str] = []
    includes: list[str] = []
    directories: list[str] = []
    libraries: list[str] = []
    if musa:
        definitions.append("USE_MUSA")
        includes += musa_extension.include_paths(True)
        directories += musa_extension.library_paths(True)
        libraries.append("musart")
        _transform_musa_paths(directories)
    return definitions, includes, [], [], directories, libraries, []


class CppTorchMusaOptions(CppTorchOptions):
    """torch's options, and for the device type "musa" the runtime's headers and library."""

    def __init__(
        self,
        vec_isa: VecISA = invalid_vec_isa,
        include_pytorch: bool = False,
        device_type: str = "musa",
        aot_mode: bool = False,
        compile_only: bool = False,
        use_relative_path: bool = False,
        use_mmap_weights: bool = False,
        shared: bool = True,
        extra_flags: Sequence[str] = (),
        min_optimize: bool = False,
    ) -> None:
        super().__init__(
            vec_isa=vec_isa,
            include_pytorch=include_pytorch,
            aot_mode=aot_mode,
            compile_only=compile_only,
            use_relative_path=use_relative_path,
            use_mmap_weights=use_mmap_weights,
            shared=shared,
            extra_flags=extra_flags,
            min_optimize=min_optimize,
        )
        added: Any = get_cpp_torch_musa_options(device_type == "musa", aot_mode)
        owned: tuple[list[str], ...] = (
            self._definitions,
            self._include_dirs,
            self._cflags,
            self._ldflags,
            self._libraries_dirs,
            self._libraries,
            self._passthrough_args,
        )
        for own, more in zip(owned, added, strict=True):
            own.extend(more)
        self._finalize_options()
