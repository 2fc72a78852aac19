"""Fused modules that torch_musa adds to torch.ao.nn.intrinsic; submodules load when they are first named."""

import importlib
from typing import Any

from torch_musa_sim.ao.fused import ConvAddSiLU2d, ConvBnSiLU2d, ConvSiLU2d

__all__ = ["ConvAddSiLU2d", "ConvBnSiLU2d", "ConvSiLU2d"]

_SUBMODULES = ("modules", "qat", "quantized")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
