"""The Python code that Inductor writes around kernels of a card."""

from typing import Any

from torch._inductor.codegen.wrapper import EnterDeviceContextManagerLine, PythonWrapperCodegen
from torch._inductor.utils import IndentedBuffer
from torch._inductor.virtualized import V

from ..._inductor.codegen.device_op_overrides import MUSADeviceOpOverrides
from ..._refused import NO_CPP_WRAPPER, NO_TRITON, refused


class EnterMUSADeviceContextManagerLine(EnterDeviceContextManagerLine):
    """The line that makes a card current for what follows."""

    def codegen(self, code: IndentedBuffer) -> None:
        """Writes the line and indents what comes next; raises NotImplementedError for C++."""
        if getattr(V.graph, "cpp_wrapper", False):
            raise NotImplementedError(f"EnterMUSADeviceContextManagerLine.codegen: {NO_CPP_WRAPPER}")
        code.writeline(f"with {MUSADeviceOpOverrides().device_guard(self.device_idx)}:")
        code.do_indent()


class MUSATritonWrapperCodeGen(PythonWrapperCodegen):
    """Would write the Python code that launches Triton kernels; can't be made."""

    @refused(NO_TRITON)
    def __init__(self) -> None:
        """Takes the graph from Inductor's surroundings."""

    @refused(NO_TRITON)
    def write_header(self) -> None:
        """Would write the imports."""

    @refused(NO_TRITON)
    def make_allocation(  # type: ignore[override]
        self, name: Any, device: Any, dtype: Any, shape: Any, stride: Any, allocation_shape: Any = None
    ) -> Any:
        """Would write the allocation of a buffer."""

    @refused(NO_TRITON)
    def codegen_device_guard_enter(self, device_idx: int) -> None:  # type: ignore[override]
        """Would write the line that makes a card current."""

    @refused(NO_TRITON)
    def benchmark_compiled_module(self, output: Any) -> None:
        """Would write a benchmark of the code."""
