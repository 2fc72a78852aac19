"""Optimizers whose step is one operator: FusedAdam, FusedAdamW, FusedLAMB."""

import torch

from .fused_adam import FusedAdam
from .fused_adamw import FusedAdamW
from .fused_lamb import FusedLAMB

__all__ = ["FusedAdam", "FusedAdamW", "FusedLAMB"]

__fused_ops = [
    torch.ops.musa._fused_adam_.default,
    torch.ops.musa._fused_adam_.tensor_lr,
    torch.ops.musa._fused_adamw_.default,
    torch.ops.musa._fused_adamw_.tensor_lr,
]
