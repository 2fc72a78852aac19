"""Faults on demand: what a program does when a card fails, tried without breaking one.

A fault is planned by one of the functions here, or by TORCH_MUSA_SIM_FAULTS, and happens once. A failed allocation is
torch.OutOfMemoryError and leaves everything usable. After any other fault the card is dead for this process, as on
hardware: every later operator, copy or wait on it raises torch.AcceleratorError, until `reset`. Other cards go on.
"""

from dataclasses import dataclass

import torch

from torch_musa_sim import _C
from torch_musa_sim.musa._utils import _get_device_index

__all__ = [
    "PlannedFault",
    "clear",
    "fail_allocation",
    "fail_copy",
    "fail_launch",
    "health",
    "lose_card",
    "memory_error",
    "planned",
    "reset",
]

_MOST_MS = 1e9  # eleven days
_KINDS = ("allocation", "segment", "launch", "copy", "lost card", "memory error")


@dataclass(frozen=True)
class PlannedFault:
    """A fault that hasn't happened.

    kind: "allocation", "segment", "launch", "copy", "lost card" or "memory error". device: index of the card, None for
    any. count: the fault is the count-th such call from now; 0 for a lost card and a memory error. after_ns: not before
    the host's virtual clock shows this.
    """

    kind: str
    device: int | None
    count: int
    after_ns: int


def _plan(kind: str, device: object, count: int, after_ms: float, address: int = 0, size: int = 0) -> None:
    index = -1 if device is None else _get_device_index(device, optional=True)
    _C._plan_fault(_KINDS.index(kind), index, count, round(after_ms * 1e6), address, size)


def _check_count(n: int) -> None:
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"n counts calls from now on: a whole number that begins at 1, got {n!r}")


def _from_now(after_ms: float) -> float:
    if not 0 <= after_ms <= _MOST_MS:
        raise ValueError(
            f"after_ms is virtual time from now on, neither negative nor above {_MOST_MS:.0f}, got {after_ms}"
        )
    return _C._host_clock_ns() / 1e6 + after_ms if after_ms else 0.0


def fail_allocation(n: int = 1, device: object = None) -> None:
    """The n-th request for card memory from now on, on `device` or (None) any card, raises torch.OutOfMemoryError.

    Tensors count whether their memory is fresh or cached. Retrying or freeing helps as it would on hardware.
    """
    _check_count(n)
    _plan("allocation", device, n, 0)


def fail_launch(n: int = 1, device: object = None) -> None:
    """The n-th kernel from now on fails and its card is dead: torch.AcceleratorError, "unspecified launch failure"."""
    _check_count(n)
    _plan("launch", device, n, 0)


def fail_copy(n: int = 1, device: object = None) -> None:
    """As `fail_launch` for the n-th copy between host and card or between cards; `device` is that of its stream."""
    _check_count(n)
    _plan("copy", device, n, 0)


def lose_card(device: object = None, after_ms: float = 0) -> None:
    """`device` (None: the current card) falls off the bus `after_ms` of virtual time from now.

    Whatever needs the card then raises torch.AcceleratorError.
    """
    _plan("lost card", _get_device_index(device, optional=True), 0, _from_now(after_ms))


def memory_error(device: object = None, tensor: torch.Tensor | None = None, after_ms: float = 0) -> None:
    """An uncorrectable memory error on `device` (None: the tensor's card, else the current one).

    tensor: the operator or copy that next touches its memory finds the error; the card reports it then or, as hardware
    does, with the next call. None: whatever runs next on the card finds it. after_ms: virtual time from now.
    Raises ValueError for a tensor that isn't on that card or has no memory.
    """
    if tensor is None:
        _plan("memory error", _get_device_index(device, optional=True), 0, _from_now(after_ms))
        return
    if tensor.device.type != "musa" or (
        device is not None and _get_device_index(device, optional=True) != tensor.device.index
    ):
        raise ValueError(
            f"the tensor is on {tensor.device}, a memory error of {device or 'a musa card'} can't lie in it"
        )
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        raise ValueError("the tensor has no memory")
    _plan("memory error", tensor.device.index, 0, _from_now(after_ms), storage.data_ptr(), storage.nbytes())


def planned() -> list[PlannedFault]:
    """The faults that are planned and haven't happened, in the order in which they were planned."""
    return [
        PlannedFault(_KINDS[kind], None if device < 0 else device, count, after)
        for kind, device, count, after in _C._planned_faults()
    ]


def clear() -> None:
    """Forgets what is planned. A card that is dead stays so: see `reset`."""
    _C._clear_faults()


def health(device: object = None) -> str:
    """ "ok", or the name of the error that the card is dead of, like "musaErrorLaunchFailure"."""
    return _C._card_health(_get_device_index(device, optional=True))


def reset(device: object = None) -> None:
    """Makes a dead card (None: the current one) usable, as a new process would find it.

    Tensors on it keep their memory, but what they hold can't be relied on: make them anew, from a checkpoint.
    """
    _C._reset_card(_get_device_index(device, optional=True))
