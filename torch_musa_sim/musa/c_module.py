"""The names of the real package's C++ module `torch_musa._MUSAC`, each for what serves it here.

Clients reach into it (torchada, for one); programs should use torch.musa, where every one of these has a public form.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from torch_musa_sim import _C
from torch_musa_sim.musa import comm
from torch_musa_sim.musa.architecture import get_arch_list
from torch_musa_sim.musa.attributes import _edit_device as _edit_device_musa
from torch_musa_sim.musa.attributes import register_musa_hook as _musa_register_device_hook
from torch_musa_sim.musa.backends.mudnn import version as _mudnn_version
from torch_musa_sim.musa.device import _exchange_device as _musa_exchangeDevice
from torch_musa_sim.musa.device import _get_device_properties, _MusaDeviceProperties
from torch_musa_sim.musa.device import _maybe_exchange_device as _musa_maybeExchangeDevice
from torch_musa_sim.musa.device import _sleep as _musa_sleep
from torch_musa_sim.musa.device import can_device_access_peer as _musa_canDeviceAccessPeer
from torch_musa_sim.musa.device import current_device as _musa_getDevice
from torch_musa_sim.musa.device import device_count as _musa_getDeviceCount
from torch_musa_sim.musa.device import set_device as _musa_setDevice
from torch_musa_sim.musa.device import synchronize as _musa_synchronize
from torch_musa_sim.musa.graphs import MUSAGraph as _MUSAGraph
from torch_musa_sim.musa.graphs import graph_pool_handle as _graph_pool_handle
from torch_musa_sim.musa.graphs import is_current_stream_capturing as _musa_isCurrentStreamCapturing
from torch_musa_sim.musa.initialization import _is_in_bad_fork as _musa_isInBadFork
from torch_musa_sim.musa.initialization import init as _musa_init
from torch_musa_sim.musa.memory import empty_cache as _musa_emptyCache
from torch_musa_sim.musa.memory import memory_stats_as_nested_dict as _musa_memoryStats
from torch_musa_sim.musa.memory import reset_accumulated_memory_stats as _musa_resetAccumulatedMemoryStats
from torch_musa_sim.musa.memory import reset_peak_memory_stats as _musa_resetPeakMemoryStats
from torch_musa_sim.musa.memory import set_per_process_memory_fraction as _set_fraction
from torch_musa_sim.musa.memory_allocators import MUSAPluggableAllocator as _PluggableAllocator
from torch_musa_sim.musa.memory_allocators import _get_current_allocator as _musa_getAllocator
from torch_musa_sim.musa.memory_allocators import (
    _set_allocator_settings as _musa_musaCachingAllocator_set_allocator_settings,
)
from torch_musa_sim.musa.memory_allocators import caching_allocator_delete as _musa_musaCachingAllocator_raw_delete
from torch_musa_sim.musa.memory_allocators import change_current_allocator as _musa_changeCurrentAllocator
from torch_musa_sim.musa.memory_allocators import get_allocator_backend as _musa_getAllocatorBackend
from torch_musa_sim.musa.memory_history import _musa_attach_out_of_memory_observer
from torch_musa_sim.musa.memory_history import _record_memory_history_impl as _musa_record_memory_history
from torch_musa_sim.musa.memory_history import _record_memory_history_legacy as _musa_record_memory_history_legacy
from torch_musa_sim.musa.memory_history import _snapshot as _musa_memorySnapshot
from torch_musa_sim.musa.memory_pools import MemPool as _MemPool
from torch_musa_sim.musa.memory_pools import MemPoolContext as _MemPoolContext
from torch_musa_sim.musa.no_meaning import current_blas_handle as _musa_getCurrentBlasHandle
from torch_musa_sim.musa.no_meaning import current_blaslt_handle as _musa_getCurrentBlasLtHandle
from torch_musa_sim.musa.streams import Event as _MusaEventBase
from torch_musa_sim.musa.streams import Stream as _MusaStreamBase


def _is_musa(self: torch.UntypedStorage) -> bool:
    """Whether a storage lies on a card."""
    return self.device.type == "musa"


def _musa(
    self: torch.UntypedStorage, device: Any = None, non_blocking: bool = False, **kwargs: Any
) -> torch.UntypedStorage:
    """The storage on a card: itself when it is there, else a copy."""
    return self.musa(device, non_blocking, **kwargs)  # type: ignore[attr-defined, no-any-return]


_musart = _C._musart
_storage_Use_Count = torch._C._storage_Use_Count
_has_Standard_Deleter = _C._storage_owns_block
_free_And_Remove_DeleterFn = _C._free_storage
_set_storage_access_error_msg = _C._forbid_tensor_storage

_musa_isHistoryEnabled = _C._is_history_enabled
_musa_beginAllocateToPool = _C._begin_allocate_to_pool
_musa_beginAllocateCurrentStreamToPool = _C._begin_allocate_current_stream_to_pool
_musa_endAllocateCurrentStreamToPool = _C._end_allocate_to_pool
_musa_releasePool = _C._release_pool
_musa_checkPoolLiveAllocations = _C._pool_holds_exactly

_broadcast_coalesced = comm.broadcast_coalesced


def _broadcast(tensor: torch.Tensor, devices_or_out: Any) -> Any:
    """torch.musa.comm.broadcast, or broadcast_out for a list of tensors."""
    if devices_or_out and isinstance(devices_or_out[0], torch.Tensor):
        return comm.broadcast(tensor, out=devices_or_out)
    return comm.broadcast(tensor, devices_or_out)


def _scatter(
    tensor: torch.Tensor,
    devices: Any,
    chunk_sizes: Any = None,
    dim: int = 0,
    streams: Any = None,
) -> Any:
    """torch.musa.comm.scatter."""
    return comm.scatter(tensor, devices, chunk_sizes, dim, streams)


def _gather(tensors: Any, dim: int, destination_index: int | None = None) -> torch.Tensor:
    """torch.musa.comm.gather; a destination of -1 is the CPU."""
    return comm.gather(tensors, dim, destination_index)  # type: ignore[no-any-return]


def _empty_strided_musa(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    """Uninitialised memory of the current card as a tensor."""
    return torch.empty_strided(size, stride, dtype=dtype, device="musa")


def _construct_MUSA_Tensor_From_Storage_And_Metadata(
    metadata: dict[str, Any], storage: torch.UntypedStorage
) -> torch.Tensor:
    """A tensor over `storage`. metadata: size, stride, storage_offset (elements), dtype and device."""
    empty = torch.empty(0, dtype=metadata["dtype"], device=metadata["device"])
    empty.set_(storage, metadata["storage_offset"], metadata["size"], metadata["stride"])
    return empty


def _tensors_data_ptrs_at_indices_equal(
    tensors: Sequence[Any], addresses: Sequence[int | None], indices: Iterable[int]
) -> bool:
    """Whether each of the tensors at the indices lies where it is said to; an address of None fits any."""
    return all(addresses[i] is None or tensors[i].data_ptr() == addresses[i] for i in indices)


def _musa_getArchFlags() -> str:
    """The architectures this build serves, separated by blanks."""
    return " ".join(get_arch_list())


def _musa_getCurrentStream(device: int) -> tuple[int, int, int]:
    """(stream id, card, device type) of the calling thread's stream on a card."""
    return _C._current_stream(device)


