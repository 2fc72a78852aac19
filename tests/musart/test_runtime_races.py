"""The race checker: which waits order two accesses, and what happens to copies that weren't waited for."""

from __future__ import annotations

import pytest
from musart_child import Child

PRELUDE = """
s, t, u, d = m.stream(), m.stream(), m.stream(), m.default_stream()
b, c = m.stream(0), m.stream(0)  # blocking streams
p = m.malloc(4096)
def raced(act, *arguments):
    try:
        act(*arguments)
    except m.MusaError as error:
        assert error.name == "musaErrorSimRace", error
        return error.detail
    return ""
def sync(stream): m.call("musaStreamSynchronize", stream)
"""

# Ways from a write on stream s to a read on stream t, and whether they order the two.
ORDERS = {
    "nothing": ("pass", False),
    "event": ("e = m.event(); m.record(e, s); m.wait_event(t, e)", True),
    "event recorded before the write": ("m.wait_event(t, early)", False),
    "event recorded again after the write": ("m.record(early, s); m.wait_event(t, early)", True),
    "wait for an event that was recorded again elsewhere": (
        "e = m.event(); m.record(e, s); m.record(e, u); m.wait_event(t, e)",
        False,
    ),
    "the wrong stream waits": ("e = m.event(); m.record(e, s); m.wait_event(u, e)", False),
    "through a third stream": (
        "e, f = m.event(), m.event(); m.record(e, s); m.wait_event(u, e); m.record(f, u); m.wait_event(t, f)",
        True,
    ),
    "a third stream that passed on too early": (
        "e, f = m.event(), m.event(); m.record(f, u); m.record(e, s); m.wait_event(u, e); m.wait_event(t, f)",
        False,
    ),
    "host waits for the stream": ("sync(s)", True),
    "host waits for another stream": ("sync(u)", False),
    "host waits for the card": ("m.call('musaDeviceSynchronize')", True),
    "host waits for another card": ("m.set_device(1); m.call('musaDeviceSynchronize'); m.set_device(0)", False),
    "host waits for an event": ("e = m.event(); m.record(e, s); m.call('musaEventSynchronize', e)", True),
    "host waits for an early event": ("m.call('musaEventSynchronize', early)", False),
    "host sees the event done": (
        "e = m.event(); m.record(e, s)\nwhile m.lib.musaEventQuery(e): pass",
        True,
    ),
    "host sees the stream done": ("while m.lib.musaStreamQuery(s): pass", True),
    "time alone passes": ("m.lib.musaSimHostAdvance(10**12)", False),
    "an allocator sees the event done": (
        "e = m.event(); m.record(e, s); m.call('musaSimEventPassed', e, 1)",
        False,
    ),
    "stream waits for stream": ("m.call('musaSimStreamWaitStream', t, s)", True),
    "stream waits for stream, the wrong way round": ("m.call('musaSimStreamWaitStream', s, t)", False),
    "the stream was destroyed and the card waited for": (
        "m.call('musaStreamDestroy', s); m.call('musaDeviceSynchronize')",
        True,
    ),
    "the stream was destroyed": ("m.call('musaStreamDestroy', s)", False),
}


@pytest.mark.parametrize("way", ORDERS)
def test_what_orders_two_streams(child: Child, way: str) -> None:
    code, ordered = ORDERS[way]
    script = PRELUDE + "early = m.event(); m.record(early, s)\nm.write(s, p, 512)\n" + code
    script += "\nprint(bool(raced(m.read, t, p, 512)))"
    assert child(script, STRICT="1") == str(not ordered)


@pytest.mark.parametrize(
    ("first", "second", "ordered"),
    [("b", "d", True), ("d", "b", True), ("b", "c", False), ("d", "s", False), ("s", "d", False), ("s", "s", True)],
)
def test_default_stream_and_blocking_streams_of_a_card_wait_for_each_other(
    child: Child, first: str, second: str, ordered: bool
) -> None:
    script = PRELUDE + f"m.write({first}, p, 512); print(bool(raced(m.write, {second}, p, 512)))"
    assert child(script, STRICT="1") == str(not ordered)


