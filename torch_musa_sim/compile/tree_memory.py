"""What torch's trees of graphs ask of the allocator, under the names that they use."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch_musa_sim import _C, musa
from torch_musa_sim.musa.c_module import (
    _construct_MUSA_Tensor_From_Storage_And_Metadata,
    _free_And_Remove_DeleterFn,
    _has_Standard_Deleter,
    _set_storage_access_error_msg,
    _tensors_data_ptrs_at_indices_equal,
)
from torch_musa_sim.musa.c_module import _musa_checkPoolLiveAllocations as _checkPoolLiveAllocations
from torch_musa_sim.musa.c_module import _musa_clearMublasWorkspaces as _clearMublasWorkspaces
from torch_musa_sim.musa.c_module import _musa_getCheckpointState as _getCheckpointState
from torch_musa_sim.musa.c_module import _musa_isHistoryEnabled as _isHistoryEnabled
from torch_musa_sim.musa.c_module import _musa_MUSAAllocator_AllocatorState as AllocatorState
from torch_musa_sim.musa.c_module import _musa_releasePool as _releasePool

_beginAllocateCurrentThreadToPool = _C._begin_allocate_current_thread_to_pool
_endAllocateToPool = _C._end_allocate_to_pool
_musaCachingAllocator_is_enabled = _C._is_caching_enabled
_set_storage_data_ptr_access_error_msg = _C._forbid_storage_data


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


def _setCheckpointPoolState(device: int, state: AllocatorState, stale: Sequence[int], live: Sequence[int]) -> None:
    """Makes a pool have allocated what the state says; the live storages own what lies where they do."""
    for storage in stale:
        _C._free_storage(storage)
    _unowned.update(_C._restore_pool_state(device, state.mempool_id, state.blocks, list(live)))


def _musaCachingAllocator_raw_delete(address: int) -> None:
    """Frees a block that nobody owns; whoever owns it frees it himself."""
    if address in _unowned:
        _unowned.discard(address)
        _C._free_pool_block(address)


_empties_cache = True


def _get_conv_benchmark_empty_cache() -> bool:
    return _empties_cache


def _set_conv_benchmark_empty_cache(empty: bool) -> None:
    """Kept for who asks: convolutions try no algorithms here, so that no cache is emptied between two of them."""
    global _empties_cache
    _empties_cache = empty
