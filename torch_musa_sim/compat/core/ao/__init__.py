"""What torch_musa adds to torch.ao; submodules load when they are first named."""

import importlib
from typing import Any

_SUBMODULES = ("nn", "register_helper")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