def _musa_getDefaultStream(device: int) -> tuple[int, int, int]:
    """(stream id, card, device type) of a card's default stream."""
    return _C._default_stream(device)


def _musa_getCurrentRawStream(device: int) -> int:
    """The runtime's handle of the calling thread's stream on a card."""
    stream_id, index, _ = _C._current_stream(device)
    return _C._stream_handle(stream_id, index)


def _musa_setStream(stream_id: int, device_index: int, device_type: int) -> None:
    """Makes a stream and its card current."""
    _C._set_stream(stream_id, device_index)


def _musa_setMemoryFraction(fraction: float, device: int) -> None:
    """torch.musa.set_per_process_memory_fraction."""
    _set_fraction(fraction, device)


def _musa_clearMublasWorkspaces() -> None:
    """Nothing: matrix products keep no workspace between calls here."""


class _MUSAPluggableAllocator(_PluggableAllocator):
    """An allocator of the program's own from two addresses: alloc and free (see MUSAPluggableAllocator)."""

    def __init__(self, alloc_fn: int, free_fn: int) -> None:
        self._allocator = _C._custom_allocator(alloc_fn, free_fn)

    def _refuse(self, what: str) -> None:
        raise NotImplementedError(
            f"an allocator's {what} function is never called by the simulated cards, which ask it only to allocate and "
            "to free; leave it out"
        )

    def set_init_fn(self, fn: int) -> None:
        """Refused, as all but alloc and free."""
        self._refuse("init")

    def set_reset_fn(self, fn: int) -> None:
        """Refused, as all but alloc and free."""
        self._refuse("reset")

    def set_memory_fraction_fn(self, fn: int) -> None:
        """Refused, as all but alloc and free."""
        self._refuse("memory fraction")

    def set_base_alloc_fn(self, fn: int) -> None:
        """Refused, as all but alloc and free."""
        self._refuse("base allocation")

    def set_record_stream_fn(self, fn: int) -> None:
        """Refused, as all but alloc and free."""
        self._refuse("record_stream")

    def set_begin_allocate_to_pool_fn(self, fn: int) -> None:
        """Refused, as all but alloc and free."""
        self._refuse("begin_allocate_to_pool")

    def set_end_allocate_to_pool_fn(self, fn: int) -> None:
        """Refused, as all but alloc and free."""
        self._refuse("end_allocate_to_pool")

    def set_release_pool_fn(self, fn: int) -> None:
        """Refused, as all but alloc and free."""
        self._refuse("release_pool")


