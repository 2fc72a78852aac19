"""What torch.compile brings on `musa`: `python benchmarks/compile.py`.

The block is what a transformer layer does between its matrix products: residual sum, RMSNorm, SwiGLU, on 4096 columns
in bfloat16. Eager and compiled code run on the card in one process with 1 thread; batches of calls alternate, the cost
of a call is the least thread CPU time per call over all batches, and a row is the ratio eager / compiled of these. Many
rows show what fusion saves, few what a compiled call costs by itself. The CPU device's ratio stands beside it. Prints
the table and exits with 1 when a ratio is below its limit.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import torch
from interleaved import Batch, least_times, shown

COLUMNS = 4096
LIMITS = {2048: 2.0, 16: 0.9}  # rows -> least ratio

Block = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def block(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(silu(gate) * up * RMSNorm(x + residual), x + residual); all but `weight` are (rows, columns)."""
    total = x + residual
    wide = total.float()
    normed = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(total.dtype) * weight
    return torch.nn.functional.silu(gate) * up * normed, total


def timed_batch(function: Block, arguments: list[torch.Tensor]) -> Batch:
    def batch(calls: int) -> int:
        start = time.thread_time_ns()
        for _ in range(calls):
            function(*arguments)
        return time.thread_time_ns() - start

    return batch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="time spent on a row (default: 4)")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    compiled = torch.compile(block, dynamic=False, fullgraph=True)
    missed = 0
    print(f"{'rows':>5}  {'device':>6}  {'eager':>10}  {'compiled':>10}  {'ratio':>6}  {'limit':>6}")
    for rows, limit in LIMITS.items():
        sizes = [(rows, COLUMNS), (rows, COLUMNS), (COLUMNS,), (rows, COLUMNS), (rows, COLUMNS)]
        host = [torch.randn(size, generator=torch.Generator().manual_seed(0)).bfloat16() for size in sizes]
        sides = []
        for device in ("musa:0", "cpu"):
            arguments = [tensor.to(device) for tensor in host]
            torch.testing.assert_close(compiled(*arguments), block(*arguments), atol=2e-2, rtol=2e-2)
            sides += [timed_batch(block, arguments), timed_batch(compiled, arguments)]
        gc.collect()
        gc.disable()
        eager, fused, cpu_eager, cpu_fused = least_times(sides, 1 if rows > 256 else 50, seconds)
        gc.enable()
        ratio = eager / fused
        missed += ratio < limit
        verdict = "ok" if ratio >= limit else "MISSED"
        print(f"{rows:5}  {'musa':>6}  {shown(eager):>10}  {shown(fused):>10}  {ratio:6.2f}  {limit:6.2f}  {verdict}")
        print(f"{rows:5}  {'cpu':>6}  {shown(cpu_eager):>10}  {shown(cpu_fused):>10}  {cpu_eager / cpu_fused:6.2f}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
