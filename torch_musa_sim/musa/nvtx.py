"""Ranges and marks under the names of torch.cuda.nvtx: whatever profiler is on shows them as `record_function` does."""

import contextlib
import itertools
import threading
from collections.abc import Iterator

import torch
from torch.autograd.profiler import record_function

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_thread = threading.local()
_ids = itertools.count(1)
_open: dict[int, torch.Tensor] = {}


def _stack() -> list[record_function]:
    if not hasattr(_thread, "stack"):
        _thread.stack = []
    stack: list[record_function] = _thread.stack
    return stack


def range_push(msg: str) -> int:
    """Opens a range named `msg` inside those that the calling thread has open; returns its depth, from 0."""
    opened = record_function(msg)
    opened.__enter__()
    _stack().append(opened)
    return len(_stack()) - 1


def range_pop() -> int:
    """Closes the calling thread's innermost range; returns its depth, or -2 when none is open, as NVTX does."""
    if not _stack():
        return -2
    _stack().pop().__exit__(None, None, None)
    return len(_stack())


def range_start(msg: str) -> int:
    """Opens a range that any thread may close; returns the id to give to `range_end`."""
    handle = next(_ids)
    _open[handle] = torch.ops.profiler._record_function_enter(msg)
    return handle


def range_end(range_id: int) -> None:
    """Closes the range of that id. Raises ValueError for an id that isn't open."""
    opened = _open.pop(range_id, None)
    if opened is None:
        raise ValueError(f"no range {range_id} is open: range_start returns the id, and each can be ended once")
    torch.ops.profiler._record_function_exit(opened)


def mark(msg: str) -> None:
    """Notes a moment: a range without a duration."""
    with record_function(msg):
        pass


@contextlib.contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Iterator[None]:
    """A range around a block, or with `@range(...)` around each call of a function.

    Further arguments are put into `msg` by `str.format`.
    """
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
