"""torch.musa.nvtx and torch.musa.profiler: ranges, and a recording that is switched on and off."""

import json
import threading
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

nvtx = torch.musa.nvtx


def profiled(run):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
        run()
    return prof


def names(prof) -> list[str]:
    return [e.name for e in prof.events() if e.device_type == torch.autograd.DeviceType.CPU]


def test_ranges_nest_and_count_their_depth():
    depths = []

    def run():
        depths.append(nvtx.range_push("outer"))
        depths.append(nvtx.range_push("inner"))
        torch.ones(1, device="musa")
        depths.append(nvtx.range_pop())
        depths.append(nvtx.range_pop())
        depths.append(nvtx.range_pop())

    prof = profiled(run)
    assert depths == [0, 1, 1, 0, -2]
    assert {"outer", "inner"} <= set(names(prof))
    on_the_card = [e.name for e in prof.events() if e.is_user_annotation and e.device_index == 0]
    assert {"outer", "inner"} <= set(on_the_card)


def test_a_range_may_end_in_another_thread():
    def run():
        handle = nvtx.range_start("across")
        thread = threading.Thread(target=nvtx.range_end, args=(handle,))
        thread.start()
        thread.join()

    assert "across" in names(profiled(run))


def test_ending_a_range_that_isnt_open_is_refused():
    handle = nvtx.range_start("once")
    nvtx.range_end(handle)
    with pytest.raises(ValueError, match="can be ended once"):
        nvtx.range_end(handle)


def test_marks_blocks_and_decorated_functions_are_shown():
    @nvtx.range("call {}", 7)
    def call():
        nvtx.mark("here")

    def run():
        call()
        with nvtx.range("block"):
            pass

    assert {"call 7", "here", "block"} <= set(names(profiled(run)))


def test_ranges_cost_nothing_without_a_profiler():
    assert nvtx.range_push("unseen") == 0
    nvtx.mark("unseen")
    assert nvtx.range_pop() == 0


def test_a_recording_is_started_and_stopped(tmp_path: Path):
    path = tmp_path / "trace.json"
    torch.musa.profiler.init(str(path))
    try:
        with torch.musa.profiler.profile():
            torch.ones(4, 4, device="musa") @ torch.ones(4, 4, device="musa")
        events = json.loads(path.read_text())["traceEvents"]
        assert "musa_mm" in [e["name"] for e in events if e.get("cat") == "kernel"]
    finally:
        torch.musa.profiler._output_file = None
    torch.musa.profiler.start()
    torch.ones(1, device="musa")
    recorded = torch.musa.profiler.stop()
    assert "musa_fill__Scalar" in [e.key for e in recorded.key_averages()]
    assert torch.musa.profiler.stop() is None


def test_starting_inside_a_profile_leaves_that_alone():
    def run():
        torch.musa.profiler.start()
        torch.ones(1, device="musa")
        assert torch.musa.profiler.stop() is None
        torch.ones(1, device="musa")

    assert names(profiled(run)).count("aten::fill_") == 2


def test_an_output_mode_that_never_was_is_refused():
    with pytest.raises(ValueError, match="output modes"):
        torch.musa.profiler.init("x", output_mode="xml")


def habits():
    half = torch.ones(9, 9, device="musa", dtype=torch.half)
    return (
        torch.zeros(64).to("musa"),
        half @ half,
        torch.ones(64, 64, device="musa") @ torch.ones(64, 64, device="musa"),
    )


def patterned():
    config = torch._C._profiler._ExperimentalConfig(verbose=True)
    both = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with profile(activities=both, record_shapes=True, with_stack=True, experimental_config=config) as prof:
        habits()
    return prof


def test_habits_that_cost_time_are_found_and_priced(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    prof = patterned()
    torch.musa.profiler.report_all_anti_patterns(prof, should_benchmark=True, json_report_dir=str(tmp_path))
    text = capsys.readouterr().out
    assert "A tensor was filled on the CPU and moved to a card at once" in text
    assert "Extra MUSA Copy Pattern: 1 events matched" in text
    assert "dimension not aligned" in text
    report = json.loads((tmp_path / "torchtidy_report.json").read_text())
    assert any(path.endswith("test_profiler_ranges.py") for path in report)


def test_creating_on_the_card_is_the_cheaper_way():
    pattern = torch.musa.profiler.ExtraMUSACopyPattern(patterned())
    (event,) = pattern.matched_events()
    (ratio,) = pattern.benchmark([event]).values()
    assert 0 < ratio < 1


def test_fp32_products_are_found_where_tf32_would_help():
    pattern = torch.musa.profiler.FP32MatMulPattern(patterned())
    found = pattern.matched_events()
    assert [event.name for event in found] == ["aten::mm"]
    assert "allow_tf32" in pattern.report(found[0])


def test_the_evaluation_counts_launches_whose_work_hasnt_begun():
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
        for _ in range(8):
            torch.musa._sleep(150_000_000)  # 100 ms each: far longer than the host takes
    evaluation = torch.musa.profiler.BasicEvaluation(prof.profiler)
    depths = [interval.queue_depth for interval in evaluation.queue_depth_list]
    assert len(depths) == 16
    assert max(depths) == 7
    assert evaluation.get_optimizable_events(1, print_enable=False) is not None


def test_the_analyses_are_beside_torchs():
    assert torch.profiler.ExtraMUSACopyPattern is torch.musa.profiler.ExtraMUSACopyPattern
    assert torch.profiler.BasicEvaluation is torch.musa.profiler.BasicEvaluation
    with pytest.raises(AttributeError, match="nonsense"):
        torch.profiler.nonsense  # noqa: B018
