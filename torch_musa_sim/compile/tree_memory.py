"""What torch's trees of graphs ask of the allocator, under the names that they use."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from torch_musa_sim import _C, musa


class AllocatorState:
    """What was allocated in a pool of memory at one moment."""

    def __init__(self, device: int, pool: tuple[int, int]) -> None:
        self.pool = pool
        self.blocks = _C._pool_state(device, pool)


# Blocks that are allocated for results of a replay and that no storage owns.
_unowned: set[int] = set()


@contextmanager
def memory_kept_as_it_is() -> Iterator[None]:
    """Captures inside don't fill the memory that they hand out.

    The inputs of a recording are freed while it is recorded, and their values are read by its first run.
    """
    _C._fill_captured_memory(False)
    try:
        yield
    finally:
        _C._fill_captured_memory(True)


def get_raw_stream(device_index: int) -> int:
    """The runtime's handle of a card's current stream."""
    return musa.current_stream(device_index).musa_stream


def _beginAllocateCurrentThreadToPool(device: int, pool: tuple[int, int]) -> None:
    _C._begin_allocate_current_thread_to_pool(device, pool)


def _endAllocateToPool(device: int, pool: tuple[int, int]) -> None:
    _C._end_allocate_to_pool(device, pool)


def _releasePool(device: int, pool: tuple[int, int]) -> None:
    _C._release_pool(device, pool)


def _checkPoolLiveAllocations(device: int, pool: tuple[int, int], addresses: set[int]) -> bool:
    return _C._pool_holds_exactly(device, pool, addresses)


def _getCheckpointState(device: int, pool: tuple[int, int]) -> AllocatorState:
    return AllocatorState(device, pool)


def _setCheckpointPoolState(device: int, state: AllocatorState, stale: Sequence[int], live: Sequence[int]) -> None:
    """Makes a pool have allocated what the state says; the live storages own what lies where they do."""
    for storage in stale:
        _C._free_storage(storage)
    _unowned.update(_C._restore_pool_state(device, state.pool, state.blocks, list(live)))


def _musaCachingAllocator_raw_delete(address: int) -> None:
    """Frees a block that nobody owns; whoever owns it frees it himself."""
    if address in _unowned:
        _unowned.discard(address)
        _C._free_pool_block(address)


def _musaCachingAllocator_is_enabled() -> bool:
    return _C._is_caching_enabled()


def _has_Standard_Deleter(storage: int) -> bool:
    return _C._storage_owns_block(storage)


def _free_And_Remove_DeleterFn(storage: int) -> None:
    _C._free_storage(storage)


def _set_storage_access_error_msg(tensor: torch.Tensor, message: str) -> None:
    _C._forbid_tensor_storage(tensor, message)


def _set_storage_data_ptr_access_error_msg(storage: int, message: str) -> None:
    _C._forbid_storage_data(storage, message)


def _construct_MUSA_Tensor_From_Storage_And_Metadata(
    metadata: dict[str, Any], storage: torch.UntypedStorage
) -> torch.Tensor:
    made = torch.empty(0, dtype=metadata["dtype"], device=metadata["device"])
    return made.set_(storage, metadata["storage_offset"], metadata["size"], metadata["stride"])  # type: ignore[call-overload, no-any-return]


def _tensors_data_ptrs_at_indices_equal(
    tensors: Sequence[Any], addresses: Sequence[int | None], indices: Iterable[int]
) -> bool:
    """Whether each of the tensors at the indices lies where it is said to; an address of None fits any."""
    return all(addresses[i] is None or tensors[i].data_ptr() == addresses[i] for i in indices)


def _isHistoryEnabled() -> bool:
    return _C._is_history_enabled()


def _clearMublasWorkspaces() -> None:
    """Nothing: products have no workspaces."""


_empties_cache = True


def _get_conv_benchmark_empty_cache() -> bool:
    return _empties_cache


def _set_conv_benchmark_empty_cache(empty: bool) -> None:
    """Kept for who asks: convolutions try no algorithms here, so that no cache is emptied between two of them."""
    global _empties_cache
    _empties_cache = empty
