"""The names of the real package's C++ module, see torch_musa_sim.musa.c_module."""

from typing import Any

from torch_musa_sim.musa import c_module


def __getattr__(name: str) -> Any:
    try:
        return getattr(c_module, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
