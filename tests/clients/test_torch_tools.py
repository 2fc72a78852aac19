"""Tools that come with torch."""

import sys

import torch
import torch.utils.benchmark


def test_benchmark_timer():
    timer = torch.utils.benchmark.Timer(
        "torch.mm(x, x); torch.musa.synchronize()", setup="x = torch.ones(32, 32, device='musa')"
    )
    measured = timer.timeit(20)
    assert measured.mean > 0
    assert timer.blocked_autorange(min_run_time=0.01).median > 0


def test_compare_of_benchmarks():
    results = [
        torch.utils.benchmark.Timer(
            "x + x", globals={"x": torch.ones(8, device=device)}, label="add", description=device
        ).timeit(5)
        for device in ("cpu", "musa")
    ]
    table = str(torch.utils.benchmark.Compare(results))
    assert "cpu" in table
    assert "musa" in table


def test_collect_env(run_command):
    printed = run_command(sys.executable, "-m", "torch.utils.collect_env")
    assert f"PyTorch version: {torch.__version__}" in printed
    assert "Is debug build: False" in printed
