"""Virtual clocks: schedules computed by hand, to the nanosecond.

On the round card a launch costs the host 1,000 ns, a synchronising call 500, a query 100; an empty kernel takes the
card 2,000 ns and an empty copy 3,000. Device memory moves 1,000 bytes a ns, pinned memory 10 to the card and 5 back,
pageable memory 4 and 2, another card 20; fp32 does 1,000 operations a ns. So KERNEL (8 MB) takes 10,000 ns, and 1 MB
takes 103,000 ns from pinned memory, 203,000 back, 53,000 to another card.
"""

from __future__ import annotations

from typing import Any

import pytest
from musart_child import Child

SETUP = """
def kernel(stream=None): return m.launch(stream, bytes=8_000_000)
def sync(stream=None): m.call("musaStreamSynchronize", stream); return m.host_clock()
MB = 1_000_000
s, t = m.stream(), m.stream()
e, f = m.event(), m.event()
assert m.host_clock() == 0
"""

SCHEDULES: dict[str, tuple[str, list[Any]]] = {
    "one kernel, then wait for it": (
        "kernel(s), sync(s)",
        [(1000, 11000), 11500],
    ),
    "two kernels on one stream follow each other": (
        "kernel(s), kernel(s), m.host_clock(), sync(s)",
        [(1000, 11000), (11000, 21000), 2000, 21500],
    ),
    "two streams overlap": (
        "kernel(s), kernel(t), m.call('musaDeviceSynchronize'), m.host_clock()",
        [(1000, 11000), (2000, 12000), None, 12500],
    ),
    "wait_event orders two streams": (
        "kernel(s), m.record(e, s), m.wait_event(t, e), kernel(t), m.host_clock()",
        [(1000, 11000), None, None, (11000, 21000), 2000],
    ),
    "an event recorded before the kernel holds nothing up": (
        "m.record(e, s), kernel(s), m.wait_event(t, e), kernel(t)",
        [None, (1000, 11000), None, (2000, 12000)],
    ),
    "a pinned copy runs beside a kernel, the next kernel waits for it": (
        "m.launch_copy(s, 0, -1, MB), kernel(t), m.record(e, s), m.wait_event(t, e), kernel(t), sync(t)",
        [(1000, 104000), (2000, 12000), None, None, (104000, 114000), 114500],
    ),
    "a pinned copy to the host is asynchronous, slower, and ends with its event": (
        "m.launch_copy(s, -1, 0, MB), m.record(e, s), m.host_clock(), "
        "m.call('musaEventSynchronize', e), m.host_clock()",
        [(1000, 204000), None, 1000, None, 204500],
    ),
    "a pageable copy holds the host up": (
        "m.launch_copy(s, 0, -1, MB, False), m.host_clock(), kernel(t)",
        [(1000, 254000), 254500, (255500, 265500)],
    ),
    "a copy to another card after the kernel that made the data": (
        "kernel(s), m.launch_copy(s, 1, 0, MB), m.record(e, s), "
        "m.set_device(1), m.wait_event(None, e), kernel(), sync()",
        [(1000, 11000), (11000, 64000), None, None, None, (64000, 74000), 74500],
    ),
    "a copy within a card reads and writes its memory": (
        "m.launch_copy(s, 0, 0, MB), m.launch_copy(s, 0, 0, 0)",
        [(1000, 6000), (6000, 9000)],
    ),
    "short kernels queue up behind the host": (
        "m.launch(s), m.launch(s), m.launch(s), m.host_clock(), m.tail(s)",
        [(1000, 3000), (3000, 5000), (5000, 7000), 3000, 7000],
    ),
    "a busy host leaves the card idle": (
        "kernel(s), m.lib.musaSimHostAdvance(50000), kernel(s), m.record(e, s), sync(s)",
        [(1000, 11000), None, (52000, 62000), None, 62500],
    ),
    "elapsed time spans launch gap and kernels": (
        "m.record(e, s), kernel(s), kernel(s), m.record(f, s), sync(s), m.elapsed_ns(e, f)",
        [None, (1000, 11000), (11000, 21000), None, 21500, 21000],
    ),
    "the slower of arithmetic and memory decides": (
        "m.launch(s, 30_000_000, 8_000_000), m.launch(s, 3_000_000, 8_000_000), m.launch(s, 30_000_000, 0, m.BF16)",
        [(1000, 33000), (33000, 43000), (43000, 52500)],
    ),
    "part of a nanosecond counts as a whole one": (
        "m.launch(s, 1, 0), m.launch(s, 0, 1001), m.launch(s, 1001, 2001)",
        [(1000, 3001), (3001, 5003), (5003, 7006)],
    ),
    "a waiting loop of queries ends when the kernel does": (
        "kernel(s), m.record(e, s), polls(lambda: m.lib.musaStreamQuery(s)), m.host_clock(), m.lib.musaEventQuery(e)",
        [(1000, 11000), None, 100, 11000, 0],
    ),
    "the default stream and blocking streams of its card wait for each other": (
        "kernel(b), kernel(), kernel(b), kernel(s), m.tail(), sync()",
        [(1000, 11000), (11000, 21000), (21000, 31000), (4000, 14000), 31000, 31500],
    ),
    "default streams of two cards are independent": (
        "kernel(), kernel(m.default_stream(1)), m.call('musaDeviceSynchronize'), m.host_clock()",
        [(1000, 11000), (2000, 12000), None, 11500],
    ),
    "an empty stream costs only the call": (
        "sync(s), m.call('musaDeviceSynchronize'), m.host_clock(), m.lib.musaStreamQuery(s), m.host_clock()",
        [500, None, 1000, 0, 1000],
    ),
    "a destroyed stream's work still counts for its card": (
        "kernel(t), m.call('musaStreamDestroy', t), m.call('musaDeviceSynchronize'), m.host_clock()",
        [(1000, 11000), None, None, 11500],
    ),
}

