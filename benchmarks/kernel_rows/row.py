"""What a row consists of, and the limits that it is measured against."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_musa_sim import _C

Call = Callable[[], object]


@dataclass(frozen=True)
class Goal:
    """`least` times as fast as `unit`: the name of a rival, or "B" or "F" for the machine's limits."""

    least: float
    unit: str


@dataclass(frozen=True)
class Case:
    """What is timed. bytes: those that must move at least. flops: of the arithmetic, a multiply-add is two. calls: in
    one batch."""

    musa: Call
    rivals: dict[str, Call] = field(default_factory=dict)
    bytes: float = 0
    flops: float = 0
    dtype: torch.dtype = torch.bfloat16
    calls: int = 1


@dataclass(frozen=True)
class Row:
    name: str
    goals: tuple[Goal, ...]
    setup: Callable[[], Case]


def batch_of(call: Call) -> Callable[[int], int]:
    """A function that makes n calls and returns their thread CPU time in ns."""

    def batch(calls: int) -> int:
        start = time.thread_time_ns()
        for _ in itertools.repeat(None, calls):
            call()
        return time.thread_time_ns() - start

    return batch


def rotating(function: Callable[..., object], operands: Sequence[tuple[Any, ...]]) -> Call:
    """A call of `function` with the next of the operands each time."""
    turn = itertools.cycle(operands)
    return lambda: function(*next(turn))


def on(device: str, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.to(device) for tensor in tensors)


def rand(*size: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> torch.Tensor:
    """Normal numbers on the CPU, the same on every run."""
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Limits:
    """The machine's own speed, measured beside each row."""

    def __init__(self) -> None:
        self._memory = torch.ones(64 << 20)  # 256 MiB, more than any cache

    def batch(self, kind: str, case: Case) -> Callable[[int], int]:
        """A batch whose calls each take as long as the case must at least: B reads its bytes, F does its operations."""
        return batch_of(self._reader(case.bytes) if kind == "B" else self._worker(case))

    def _reader(self, size: float) -> Call:
        count = max(1024, int(size) // 4 // 1024 * 1024)
        if count > self._memory.numel():
            raise ValueError(f"a row moves {size} bytes, the memory that B reads has only {self._memory.nbytes}")
        starts = range(0, self._memory.numel() - count + 1, count)
        return rotating(_C._read_memory, [(self._memory[start : start + count],) for start in starts])

    @staticmethod
    def _worker(case: Case) -> Call:
        per_round = _C._run_peak(case.dtype, 1)
        rounds = max(1, round(case.flops / per_round))
        return lambda: _C._run_peak(case.dtype, rounds)

    def described(self) -> str:
        """Gigabytes and gigaoperations a second at this moment."""

        def least(call: Call) -> float:
            return min(batch_of(call)(1) for _ in range(7))

        read = self._memory.nbytes / least(lambda: _C._read_memory(self._memory))
        parts = [f"read {read:.1f} GB/s"]
        for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16"), (torch.int8, "int8")):
            operations = _C._run_peak(dtype, 100000)
            parts.append(f"{name} {operations / least(lambda d=dtype: _C._run_peak(d, 100000)):.0f} Gop/s")
        return ", ".join(parts)
