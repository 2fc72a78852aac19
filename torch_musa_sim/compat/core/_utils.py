"""Reading of device arguments."""

from typing import Any

from torch_musa_sim.musa._utils import DeviceLike as DeviceUnion
from torch_musa_sim.musa._utils import _get_device_index as _get_musa_device_index
from torch_musa_sim.musa.architecture import _get_musa_arch

__all__ = ["DeviceUnion", "_dummy_type", "_get_musa_arch", "_get_musa_device_index"]


def _dummy_type(name: str) -> type:
    """A class that can't be made: for a name that a build of torch lacks. Using it raises RuntimeError."""

    def refuse(self: Any, *arguments: Any, **keywords: Any) -> None:
        raise RuntimeError(f"{name} isn't available in this build of torch")

    return type(name, (), {"__init__": refuse})
