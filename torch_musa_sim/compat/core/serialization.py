"""torch.save and torch.load of storages on musa."""

from torch_musa_sim.musa.serialization import (
    _PRIORITY as _REGISTRATION_KEY,
)
from torch_musa_sim.musa.serialization import (
    _cuda_deserialize,
    _musa_deserialize,
    _musa_tag,
    _validate_musa_device,
    register_deserialization,
)

__all__ = [
    "_REGISTRATION_KEY",
    "_cuda_deserialize",
    "_musa_deserialize",
    "_musa_tag",
    "_validate_musa_device",
    "register_deserialization",
]
