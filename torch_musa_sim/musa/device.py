"""Cards: counting, choosing, describing, waiting."""

import builtins
from types import TracebackType
from typing import Any, Literal

import torch

from torch_musa_sim import _C
from torch_musa_sim._C import _MusaDeviceProperties
from torch_musa_sim.musa._utils import DeviceLike, _get_device_index
from torch_musa_sim.musa.initialization import _lazy_init


def is_available() -> bool:
    """True when at least one card is visible. Never raises and doesn't initialise the device."""
    return _C._device_count() > 0


def device_count() -> int:
    """Number of visible cards, 0 when the environment hides them all. Doesn't initialise the device."""
    return _C._device_count()


def current_device() -> int:
    """Index of the calling thread's card."""
    _lazy_init()
    return _C._current_device()


def set_device(device: DeviceLike) -> None:
    """Makes a card current for the calling thread; a negative index changes nothing, as on CUDA.

    Prefer the context manager `device`.
    """
    if not (isinstance(device, int) and device < 0):
        _C._set_device(_get_device_index(device))


def _exchange_device(device: int) -> int:
    """Makes a card current and returns the one before; a negative index changes nothing."""
    return _C._exchange_device(device if device < 0 else _get_device_index(device))


_maybe_exchange_device = _exchange_device


class device:
    """Context manager that makes a card current; None or a negative index changes nothing."""

    def __init__(self, device: Any) -> None:
        negative = isinstance(device, int) and device < 0
        self.idx = -1 if device is None or negative else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _C._exchange_device(self.idx)

    def __exit__(
        self,
        type: builtins.type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if self.idx >= 0:
            _C._exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that makes the card of a tensor or storage current; anything not on musa changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.device.type == "musa" else None)


class _DeviceGuard:
    """Context manager that makes the card of an index current; a negative index changes nothing."""

    def __init__(self, index: int) -> None:
        self.idx = index
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, type: Any, value: Any, traceback: Any) -> Literal[False]:
        self.idx = _maybe_exchange_device(self.prev_idx)
        return False


def get_device_properties(device: DeviceLike = None) -> _MusaDeviceProperties:
    """What the card's specification says: name, major, minor, total_memory (bytes), multi_processor_count, ..."""
    return _C._device_properties(_get_device_index(device, optional=True))


def get_device_name(device: DeviceLike = None) -> str:
    """The card's product name, such as "MTT S5000"."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """(major, minor) of the card's architecture, such as (3, 1)."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


_get_device_properties = get_device_properties


def _get_device(device: DeviceLike) -> torch.device:
    """`device` as a torch.device: an index is that of a card, a text may also name another device type."""
    if isinstance(device, (str, torch.device)):
        return torch.device(device)
    return torch.device("musa", _get_device_index(device, optional=True))


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """True when the two cards are linked, so that one can read the other's memory."""
    first, second = _get_device_index(device, optional=True), _get_device_index(peer_device)
    return first != second and _C._can_access_peer(first, second)


def synchronize(device: DeviceLike = None) -> None:
    """Waits for everything that was launched on a card: the host's virtual clock moves to the end of its streams."""
    _lazy_init()
    _C._synchronize(_get_device_index(device, optional=True))


def _sleep(cycles: int) -> None:
    """Keeps the current stream busy for that many clock cycles of the card (virtual time)."""
    _C._sleep(cycles)


def _get_generator(device: torch.device) -> torch.Generator:
    return _C._default_generator(_get_device_index(device, optional=True))