def _musa_customAllocator(alloc_fn: int, free_fn: int) -> _MUSAPluggableAllocator:
    """An allocator from the addresses of two functions."""
    return _MUSAPluggableAllocator(alloc_fn, free_fn)


def _musa_get_pluggable_allocator() -> Any:
    """The allocator of the program's own that is in use; None for the caching one."""
    return _musa_getAllocator().allocator()


def _musa_register_unified_cpu_allocator() -> None:
    """From now on CPU tensors lie in page-locked memory (torch.musa.use_unified_cpu_allocator)."""
    _C._set_unified_host_memory(True)


def _musa_reset_unified_cpu_allocator() -> None:
    """Ends what _musa_register_unified_cpu_allocator began."""
    _C._set_unified_host_memory(False)


_musa_register_unified_allocator = _musa_register_unified_cpu_allocator


class _musa_MUSAAllocator_AllocatorState:
    """Which blocks of a pool were allocated at a moment: what graph trees go back to."""

    def __init__(self, device: int, mempool_id: tuple[int, int]) -> None:
        self.device = device
        self.mempool_id = mempool_id
        self.blocks = _C._pool_state(device, mempool_id)
        self.addresses = frozenset(address for address, _, _ in self.blocks)


def _musa_getCheckpointState(device: int, mempool_id: tuple[int, int]) -> _musa_MUSAAllocator_AllocatorState:
    """The allocated blocks of a pool on a card, for _musa_setCheckpointPoolState."""
    return _musa_MUSAAllocator_AllocatorState(device, mempool_id)


def _musa_setCheckpointPoolState(
    device: int,
    state: _musa_MUSAAllocator_AllocatorState,
    stale_storages: list[int],
    storages_to_add_deleters: list[int],
) -> None:
    """Takes a pool back to `state`. Storages are given as addresses of StorageImpl, as `_cdata`.

    The stale ones are freed; what was freed since is allocated at its old addresses, and owned from then on by those of
    storages_to_add_deleters that lie there.

    Raises RuntimeError when a block is allocated that wasn't, or when other memory lies where one was.
    """
    for storage in stale_storages:
        _C._free_storage(storage)
    _C._restore_pool_state(device, state.mempool_id, state.blocks, storages_to_add_deleters)
