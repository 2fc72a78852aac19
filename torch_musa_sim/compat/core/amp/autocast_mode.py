"""autocast for musa."""

from torch_musa_sim.musa.amp.autocast_mode import _cast, autocast, custom_bwd, custom_fwd

__all__ = ["_cast", "autocast", "custom_bwd", "custom_fwd"]