POLLS = """
def polls(query):
    count = 0
    while query() == 600: count += 1
    return count
b = m.stream(flags=0)
"""


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(child: Child, round_card: str, name: str) -> None:
    steps, expected = SCHEDULES[name]
    code = SETUP + POLLS + f"print(({steps}))"
    assert child(code, CARD=round_card) == str(tuple(expected))


def test_copies_that_move_bytes_take_the_same_time(child: Child, round_card: str) -> None:
    code = (
        SETUP
        + """
d = m.malloc(MB); m.set_device(1); other = m.malloc(MB); m.set_device(0)
buffer = ctypes.create_string_buffer(MB)
pinned, plain = m.malloc_host(MB), ctypes.addressof(buffer)
def step(name, *arguments):
    before = m.host_clock(); m.call(name, *arguments)
    print(name, m.host_clock() - before, *([m.tail(s) - before] if s in arguments else []))
step("musaMemcpyAsync", d, pinned, MB, m.H2D, s); sync(s)
step("musaMemcpyAsync", d, plain, MB, m.H2D, s); sync(s)
step("musaMemcpyAsync", pinned, d, MB, m.D2H, s); sync(s)
step("musaMemcpyAsync", plain, d, MB, m.D2H, s); sync(s)
step("musaMemcpyPeerAsync", other, 1, d, 0, MB, s); sync(s)
step("musaMemsetAsync", d, 0, MB, s); sync(s)
step("musaMemcpy", d, pinned, MB, m.H2D)
step("musaMemcpy", pinned, d, MB, m.D2H)
step("musaMemcpy", d, d, MB, m.D2D)
step("musaMemcpy", plain, pinned, MB, m.H2H)
"""
    )
    assert child(code, CARD=round_card).splitlines() == [
        "musaMemcpyAsync 1000 104000",
        "musaMemcpyAsync 254500 254000",
        "musaMemcpyAsync 1000 204000",
        "musaMemcpyAsync 504500 504000",
        "musaMemcpyPeerAsync 1000 54000",
        "musaMemsetAsync 1000 4000",
        "musaMemcpy 104500",
        "musaMemcpy 204500",
        "musaMemcpy 1000",
        "musaMemcpy 0",
    ]


def test_launch_blocking_waits_after_each_launch(child: Child, round_card: str) -> None:
    code = SETUP + "print(kernel(s), m.host_clock(), m.launch_copy(s, 0, -1, MB), m.host_clock())"
    expected = "(1000, 11000) 11500 (12500, 115500) 116000"
    assert child(code, CARD=round_card, MUSA_LAUNCH_BLOCKING="1") == expected


def test_allocations_advance_the_host_by_the_cards_constant(child: Child) -> None:
    code = "p = m.malloc(512); print(m.host_clock()); m.free(p); print(m.host_clock())"
    assert child(code).split() == ["100000", "200000"]


def test_clocks_know_nothing_of_wall_time(child: Child, round_card: str) -> None:
    code = SETUP + "import time; kernel(s); time.sleep(0.05); print(kernel(s), m.host_clock())"
    assert child(code, CARD=round_card) == "(11000, 21000) 2000"


def test_several_threads_keep_the_order_of_each_stream(child: Child, round_card: str) -> None:
    code = (
        SETUP
        + """
import threading
spans = {}
def work(i):
    own = m.stream()
    spans[i] = [kernel(own) for _ in range(300)]
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert all(end - start == 10000 for row in spans.values() for start, end in row)
assert all(a[1] <= b[0] for row in spans.values() for a, b in zip(row, row[1:]))
print(m.host_clock())
shared = []
threads = [threading.Thread(target=lambda: shared.extend(kernel(s) for _ in range(300))) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
shared.sort()
assert all(a[1] <= b[0] for a, b in zip(shared, shared[1:])), "two kernels at once on one stream"
print(m.host_clock(), len(shared))
"""
    )
    assert child(code, CARD=round_card).split() == ["1200000", "2400000", "1200"]
