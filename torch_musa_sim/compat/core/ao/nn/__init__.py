"""Modules that torch_musa adds to torch.ao.nn; submodules load when they are first named."""

import importlib
from typing import Any

_SUBMODULES = ("intrinsic",)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
