"""Shapes of the fused RMSNorm operators, for traces without values."""

import torch
from torch import Tensor

__all__ = ["fused_rmsnorm_backward", "fused_rmsnorm_forward"]


def fused_rmsnorm_forward(
    inp: Tensor, normalized_shape: list[int], eps: float, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Empty tensors like (the result, 1/rms in float32 with the normalised dimensions as 1)."""
    kept = inp.shape[: inp.dim() - len(normalized_shape)]
    return torch.empty_like(inp), inp.new_empty((*kept, *[1] * len(normalized_shape)), dtype=torch.float32)


def fused_rmsnorm_backward(
    grad_out: Tensor,
    invvar: Tensor,
    inp: Tensor,
    normalized_shape: list[int],
    eps: float,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Empty tensors like (the input's gradient, the weight's or None)."""
    return torch.empty_like(inp), None if weight is None else torch.empty_like(weight)
