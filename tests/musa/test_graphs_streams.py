"""Streams and events inside of a capture."""

import threading

import pytest
import torch

from torch_musa_sim import _C


def capture(graph, body):
    with torch.musa.graph(graph):
        return body()


def test_fork_and_join_captures_both_branches():
    x = torch.ones(4, device="musa")
    graph = torch.musa.MUSAGraph(keep_graph=True)
    side = torch.musa.Stream()
    with torch.musa.graph(graph):
        a = x + 1
        side.wait_stream(torch.musa.current_stream())
        with torch.musa.stream(side):
            assert torch.musa.is_current_stream_capturing()
            b = a * 10
        c = a * 100
        torch.musa.current_stream().wait_stream(side)
        d = b + c
    graph.instantiate()
    assert not torch.musa.is_current_stream_capturing()
    dependencies = [node["dependencies"] for node in graph.get_graph_data()["nodes"]]
    assert dependencies[:3] == [[], [0], [0]]
    assert sorted(dependencies[3]) == [1, 2]
    assert d.cpu().isnan().all()
    graph.replay()
    assert d.cpu().eq(220).all()


def test_branches_overlap_in_virtual_time():
    x = torch.ones(1 << 22, device="musa")
    side = torch.musa.Stream()

    def body(parallel):
        if parallel:
            side.wait_stream(torch.musa.current_stream())
        a = x * 2
        with torch.musa.stream(side if parallel else torch.musa.current_stream()):
            b = x * 3
        if parallel:
            torch.musa.current_stream().wait_stream(side)
        return a, b

    took = []
    for parallel in (False, True):
        graph = torch.musa.MUSAGraph()
        with torch.musa.graph(graph):
            outputs = body(parallel)
        torch.musa.synchronize()
        graph.replay()
        took.append(_C._stream_tail_ns(0, 0) - _C._host_clock_ns())
        assert outputs[1].cpu().eq(3).all()
    assert took[1] == pytest.approx(took[0] / 2, rel=0.01)


def test_unjoined_stream_is_an_error_at_the_end():
    x = torch.ones(4, device="musa")
    graph = torch.musa.MUSAGraph()
    side = torch.musa.Stream()

    def body():
        y = x + 1
        side.wait_stream(torch.musa.current_stream())
        with torch.musa.stream(side):
            y.add(1)

    with pytest.raises(RuntimeError, match="capturing stream has unjoined work"):
        capture(graph, body)
    with torch.musa.stream(side):
        assert not torch.musa.is_current_stream_capturing()
        assert (x + 1).cpu().eq(2).all()


def test_stream_beside_a_capture_runs_at_once():
    x = torch.ones(4, device="musa")
    other = torch.musa.Stream()
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        captured = x + 1
        with torch.musa.stream(other):
            assert not torch.musa.is_current_stream_capturing()
            at_once = x + 2
    torch.musa.synchronize()
    assert at_once.cpu().eq(3).all()
    assert captured.cpu().isnan().all()


def test_capture_must_end_on_its_stream():
    graph = torch.musa.MUSAGraph()
    first, second = torch.musa.Stream(), torch.musa.Stream()
    with torch.musa.stream(first):
        graph.capture_begin()
    with torch.musa.stream(second), pytest.raises(RuntimeError, match="must end on the same stream it began on"):
        graph.capture_end()
    with torch.musa.stream(first), pytest.warns(UserWarning, match="empty"):
        graph.capture_end()


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_ending_from_another_thread_depends_on_the_mode(mode):
    graph = torch.musa.MUSAGraph()
    stream = torch.musa.Stream()
    x = torch.zeros(2, device="musa")
    with torch.musa.stream(stream):
        graph.capture_begin(capture_error_mode=mode)
        x.add_(1)
    errors = []

    def end():
        with torch.musa.stream(stream):
            try:
                graph.capture_end()
            except RuntimeError as error:
                errors.append(str(error))

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    if mode == "relaxed":
        assert not errors
    else:
        assert "terminate a thread-local capture sequence from another thread" in errors[0]
        with torch.musa.stream(stream):
            graph.capture_end()
    graph.replay()
    assert x.cpu().eq(1).all()


def test_another_thread_on_the_captured_stream_is_captured_too():
    x = torch.zeros(3, device="musa")
    graph = torch.musa.MUSAGraph()
    stream = torch.musa.Stream()

    def work():
        with torch.musa.stream(stream):
            x.add_(5)

    with torch.musa.graph(graph, stream=stream):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert x.cpu().eq(0).all()
    graph.replay()
    assert x.cpu().eq(5).all()


def test_default_stream_cant_join():
    def body():
        with pytest.raises(RuntimeError, match="make the legacy stream depend on a capturing"):
            torch.musa.default_stream().wait_stream(torch.musa.current_stream())

    with pytest.raises(RuntimeError, match="previous error during capture"):
        capture(torch.musa.MUSAGraph(), body)


def test_two_captures_cant_merge():
    first, second = torch.musa.MUSAGraph(), torch.musa.MUSAGraph()
    one, other = torch.musa.Stream(), torch.musa.Stream()
    with torch.musa.stream(one):
        first.capture_begin()
    with torch.musa.stream(other):
        second.capture_begin()
        with pytest.raises(RuntimeError, match="merge of separate capture sequences"):
            other.wait_stream(one)
        with pytest.raises(RuntimeError, match="previous error"):
            second.capture_end()
    with torch.musa.stream(one), pytest.raises(RuntimeError, match="previous error"):
        first.capture_end()


def test_replays_of_two_cards_keep_apart():
    x = torch.zeros(2, device="musa:1")
    graph = torch.musa.MUSAGraph()
    with torch.musa.device(1), torch.musa.graph(graph, stream=torch.musa.Stream(1)):
        x.add_(1)
    torch.musa.synchronize(0)
    before = _C._stream_tail_ns(0, 0)
    graph.replay()
    assert x.cpu().eq(1).all()
    assert _C._stream_tail_ns(0, 0) == before


def test_sleep_is_captured():
    graph = torch.musa.MUSAGraph()
    torch.musa.synchronize()
    with torch.musa.graph(graph):
        torch.musa._sleep(1_000_000)
    torch.musa.synchronize()
    before = _C._host_clock_ns()
    graph.replay()
    torch.musa.synchronize()
    assert _C._host_clock_ns() - before > 500_000
