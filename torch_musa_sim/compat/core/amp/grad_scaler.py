"""Gradient scaling for musa."""

from torch_musa_sim.musa.amp.grad_scaler import GradScaler

__all__ = ["GradScaler"]
