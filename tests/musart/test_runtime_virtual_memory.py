"""Addresses of a card apart from the memory behind them."""

from __future__ import annotations

from musart_child import Child

RESERVE = """
from ctypes import byref, c_size_t, c_void_p
MIB = 1 << 20
def reserve(size, least=0):
    pointer, got = c_void_p(), c_size_t(size)
    m.call("musaSimReserveAddresses", byref(pointer), byref(got), c_size_t(least))
    return pointer.value, got.value
def map_(pointer, size): m.call("musaSimMapMemory", c_void_p(pointer), c_size_t(size))
def unmap(pointer, size): m.call("musaSimUnmapMemory", c_void_p(pointer), c_size_t(size))
def drop(pointer): m.call("musaSimFreeAddresses", c_void_p(pointer))
p, size = reserve(64 * MIB)
"""


def run(child: Child, code: str) -> str:
    return child(RESERVE + code, MEMORY="128MiB")


def refused(child: Child, code: str) -> str:
    return child.fails(RESERVE + code, MEMORY="128MiB")


def test_only_memory_counts_against_the_card_not_addresses(child: Child) -> None:
    code = """
free = [m.mem_info()[0]]
map_(p, 4 * MIB); free.append(m.mem_info()[0])
map_(p + 10 * MIB, 2 * MIB); free.append(m.mem_info()[0])
unmap(p, 2 * MIB); free.append(m.mem_info()[0])
unmap(p + 2 * MIB, 2 * MIB); unmap(p + 10 * MIB, 2 * MIB); drop(p); free.append(m.mem_info()[0])
print(size // MIB, [f // MIB for f in free])
"""
    assert run(child, code) == "64 [128, 124, 122, 124, 128]"


def test_memory_that_comes_back_is_zero_and_its_neighbours_keep_their_values(child: Child) -> None:
    code = """
map_(p, 6 * MIB)
m.memset(p, 7, 6 * MIB)
unmap(p + 2 * MIB, 2 * MIB)
map_(p + 2 * MIB, 2 * MIB)
print([m.download(p + n * MIB, 1)[0] for n in range(6)])
"""
    assert run(child, code) == "[7, 7, 0, 0, 7, 7]"


def test_no_more_than_half_of_the_addresses_that_are_left_go_to_one(child: Child) -> None:
    assert int(run(child, "print(reserve(1 << 40)[1] // MIB)")) < 128
    assert "has too few addresses" in refused(child, "reserve(1 << 40, 1 << 40)")


def test_a_full_card_has_no_memory_for_addresses(child: Child) -> None:
    text = refused(child, "m.malloc(126 * MIB); map_(p, 4 * MIB)")
    assert text.startswith("musaErrorMemoryAllocation")
    assert "4.00 MiB asked for, 2.00 MiB of 128.00 MiB free" in text


def test_misuse_is_refused_and_named(child: Child) -> None:
    for code, text in [
        ("map_(p + 512, 2 * MIB)", "no multiple of 2 MiB"),
        ("map_(p + 62 * MIB, 4 * MIB)", "was not reserved"),
        ("map_(m.malloc(4 * MIB), 2 * MIB)", "was not reserved"),
        ("map_(p, 2 * MIB); map_(p, 2 * MIB)", "has memory already"),
        ("unmap(p, 2 * MIB)", "has no memory"),
        ("map_(p, 2 * MIB); drop(p)", "memory is still behind"),
        ("drop(p + 2 * MIB)", "no reservation begins"),
        ("m.free(p)", "was reserved, not allocated"),
        ("m.memset(p, 0, 1)", "without memory behind them"),
        ("map_(p, 2 * MIB); m.memset(p, 0, 2 * MIB + 1)", "without memory behind them"),
        ("map_(1, 2 * MIB)", "is no device address"),
    ]:
        assert text in refused(child, code)
