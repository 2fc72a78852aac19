"""What the tests of compiled code share."""

from typing import Any

import torch
from torch.utils._pytree import tree_map

MUSA = torch.device("musa:0")


def on_card(values: Any, device: str | torch.device = MUSA) -> Any:
    """Copies of all tensors in `values` on a card, leaves that keep requires_grad."""

    def move(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().clone().to(device).requires_grad_(value.requires_grad)

    return tree_map(move, values)


def on_host(values: Any) -> Any:
    return tree_map(lambda value: value.cpu() if isinstance(value, torch.Tensor) else value, values)


def assert_close(actual: Any, expected: Any, **tolerance: float) -> None:
    torch.testing.assert_close(on_host(actual), on_host(expected), **tolerance)


def regions() -> dict[str, int]:
    """Calls of each compiled region since the last reset, by name."""
    return {op.name: op.calls for op in torch.musa.op_statistics() if op.name.startswith("inductor::")}


def copies() -> int:
    """Results that had to be moved from the host to a card."""
    return sum(op.copies for op in torch.musa.op_statistics())
