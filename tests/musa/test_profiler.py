"""torch.profiler on musa: what the card did, in virtual time, beside the operators that caused it."""

import json
import threading
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from torch_musa_sim import _C

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
SLEEP_NS = 400_000


def watched_by_profiler() -> bool:
    return _C._watch_bits() & 2 != 0  # strict mode watches, too


def sleep() -> None:
    """A kernel of 400 us and the launch's own time (the card runs at 1.5 GHz)."""
    torch.musa._sleep(600_000)


def profiled(run, **options):
    with profile(activities=BOTH, **options) as result:
        run()
    return result


def device_events(prof):
    return [e for e in prof.events() if e.device_type == DeviceType.PrivateUse1 and not e.is_user_annotation]


@pytest.fixture
def trace(tmp_path: Path):
    """Exports a profile and reads it back: a list of the trace's events."""

    def read(prof) -> list[dict]:
        path = tmp_path / "trace.json"
        prof.export_chrome_trace(str(path))
        return json.loads(path.read_text())["traceEvents"]

    return read


def with_category(events: list[dict], category: str) -> list[dict]:
    return [e for e in events if e.get("cat") == category]


def row_name(events: list[dict], event: dict) -> tuple[str, str]:
    """The names of an event's process and thread: the last ones given, as viewers read it."""
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events if "name" in e.get("args", {})}
    return names["process_name", event["pid"], 0], names["thread_name", event["pid"], event["tid"]]


def block() -> torch.Tensor:
    a = torch.ones(64, 64, device="musa")
    return torch.softmax(a @ a + 1, -1).sum()


def test_the_activity_is_listed_and_has_the_name_of_the_device():
    assert ProfilerActivity.PrivateUse1 in torch.profiler.supported_activities()
    assert ProfilerActivity.MUSA is ProfilerActivity.PrivateUse1


def test_device_time_per_operator_is_that_of_the_op_statistics():
    torch.musa.reset_op_statistics()
    prof = profiled(lambda: [block() for _ in range(3)])
    counted = defaultdict(int)
    for op in torch.musa.op_statistics():
        counted[op.name.split(".")[0]] += op.device_ns
    shown = {e.key: e.self_device_time_total * 1e3 for e in prof.key_averages() if e.device_type == DeviceType.CPU}
    assert {"aten::mm", "aten::add", "aten::_softmax", "aten::sum"} <= set(counted)
    for name, ns in counted.items():
        assert shown[name] == pytest.approx(ns, abs=1), name
    total = sum(e.time_range.elapsed_us() * 1e3 for e in device_events(prof))
    assert total == pytest.approx(sum(counted.values()), abs=1)


def test_the_table_has_columns_of_the_device():
    table = profiled(block).key_averages().table(sort_by="self_device_time_total")
    for column in ("Self MUSA", "Self MUSA %", "MUSA total", "MUSA time avg"):
        assert column in table
    assert "Self MUSA time total" in table
    assert "musa_mm" in table


def test_a_parent_has_the_device_time_of_its_children():
    averages = {e.key: e for e in profiled(block).key_averages() if e.device_type == DeviceType.CPU}
    assert averages["aten::matmul"].self_device_time_total == 0
    assert averages["aten::matmul"].device_time_total == averages["aten::mm"].device_time_total > 0


def test_rows_are_named_after_card_and_stream(trace):
    side = torch.musa.Stream()

    def run():
        sleep()
        with torch.musa.stream(side):
            sleep()

    events = trace(profiled(run))
    kernels = with_category(events, "kernel")
    rows = [row_name(events, e) for e in kernels]
    assert [card for card, _ in rows] == ["musa:0 (virtual)"] * 2
    assert rows[0][1] == "stream 0"
    assert rows[1][1].startswith("stream ")
    assert rows[0] != rows[1]
    first, second = kernels
    assert first["ts"] + first["dur"] > second["ts"], "streams overlap"


def test_times_are_virtual_and_begin_with_the_profile(trace):
    def run():
        sleep()
        _C._host_clock_ns()
        sleep()

    before = _C._host_clock_ns()
    events = trace(profiled(run))
    first, second = with_category(events, "kernel")
    card = torch.musa.get_device_properties(0)
    assert card is not None
    assert first["dur"] * 1e3 == pytest.approx(SLEEP_NS, rel=0.02)
    assert second["ts"] == pytest.approx(first["ts"] + first["dur"], abs=0.01)  # in a row on one stream
    span = next(e for e in with_category(events, "Trace") if e["name"].startswith("PyTorch Profiler"))
    virtual_us = (_C._host_clock_ns() - before) / 1e3
    assert span["ts"] <= first["ts"] <= span["ts"] + span["dur"] + virtual_us


def test_every_event_of_the_trace_is_well_formed(trace):
    events = trace(profiled(block, record_shapes=True))
    assert len({e["ph"] for e in events} & {"X", "M", "s", "f"}) == 4
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["ts"], int | float)
        assert {"ph", "pid", "tid"} <= set(event)
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] in "sf":
            assert "id" in event