def test_blocking_streams_are_ordered_through_the_default_stream_only(child: Child) -> None:
    code = (
        "m.write(b, p, 512); m.read(d, p, 64); print(bool(raced(m.write, c, p, 512)), bool(raced(m.read, b, p, 512)))"
    )
    assert child(PRELUDE + code, STRICT="1") == "False True"


@pytest.mark.parametrize(
    ("first", "second", "races"),
    [("read", "read", False), ("read", "write", True), ("write", "read", True), ("write", "write", True)],
)
def test_only_two_reads_need_no_order(child: Child, first: str, second: str, races: bool) -> None:
    script = PRELUDE + f"m.{first}(s, p, 512); print(bool(raced(m.{second}, t, p, 512)))"
    assert child(script, STRICT="1") == str(races)


def test_bytes_decide_not_blocks(child: Child) -> None:
    code = """
    import textwrap
    m.write(s, p, 1024); m.write(t, p + 1024, 1024)
    print(bool(raced(m.read, s, p + 1023, 1)), bool(raced(m.read, s, p + 1024, 1)), bool(raced(m.read, u, p, 1)))
    print("1 bytes at" in raced(m.read, s, p + 1023, 2))
    """
    out = child(PRELUDE + _dedent(code), STRICT="1").split()
    assert out == ["False", "True", "True", "True"]


def test_a_write_must_be_ordered_behind_every_reader(child: Child) -> None:
    code = """
    m.write(s, p, 512); sync(s)
    m.read(t, p, 512, "left"); m.read(u, p, 512, "right")
    m.call("musaSimStreamWaitStream", s, t)
    print("right" in raced(m.write, s, p, 512))
    m.call("musaSimStreamWaitStream", s, u)
    print(raced(m.write, s, p, 512) == "")
    """
    assert child(PRELUDE + _dedent(code), STRICT="1").split() == ["True", "True"]


def test_report_names_both_sides_and_what_is_missing(child: Child) -> None:
    code = """
    m.write(s, p, 512, "first"); text = raced(m.read, d, p, 512, "second"); print(text)
    """
    text = child(PRELUDE + _dedent(code), STRICT="1")
    for words in (
        "first writes on stream 1 of musa:0",
        "second reads on the default stream of musa:0",
        "512 bytes",
        "has never waited for stream 1",
        "wait_event",
    ):
        assert words in text
    early = child(
        PRELUDE + "m.call('musaSimStreamWaitStream', d, s)\nm.write(s, p, 8, 'first')\n"
        "m.call('musaSimStreamWaitStream', d, s); m.write(s, p, 8, 'again'); print(raced(m.read, d, p, 8))",
        STRICT="1",
    )
    assert "ends before again was launched" in early


def test_a_reused_block_must_be_ordered_behind_its_former_users(child: Child) -> None:
    code = """
    L = m.lib
    def new_life(owner):
        L.musaSimBlockFreed(p, 512); L.musaSimBlockTaken(p, 512, owner)
    L.musaSimBlockTaken(p, 512, s); m.write(s, p, 512, "fill")
    m.call("musaSimStreamWaitStream", t, s); m.read(t, p, 512, "use")
    new_life(s); text = raced(m.write, s, p, 512, "refill"); print("record_stream" in text, "use" in text)
    e = m.event(); m.record(e, t); L.musaSimBlockSettled(p, 512, e)
    print(raced(m.write, s, p, 512, "refill") == "")
    new_life(s); print("allocated on stream" in raced(m.write, u, p, 512, "elsewhere"))
    L.musaSimBlockSettled(p, 512, None); print(raced(m.write, u, p, 512) == "")
    """
    assert child(PRELUDE + _dedent(code), STRICT="1").split() == ["True"] * 5


def test_a_freed_block_must_not_be_touched(child: Child) -> None:
    code = """
    m.lib.musaSimBlockTaken(p, 512, s); m.write(s, p, 512); m.lib.musaSimBlockFreed(p, 512)
    print("after it was freed" in raced(m.read, s, p, 8))
    m.lib.musaSimBlockTaken(p, 512, s); print(raced(m.read, s, p, 8) == "")
    """
    assert child(PRELUDE + _dedent(code), STRICT="1").split() == ["True", "True"]


