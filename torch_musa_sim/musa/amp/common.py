"""Whether mixed precision is there, and in which dtypes."""

import torch

from torch_musa_sim.musa.device import is_available


def amp_definitely_not_available() -> bool:
    """True when no card is visible, so that autocast and GradScaler would have nothing to do."""
    return not is_available()


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What autocast may compute in."""
    return [torch.float16, torch.bfloat16]
