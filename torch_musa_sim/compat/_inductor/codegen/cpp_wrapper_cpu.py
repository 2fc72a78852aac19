"""The C++ program that Inductor writes around a graph."""

from typing import Any

from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

from ..._refused import NO_CPP_WRAPPER, refused


class CppWrapperMusa(CppWrapperCpu):
    """torch's program for the CPU, which the real package extends; can't be made for musa."""

    @refused(NO_CPP_WRAPPER)
    def __init__(self) -> None:
        """Takes the graph from Inductor's surroundings."""

    @staticmethod
    def get_device_include_path(device: str) -> str:
        """The include of a device that torch has one for; raises NotImplementedError for musa."""
        if device == "musa":
            raise NotImplementedError(f"CppWrapperMusa.get_device_include_path: {NO_CPP_WRAPPER}")
        return str(CppWrapperCpu.get_device_include_path_jit(device))

    @refused(NO_CPP_WRAPPER)
    def codegen_invoke_subgraph(self, *args: Any, **kwargs: Any) -> None:
        """Would write the call of a subgraph."""
