"""The caller behind `multi_tensor_applier`."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from torch_musa_sim.musa import is_available


class MultiTensorApply:
    """Calls a function of `torch_musa._ext` with a fixed chunk size (elements a block of the real kernel takes)."""

    available = True
    warned = False

    def __init__(self, chunk_size: int) -> None:
        if chunk_size <= 0:
            raise ValueError(f"chunk_size must be positive, but got {chunk_size}")
        self.chunk_size = chunk_size

    def check_avail(self) -> None:
        """Raises RuntimeError when no card is visible, where the functions' tensors could not be."""
        if not is_available():
            raise RuntimeError("multi_tensor_applier needs a musa card, and none is visible (see MUSA_VISIBLE_DEVICES)")

    def __call__(
        self, op: Callable[..., Any], noop_flag_buffer: Tensor, tensor_lists: list[list[Tensor]], *args: Any
    ) -> Any:
        self.check_avail()
        return op(self.chunk_size, noop_flag_buffer, tensor_lists, *args)
