"""Memory of the cards: what is allocated, what is reserved, what is free. Sizes are bytes."""

import math
from collections import OrderedDict
from typing import Any

import torch

from torch_musa_sim import _C
from torch_musa_sim.musa._utils import DeviceLike, _get_device_index


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
    """CUDA's older name of `reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """CUDA's older name of `reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


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


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """Every segment with its blocks, one dict a segment, with the keys of torch.cuda.memory_snapshot().

    With the id of a `MemPool`, only that pool's segments. `include_traces` is CUDA's: the list holds no traces.
    """
    return _C._memory_snapshot(mempool_id or (0, 0)) if _C._is_initialized() else []


def get_allocator_backend() -> str:
    """The allocator in use: always "native"."""
    return "native"


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """A table of `memory_stats`; `abbreviated` leaves out the rows of the large and the small pool."""
    index = _get_device_index(device, optional=True)
    stats = memory_stats(index)
    pools = (
        [("all", "")] if abbreviated else [("all", ""), ("large_pool", "  large pool"), ("small_pool", "  small pool")]
    )
    columns = ("current", "peak", "allocated", "freed")
    rule = "-" * 77
    lines = [
        f"Memory of musa:{index} ({_C._device_properties(index).name}); "
        f"out of memory: {stats['num_ooms']}, retries: {stats['num_alloc_retries']}",
        rule,
        f"{'':<25}{'now':>13}{'peak':>13}{'allocated':>13}{'freed':>13}",
    ]
    for kind, title, show in _SUMMARY_ROWS:
        lines.append(rule)
        for pool, indented in pools:
            cells = "".join(f"{show(stats[f'{kind}.{pool}.{column}']):>13}" for column in columns)
            lines.append(f"{indented or title:<25}{cells}")
    return "\n".join([*lines, rule, ""])


def _size_text(size: int) -> str:
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"


_SUMMARY_ROWS = (
    ("allocated_bytes", "Allocated memory", _size_text),
    ("active_bytes", "Active memory", _size_text),
    ("requested_bytes", "Requested memory", _size_text),
    ("reserved_bytes", "Reserved memory", _size_text),
    ("inactive_split_bytes", "Non-releasable memory", _size_text),
    ("allocation", "Allocations", str),
    ("active", "Active blocks", str),
    ("segment", "Segments", str),
    ("inactive_split", "Non-releasable blocks", str),
)
