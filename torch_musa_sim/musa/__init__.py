"""The module behind `torch.musa`: torch.cuda's surface for the simulated cards, one file per subject."""

from typing import Any

from torch._C import OutOfMemoryError

from torch_musa_sim._C import _MusaDeviceProperties
from torch_musa_sim.musa import _utils, amp, memory, operators, random, streams, types
from torch_musa_sim.musa.amp import get_amp_supported_dtype
from torch_musa_sim.musa.device import (
    _exchange_device,
    _get_generator,
    _is_in_bad_fork,
    _lazy_init,
    _maybe_exchange_device,
    _sleep,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    is_tf32_supported,
    set_device,
    synchronize,
)
from torch_musa_sim.musa.memory import (
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torch_musa_sim.musa.memory_pools import MemPool, MemPoolContext, graph_pool_handle, use_mem_pool
from torch_musa_sim.musa.operators import OperatorStatistics, op_statistics, reset_op_statistics
from torch_musa_sim.musa.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_musa_sim.musa.streams import (
    Event,
    Stream,
    StreamContext,
    _set_stream_by_id,
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from torch_musa_sim.musa.types import LEGACY_TYPES

globals().update(LEGACY_TYPES)

__all__ = [
    "Event",
    "MemPool",
    "MemPoolContext",
    "OperatorStatistics",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_allocator_backend",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "graph_pool_handle",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "is_tf32_supported",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "op_statistics",
    "operators",
    "random",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_op_statistics",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
    "use_mem_pool",
]


def __getattr__(name: str) -> Any:
    if name == "default_generators":  # made when asked for, as counting the cards may refuse a bad environment value
        return random.default_generators()
    if name == "_initialized":  # torch.utils.checkpoint keeps the random state only of a module that says so
        return is_initialized()
    raise AttributeError(f"module 'torch.musa' has no attribute {name!r}")
