"""How fast the kernels of the musa device are, beside PyTorch's CPU device and beside what this machine can do at most:
`python benchmarks/kernels.py [--only TEXT] [--seconds S]`.

Each row measures in one process, in alternating batches, with 1 thread and as the least thread CPU time: the operator
on musa, its rivals (`torch` is PyTorch's CPU device on the same values), and the limits of the machine. B is the time
in which four streams read the bytes that the operator must move at least, F the time in which the densest sequence of
multiply-adds for the dtype does its operations. A goal `2.5x torch` is met when musa takes at most 1 / 2.5 of the
rival's time, `0.85 B` when it takes at most 1 / 0.85 of B. Operands that a model would read from memory (weights, the
KV cache) alternate between copies that don't fit into the caches. Exits with 1 when a goal is missed.
"""

import argparse
import gc
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import torch
from interleaved import least_times, shown
from kernel_rows import FAMILIES, Limits, Row, batch_of

from torch_musa_sim import _C


def measure(row: Row, limits: Limits, seconds: float) -> bool:
    """Prints the row's times and goals; False when a goal is missed."""
    case = row.setup()
    sides = {"musa": case.musa, **case.rivals}
    batches = [batch_of(call) for call in sides.values()]
    limit_names = [kind for kind in ("B", "F") if any(goal.unit == kind for goal in row.goals)]
    batches += [limits.batch(kind, case) for kind in limit_names]
    least = dict(zip([*sides, *limit_names], least_times(batches, case.calls, seconds), strict=True))
    met = True
    parts = []
    for goal in row.goals:
        reached = least[goal.unit] / least["musa"]
        ok = reached >= goal.least
        met &= ok
        sign = "x " if goal.unit in sides else " "
        parts.append(f"{reached:.2f}{sign}{goal.unit} (goal {goal.least:g}){'' if ok else ' MISSED'}")
    for name in case.rivals:
        if all(goal.unit != name for goal in row.goals):
            parts.append(f"{least[name] / least['musa']:.2f}x {name}")
    print(f"{row.name:46}  {shown(least['musa']):>10}  {';  '.join(parts)}", flush=True)
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", default="", help="rows whose name contains this text")
    parser.add_argument("--seconds", type=float, default=2.0, help="time spent on a row (default: 2)")
    arguments = parser.parse_args()
    every = [row for family in FAMILIES for row in family()]
    rows = [row for row in every if arguments.only in row.name]
    if not rows:
        parser.error(f"no row contains {arguments.only!r}; the rows are: {', '.join(row.name for row in every)}")
    torch.set_num_threads(1)
    gc.disable()
    limits = Limits()
    print(f"instruction set {_C._instruction_set()} (best of this CPU: {_C._best_instruction_set()}), 1 thread")
    print(f"limits now: {limits.described()}")
    met = 0
    with torch.inference_mode():
        for row in rows:
            met += measure(row, limits, arguments.seconds)
            gc.collect()
    print(f"{met} of {len(rows)} rows met their goals")
    return 0 if met == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
