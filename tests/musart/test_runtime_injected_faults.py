"""Planned faults without torch: which calls they end, and what goes on."""

from __future__ import annotations

import pytest
from musart_child import Child

PLAN = """
class Plan(ctypes.Structure):
    _fields_ = [("fault", ctypes.c_int), ("device", ctypes.c_int), ("count", ctypes.c_int64),
                ("after_ns", ctypes.c_int64), ("address", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]
ALLOCATION, SEGMENT, LAUNCH, COPY, LOST, MEMORY = range(6)
def plan(fault, device, count=0, after_ns=0, address=None, size=0):
    m.call("musaSimPlanFault", ctypes.byref(Plan(fault, device, count, after_ns, address, size)))
def attempt(name, *arguments):
    try:
        m.call(name, *arguments)
        print("ok")
    except m.MusaError as error:
        print(str(error).replace(chr(10), " ")[:160])
nbytes = ctypes.c_size_t(4096)
pointer = ctypes.c_void_p()
m.call("musaMalloc", ctypes.byref(pointer), nbytes)
host = ctypes.create_string_buffer(4096)
"""


def run(child: Child, code: str) -> list[str]:
    return child(PLAN + code).splitlines()


def test_the_nth_malloc_fails_and_the_next_succeeds(child: Child) -> None:
    lines = run(
        child,
        """
plan(SEGMENT, -1, 2)
other = ctypes.c_void_p()
for _ in range(3):
    attempt("musaMalloc", ctypes.byref(other), nbytes)
""",
    )
    assert lines[0] == lines[2] == "ok"
    assert "musaErrorMemoryAllocation" in lines[1]


def test_a_failed_fill_kills_its_card_and_no_other(child: Child) -> None:
    lines = run(
        child,
        """
plan(LAUNCH, 0, 1)
attempt("musaMemset", pointer, 1, nbytes)
attempt("musaMemset", pointer, 1, nbytes)
attempt("musaDeviceSynchronize")
attempt("musaMemcpy", host, pointer, nbytes, 2)
attempt("musaFree", pointer)
m.set_device(1)
m.call("musaMalloc", ctypes.byref(pointer), nbytes)
attempt("musaMemset", pointer, 1, nbytes)
m.set_device(0)
m.call("musaSimResetCard", 0)
attempt("musaDeviceSynchronize")
""",
    )
    assert all("musaErrorLaunchFailure" in line for line in lines[:4])
    assert lines[4:] == ["ok", "ok", "ok"]


def test_bad_memory_is_met_by_the_copy_that_reads_it(child: Child) -> None:
    lines = run(
        child,
        """
good = ctypes.c_void_p()
m.call("musaMalloc", ctypes.byref(good), nbytes)
plan(MEMORY, 0, address=pointer.value, size=4096)
attempt("musaMemcpy", host, good, nbytes, 2)
attempt("musaMemcpy", host, pointer, nbytes, 2)
""",
    )
    assert lines[0] == "ok"
    assert "musaErrorECCUncorrectable" in lines[1]


@pytest.mark.parametrize(
    "wrong", ["9, 0, 1, 0", "LAUNCH, 99, 1, 0", "LAUNCH, 0, 0, 0", "LOST, -1, 0, 0", "LOST, 0, 0, -1"]
)
def test_a_plan_that_means_nothing_is_refused(child: Child, wrong: str) -> None:
    (line,) = run(child, f"attempt('musaSimPlanFault', ctypes.byref(Plan({wrong}, None, 0)))")
    assert "musaErrorInvalid" in line
