"""Handles of streams and events: flags, priorities, what is refused."""

from __future__ import annotations

import pytest
from musart_child import Child


def test_priorities_are_clamped_to_the_range(child: Child) -> None:
    code = """
    least, greatest = ctypes.c_int(), ctypes.c_int()
    m.call("musaDeviceGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    print(least.value, greatest.value)
    for wish in (0, -1, greatest.value, -100, 5):
        got = ctypes.c_int(99)
        m.call("musaStreamGetPriority", m.stream(priority=wish), ctypes.byref(got))
        print(got.value)
    """
    assert child(code).split() == ["0", "-3", "0", "-1", "-3", "-3", "0"]


def test_flags_device_and_id_of_a_stream(child: Child) -> None:
    code = """
    def flags(s):
        got = ctypes.c_uint(99); m.call("musaStreamGetFlags", s, ctypes.byref(got)); return got.value
    m.set_device(2)
    s, b, d = m.stream(), m.stream(flags=0), m.default_stream(1)
    print([flags(x) for x in (s, b, d, None)])
    print([m.lib.musaSimStreamDevice(x) for x in (s, b, d, None)])
    ids = [m.lib.musaSimStreamId(x) for x in (s, b, d, None)]
    print(ids[2:], ids[0] > 0 and ids[1] > 0 and ids[0] != ids[1])
    """
    assert child(code).splitlines() == ["[1, 0, 0, 0]", "[2, 2, 1, 2]", "[0, 0] True"]


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        ("m.stream(flags=2)", "musaErrorInvalidValue", "accepted"),
        ("m.event(flags=8)", "musaErrorInvalidValue", "accepted"),
        ("m.event(flags=4)", "musaErrorInvalidValue", "musaEventDisableTiming"),
        ("m.call('musaStreamDestroy', None)", "musaErrorInvalidResourceHandle", "default stream"),
        ("m.call('musaStreamDestroy', m.default_stream())", "musaErrorInvalidResourceHandle", "default stream"),
        ("s = m.stream(); [m.call('musaStreamDestroy', s) for _ in '12']", "musaErrorInvalidResourceHandle", "before"),
        ("s = m.stream(); m.call('musaStreamDestroy', s); m.launch(s)", "musaErrorInvalidResourceHandle", "destroyed"),
        ("e = m.event(); [m.call('musaEventDestroy', e) for _ in '12']", "musaErrorInvalidResourceHandle", "destroyed"),
        ("m.record(None)", "musaErrorInvalidResourceHandle", "NULL"),
        ("m.elapsed_ns(m.event(), m.event())", "musaErrorInvalidResourceHandle", "start event was never recorded"),
        (
            "e = m.event(); m.record(e); m.elapsed_ns(e, m.event())",
            "musaErrorInvalidResourceHandle",
            "end event was never",
        ),
        ("e = m.event(2); m.record(e); m.elapsed_ns(e, e)", "musaErrorInvalidResourceHandle", "timing disabled"),
        ("m.call('musaStreamWaitEvent', None, m.event(), 1)", "musaErrorInvalidValue", "flags must be 0"),
        ("m.launch(None, flops=-1)", "musaErrorInvalidValue", "cost"),
        ("m.launch(None, flops=float('nan'))", "musaErrorInvalidValue", "cost"),
        ("m.launch(None, dtype=9)", "musaErrorInvalidValue", "dtype"),
    ],
)
def test_misuse_is_refused(child: Child, code: str, name: str, words: str) -> None:
    text = child.fails(code)
    assert text.startswith(name)
    assert words in text


def test_elapsed_time_of_unfinished_work_is_not_ready(child: Child) -> None:
    code = """
    e, f = m.event(), m.event()
    m.record(e); m.launch(bytes=1e9); m.record(f)
    ns, ms = ctypes.c_int64(), ctypes.c_float()
    print(m.error_name(m.lib.musaSimEventElapsedNs(ctypes.byref(ns), e, f)))
    m.call("musaEventSynchronize", f)
    m.call("musaEventElapsedTime", ctypes.byref(ms), e, f)
    print(abs(ms.value * 1e6 - m.elapsed_ns(e, f)) < 64, m.elapsed_ns(f, e) == -m.elapsed_ns(e, f))
    """
    assert child(code).split() == ["musaErrorNotReady", "True", "True"]


def test_event_never_recorded_is_complete_and_holds_nothing_up(child: Child) -> None:
    code = """
    e, s = m.event(), m.stream()
    m.wait_event(s, e)
    print(m.lib.musaEventQuery(e), m.tail(s)); m.call("musaEventSynchronize", e)
    """
    assert child(code) == "0 0"


def test_recording_again_moves_the_event(child: Child, round_card: str) -> None:
    code = """
    e, s, t = m.event(), m.stream(), m.stream()
    m.launch(s); m.record(e, s); m.launch(s); m.record(e, s); m.wait_event(t, e); print(m.tail(t))
    """
    assert child(code, CARD=round_card) == "5000"


def test_absurd_cost_does_not_overflow_the_clock(child: Child) -> None:
    code = "a, b = m.launch(None, flops=1e300); c, d = m.launch(None); print(0 < a < b <= c < d)"
    assert child(code) == "True"


def test_streams_and_events_made_and_destroyed_without_end_take_no_memory(child: Child) -> None:
    code = """
    def churn(n):
        for _ in range(n):
            m.call("musaStreamDestroy", m.stream()); m.call("musaEventDestroy", m.event())
    def resident(): return int(open("/proc/self/statm").read().split()[1])
    churn(6000); before = resident(); churn(20000)
    print(resident() - before < 100)
    """
    assert child(code) == "True"


def test_only_living_streams_count_as_handles(child: Child) -> None:
    code = """
    m.set_device(0)
    s = m.stream(); print(m.stream_is_alive(s), m.stream_is_alive(m.default_stream(0)))
    m.call("musaStreamDestroy", s); print(m.stream_is_alive(s), m.stream_is_alive(0), m.stream_is_alive(s + 64))
    """
    assert child(code).split() == ["True", "True", "False", "False", "False"]
