"""The package `torch_musa`, which accelerate, transformers and others look for: the contents of `torch.musa`."""

import sys
from typing import Any

from torch_musa_sim import musa
from torch_musa_sim.musa import *  # noqa: F403

# The torch that the surface follows; clients compare it to decide which shims they need.
__version__ = "2.13.0"

for _name in ("amp", "memory", "random", "streams"):
    sys.modules[f"{__name__}.{_name}"] = getattr(musa, _name)


def __getattr__(name: str) -> Any:
    try:
        return getattr(musa, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
