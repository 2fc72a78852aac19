"""Triton code for a card."""

from typing import Any

from torch._inductor.codegen.triton import TritonScheduling

from ..._refused import NO_TRITON, refused


class MUSATritonScheduling(TritonScheduling):
    """Would turn groups of nodes into Triton kernels; can't be made."""

    @refused(NO_TRITON)
    def __init__(self, scheduler: Any) -> None:
        """scheduler: Inductor's, whose nodes it would take."""
