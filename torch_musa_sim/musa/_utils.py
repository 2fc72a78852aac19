"""How every function of `torch.musa` reads its device argument."""

from typing import Any, TypeAlias

import torch

from torch_musa_sim import _C

DeviceLike: TypeAlias = torch.device | str | int | None


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Index of the card that `device` names.

    device: an index, "musa", "musa:1", a torch.device, or None. Without an index it means the current card, which is
    accepted only when `optional`. With `allow_cpu` the cpu is accepted and gives -1.

    Raises ValueError for another device type or a missing index, RuntimeError for an index out of range, TypeError for
    anything else.
    """
    if isinstance(device, bool):
        raise TypeError(f"expected a musa device or its index, but got {device!r}")
    if isinstance(device, int):
        return _check_range(device)
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != "musa":
            raise ValueError(f"Expected a musa device, but got: {device}")
        if device.index is not None:
            return _check_range(device.index)
    elif device is not None:
        raise TypeError(f"expected a musa device or its index, but got {device!r}")
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
    return _C._current_device()


def _check_range(index: int) -> int:
    count = _C._device_count_checked()
    if 0 <= index < count:
        return index
    if count == 0:
        raise RuntimeError("No musa card is visible (see MUSA_VISIBLE_DEVICES and TORCH_MUSA_SIM_CARDS)")
    raise RuntimeError(f"invalid device ordinal: musa:{index} doesn't exist, the visible cards are 0 .. {count - 1}")
