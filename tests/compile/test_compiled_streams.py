"""Streams, events and the current card inside compiled functions."""

import warnings

import torch
from compiled import MUSA, assert_close, regions


def test_stream_context_of_torch_musa():
    side = torch.musa.Stream()

    @torch.compile
    def f(x):
        y = x + 1
        side.wait_stream(torch.musa.current_stream())
        with torch.musa.stream(side):
            z = y * 2
        torch.musa.current_stream().wait_stream(side)
        return z

    x = torch.randn(4)
    assert_close(f(x.to(MUSA)), (x + 1) * 2)
    assert torch.musa.current_stream() == torch.musa.default_stream()


def test_events_and_streams_in_one_graph_work_on_their_streams():
    side = torch.Stream("musa")

    def f(x):
        y = x + 1
        event = torch.Event("musa")
        event.record()
        side.wait_event(event)
        with side:
            z = y @ y
        done = torch.Event("musa")
        done.record(side)
        done.wait()
        return z

    x = torch.randn(512, 512, device=MUSA)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = torch.compile(f, fullgraph=True)(x)
        busy = not side.query()
    assert busy  # the product is there
    assert_close(result, f(x), atol=1e-3, rtol=1e-4)
    ours = [str(w.message) for w in seen if "torch.compile runs" in str(w.message)]
    assert len(ours) == 1
    assert "stream" in ours[0]
    assert not regions()


def test_compiled_code_runs_on_the_callers_stream():
    f = torch.compile(lambda x: x.sin() + 1, fullgraph=True)
    x = torch.zeros(1 << 20, device=MUSA)
    f(x)
    torch.musa.synchronize()
    side = torch.musa.Stream()
    start, end = (torch.musa.Event(enable_timing=True) for _ in range(2))
    with torch.musa.stream(side):
        start.record()
        f(x)
        end.record()
    assert not end.query()  # the host hasn't waited for it ...
    assert torch.musa.current_stream().query()  # ... and nothing was given to the default stream
    side.synchronize()
    assert start.elapsed_time(end) > 1e-3


def test_current_card_inside_compiled_code():
    @torch.compile
    def f(x):
        with torch.musa.device(1):
            y = torch.ones(3, device="musa")
        return y, x + torch.musa.current_device()

    there, here = f(torch.zeros(2, device="musa:0"))
    assert there.device == torch.device("musa:1")
    assert_close(here, torch.zeros(2))
