"""The module behind `torch.musa`: torch.cuda's surface for the simulated cards, one file per subject.

A block of imports for each subject, blocks and names sorted. Public is what has no leading underscore.
"""

import importlib
from types import ModuleType
from typing import Any

from torch._C import AcceleratorError, OutOfMemoryError

from torch_musa_sim._C import _MusaDeviceProperties
from torch_musa_sim.musa import (
    _utils,
    amp,
    attributes,
    backends,
    comm,
    faults,
    graphs,
    memory,
    nvtx,
    op_debug,
    operators,
    profiler,
    random,
    serialization,
    streams,
    types,
)
from torch_musa_sim.musa._utils import DeviceLike as Device
from torch_musa_sim.musa._utils import _get_device_index
from torch_musa_sim.musa.amp import amp_definitely_not_available, get_amp_supported_dtype
from torch_musa_sim.musa.architecture import (
    _check_bf16_tensor_supported,
    _device_count_nvml,
    _get_musa_arch,
    _is_compiled,
    get_arch_list,
    get_gencode_flags,
    is_bf16_supported,
    is_tf32_supported,
)
from torch_musa_sim.musa.attributes import overwrite_cuda_api, register_musa_hook, set_attributes
from torch_musa_sim.musa.device import (
    _DeviceGuard,
    _exchange_device,
    _get_device,
    _get_device_properties,
    _get_generator,
    _maybe_exchange_device,
    _sleep,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_available,
    set_device,
    synchronize,
)
from torch_musa_sim.musa.graphs import (
    CUDAGraph,
    MUSAGraph,
    graph,
    is_current_stream_capturing,
    make_graphed_callables,
)
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
from torch_musa_sim.musa.invariance import batch_invariant, is_batch_invariant
from torch_musa_sim.musa.management import (
    clock_rate,
    device_memory_used,
    list_gpu_processes,
    memory_usage,
    power_draw,
    temperature,
    utilization,
)
from torch_musa_sim.musa.memory import (
    MemPool,
    MemPoolContext,
    MUSAPluggableAllocator,
    _dump_snapshot,
    _record_memory_history,
    _set_allocator_settings,
    _snapshot,
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    change_current_allocator,
    empty_cache,
    empty_host_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    graph_pool_handle,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_all,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
    use_unified_cpu_allocator,
)
from torch_musa_sim.musa.no_meaning import (
    current_blas_handle,
    current_blaslt_handle,
    current_solver_handle,
    parseEnvForUMM,
    update_musa_graph_with_profile,
)
from torch_musa_sim.musa.operators import OperatorStatistics, op_statistics, reset_op_statistics
from torch_musa_sim.musa.random import (
    _get_rng_state_offset,
    _set_rng_state_offset,
    fork_rng,
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
from torch_musa_sim.musa.runtime import (
    MusaError,
    check_error,
    cudart,
    ipc_collect,
    musart,
)
from torch_musa_sim.musa.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    _set_stream_by_id,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)
from torch_musa_sim.musa.sync_debug import get_sync_debug_mode, set_sync_debug_mode
from torch_musa_sim.musa.types import LEGACY_TYPES

globals().update(LEGACY_TYPES)
# Names of torch.cuda that programs written for CUDA, with their torch.cuda mapped here, may catch or test.
CudaError = MusaError
DeferredCudaCallError = DeferredMusaCallError
has_half = True
has_magma = False

_INTERNAL_MODULES = {
    "c_module",
    "architecture",
    "attributes",
    "device",
    "functional",
    "initialization",
    "invariance",
    "management",
    "memory_pools",
    "no_meaning",
    "peer_copies",
    "runtime",
    "stream",
    "sync_debug",
    "memory_allocators",
    "memory_history",
}
__all__ = [
    name
    for name, value in list(globals().items())
    if not name.startswith("_")
    and name not in ("Any", "LEGACY_TYPES", "ModuleType")
    and not (isinstance(value, ModuleType) and name in _INTERNAL_MODULES)
]


def __getattr__(name: str) -> Any:
    if name == "default_generators":  # made when asked for, as counting the cards may refuse a bad environment value
        return random.default_generators()
    if name == "_initialized":  # torch.utils.checkpoint keeps the random state only of a module that says so
        return is_initialized()
    if name in ("core", "optim", "utils"):  # on the real stack torch.musa is the package torch_musa
        return importlib.import_module(f"torch_musa.{name}")
    raise AttributeError(f"module 'torch.musa' has no attribute {name!r}")
