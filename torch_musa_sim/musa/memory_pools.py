"""Private memory pools: memory kept apart from the default pool of a card, and what is allocated from it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch_musa_sim import _C
from torch_musa_sim.musa._utils import DeviceLike, _get_device_index
from torch_musa_sim.musa.memory_allocators import _MUSAAllocator
from torch_musa_sim.musa.memory_history import memory_snapshot


class MemPool(_C._MemPool):
    """Memory that serves only what is allocated under `use_mem_pool(pool)` or captured with `pool=pool.id`.

    allocator: where segments come from (`MUSAPluggableAllocator(...)` or its `.allocator()`; default: the card).
    `use_on_oom` lets other requests take free blocks of the pool before they fail for lack of memory; `no_split` gives
    each request a whole segment. When the object goes, so does its memory that no tensor uses; memory of living
    tensors follows with the first `empty_cache` after they died.
    """

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        if isinstance(allocator, _MUSAAllocator):
            allocator = allocator.allocator()
        super().__init__(allocator, use_on_oom, no_split)
        self._allocator = allocator

    @property
    def id(self) -> tuple[int, int]:
        """(0, n), different for every pool of the process."""
        return super().id

    @property
    def allocator(self) -> Any:
        """The allocator given to the constructor."""
        return self._allocator

    def use_count(self) -> int:
        """How many hold the pool: this object, each `use_mem_pool` that is open, each graph captured into it."""
        return super().use_count()

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """The pool's segments, as `memory_snapshot` lists them."""
        return memory_snapshot(self.id, include_traces=include_traces)


_active = threading.local()


class MemPoolContext:
    """Makes `pool` the calling thread's `active_pool()` while the object lives; allocations stay where they go."""

    def __init__(self, pool: MemPool | None) -> None:
        self._entry = [pool]
        _stack().append(self._entry)

    @staticmethod
    def active_pool() -> MemPool | None:
        """The pool of the youngest living context of this thread, also of `use_mem_pool`; None without one."""
        stack = _stack()
        return stack[-1][0] if stack else None

    def close(self) -> None:
        """Ends the context before the object dies."""
        stack = _stack()
        stack[:] = [entry for entry in stack if entry is not self._entry]

    def __del__(self) -> None:
        self.close()


def _stack() -> list[list[MemPool | None]]:
    if not hasattr(_active, "stack"):
        _active.stack = []
    stack: list[list[MemPool | None]] = _active.stack
    return stack


@contextmanager
def use_mem_pool(pool: MemPool, device: DeviceLike = None) -> Iterator[None]:
    """Sends what the calling thread allocates on `device` (default: the current card) to `pool`.

    Other threads, those that run a backward pass among them, allocate as before.
    """
    index = _get_device_index(device, optional=True)
    _C._begin_allocate_current_thread_to_pool(index, pool.id)
    context = MemPoolContext(pool)
    try:
        yield
    finally:
        context.close()
        _C._end_allocate_to_pool(index, pool.id)
        _C._release_pool(index, pool.id)


def graph_pool_handle() -> tuple[int, int]:
    """A new pool id that several graphs may capture into: `torch.musa.graph(g, pool=handle)`."""
    return _C._graph_pool_handle()
