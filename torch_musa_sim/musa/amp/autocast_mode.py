"""`torch.autocast` for musa, and the decorators of custom autograd functions."""

import functools
from typing import Any

import torch

custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="musa")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="musa")


class autocast(torch.amp.autocast_mode.autocast):
    """`torch.autocast("musa", ...)`."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__("musa", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """`value` with every floating musa tensor in it (but float64 ones) converted to `dtype`."""
    return torch.amp.autocast_mode._cast(value, "musa", dtype)
