"""The history of the caching allocator: who allocated what, snapshots of it, and drawings of them."""

import pickle
import sys
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

from torch._utils import _augment_memory_snapshot_stack_traces
from torch.cuda import _memory_viz

from torch_musa_sim import _C
from torch_musa_sim.musa._utils import DeviceLike

_STACKS = {None: 0, "state": 1, "alloc": 2, "all": 3}


def _record_memory_history(enabled: Any = "all", *args: Any, **kwargs: Any) -> None:
    """Records who allocates memory of the cards; `_snapshot` tells it.

    enabled: None stops recording, "state" keeps the stack of what is allocated, "all" also every allocation and free.
    context: None takes no stacks, "state" those of what is allocated, "alloc" those of allocations in the history,
        "all" (default) those of frees too.
    stacks: "python" or "all", which adds C++ frames.
    max_entries: how many events are kept per card; the oldest go first.
    device: without meaning, as in CUDA: every card is recorded.
    clear_history: forgets what was recorded.
    compile_context: notes which compilation of torch.compile allocated.
    global_record_annotations: notes where ranges of `torch.profiler.record_function` begin and end.
    skip_actions: events that aren't recorded ("alloc", "free_requested", "free_completed", "segment_alloc",
        "segment_free", "segment_map", "segment_unmap", "oom", "snapshot").

    A bool as `enabled` selects CUDA's older signature. Raises ValueError for anything else that isn't listed here.
    """
    if isinstance(enabled, bool):
        _record_memory_history_legacy(enabled, *args, **kwargs)
    else:
        _record_memory_history_impl(enabled, *args, **kwargs)


def _record_memory_history_legacy(
    enabled: bool,
    record_context: bool = True,
    trace_alloc_max_entries: int = 1,
    trace_alloc_record_context: bool = False,
    device: DeviceLike = None,
    record_context_cpp: bool = False,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
) -> None:
    """CUDA's older signature of `_record_memory_history`."""
    stacks = 0 if not record_context else _STACKS["all" if trace_alloc_record_context else "state"]
    _start(
        enabled,
        stacks,
        record_context_cpp,
        trace_alloc_max_entries,
        clear_history,
        compile_context,
        global_record_annotations,
        skip_actions,
    )


def _record_memory_history_impl(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: DeviceLike = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
) -> None:
    _check("enabled", enabled, (None, "state", "all"))
    _check("context", context, tuple(_STACKS))
    _check("stacks", stacks, ("python", "all"))
    _start(
        enabled is not None,
        _STACKS[context],
        stacks == "all",
        max_entries if enabled == "all" else 0,
        clear_history,
        compile_context,
        global_record_annotations,
        skip_actions,
        keep_entries=enabled is None,
    )


_record_memory_history.__signature__ = signature(_record_memory_history_impl)  # type: ignore[attr-defined]


def _check(name: str, value: object, accepted: tuple[object, ...]) -> None:
    if value not in accepted:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, accepted))}, but got {value!r}")


def _start(
    enabled: bool,
    stacks: int,
    cpp: bool,
    most_entries: int,
    clear: bool,
    compile_context: bool,
    annotations: bool,
    skip_actions: Sequence[str] | None,
    keep_entries: bool = False,
) -> None:
    if isinstance(most_entries, bool) or not isinstance(most_entries, int) or most_entries < 0:
        raise ValueError(f"max_entries must be a number of events, 0 or more, but got {most_entries!r}")
    if isinstance(skip_actions, str):
        raise ValueError(f"skip_actions must be a list of actions, but got the text {skip_actions!r}")
    most = sys.maxsize if keep_entries else min(most_entries, sys.maxsize)
    _C._record_memory_history(enabled, stacks, cpp, most, clear, compile_context, annotations, list(skip_actions or []))


def _snapshot(
    device: DeviceLike = None, augment_with_fx_traces: bool = False, include_traces: bool = True
) -> dict[str, Any]:
    """The allocator's state as a dict, in the form of torch.cuda.memory._snapshot().

    "segments" lists every segment with its blocks, "device_traces" holds one list of events per card,
    "allocator_settings" the settings in force, "external_annotations" the noted ranges. `device` has no meaning, as in
    CUDA. `augment_with_fx_traces` adds to frames of generated FX code the source that they come from.
    """
    _C._init()
    state: dict[str, Any] = _C._memory_snapshot((0, 0), include_traces)
    if augment_with_fx_traces:
        state = _augment_memory_snapshot_stack_traces(state)  # type: ignore[arg-type, assignment]
    return state


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Writes `_snapshot()` to a file that pytorch.org/memory_viz and torch/cuda/_memory_viz.py open."""
    state = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with open(filename, "wb") as file:
        pickle.dump(state, file)


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """Every segment with its blocks, one dict a segment, with the keys of torch.cuda.memory_snapshot().

    With the id of a `MemPool`, only that pool's segments. `include_traces` is CUDA's: the list holds no traces.
    """
    return _C._memory_segments(mempool_id or (0, 0)) if _C._is_initialized() else []


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """The stack that allocated the block which begins at `data_ptr`; None when it isn't known."""
    return _C._allocation_traceback(data_ptr)


def _set_memory_metadata(metadata: str) -> None:
    """A text that goes with every event of the history from now on; "" for none."""
    _C._set_memory_metadata(metadata)


def _get_memory_metadata() -> str:
    """The text set by `_set_memory_metadata`."""
    return _C._memory_metadata()


def _save_segment_usage(filename: str = "output.svg", snapshot: dict[str, Any] | None = None) -> None:
    """Draws what fills each segment as a flame graph, by FLAMEGRAPH_PL_SCRIPT or a script that torch fetches."""
    _save(filename, _memory_viz.segments(_snapshot() if snapshot is None else snapshot, _select_format_flamegraph))


def _save_memory_usage(filename: str = "output.svg", snapshot: dict[str, Any] | None = None) -> None:
    """As `_save_segment_usage`, by stream and stack."""
    _save(filename, _memory_viz.memory(_snapshot() if snapshot is None else snapshot, _select_format_flamegraph))


def _select_format_flamegraph(flamegraph_lines: str) -> str:
    """The flame graph (SVG) of lines as "stack;of;names bytes"."""
    settings = {setting["name"]: setting["value"] for setting in _C._settings()}
    drawn: str = _memory_viz.format_flamegraph(flamegraph_lines, settings["FLAMEGRAPH_PL_SCRIPT"] or None)
    return drawn


def _save(filename: str, text: str) -> None:
    with open(filename, "w") as file:
        file.write(text)


def _musa_attach_out_of_memory_observer(observer: Callable[[int, int, int, int], None]) -> None:
    """Calls `observer(card, bytes asked for, bytes of the card, bytes free)` before out of memory is raised."""
    if not callable(observer):
        raise TypeError(f"an out-of-memory observer must be callable, but got {observer!r}")
    _C._attach_out_of_memory_observer(observer)
