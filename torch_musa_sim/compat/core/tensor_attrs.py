"""What tensors have for musa, as functions of a tensor."""

from typing import Any

from torch import Tensor

from torch_musa_sim.musa.attributes import set_attributes as set_torch_attributes

__all__ = ["_is_musa", "_is_pinned", "_musa", "_pin_memory", "_to", "set_torch_attributes"]


def _is_musa(self: Tensor) -> bool:
    """Whether the tensor lies on a card."""
    return self.device.type == "musa"


def _musa(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Tensor.musa."""
    return self.musa(*args, **kwargs)  # type: ignore[attr-defined, no-any-return]


def _to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Tensor.to, where an int means a card."""
    return self.to(*args, **kwargs)


def _pin_memory(self: Tensor, device: Any = "musa") -> Tensor:
    """A copy in page-locked memory, or the tensor itself when it lies there."""
    return self.pin_memory(device)


def _is_pinned(self: Tensor, device: Any = "musa") -> bool:
    """Whether the tensor lies in page-locked memory."""
    return self.is_pinned(device)
