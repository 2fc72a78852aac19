"""Memory of the cards: what is allocated, what is reserved, what is free. Sizes are bytes."""

import math
import warnings
from collections import OrderedDict
from typing import Any

import torch

from torch_musa_sim import _C
from torch_musa_sim.musa._utils import DeviceLike, _get_device_index
from torch_musa_sim.musa.management import list_gpu_processes as list_gpu_processes
from torch_musa_sim.musa.memory_allocators import (
    MUSAPluggableAllocator,
    _get_current_allocator,
    _MUSAAllocator,
    _set_allocator_settings,
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    change_current_allocator,
    get_allocator_backend,
    use_unified_cpu_allocator,
)
from torch_musa_sim.musa.memory_history import (
    _allocation_traceback,
    _dump_snapshot,
    _get_memory_metadata,
    _musa_attach_out_of_memory_observer,
    _record_memory_history,
    _record_memory_history_impl,
    _record_memory_history_legacy,
    _save_memory_usage,
    _save_segment_usage,
    _select_format_flamegraph,
    _set_memory_metadata,
    _snapshot,
    memory_snapshot,
)
from torch_musa_sim.musa.memory_pools import MemPool, MemPoolContext, graph_pool_handle, use_mem_pool

__all__ = [
    "MUSAPluggableAllocator",
    "MemPool",
    "MemPoolContext",
    "_MUSAAllocator",
    "_allocation_traceback",
    "_dump_snapshot",
    "_get_current_allocator",
    "_get_memory_metadata",
    "_musa_attach_out_of_memory_observer",
    "_record_memory_history",
    "_record_memory_history_impl",
    "_record_memory_history_legacy",
    "_save_memory_usage",
    "_save_segment_usage",
    "_select_format_flamegraph",
    "_set_allocator_settings",
    "_set_memory_metadata",
    "_snapshot",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "empty_cache",
    "empty_host_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "graph_pool_handle",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_all",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
    "use_unified_cpu_allocator",
]


def memory_stats(device: DeviceLike = None) -> "OrderedDict[str, Any]":
    """Statistics of the caching allocator, flat, under torch.cuda's keys ("allocated_bytes.all.current", ...)."""
    _C._init()
    flat: list[tuple[str, Any]] = []
    _flatten("", memory_stats_as_nested_dict(device), flat)
    return OrderedDict(sorted(flat))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """As `memory_stats`, one dict a level of the key."""
    _C._init()
    return _C._memory_stats(_get_device_index(device, optional=True))


def _flatten(prefix: str, value: Any, into: list[tuple[str, Any]]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            name = "_".join(map(str, key)) if isinstance(key, tuple) else key  # a tuple is the id of a pool
            _flatten(f"{prefix}.{name}" if prefix else name, inner, into)
    else:
        into.append((prefix, value))


def _stat(key: str, device: DeviceLike) -> int:
    index = _get_device_index(device, optional=True)
    if not _C._is_initialized():
        return 0
    kind, pool, field = key.split(".")
    return int(torch._C._accelerator_getDeviceStats(index)[kind][pool][field])


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that tensors occupy on a card."""
    return _stat("allocated_bytes.all.current", device)


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Peak of `memory_allocated` since the start or the last `reset_peak_memory_stats`."""
    return _stat("allocated_bytes.all.peak", device)


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that the caching allocator holds on a card."""
    return _stat("reserved_bytes.all.current", device)


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Peak of `memory_reserved` since the start or the last `reset_peak_memory_stats`."""
    return _stat("reserved_bytes.all.peak", device)


memory_cached = memory_reserved
max_memory_cached = max_memory_reserved


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Lets every peak start again from the current value."""
    index = _get_device_index(device, optional=True)
    if _C._is_initialized():
        torch._C._accelerator_resetPeakStats(index)


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Sets the totals (allocated, freed, retries, ...) to zero."""
    index = _get_device_index(device, optional=True)
    if _C._is_initialized():
        torch._C._accelerator_resetAccumulatedStats(index)


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """CUDA's older name of `reset_peak_memory_stats`; warns, as CUDA's does, that it resets every peak."""
    _warn_all_peaks("reset_max_memory_allocated")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """CUDA's older name of `reset_peak_memory_stats`; warns, as CUDA's does, that it resets every peak."""
    _warn_all_peaks("reset_max_memory_cached")
    reset_peak_memory_stats(device)


def _warn_all_peaks(name: str) -> None:
    text = f"torch.musa.{name} resets every peak; call torch.musa.reset_peak_memory_stats, which says so."
    warnings.warn(text, FutureWarning, stacklevel=3)


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) of a card, counting every process of this user in the same scope."""
    _C._init()
    return _C._memory_info(_get_device_index(device, optional=True))


def empty_cache() -> None:
    """Gives the caching allocator's unused memory back to the cards."""
    if _C._is_initialized():
        torch._C._accelerator_emptyCache()


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Lets this process reserve at most that part, 0 < fraction <= 1, of a card's memory."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise TypeError(f"the memory fraction must be a number above 0 and up to 1, but got {fraction!r}")
    if math.isnan(fraction) or not 0 < fraction <= 1:
        raise ValueError(f"the memory fraction must be above 0 and up to 1, but got {fraction}")
    _C._init()
    _C._set_memory_fraction(float(fraction), _get_device_index(device, optional=True))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """The part of a card's memory that this process may reserve."""
    _C._init()
    return _C._memory_fraction(_get_device_index(device, optional=True))


