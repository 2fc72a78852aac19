"""The allocator's history, its snapshots, and PyTorch's own viewer on them."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import _memory_viz

from torch_musa_sim import _C

memory = torch.musa.memory
MIB = 1 << 20
CARD = 6  # no other test allocates here


def tensor(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device=f"musa:{CARD}")


def allocated_here(nbytes: int) -> torch.Tensor:
    return tensor(nbytes)


def actions(state: dict[str, Any]) -> list[str]:
    return [event["action"] for event in state["device_traces"][CARD]]


def names(entry: dict[str, Any]) -> list[str]:
    return [frame["name"] for frame in entry["frames"]]


@pytest.fixture(autouse=True)
def recording_ends() -> Iterator[None]:
    torch.musa.empty_cache()
    yield
    memory._record_memory_history(None, clear_history=True)


def record(*args: Any, **kwargs: Any) -> None:
    memory._record_memory_history(*args, **{"stacks": "python", "clear_history": True, **kwargs})


def test_every_event_of_a_block_is_recorded_in_order() -> None:
    record()
    x = allocated_here(3 * MIB)
    address = x.data_ptr()
    del x
    torch.musa.empty_cache()
    events = memory._snapshot()["device_traces"][CARD]
    assert [e["action"] for e in events] == [
        "segment_alloc",
        "alloc",
        "free_requested",
        "free_completed",
        "segment_free",
    ]
    assert {e["addr"] for e in events} == {address}
    assert [e["size"] for e in events] == [20 * MIB, 3 * MIB, 3 * MIB, 3 * MIB, 20 * MIB]
    assert [e["time_us"] for e in events] == sorted(e["time_us"] for e in events)
    assert {e["pool_id"] for e in events} == {(0, 0)}
    for event in events[:2]:
        assert {"allocated_here", "test_every_event_of_a_block_is_recorded_in_order"} <= set(names(event))


def test_a_snapshot_has_the_keys_of_cudas() -> None:
    record()
    x = allocated_here(100)
    state = memory._snapshot()
    assert set(state) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
    assert len(state["device_traces"]) == torch.musa.device_count()
    segment = next(s for s in state["segments"] if s["address"] <= x.data_ptr() < s["address"] + s["total_size"])
    assert set(segment) == {
        "device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type",
        "segment_pool_id", "is_expandable", "frames", "blocks",
    }  # fmt: skip
    block = next(b for b in segment["blocks"] if b["address"] == x.data_ptr())
    assert set(block) == {"address", "size", "requested_size", "state", "frames"}
    assert (block["size"], block["requested_size"], block["state"]) == (512, 100, "active_allocated")
    assert "allocated_here" in names(block)
    assert {"filename", "line", "name"} <= set(block["frames"][0])
    assert actions(memory._snapshot())[-1] == "snapshot"  # the first one left its mark


def test_the_state_is_kept_without_a_history() -> None:
    record("state")
    x = allocated_here(100)
    state = memory._snapshot()
    assert actions(state) == []
    (block,) = [b for s in state["segments"] for b in s["blocks"] if b["address"] == x.data_ptr()]
    assert "allocated_here" in names(block)
    assert memory._allocation_traceback(x.data_ptr())[0]["name"] == "tensor"
    address = x.data_ptr()
    del x
    assert memory._allocation_traceback(address) is None


@pytest.mark.parametrize(
    ("context", "with_stacks"),
    [(None, set()), ("state", set()), ("alloc", {"alloc"}), ("all", {"alloc", "free_requested", "free_completed"})],
)
def test_which_events_carry_stacks(context: str | None, with_stacks: set[str]) -> None:
    tensor(100)  # so that a segment is there
    record(context=context)
    allocated_here(100)
    state = memory._snapshot()
    assert {e["action"] for e in state["device_traces"][CARD] if e["frames"]} == with_stacks


def test_the_last_entries_are_kept() -> None:
    keep = tensor(1)
    record(max_entries=4)
    for size in range(1, 6):
        tensor(size)
    events = memory._snapshot()["device_traces"][CARD]
    assert [(e["action"], e["size"]) for e in events] == [
        ("free_completed", 4), ("alloc", 5), ("free_requested", 5), ("free_completed", 5),
    ]  # fmt: skip
    del keep


def test_what_was_recorded_stays_after_the_end_until_it_is_cleared() -> None:
    record()
    x = allocated_here(100)
    memory._record_memory_history(None)
    y = tensor(100)
    state = memory._snapshot()
    assert actions(state)[-1] == "alloc"
    blocks = {b["address"]: b for s in state["segments"] for b in s["blocks"]}
    assert "allocated_here" in names(blocks[x.data_ptr()])
    assert blocks[y.data_ptr()]["frames"] == []
    del x, blocks
    assert all(not b["frames"] for s in memory._snapshot()["segments"] for b in s["blocks"])
    memory._record_memory_history(None, clear_history=True)
    assert actions(memory._snapshot()) == []


def test_frees_of_what_was_allocated_before_are_recorded() -> None:
    x = tensor(100)
    record()
    del x
    assert actions(memory._snapshot()) == ["free_requested", "free_completed"]


def test_a_block_that_another_stream_uses_is_completed_later() -> None:
    with torch.musa.device(CARD):
        record()
        side = torch.musa.Stream()
        x = tensor(5 * MIB)
        with torch.musa.stream(side):
            torch.musa._sleep(10**9)
        x.record_stream(side)
        del x
        state = memory._snapshot()
        assert actions(state)[-1] == "free_requested"
        assert next(b["state"] for s in state["segments"] for b in s["blocks"] if s["device"] == CARD) == (
            "active_pending_free"
        )
        torch.musa.synchronize()
        tensor(5 * MIB)
        assert "free_completed" in actions(memory._snapshot())


def test_skipped_actions_are_not_recorded() -> None:
    record(skip_actions=["free_requested", "segment_alloc"])
    tensor(100)
    assert actions(memory._snapshot()) == ["alloc", "free_completed"]


def test_the_older_signature_works() -> None:
    memory._record_memory_history(True, trace_alloc_max_entries=10, trace_alloc_record_context=True, clear_history=True)
    allocated_here(100)
    events = memory._snapshot()["device_traces"][CARD]
    assert "allocated_here" in names(next(e for e in events if e["action"] == "alloc"))
    memory._record_memory_history(False)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"enabled": "yes"}, "enabled must be one of None, 'state', 'all'"),
        ({"context": "free"}, "context must be one of"),
        ({"stacks": "c"}, "stacks must be one of 'python', 'all'"),
        ({"max_entries": -1}, "max_entries must be a number of events"),
        ({"skip_actions": ["allocs"]}, "'allocs' is no action"),
        ({"skip_actions": "alloc"}, "must be a list of actions"),
    ],
)
def test_a_bad_argument_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        memory._record_memory_history(**arguments)


def test_out_of_memory_is_recorded_and_told_to_observers() -> None:
    seen: list[tuple[int, int, int, int]] = []
    memory._musa_attach_out_of_memory_observer(lambda *facts: seen.append(facts))
    record()
    total = torch.musa.mem_get_info(CARD)[1]
    with pytest.raises(torch.OutOfMemoryError):
        tensor(total + 1)
    event = memory._snapshot()["device_traces"][CARD][-1]
    assert (event["action"], event["size"]) == ("oom", total + 1)
    assert 0 < event["device_free"] <= total
    assert "addr" not in event
    assert seen == [(CARD, total + 1, total, event["device_free"])]
    with pytest.raises(TypeError, match="must be callable"):
        memory._musa_attach_out_of_memory_observer("print")


def test_metadata_goes_with_the_events() -> None:
    record()
    memory._set_memory_metadata("step 3")
    x = tensor(100)
    assert memory._get_memory_metadata() == "step 3"
    memory._set_memory_metadata("")
    del x
    texts = {e["action"]: e["user_metadata"] for e in memory._snapshot()["device_traces"][CARD]}
    assert (texts["alloc"], texts["free_completed"]) == ("step 3", "")


def test_ranges_are_annotations() -> None:
    record(global_record_annotations=True)
    with torch.profiler.record_function("my range"):
        tensor(100)
    notes = memory._snapshot()["external_annotations"]
    assert [(n["name"], n["stage"]) for n in notes] == [("my range", "START"), ("my range", "END")]
    (alloc,) = [e for e in memory._snapshot()["device_traces"][CARD] if e["action"] == "alloc"]
    assert notes[0]["time_us"] <= alloc["time_us"] <= notes[1]["time_us"]


def test_events_of_a_pool_carry_its_id() -> None:
    record()
    pool = torch.musa.MemPool()
    with torch.musa.use_mem_pool(pool, CARD):
        tensor(100)
    assert {e["pool_id"] for e in memory._snapshot()["device_traces"][CARD]} == {pool.id}


def test_blocks_of_the_backward_pass_are_recorded() -> None:
    record()
    x = torch.ones(8, 8, device=f"musa:{CARD}", requires_grad=True)
    (x @ x).sum().backward()
    state = memory._snapshot()
    assert x.grad is not None
    assert x.grad.data_ptr() in {e["addr"] for e in state["device_traces"][CARD] if e["action"] == "alloc"}


@pytest.fixture
def dump(tmp_path: Path) -> dict[str, Any]:
    """A dumped snapshot of a little training, read back."""
    record()
    layer = torch.nn.Linear(512, 512, device=f"musa:{CARD}")
    layer(torch.ones(64, 512, device=f"musa:{CARD}")).sum().backward()
    memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    with open(tmp_path / "snapshot.pickle", "rb") as file:
        return pickle.load(file)


def plain(lines: str) -> str:
    return lines


def test_torchs_viewer_renders_the_dump(dump: dict[str, Any]) -> None:
    # trace_plot takes the device's traces and segments as they are
    for page in (_memory_viz.trace_plot(dump), _memory_viz.segment_plot(dump)):
        assert page.lstrip().startswith("<!DOCTYPE html>")
        assert len(page) > 1000
    text = _memory_viz.trace(dump)
    assert f"Device {CARD} ----------------" in text
    assert "= cudaMalloc(" in text
    assert "# free completed for " in text
    assert "segments: " in _memory_viz.segsum(dump)
    for lines in (_memory_viz.memory(dump, plain), _memory_viz.segments(dump, plain)):
        assert "active_allocated;" in lines
        assert "linear.py" in lines
    keep = allocated_here(30 * MIB)
    assert "only_after;" in _memory_viz.compare(dump["segments"], torch.musa.memory_snapshot(), plain)
    del keep


def test_flame_graphs_are_drawn_by_the_script_that_is_named(tmp_path: Path) -> None:
    script = tmp_path / "flamegraph.pl"
    script.write_text(f"#!{sys.executable}\nimport sys\nprint('<svg>' + sys.stdin.read() + '</svg>')\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    program = f"""
import torch
torch.musa.memory._record_memory_history(stacks="python")
x = torch.empty(5000, device="musa")
torch.musa.memory._save_memory_usage({str(tmp_path / "memory.svg")!r})
torch.musa.memory._save_segment_usage({str(tmp_path / "segments.svg")!r})
"""
    environment = {**os.environ, "FLAMEGRAPH_PL_SCRIPT": os.fspath(script)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    for name in ("memory.svg", "segments.svg"):
        text = (tmp_path / name).read_text()
        assert text.startswith("<svg>")
        assert "active_allocated;" in text


def test_recording_from_many_threads() -> None:
    record(max_entries=1000)
    torch.musa.set_device(CARD)
    assert _C._allocator_stress(4, 4000, 7, CARD, 2) >= 0
    torch.musa.set_device(0)
    events = memory._snapshot()["device_traces"][CARD]
    assert len(events) == 1000
