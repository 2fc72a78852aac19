"""What modules have for musa."""

from typing import Any, TypeVar

from torch.nn import Module

from torch_musa_sim.musa.attributes import set_attributes as set_module_attributes

__all__ = ["T", "_musa", "set_module_attributes"]

T = TypeVar("T", bound=Module)


def _musa(self: T, device: Any = None) -> T:
    """Module.musa: moves parameters and buffers to a card (default: the current one)."""
    return self.musa(device)  # type: ignore[no-any-return, operator]
