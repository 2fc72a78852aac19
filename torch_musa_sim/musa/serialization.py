"""torch.load of a file that was saved on CUDA."""

from typing import Any

import torch

_PRIORITY = 19  # before CUDA's own entry (20), which in a torch without CUDA only says to load on the cpu
_registered = False


def _cuda_deserialize(_: Any, location: str) -> Any:
    """Refuses storages of CUDA in a torch without CUDA, naming what to do; leaves everything else to torch."""
    if not (isinstance(location, str) and location.startswith("cuda")) or torch.cuda.is_available():
        return None
    raise RuntimeError(
        f"Attempting to deserialize object on a CUDA device ({location!r}) but torch.cuda.is_available() is False. Use "
        'torch.load with map_location="musa" to put it on a musa card, or with map_location="cpu".'
    )


def _musa_tag(obj: Any) -> str | None:
    """The location that torch.save writes for a storage on musa, such as "musa:0"; None for any other."""
    return str(obj.device) if obj.device.type == "musa" else None


def _validate_musa_device(location: str) -> int:
    """The card that a location names. Raises RuntimeError when this process doesn't see it."""
    device = torch.device(location)
    if device.type != "musa":
        raise ValueError(f"Expected the location of a musa storage, but got {location!r}")
    index = torch.accelerator.current_device_index() if device.index is None else device.index
    count = torch.accelerator.device_count()
    if index >= count:
        raise RuntimeError(
            f"Attempting to deserialize object on musa:{index}, but the visible cards are 0 .. {count - 1}. Use "
            "torch.load with map_location to put it on another device."
        )
    return index


def _musa_deserialize(obj: Any, location: str) -> Any:
    """A storage moved to the card that a location names; None for a location of another device."""
    if not location.startswith("musa"):
        return None
    return obj.to(device=torch.device("musa", _validate_musa_device(location)))


def register_deserialization() -> None:
    """Adds the entry for CUDA's files; torch has one for musa. A second call does nothing."""
    global _registered
    if not _registered:
        torch.serialization.register_package(_PRIORITY, lambda obj: None, _cuda_deserialize)
        _registered = True
