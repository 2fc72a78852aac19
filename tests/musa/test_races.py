"""Strict mode finds races between streams: racy programs are reported with names, their mended twins are silent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from race_programs import CLEAN, EXPECTED

HERE = Path(__file__).parent


def run(source: str | Path, strict: str = "1") -> subprocess.CompletedProcess[str]:
    """A process of its own: whether races are watched is settled when the device is first used."""
    program = [str(source)] if isinstance(source, Path) else ["-c", textwrap.dedent(source)]
    result = subprocess.run(
        [sys.executable, *program],
        env={**os.environ, "TORCH_MUSA_SIM_STRICT": strict, "TORCH_MUSA_SIM_SCOPE": f"races.{os.getpid()}"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def reports() -> dict[str, list[str]]:
    return json.loads(run(HERE / "race_programs.py").stdout)


@pytest.mark.parametrize("program", EXPECTED)
def test_race_is_reported_with_its_operators_streams_and_cure(reports: dict[str, list[str]], program: str) -> None:
    report = reports[program][0]
    assert report.startswith("MUSA race: "), f"{program} was not reported: {report!r}"
    for words in EXPECTED[program]:
        assert words in report
    assert "docs/strict.md" in report


@pytest.mark.parametrize("program", EXPECTED)
def test_mended_program_is_silent(reports: dict[str, list[str]], program: str) -> None:
    assert reports[program][1] == ""


@pytest.mark.parametrize("program", CLEAN)
def test_correct_program_of_several_streams_is_silent(reports: dict[str, list[str]], program: str) -> None:
    assert reports[program] == [""]


def test_nothing_is_watched_without_strict_mode() -> None:
    reports = json.loads(run(HERE / "race_programs.py", strict="0").stdout)
    assert {text for pair in reports.values() for text in pair} == {""}


def test_warn_reports_on_stderr_and_computes() -> None:
    result = run(
        """
        import torch
        x, side = torch.zeros(4, device="musa"), torch.musa.Stream()
        side.synchronize(); torch.musa.synchronize()
        for _ in range(3):
            with torch.musa.stream(side):
                x.add_(1)
            print((x * 2).tolist())
        torch.ones(2, 2, dtype=torch.int64, device="musa").mm(torch.ones(2, 2).long().to("musa"))
        """,
        strict="warn",
    )
    assert result.stdout.split("\n")[2] == "[6.0, 6.0, 6.0, 6.0]"
    assert result.stderr.count("warning: race: aten::add_.Tensor and aten::mul.Tensor") == 1


POISON = """
import torch

def is_poison(t):
    return set(t.contiguous().view(torch.uint8).flatten().tolist()) == {0xA5}
def empty_pinned(*size, dtype=torch.float32):
    return torch.empty(*size, dtype=dtype).pin_memory()
"""


def test_host_sees_a_non_blocking_copy_when_it_has_waited_for_it() -> None:
    run(
        POISON
        + """
x = torch.arange(6.0, device="musa").reshape(2, 3)
y = x.to("cpu", non_blocking=True)
assert y.is_pinned() and is_poison(y)
torch.musa.Stream().synchronize()
assert is_poison(y)
torch.musa.current_stream().synchronize()
assert y.tolist() == [[0, 1, 2], [3, 4, 5]]

# By an event, by its query, by a blocking copy of the same stream, and what the copy held when it was launched.
waits = [
    lambda e: e.synchronize(), lambda e: [None for _ in iter(e.query, True)], lambda e: x.sum().item(),
    lambda e: torch.musa.synchronize(), lambda e: torch.accelerator.synchronize(),
]
for wait in waits:
    x.fill_(7)
    y.copy_(x, non_blocking=True)
    e = torch.musa.current_stream().record_event()
    x.fill_(8)
    assert is_poison(y)
    wait(e)
    assert (y == 7).all()

