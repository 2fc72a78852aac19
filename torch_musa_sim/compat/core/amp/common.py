"""Whether autocast is there and on."""

from typing import Any

import torch

from torch_musa_sim.musa.amp.common import amp_definitely_not_available, get_amp_supported_dtype
from torch_musa_sim.musa.attributes import set_attributes as _hook_autocast_common

__all__ = [
    "_hook_autocast_common",
    "_musa_device",
    "_musa_is_autocast_enabled",
    "_musa_set_autocast_enabled",
    "_torch_is_autocast_enabled",
    "_torch_set_autocast_enabled",
    "amp_definitely_not_available",
    "get_amp_supported_dtype",
]

_musa_device = torch._C._get_privateuse1_backend_name()
_torch_is_autocast_enabled = torch._C.is_autocast_enabled
_torch_set_autocast_enabled = torch._C.set_autocast_enabled


def _musa_is_autocast_enabled(*args: Any, **kwargs: Any) -> bool:
    """Whether autocast is on for a device type; without arguments: for musa."""
    return torch.is_autocast_enabled(*args, **kwargs) if args or kwargs else torch.is_autocast_enabled(_musa_device)


def _musa_set_autocast_enabled(*args: Any, **kwargs: Any) -> None:
    """Switches autocast for a device type; with the switch alone: for musa."""
    if len(args) == 1 and not kwargs:
        torch.set_autocast_enabled(_musa_device, args[0])
    else:
        torch.set_autocast_enabled(*args, **kwargs)
