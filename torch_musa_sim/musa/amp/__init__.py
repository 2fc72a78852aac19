"""Automatic mixed precision under CUDA's names."""

from torch_musa_sim.musa.amp import autocast_mode, common, grad_scaler
from torch_musa_sim.musa.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from torch_musa_sim.musa.amp.common import amp_definitely_not_available, get_amp_supported_dtype
from torch_musa_sim.musa.amp.grad_scaler import GradScaler

__all__ = [
    "GradScaler",
    "amp_definitely_not_available",
    "autocast",
    "autocast_mode",
    "common",
    "custom_bwd",
    "custom_fwd",
    "get_amp_supported_dtype",
    "grad_scaler",
]