# Other dtypes, strides and targets inside a larger buffer, whose other bytes stay.
for dtype in (torch.bool, torch.bfloat16, torch.int64, torch.complex64):
    z = empty_pinned(3, dtype=dtype).copy_(x[0], non_blocking=True)
    assert is_poison(z) and z.dtype == dtype
    torch.musa.synchronize()
    assert torch.equal(z, torch.full((3,), 8.0).to(dtype))
buffer = torch.zeros(3, 4).pin_memory()
buffer[:, 1:3].T.copy_(x, non_blocking=True)
assert is_poison(buffer[:, 1:3]) and (buffer[:, ::3] == 0).all()
torch.musa.synchronize()
assert (buffer[:, 1:3] == 8).all() and (buffer[:, ::3] == 0).all()

# Pageable memory: the copy returns when the bytes are there. Nothing to copy, nothing to wait for.
assert torch.empty(2, 3).copy_(x, non_blocking=True).unique().tolist() == [8]
assert x[:0].to("cpu", non_blocking=True).shape == (0, 3)
# A target that nobody keeps, and one that is dropped and handed out again.
for _ in range(100):
    x.to("cpu", non_blocking=True)
    z = torch.ones(2, 3).pin_memory()
    assert (z == 1).all()
torch.musa.synchronize()
assert (z == 1).all()
"""
    )


def test_a_pinned_source_is_read_when_the_copy_is_waited_for() -> None:
    run(
        POISON
        + """
source = torch.ones(4).pin_memory()
x = source.to("musa", non_blocking=True)
assert (x * 2).cpu().tolist() == [2] * 4  # the card has the bytes; .cpu() has waited
y = source.to("musa", non_blocking=True)
source.fill_(3)
try:
    torch.musa.synchronize()
    raise AssertionError("not reported")
except RuntimeError as error:
    assert "changed the source" in str(error), error
assert y.tolist() == [3] * 4
y.copy_(source, non_blocking=True)
y.mul_(2)
source.fill_(5)
try:
    y.cpu()
    raise AssertionError("not reported")
except RuntimeError as error:
    assert "changed the source" in str(error), error
assert y.tolist() == [6] * 4  # the product came later and stays
"""
    )


def test_cpu_tensors_in_card_memory_are_refused() -> None:
    result = run(
        """
        import ctypes, pathlib, torch, torch_musa_sim
        x = torch.ones(4, device="musa")
        library = ctypes.CDLL(str(pathlib.Path(torch_musa_sim.__file__).parent / "lib" / "libmusart.so"))
        distance = (ctypes.c_int64 * 3).in_dll(library, "musaSimArenaInfo")[2]
        leaked = torch.frombuffer((ctypes.c_float * 4).from_address(x.data_ptr() + distance), dtype=torch.float32)
        try:
            torch.where(x > 0, x, leaked[0])
        except RuntimeError as error:
            print(error)
        """
    )
    assert "lies in the memory of a card" in result.stdout


def test_copies_of_a_replayed_graph_are_checked_as_eager_ones() -> None:
    run(
        POISON
        + """
x, y = torch.full((64,), 3.0, device="musa"), torch.zeros(64, device="musa")
target, source = torch.zeros(64).pin_memory(), torch.ones(64).pin_memory()
graph = torch.musa.MUSAGraph()
with torch.musa.graph(graph):
    target.copy_(x, non_blocking=True)
    y.copy_(source, non_blocking=True)
graph.replay()
assert is_poison(target)
torch.musa.synchronize()
assert (target == 3).all() and (y == 1).all().item()
source.fill_(2)
graph.replay()
graph.replay()  # in the stream's order: no race
x.fill_(4)
torch.musa.current_stream().record_event().synchronize()
assert (target == 3).all() and (y == 2).all().item()

def report(program):
    try:
        program()
        torch.musa.synchronize()
    except RuntimeError as error:
        return str(error)

def change_the_source():
    graph.replay()
    source.zero_()

def replay_on_two_streams():
    graph.replay()
    with torch.musa.stream(torch.musa.Stream()):
        graph.replay()

assert "the host has changed the source of aten::_copy_from" in report(change_the_source)
assert "nothing orders them" in report(replay_on_two_streams)
"""
    )