def test_arrows_link_each_launch_with_its_kernel_and_never_point_back(trace):
    events = trace(profiled(lambda: [block(), torch.musa.synchronize()]))
    ends = defaultdict(list)
    for event in with_category(events, "ac2g"):
        ends[event["id"]].append(event)
    kernels = {e["args"]["correlation"]: e for e in with_category(events, "kernel")}
    calls = {e["args"]["correlation"]: e for e in with_category(events, "privateuse1_runtime")}
    assert kernels
    for correlation, kernel in kernels.items():
        assert calls[correlation]["name"] == "musaLaunchKernel"
        start, finish = sorted(ends[correlation], key=lambda e: e["ph"] != "s")
        assert (start["ph"], finish["ph"]) == ("s", "f")
        assert start["ts"] <= finish["ts"]
        assert {start["pid"], finish["pid"]} == {kernel["pid"], calls[correlation]["pid"]}


def test_a_kernel_carries_the_id_of_its_operator(trace):
    events = trace(profiled(block))
    operators = {e["args"]["External id"]: e["name"] for e in with_category(events, "cpu_op")}
    linked = {e["name"]: operators[e["args"]["External id"]] for e in with_category(events, "kernel")}
    assert linked["musa_mm"] == "aten::mm"
    assert linked["musa__softmax"] == "aten::_softmax"
    mm = next(e for e in with_category(events, "kernel") if e["name"] == "musa_mm")
    assert mm["args"]["flops"] == 2 * 64**3
    assert mm["args"]["bytes"] == 2 * 64 * 64 * 4  # the matrix, read once, and its square


def test_copies_say_their_direction_and_bytes(trace):
    host = torch.ones(1000)
    pinned = torch.ones(1000, pin_memory=True)
    card = torch.ones(1000, device="musa")
    other = torch.ones(1000, device="musa:1")

    def run():
        card.copy_(host)
        card.copy_(pinned, non_blocking=True)
        host.copy_(card)
        pinned.copy_(card, non_blocking=True)
        card.clone()
        other.copy_(card)

    number = with_category(trace(profiled(lambda: card[3].item())), "gpu_memcpy")
    assert [(e["name"], e["args"]["bytes"]) for e in number] == [("Memcpy DtoH (Device -> Pageable)", 4)]
    copies = with_category(trace(profiled(run)), "gpu_memcpy")
    assert [e["name"] for e in copies] == [
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy HtoD (Pinned -> Device)",
        "Memcpy DtoH (Device -> Pageable)",
        "Memcpy DtoH (Device -> Pinned)",
        "Memcpy DtoD (Device -> Device)",
        "Memcpy PtoP (Device -> Device)",
    ]
    assert {e["args"]["bytes"] for e in copies} == {4000}
    assert (copies[-1]["args"]["fromDevice"], copies[-1]["args"]["toDevice"]) == (0, 1)


def test_a_converting_copy_is_a_kernel(trace):
    card = torch.ones(1000, device="musa")
    events = trace(profiled(lambda: card.half()))
    assert not with_category(events, "gpu_memcpy")
    assert [e["name"] for e in with_category(events, "kernel")] == ["musa__copy_from"]


def test_waits_are_shown_and_are_no_work_of_the_card(trace):
    event = torch.musa.Event()

    def run():
        sleep()
        event.record()
        event.synchronize()
        torch.musa.current_stream().synchronize()
        torch.musa.synchronize()

    prof = profiled(run)
    events = trace(prof)
    waits = [e for e in events if e["ph"] == "X" and e["name"] in ("Event Sync", "Stream Sync", "Context Sync")]
    assert [e["name"] for e in waits][:3] == ["Event Sync", "Stream Sync", "Context Sync"]
    assert row_name(events, waits[0])[1].startswith("host waits")
    assert waits[0]["dur"] * 1e3 >= SLEEP_NS * 0.9
    calls = [e["name"] for e in with_category(events, "privateuse1_runtime")]
    for call in ("musaEventRecord", "musaEventSynchronize", "musaStreamSynchronize", "musaDeviceSynchronize"):
        assert call in calls
    assert [e.name for e in device_events(prof)] == ["musa_musa__sleep"]


def test_no_event_is_lost_when_virtual_time_outruns_the_wall_a_hundred_times(trace):
    minute = 60 * 1_500_000_000

    def run():
        for _ in range(20):
            torch.musa._sleep(minute)

    prof = profiled(run)
    events = trace(prof)
    kernels = with_category(events, "kernel")
    span = next(e for e in with_category(events, "Trace") if e["name"].startswith("PyTorch Profiler"))
    assert len(kernels) == len(device_events(prof)) == 20
    assert kernels[-1]["ts"] + kernels[-1]["dur"] - span["ts"] > 100 * span["dur"]
    total = next(e for e in prof.key_averages() if e.key == "musa_musa__sleep")
    assert total.count == 20
    assert total.self_device_time_total == pytest.approx(20 * 60e6, rel=0.01)


