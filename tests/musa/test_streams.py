"""torch.musa: streams and events."""

import contextlib
import threading

import pytest
import torch


def test_a_stream_is_current_inside_its_context_only():
    stream = torch.musa.Stream()
    before = torch.musa.current_stream()
    with torch.musa.stream(stream):
        assert torch.musa.current_stream() == stream == torch.accelerator.current_stream()
        with torch.musa.stream(None):
            assert torch.musa.current_stream() == stream
    assert torch.musa.current_stream() == before == torch.musa.default_stream()


def test_context_of_a_stream_of_another_card():
    stream = torch.musa.Stream(device=1)
    seen = []
    with contextlib.suppress(KeyError), torch.musa.stream(stream):
        seen += [torch.musa.current_device(), torch.musa.current_stream()]
        raise KeyError
    assert seen == [1, stream]
    assert torch.musa.current_device() == 0
    assert torch.musa.current_stream(1) == torch.musa.default_stream(1)


def test_current_stream_belongs_to_the_thread():
    seen = []
    with torch.musa.stream(torch.musa.Stream()):
        thread = threading.Thread(target=lambda: seen.append(torch.musa.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.musa.default_stream()]


def test_priorities():
    least, greatest = torch.musa.Stream.priority_range()
    assert greatest < least == 0
    assert torch.musa.Stream().priority == 0
    assert torch.musa.Stream(priority=greatest).priority == greatest


def test_streams_are_equal_by_identity_of_the_queue():
    stream = torch.musa.Stream()
    again = torch.musa.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    plain = torch.Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
    assert stream == again == plain
    assert plain == stream
    assert len({stream, again}) == 1
    assert stream != torch.musa.default_stream()
    assert stream != "stream"
    assert stream._as_parameter_.value == stream.musa_stream == again.musa_stream


def test_waiting_orders_virtual_time():
    first, second = torch.musa.Stream(), torch.musa.Stream()
    with torch.musa.stream(first):
        torch.musa._sleep(10_000_000)
    assert not first.query()
    second.wait_stream(first)
    done = second.record_event()
    assert isinstance(done, torch.musa.Event)
    assert not done.query()
    done.synchronize()
    assert first.query()
    assert second.query()


def test_wrong_streams_and_events_are_refused():
    with pytest.raises(TypeError, match=r"expected a torch\.musa\.Stream"):
        torch.musa.stream("default")
    with pytest.raises(NotImplementedError, match="interprocess=False"):
        torch.musa.Event(interprocess=True)
