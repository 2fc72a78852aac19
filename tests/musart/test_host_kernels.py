"""musaLaunchHostKernel: a function of the caller's runs on card memory, in stream order, at the price it names."""

from __future__ import annotations

import pytest
from musart_child import Child

KERNEL = """
    seen = []
    def add_one(pointers, args, user):
        size = args.contents.bytes[0]
        data = (ctypes.c_ubyte * size).from_address(pointers[0])
        for i in range(size):
            data[i] += 1
        seen.append((args.contents.name, args.contents.count, user))
    p = m.malloc(4096)
    m.memset(p, 6, 4096)
"""


def test_the_kernel_gets_memory_that_it_can_write(child: Child) -> None:
    code = (
        KERNEL
        + """
    m.launch_host_kernel(add_one, [(p, 16), (None, 0)], user=77)
    print(m.download(p, 17) == bytes([7] * 16 + [6]), seen)
    """
    )
    assert child(code).strip() == "True [(b'test', 2, 77)]"


def test_it_takes_its_cost_on_its_stream_and_no_other(child: Child, round_card: str) -> None:
    code = (
        KERNEL
        + """
    s, other = m.stream(), m.stream()
    card = m.card()
    cost = m.Cost(1e9, 1e6, m.BF16)
    expected = m.lib.musaSimKernelNs(ctypes.byref(card), ctypes.byref(cost))
    before, clock = m.tail(other), m.host_clock()
    m.launch_host_kernel(add_one, [(p, 16)], s, cost=cost)
    print(m.tail(s) - m.host_clock() == expected, m.host_clock() - clock == card.launch_ns, m.tail(other) == before)
    first = m.tail(s)
    m.launch_host_kernel(add_one, [(p, 16)], s, cost=cost)
    print(m.tail(s) - first == expected, m.download(p, 1) == bytes([8]))
    """
    )
    assert child(code, CARD=round_card).split() == ["True"] * 5


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("add_one, [(p + 4090, 16)]", "a range of test"),
        ("add_one, [(1 << 40, 16)]", "range 0 (0x10000000000) is no device memory"),
        ("add_one, [(p, 16)], s1", "lies on card 0, the stream is one of card 1"),
        ("m.HostKernel(), [(p, 16)]", "the kernel, its arguments or its name is NULL"),
        ("add_one, [(p, 16)], None, None, None, m.Cost(-1, 0, 0)", "the cost is negative or of an unknown dtype"),
        ("add_one, [(p, 16)], None, None, None, m.Cost(0, 0, 99)", "the cost is negative or of an unknown dtype"),
        ("add_one, [(p, 1)] * 1025", "1025 ranges; accepted: 0 .. 1024"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_runs(call: str, sentence: str, child: Child) -> None:
    code = (
        KERNEL
        + f"""
    m.set_device(1); s1 = m.stream(); m.set_device(0)
    clock = m.host_clock()
    try:
        m.launch_host_kernel({call})
    except m.MusaError as error:
        print(error)
    print(seen, m.host_clock() - clock)
    """
    )
    text = child(code)
    assert text.startswith("musaErrorInvalidValue: ")
    assert sentence in text
    assert text.endswith("\n[] 0")


def test_an_unordered_write_from_another_stream_is_a_race_in_strict_mode(child: Child) -> None:
    code = (
        KERNEL
        + """
    a, b = m.stream(), m.stream()
    m.call("musaDeviceSynchronize")
    m.launch_host_kernel(add_one, [(p, 16)], a, written=[0])
    m.launch_host_kernel(add_one, [(p, 16)], b, written=[0])
    print("two readers")
    try:
        m.launch_host_kernel(add_one, [(p, 16)], b, written=[1])
    except m.MusaError as error:
        print(error.name)
    """
    )
    assert child(code, STRICT="1").split("\n")[:2] == ["two readers", "musaErrorSimRace"]


def test_a_captured_stream_refuses_it(child: Child) -> None:
    code = (
        KERNEL
        + """
    s = m.stream()
    m.call("musaSimCaptureBegin", ctypes.c_void_p(s), 1, ctypes.c_void_p(1))
    try:
        m.launch_host_kernel(add_one, [(p, 16)], s)
    except m.MusaError as error:
        print(error.name, seen)
    """
    )
    assert child(code).strip() == "musaErrorStreamCaptureUnsupported []"
