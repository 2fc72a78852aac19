"""A node of Inductor's graph that a kernel template computes."""

from collections.abc import Callable, Sequence
from typing import Any

from torch._inductor import ir
from torch._inductor.ir import IRNode, Layout, TemplateBuffer


class MUSATemplateBuffer(TemplateBuffer):
    """The result of a template that needs `workspace_size` bytes of scratch memory.

    As in torch's node for CUTLASS; no template for musa exists here that would make one.
    """

    def __init__(
        self,
        layout: Layout,
        inputs: Sequence[IRNode],
        make_kernel_render: Callable[..., Any] | None,
        workspace_size: int | None,
        template: Any,
    ) -> None:
        super().__init__(layout, inputs, make_kernel_render)
        self.workspace_size = workspace_size
        self.template = template

    def get_workspace_size(self) -> int:
        """Bytes of scratch memory, 0 when the template needs none."""
        return self.workspace_size or 0


def _apply_ir_patch() -> None:
    """Makes the class known as `torch._inductor.ir.MUSATemplateBuffer`."""
    ir.MUSATemplateBuffer = MUSATemplateBuffer  # type: ignore[attr-defined]
