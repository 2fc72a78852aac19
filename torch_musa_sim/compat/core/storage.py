"""What storages have for musa, as functions of a storage."""

from torch_musa_sim.musa.attributes import _edit_device
from torch_musa_sim.musa.attributes import set_attributes as set_storage_attributes
from torch_musa_sim.musa.c_module import _is_musa, _musa

__all__ = ["_edit_device", "_is_musa", "_musa", "set_storage_attributes"]
