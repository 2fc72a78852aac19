"""What Dynamo asks of a device: the interface behind streams, events and properties inside compiled functions."""

from types import ModuleType
from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface, caching_worker_current_devices

from torch_musa_sim import musa


def _index(device: torch.types.Device) -> int:
    return musa.current_device() if device is None else musa._utils._get_device_index(device, optional=True)


class MusaInterface(DeviceInterface):
    """`torch.musa` under the names that Dynamo and Inductor use."""

    device = musa.device  # type: ignore[assignment]
    Event = musa.Event  # type: ignore[assignment]
    Stream = musa.Stream  # type: ignore[assignment]

    class Worker:
        """The device as a compile worker sees it: a worker is told its card instead of asking the device."""

        @staticmethod
        def set_device(device: int) -> None:
            caching_worker_current_devices["musa"] = device

        @staticmethod
        def current_device() -> int:
            known = caching_worker_current_devices.get("musa")
            return musa.current_device() if known is None else known

        @staticmethod
        def get_device_properties(device: torch.types.Device = None) -> Any:
            return musa.get_device_properties(MusaInterface.Worker.current_device() if device is None else device)

    current_device = staticmethod(musa.current_device)
    set_device = staticmethod(musa.set_device)
    exchange_device = staticmethod(musa._exchange_device)  # type: ignore[assignment]
    maybe_exchange_device = staticmethod(musa._maybe_exchange_device)  # type: ignore[assignment]
    device_count = staticmethod(musa.device_count)
    is_available = staticmethod(musa.is_available)
    stream = staticmethod(musa.stream)
    current_stream = staticmethod(musa.current_stream)
    set_stream = staticmethod(musa.set_stream)
    _set_stream_by_id = staticmethod(musa._set_stream_by_id)
    synchronize = staticmethod(musa.synchronize)
    get_device_properties = staticmethod(musa.get_device_properties)  # type: ignore[assignment]
    memory_allocated = staticmethod(musa.memory_allocated)

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        """The runtime's handle of the card's current stream."""
        return musa.current_stream(device_idx).musa_stream

    @staticmethod
    def get_compute_capability(device: torch.types.Device = None) -> int:
        """Architecture as one number: 31 for mp_31."""
        major, minor = musa.get_device_capability(_index(device))
        return major * 10 + minor

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return musa.is_bf16_supported(including_emulation)


def register(module: ModuleType) -> None:
    """Adds the interface for "musa" and for each card to Dynamo's registry, `torch._dynamo.device_interface`."""
    module.register_interface_for_device("musa", MusaInterface)
    for index in range(musa.device_count()):
        module.register_interface_for_device(f"musa:{index}", MusaInterface)
