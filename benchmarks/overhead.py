"""What an operator on `musa` costs beside the same operator on the CPU device: `python benchmarks/overhead.py`.

Small rows (8x8 tensors) show the price of dispatch: the bridge, the allocator, the op counters and the virtual clock,
all of them on. Large rows show what the caching allocator saves: the CPU device maps and page-faults each
large result.

Both devices are measured in one process with 1 thread. Short batches of calls alternate between them, the cost of a
call is the least thread CPU time per call over all batches (least, because whatever disturbs a batch only adds), and a
row is the ratio musa / cpu of these. Prints the table and exits with 1 when a row is above its limit.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import torch
from interleaved import least_times, shown

MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    """One operator: `setup` makes the operands from `device`, `call` is the expression that is timed."""

    name: str
    limit: float  # of musa / cpu
    setup: str
    call: str
    large: bool = False


ROWS = (
    Row("empty", 1.25, "f = torch.empty; size = (8, 8)", "f(size, device=device)"),
    Row("add", 1.35, "f = torch.add; a = rand(8, 8); b = rand(8, 8)", "f(a, b)"),
    Row("mm", 1.25, "f = torch.mm; a = rand(8, 8); b = rand(8, 8)", "f(a, b)"),
    Row("cat", 1.40, "f = torch.cat; pair = [rand(8, 8), rand(8, 8)]", "f(pair)"),
    Row(
        "layer_norm",
        1.25,
        "f = torch.nn.functional.layer_norm; a = rand(8, 8); w = rand(8); b = rand(8); size = (8,)",
        "f(a, size, w, b)",
    ),
    Row("view", 1.05, "a = rand(8, 8); f = a.view", "f(64)"),
    Row("t", 1.05, "a = rand(8, 8); f = a.t", "f()"),
    Row("slice", 1.05, "a = rand(8, 8); part = slice(2, 6)", "a[part]"),
    Row("softmax 4096x4096", 0.30, "f = torch.softmax; a = rand(4096, 4096)", "f(a, -1)", large=True),
    Row(f"add {64} MB", 0.20, f"f = torch.add; a = rand({16 * MIB}); b = rand({16 * MIB})", "f(a, b)", large=True),
    Row(f"clone {64} MB", 0.20, f"a = rand({16 * MIB}); f = a.clone", "f()", large=True),
    Row(
        "layer_norm 4096x4096",
        0.30,
        "f = torch.nn.functional.layer_norm; a = rand(4096, 4096); w = rand(4096); b = rand(4096); size = (4096,)",
        "f(a, size, w, b)",
        large=True,
    ),
    Row("mm 1024^3 fp32", 1.05, "f = torch.mm; a = rand(1024, 1024); b = rand(1024, 1024)", "f(a, b)", large=True),
    Row(
        "mm 1024^3 bf16",
        1.05,
        "f = torch.mm; a = rand(1024, 1024).bfloat16(); b = rand(1024, 1024).bfloat16()",
        "f(a, b)",
        large=True,
    ),
)

_TEMPLATE = """
def make(device, rand, torch, repeat, clock):
    {setup}
    def batch(calls):
        start = clock()
        for _ in repeat(None, calls):
            {call}
        return clock() - start
    return batch
"""


def timed_batch(row: Row, device: torch.device) -> Callable[[int], int]:
    """A function that calls the row's operator n times and returns the thread CPU time of that in ns.

    The call is compiled into the loop (as timeit does), so that no wrapper's cost is shared by both sides and hides a
    part of the ratio.
    """
    space: dict[str, Callable[..., Callable[[int], int]]] = {}
    exec(_TEMPLATE.format(setup=row.setup, call=row.call), space)

    def rand(*size: int) -> torch.Tensor:
        return torch.rand(size, generator=torch.Generator().manual_seed(0)).to(device)

    return space["make"](device, rand, torch, repeat, time.thread_time_ns)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", default="", help="rows whose name contains this text")
    parser.add_argument("--seconds", type=float, default=2.0, help="time spent on a row (default: 2)")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if arguments.only in row.name]
    if not rows:
        parser.error(f"no row contains {arguments.only!r}; the rows are: {', '.join(row.name for row in ROWS)}")
    torch.set_num_threads(1)
    gc.disable()

    width = max(len(row.name) for row in rows)
    print(f"{'operator':{width}}  {'cpu':>10}  {'musa':>10}  {'ratio':>6}  {'limit':>6}")
    missed = 0
    for row in rows:
        sides = [timed_batch(row, torch.device(kind)) for kind in ("cpu", "musa:0")]
        cpu, musa = least_times(sides, 1 if row.large else 300, arguments.seconds)
        met = musa <= row.limit * cpu
        missed += not met
        print(
            f"{row.name:{width}}  {shown(cpu):>10}  {shown(musa):>10}  {musa / cpu:6.2f}  {row.limit:6.2f}  "
            f"{'ok' if met else 'MISSED'}",
            flush=True,
        )
    print(f"{len(rows) - missed} of {len(rows)} rows within their limit")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
