"""First use of the device: what it refuses, what was waiting for it, and the calls queued until then."""

import threading
import traceback
from collections.abc import Callable
from typing import Any

from torch_musa_sim import _C

_initialization_lock = threading.Lock()
_tls = threading.local()
_queued_calls: list[tuple[Callable[[], Any], list[str]]] = []


class DeferredMusaCallError(Exception):
    """A call that waited for the initialisation has failed; the text says where it was made."""


class _LazySeedTracker:
    """The last seed for the current card and the last for all cards, in the order in which they were given."""

    def __init__(self) -> None:
        self.manual_seed_all_cb: tuple[Callable[[], Any], list[str]] | None = None
        self.manual_seed_cb: tuple[Callable[[], Any], list[str]] | None = None
        self.call_order: list[tuple[Callable[[], Any], list[str]] | None] = []

    def queue_seed_all(self, cb: Callable[[], Any], traceback: list[str]) -> None:
        self.manual_seed_all_cb = (cb, traceback)
        self.call_order = [self.manual_seed_cb, self.manual_seed_all_cb]

    def queue_seed(self, cb: Callable[[], Any], traceback: list[str]) -> None:
        self.manual_seed_cb = (cb, traceback)
        self.call_order = [self.manual_seed_all_cb, self.manual_seed_cb]

    def get_calls(self) -> list[tuple[Callable[[], Any], list[str]] | None]:
        return self.call_order


_lazy_seed_tracker = _LazySeedTracker()


def is_initialized() -> bool:
    """True when this process has used the device (and isn't a forked child of one that had)."""
    return _C._is_initialized() and not _C._is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    """True in a child that was forked after the parent used the device: it can't use it, and must be spawned."""
    return _C._is_in_bad_fork()


def init() -> None:
    """Initialises the device, which otherwise happens at first use.

    Raises RuntimeError for a bad environment value, or in a child forked after the parent used the device.
    """
    _lazy_init()


def _lazy_init() -> None:
    """As `init`; then runs the calls that `_lazy_call` queued. torch calls it before the first musa tensor is made."""
    _C._init()
    if not (_queued_calls or _lazy_seed_tracker.call_order) or hasattr(_tls, "is_initializing"):
        return
    with _initialization_lock:
        calls = [*_queued_calls, *(call for call in _lazy_seed_tracker.get_calls() if call)]
        _queued_calls.clear()
        _lazy_seed_tracker.__init__()  # type: ignore[misc]
        _tls.is_initializing = True  # the calls may come here again
        try:
            for call, made_at in calls:
                _run_queued(call, made_at)
        finally:
            del _tls.is_initializing


def _run_queued(call: Callable[[], Any], made_at: list[str]) -> None:
    try:
        call()
    except Exception as error:
        raise DeferredMusaCallError(
            f"MUSA call failed lazily at initialization with error: {error}\n\n"
            f"MUSA call was originally invoked at:\n\n{''.join(made_at)}"
        ) from error


def _lazy_call(callable: Callable[[], Any], **kwargs: Any) -> None:
    """Calls `callable` now when the device is initialised, else when it will be.

    seed=True or seed_all=True mark a call that seeds: of each kind only the last one is kept.
    """
    if is_initialized():
        _lazy_init()  # what was queued comes first
        callable()
        return
    made_at = traceback.format_stack()
    with _initialization_lock:
        if kwargs.get("seed_all", False):
            _lazy_seed_tracker.queue_seed_all(callable, made_at)
        elif kwargs.get("seed", False):
            _lazy_seed_tracker.queue_seed(callable, made_at)
        else:
            _queued_calls.append((callable, made_at))
