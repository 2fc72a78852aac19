"""Cards."""

from torch_musa_sim.musa.architecture import (
    _check_bf16_tensor_supported,
    get_arch_list,
    is_bf16_supported,
    is_tf32_supported,
)
from torch_musa_sim.musa.attributes import register_musa_hook
from torch_musa_sim.musa.device import (
    _DeviceGuard,
    _exchange_device,
    _maybe_exchange_device,
    _MusaDeviceProperties,
    can_device_access_peer,
    current_device,
    device_count,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_available,
    set_device,
    synchronize,
)
from torch_musa_sim.musa.device import device as Device
from torch_musa_sim.musa.device import device_of as DeviceOf

__all__ = [
    "Device",
    "DeviceOf",
    "_DeviceGuard",
    "_MusaDeviceProperties",
    "_check_bf16_tensor_supported",
    "_exchange_device",
    "_maybe_exchange_device",
    "can_device_access_peer",
    "current_device",
    "device_count",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "is_available",
    "is_bf16_supported",
    "is_tf32_supported",
    "register_musa_hook",
    "set_device",
    "synchronize",
]
