"""Automatic mixed precision under CUDA's names."""

import functools

import torch

custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="musa")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="musa")


class autocast(torch.amp.autocast_mode.autocast):
    """`torch.autocast("musa", ...)`."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__("musa", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler("musa", ...)`."""

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("musa", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What autocast may compute in."""
    return [torch.float16, torch.bfloat16]
