"""Initialisation, calls that wait for it, and the runtime's errors."""

from typing import Any

import torch

from torch_musa_sim.musa import initialization
from torch_musa_sim.musa.device import device
from torch_musa_sim.musa.initialization import (
    DeferredMusaCallError,
    _initialization_lock,
    _is_in_bad_fork,
    _lazy_call,
    _lazy_init,
    _lazy_seed_tracker,
    _LazySeedTracker,
    _queued_calls,
    _tls,
    init,
    is_initialized,
)
from torch_musa_sim.musa.runtime import MusaError, check_error, musart

__all__ = [
    "DeferredMusaCallError",
    "MusaError",
    "_LazySeedTracker",
    "_MusaBase",
    "_initialization_lock",
    "_is_in_bad_fork",
    "_lazy_call",
    "_lazy_init",
    "_lazy_new",
    "_lazy_seed_tracker",
    "_queued_calls",
    "_tls",
    "check_error",
    "device",
    "init",
    "is_initialized",
    "musart",
]


def __getattr__(name: str) -> Any:
    if name == "_initialized":
        return initialization.is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _lazy_new(cls: type, *args: Any, **kwargs: Any) -> Any:
    """Makes an object of `cls` after the device was initialised."""
    _lazy_init()
    return super(_MusaBase, cls).__new__(cls, *args, **kwargs)  # type: ignore[misc]


class _MusaBase:
    """Base of classes whose objects live on a card."""

    is_musa = True
    is_sparse = False
    device: torch.device

    def type(self, *args: Any, **kwargs: Any) -> Any:
        """The next class's `type`, with the object's card current."""
        with device(self.device):
            return super().type(*args, **kwargs)  # type: ignore[misc]

    __new__ = _lazy_new
