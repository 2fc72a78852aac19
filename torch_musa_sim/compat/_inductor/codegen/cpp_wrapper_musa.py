"""The C++ program that Inductor writes around Triton kernels: its parts, each of which says why there is none."""

from typing import Any

from torch._inductor.codegen import cpp_wrapper_gpu
from torch._inductor.codegen.cpp_wrapper_gpu import UnwrapUnspecArg, cpp_string_literal

from ..._inductor.codegen.cpp_wrapper_cpu import CppWrapperMusa
from ..._refused import NO_CPP_WRAPPER, NO_TRITON, refused

__all__ = ["DeferredTritonCallWrapper", "MUSACppWrapper", "UnwrapUnspecArg", "cpp_string_literal"]

_CPP_STRING_LITERAL_ESCAPES = cpp_wrapper_gpu._cpp_string_literal_escapes
_CPP_STRING_LITERAL_PATTERN = cpp_wrapper_gpu._cpp_string_literal_pattern


class DeferredTritonCallWrapper(cpp_wrapper_gpu.DeferredTritonCallWrapper):
    """A kernel's launch, written once its parameters are known; can't be made."""

    @refused(NO_TRITON)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes the kernel's names and the types of its arguments."""

    @refused(NO_TRITON)
    def generate(self, wrapper: Any) -> None:
        """Would write the function that launches the kernel."""

    @refused(NO_TRITON)
    def generate_grid(self, prefix: Any, inductor_meta: Any, params: Any) -> None:
        """Would write the launch's grid."""

    @refused(NO_TRITON)
    def generate_load_kernel(self, prefix: Any, kernel_var_name: str, params: Any) -> None:
        """Would write the loading of the kernel's binary."""

    @refused(NO_TRITON)
    def generate_launch_kernel(self, prefix: Any, wrapper: Any, kernel_var_name: str, params: Any) -> None:
        """Would write the launch."""


class MUSACppWrapper(CppWrapperMusa):
    """A C++ program around kernels of a card; can't be made."""

    @refused(NO_CPP_WRAPPER)
    def __init__(self) -> None:
        """Takes the graph from Inductor's surroundings."""

    @staticmethod
    @refused(NO_CPP_WRAPPER)
    def create(
        is_subgraph: bool, subgraph_name: str | None, parent_wrapper: Any = None, partition_signatures: Any = None
    ) -> Any:
        """Would make the program of a graph, or of a part of one."""

    @refused(NO_CPP_WRAPPER)
    def write_header(self) -> None:
        """Would write the includes."""

    @refused(NO_CPP_WRAPPER)
    def write_tma_desc_helpers(self) -> None:
        """Would write the functions around descriptors of tensors."""

    @refused(NO_CPP_WRAPPER)
    def write_get_raw_stream(self, device_idx: int, graph: Any = None) -> str:
        """Would write the look-up of the current stream and return its name."""
        raise AssertionError

    @refused(NO_CPP_WRAPPER)
    def codegen_inputs(self) -> None:
        """Would write the unpacking of the inputs."""

    @refused(NO_CPP_WRAPPER)
    def codegen_invoke_subgraph(self, *args: Any, **kwargs: Any) -> None:
        """Would write the call of a subgraph."""

    @refused(NO_CPP_WRAPPER)
    def define_kernel(
        self,
        kernel_name: str,
        kernel_body: str,
        metadata: str | None = None,
        gpu: bool = True,
        cpp_definition: str | None = None,
    ) -> None:
        """Would add a kernel to the program."""

    @refused(NO_CPP_WRAPPER)
    def generate(self, is_inference: bool) -> Any:
        """Would write the program."""

    @refused(NO_CPP_WRAPPER)
    def finalize_prefix(self) -> None:
        """Would write what comes before the program's entry."""

    @refused(NO_CPP_WRAPPER)
    def generate_tma_descriptor(self, desc: Any) -> None:
        """Would write a descriptor of a tensor."""

    @refused(NO_CPP_WRAPPER)
    def generate_args_decl(
        self, code: Any, call_args: Any, arg_types: Any, arg_signatures: Any, is_triton_kernel: bool = True
    ) -> str:
        """Would declare a kernel's arguments and return their list."""
        raise AssertionError

    @refused(NO_CPP_WRAPPER)
    def generate_kernel_call(  # type: ignore[override]
        self,
        kernel_name: str,
        call_args: Any,
        *,
        device: Any = None,
        triton: bool = True,
        arg_types: Any = None,
        raw_args: Any = None,
        triton_meta: Any = None,
    ) -> None:
        """Would write a kernel's launch."""

    @staticmethod
    @refused(NO_CPP_WRAPPER)
    def prepare_triton_wrapper_args(call_args: Any, arg_types: Any) -> tuple[list[Any], list[Any]]:
        """Would turn arguments into what a kernel's launcher takes."""
        raise AssertionError

    @refused(NO_CPP_WRAPPER)
    def make_zero_buffer(self, name: str) -> str:
        """Would write the zeroing of a buffer."""
        raise AssertionError