def test_backward_in_its_own_thread_is_linked_too(trace):
    weight = torch.ones(32, 32, device="musa", requires_grad=True)
    events = trace(profiled(lambda: (weight @ weight).sum().backward()))
    operators = {e["args"]["External id"]: e for e in with_category(events, "cpu_op")}
    products = [e for e in with_category(events, "kernel") if e["name"] == "musa_mm"]
    threads = {operators[e["args"]["External id"]]["tid"] for e in products}
    assert len(products) == 3
    assert len(threads) == 2


def test_ranges_of_the_user_appear_on_the_streams_they_gave_work_to(trace):
    side = torch.musa.Stream()

    def run():
        with record_function("outer"):
            sleep()
            with record_function("inner"), torch.musa.stream(side):
                sleep()
            sleep()

    events = trace(profiled(run))
    ranges = defaultdict(list)
    for event in with_category(events, "gpu_user_annotation"):
        ranges[event["name"]].append(event)
    kernels = with_category(events, "kernel")
    assert len(ranges["outer"]) == 2
    assert len(ranges["inner"]) == 1
    outer = next(e for e in ranges["outer"] if e["tid"] == kernels[0]["tid"])
    inner = ranges["inner"][0]
    assert inner["tid"] == kernels[1]["tid"] != outer["tid"]
    assert outer["ts"] <= kernels[0]["ts"]
    assert outer["ts"] + outer["dur"] >= kernels[2]["ts"] + kernels[2]["dur"]
    assert inner["dur"] == pytest.approx(kernels[1]["dur"], abs=0.01)


def test_each_card_has_rows_of_its_own(trace):
    def run():
        for card in (0, 1, 2):
            torch.ones(8, 8, device=f"musa:{card}").add_(1)

    prof = profiled(run)
    events = trace(prof)
    cards = {row_name(events, e)[0] for e in with_category(events, "kernel")}
    assert cards == {f"musa:{card} (virtual)" for card in (0, 1, 2)}
    assert {e.device_index for e in device_events(prof)} == {0, 1, 2}


def test_threads_without_a_profiler_of_their_own_are_seen():
    def work():
        with torch.musa.stream(torch.musa.Stream()):
            for _ in range(10):
                sleep()

    def run():
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    events = device_events(profiled(run))
    assert len(events) == 40
    assert len({e.device_resource_id for e in events}) == 4


def test_a_schedule_gives_each_cycle_its_own_events():
    cycles = []
    with profile(
        activities=BOTH,
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=lambda prof: cycles.append([e.name for e in device_events(prof)]),
    ) as prof:
        for _ in range(9):
            sleep()
            prof.step()
    assert cycles == [["musa_musa__sleep"] * 2] * 2


def test_an_exception_inside_ends_the_session():
    prof = profile(activities=BOTH)
    with pytest.raises(ZeroDivisionError), prof:
        _ = sleep() or 1 / 0
    assert len(device_events(prof)) == 1
    assert not watched_by_profiler()
    assert len(device_events(profiled(sleep))) == 1


def test_a_session_inside_another_leaves_the_next_one_working():
    with profile(activities=BOTH):
        sleep()
        inner = profiled(sleep)
    assert len(device_events(inner)) == 1
    assert not watched_by_profiler()
    assert len(device_events(profiled(sleep))) == 1


def test_nothing_is_watched_without_the_device_activity():
    seen = []
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        seen.append(watched_by_profiler())
        block()
    with profile(activities=BOTH):
        seen.append(watched_by_profiler())
    assert seen == [False, True]
    assert not watched_by_profiler()
    assert not device_events(prof)


def test_device_activity_alone_records_the_kernels():
    with profile(activities=[ProfilerActivity.PrivateUse1]) as prof:
        block()
    assert "musa_mm" in [e.name for e in device_events(prof)]


def test_memory_of_the_card_is_in_table_and_time_line(tmp_path: Path):
    def run():
        kept = torch.empty(1 << 20, device="musa")
        kept.add(1)

    prof = profiled(run, profile_memory=True, record_shapes=True, with_stack=True)
    add = next(e for e in prof.key_averages() if e.key == "aten::add")
    assert add.device_memory_usage == 4 << 20
    assert "MUSA Mem" in prof.key_averages().table()
    path = tmp_path / "memory.raw.json"
    with pytest.warns(FutureWarning):
        prof.export_memory_timeline(str(path), device="musa:0")
    _times, *events = zip(*json.loads(path.read_text()), strict=True)
    assert events
    path = tmp_path / "memory.json"
    prof.export_memory_timeline(str(path), device="musa:0")
    _times, sizes = json.loads(path.read_text())
    assert max(sum(row) for row in sizes) >= 8 << 20


def test_stacks_are_exported_with_device_time(tmp_path: Path):
    config = torch._C._profiler._ExperimentalConfig(verbose=True)
    prof = profiled(block, with_stack=True, experimental_config=config)
    path = tmp_path / "stacks.txt"
    prof.export_stacks(str(path), "self_privateuse1_time_total")
    assert "test_profiler.py" in path.read_text()
