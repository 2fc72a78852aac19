"""torch.musa.Event measures the card's virtual time."""

import pytest
import torch


def recorded(**options: bool) -> torch.musa.Event:
    event = torch.musa.Event(**options)
    event.record()
    return event


def test_elapsed_time_is_the_virtual_time_between_two_events():
    data = torch.ones(1 << 20, device="musa")
    torch.musa.synchronize()

    def span(additions: int) -> float:
        start = recorded(enable_timing=True)
        for _ in range(additions):
            data.add_(1)
        end = recorded(enable_timing=True)
        end.synchronize()
        return start.elapsed_time(end)

    few, many = span(10), span(100)
    assert 0 < few < many
    assert span(100) == pytest.approx(many, rel=1e-3)


def test_plain_torch_event_as_the_second_one():
    start = recorded(enable_timing=True)
    end = torch.Event("musa", enable_timing=True)
    end.record(torch.musa.current_stream())
    end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_events_that_can_not_tell():
    timed = recorded(enable_timing=True)
    with pytest.raises(RuntimeError, match="recorded"):
        timed.elapsed_time(torch.musa.Event(enable_timing=True))
    with pytest.raises(RuntimeError, match="timing"):
        timed.elapsed_time(recorded(enable_timing=False))
    with pytest.raises(RuntimeError, match="musa"):
        timed.elapsed_time(torch.Event("cpu"))