def memory_stats_all() -> "OrderedDict[str, Any]":
    """`memory_stats` summed over every card."""
    total: OrderedDict[str, Any] = OrderedDict()
    for index in range(_C._device_count_checked()):
        for key, value in memory_stats(index).items():
            total[key] = total.get(key, 0) + value
    return total


def host_memory_stats() -> "OrderedDict[str, Any]":
    """Statistics of page-locked host memory, flat, under torch.cuda's keys; times are microseconds."""
    flat: list[tuple[str, Any]] = []
    _flatten("", host_memory_stats_as_nested_dict(), flat)
    return OrderedDict(sorted(flat))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """As `host_memory_stats`, one dict a level of the key; empty before the device was used."""
    return _C._host_memory_stats() if _C._is_initialized() else {}


def reset_accumulated_host_memory_stats() -> None:
    """Sets the totals of `host_memory_stats` (allocated, freed, times) to zero."""
    _C._reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Lets every peak of `host_memory_stats` start again from the current value."""
    _C._reset_peak_host_memory_stats()


def empty_host_cache() -> None:
    """Gives page-locked host memory that no tensor uses back to the system."""
    _C._empty_host_cache()


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """`memory_stats` as a table in torch.cuda's form; `abbreviated` leaves out the rows of the two pools."""
    index = _get_device_index(device, optional=True)
    stats = memory_stats(index)
    double, single = "=" * _TABLE_WIDTH, "-" * _TABLE_WIDTH
    ooms = f"{'':12}MUSA OOMs: {stats['num_ooms']:<12d}"
    lines = [
        double,
        f"{'':18}PyTorch MUSA memory summary, device ID {index}",
        single,
        f"{ooms} | {'':7}musaMalloc retries: {stats['num_alloc_retries']}",
        double,
        "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed",
    ]
    pools = [("all", "")] + ([] if abbreviated else [("large_pool", "large"), ("small_pool", "small")])
    for kind, title, units in _SUMMARY_ROWS:
        lines.append(single)
        whole = [stats[f"{kind}.all.{column}"] for column in _COLUMNS]
        for pool, name in pools:
            values = [stats[f"{kind}.{pool}.{column}"] for column in _COLUMNS]
            lines.append(_summary_row(f"      from {name} pool" if name else title, values, whole, units))
    for kind, title in (
        ("oversize_allocations", "Oversize allocations"),
        ("oversize_segments", "Oversize GPU segments"),
    ):
        values = [stats[f"{kind}.{column}"] for column in _COLUMNS]
        lines += [single, _summary_row(title, values, values, _COUNTS)]
    lines.append(double)
    return "".join(f"|{line:<{_TABLE_WIDTH}}|\n" for line in lines)


_TABLE_WIDTH = 75
_COLUMNS = ("current", "peak", "allocated", "freed")
_BYTES = (6, 1024, 768 * 1024, ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB"))  # digits, step, largest shown, units
_COUNTS = (7, 1000, 750 * 1000, ("  ", "K ", "M "))
_SUMMARY_ROWS = (
    ("allocated_bytes", "Allocated memory", _BYTES),
    ("active_bytes", "Active memory", _BYTES),
    ("requested_bytes", "Requested memory", _BYTES),
    ("reserved_bytes", "GPU reserved memory", _BYTES),
    ("inactive_split_bytes", "Non-releasable memory", _BYTES),
    ("allocation", "Allocations", _COUNTS),
    ("active", "Active allocs", _COUNTS),
    ("segment", "GPU reserved segments", _COUNTS),
    ("inactive_split", "Non-releasable allocs", _COUNTS),
)


def _summary_row(title: str, values: list[int], scales: list[int], units: tuple[int, int, int, tuple[str, ...]]) -> str:
    """One line of the table; each value in the unit that suits the value of `scales` in its column."""
    digits, step, largest, names = units
    cells = []
    for value, scale in zip(values, scales, strict=True):
        power = 0
        while scale / step**power >= largest and power + 1 < len(names):
            power += 1
        cells.append(f"{value // step**power:{digits}d} {names[power]}")
    return f" {title:<21} | {' | '.join(cells)} "