def test_memory_given_back_to_the_card_is_forgotten(child: Child) -> None:
    code = """
    m.write(s, p, 4096); m.free(p); q = m.malloc(4096); print(p == q, raced(m.write, t, q, 4096) == "")
    """
    assert child(PRELUDE + _dedent(code), STRICT="1").split() == ["True", "True"]


COPIES = (
    PRELUDE
    + """
h = m.malloc_host(512); view = (ctypes.c_ubyte * 512).from_address(h)
def host(): return set(bytes(view))
def fill(value): ctypes.memset(h, value, 512)
m.memset(p, 7, 512); sync(None)
"""
)


def test_copy_to_page_locked_memory_lands_when_it_is_waited_for(child: Child) -> None:
    code = """
    fill(1); m.copy_async(h, p, 512, s); print(host() == {0xA5})
    m.memset(p, 8, 512) if raced(m.write, d, p, 512) == "" else print("the source is in use")
    sync(u); print(host() == {0xA5}); m.lib.musaSimHostAdvance(10**12); print(host() == {0xA5})
    text = raced(m.call, "musaSimHostRead", h, 4, b"sum"); print("for sum" in text)
    sync(s); print(host() == {7}); print(raced(m.call, "musaSimHostRead", h, 4, b"sum") == "")
    """
    out = child(COPIES + _dedent(code), STRICT="1")
    assert out.replace("the source is in use", "True").split() == ["True"] * 7


def test_copy_lands_with_the_value_of_its_launch_and_before_ordered_copies_out_of_the_buffer(child: Child) -> None:
    code = """
    q = m.malloc(512)
    m.copy_async(h, p, 512, s); m.copy_async(q, h, 512, s); print(host() == {7})
    print(raced(m.copy_async, q, h, 512, t) != ""); sync(s); print(set(m.download(q, 512)) == {7})
    m.copy_async(h, p, 512, s)
    m.call("musaMemsetAsync", p, 9, 512, s); sync(s)
    print(host() == {7})
    """
    assert child(COPIES + _dedent(code), STRICT="1").split() == ["True"] * 4


def test_without_the_checker_a_copy_lands_at_once(child: Child) -> None:
    assert child(COPIES + "fill(1); m.copy_async(h, p, 512, s); print(host())") == "{7}"


def test_host_must_not_touch_either_end_of_a_copy_under_way(child: Child) -> None:
    code = """
    fill(1); m.copy_async(p, h, 512, d); fill(2)
    text = raced(sync, None); print("changed the source of musaMemcpyAsync" in text, "default stream" in text)
    print(set(m.download(p, 512)) == {2})
    m.copy_async(h, p, 512, d); fill(3); print("written to the target" in raced(sync, None), host() == {2})
    m.copy_async(p, h, 512, d); fill(4); m.memset(p, 5, 512); print("the source" in raced(sync, None))
    print(set(m.download(p, 512)) == {5})
    m.copy_async(p, h, 512, d); sync(None); fill(6); m.copy_async(h, p, 512, d); sync(None); print(host() == {4})
    """
    assert child(COPIES + _dedent(code), STRICT="1").split() == ["True"] * 8


def test_page_locked_memory_may_be_freed_under_a_copy(child: Child) -> None:
    assert child(COPIES + "m.copy_async(h, p, 512, s); m.free_host(h); sync(s); print('alive')", STRICT="1") == "alive"


def test_launch_blocking_orders_everything(child: Child) -> None:
    code = "m.write(s, p, 8); m.launch(s); print(raced(m.write, t, p, 8) == '')"
    settings = {"STRICT": "1", "MUSA_LAUNCH_BLOCKING": "1"}
    assert child(PRELUDE + code, **settings) == "True"


def test_warning_reports_each_pair_once_and_goes_on(child: Child) -> None:
    code = "\nfor _ in range(3): m.write(s, p, 8, 'one'); m.write(t, p, 8, 'two')"
    status, out, err = child.finish(PRELUDE + code, STRICT="warn")
    assert (status, out) == (0, "")
    assert err.count("one and two touch the same memory") == 1
    assert err.count("two and one touch the same memory") == 1


def _dedent(code: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in code.splitlines())
