"""torch.ops.musa.silu_and_mul."""

import random

import pytest
import torch
from accuracy import assert_as_accurate

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(1, 2), (1, 8192), (3, 10), (7, 130), (2, 3, 66), (0, 8), (4, 0), (34,), (1, 62), (5, 4096 * 2 + 6)]


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_as_accurate_as_pytorchs(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    seed = random.randrange(2**31)
    print("seed", seed)
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 4).to(dtype)
    assert_as_accurate(torch.ops.musa.silu_and_mul(x.to("musa")), silu_and_mul(x), silu_and_mul(x.double()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values(dtype: torch.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    special = torch.tensor([0.0, -0.0, inf, -inf, nan, 88.0, -88.0, 104.0, -104.0, 1e-4, -1e-4, 6e4, -6e4])
    pairs = torch.cartesian_prod(special, special).T.reshape(1, -1).to(dtype)
    got = torch.ops.musa.silu_and_mul(pairs.to("musa")).cpu()
    in_float32 = silu_and_mul(pairs.float()).to(dtype)  # silu(-104) is -0 there, and times infinity NaN
    torch.testing.assert_close(got, in_float32, equal_nan=True)


def test_other_layouts_and_dtypes_come_by_the_reference_or_a_copy() -> None:
    x = torch.randn(6, 8, 5)
    transposed = x.to("musa").transpose(1, 2)
    torch.testing.assert_close(torch.ops.musa.silu_and_mul(transposed).cpu(), silu_and_mul(x.transpose(1, 2)))
    double = torch.randn(3, 4, dtype=torch.float64)
    assert torch.equal(torch.ops.musa.silu_and_mul(double.to("musa")).cpu(), silu_and_mul(double))


def test_runs_on_the_cpu_and_on_meta() -> None:
    x = torch.randn(3, 8)
    assert torch.equal(torch.ops.musa.silu_and_mul(x), silu_and_mul(x))
    assert torch.ops.musa.silu_and_mul(x.to("meta")).shape == (3, 4)


def test_odd_widths_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"shape \[\.\.\., 2 \* n\] .* got \[3, 5\]"):
        torch.ops.musa.silu_and_mul(torch.ones(3, 5, device="musa"))


def test_results_do_not_depend_on_threads_or_other_rows() -> None:
    x = torch.randn(512, 2 * 96).bfloat16().to("musa")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = torch.ops.musa.silu_and_mul(x)
        torch.set_num_threads(2)
        two = torch.ops.musa.silu_and_mul(x)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one, two)
    assert torch.equal(torch.ops.musa.silu_and_mul(x[5:6]), one[5:6])


def test_counts_as_native() -> None:
    torch.musa.reset_op_statistics()
    torch.ops.musa.silu_and_mul(torch.ones(2, 4, device="musa"))
    (entry,) = [op for op in torch.musa.op_statistics() if op.name == "musa::silu_and_mul"]
    assert (entry.calls, entry.native_calls, entry.bridged) == (1, 1, False)


def test_is_captured_and_replayed_by_graphs() -> None:
    x = torch.randn(4, 16, device="musa")
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        out = torch.ops.musa.silu_and_mul(x)
    x.copy_(torch.randn(4, 16))
    graph.replay()
    assert torch.equal(out, torch.ops.musa.silu_and_mul(x))
