"""Legacy storage classes."""

from typing import Any

from torch.storage import _LegacyStorage

from torch_musa_sim.musa.types import LEGACY_TYPES

__all__ = ["_MusaLegacyStorage", *(name for name in LEGACY_TYPES if name.endswith("Storage"))]

# What the classes have in common: `from_buffer` refuses, as memory of the host can't become memory of a card.
_MusaLegacyStorage = _LegacyStorage


def __getattr__(name: str) -> Any:
    if name.endswith("Storage") and name in LEGACY_TYPES:
        return LEGACY_TYPES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
