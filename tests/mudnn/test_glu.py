"""torch.ops.musa.silu_and_mul, gelu_and_mul and situ_and_mul; silu and gelu."""

import random

import pytest
import torch
from accuracy import assert_as_accurate
from torch.nn import functional

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(1, 2), (1, 8192), (3, 10), (7, 130), (2, 3, 66), (0, 8), (4, 0), (34,), (1, 62), (5, 4096 * 2 + 6)]


BETAS = (4.0, 25.0)


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return functional.silu(gate) * up


def gelu_and_mul(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return functional.gelu(gate, approximate=approximate) * up


def situ_and_mul(x: torch.Tensor) -> torch.Tensor:
    """In the dtype of x; the operator computes in float32."""
    gate, up = x.chunk(2, -1)
    beta, linear_beta = BETAS
    return torch.tanh(gate / beta) * beta * torch.sigmoid(gate) * (torch.tanh(up / linear_beta) * linear_beta)


GATED = {
    "silu": (torch.ops.musa.silu_and_mul, silu_and_mul),
    "gelu": (torch.ops.musa.gelu_and_mul, gelu_and_mul),
    "gelu tanh": (lambda x: torch.ops.musa.gelu_and_mul(x, "tanh"), lambda x: gelu_and_mul(x, "tanh")),
    "situ": (lambda x: torch.ops.musa.situ_and_mul(x, *BETAS), situ_and_mul),
}
PLAIN = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", GATED)
def test_values_are_as_accurate_as_pytorchs(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    seed = random.randrange(2**31)
    print("seed", seed)
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 4).to(dtype)
    operator, formula = GATED[name]
    got, exact = operator(x.to("musa")), formula(x.double())
    if x.numel() < 64:  # so few that PyTorch may be exact by chance
        torch.testing.assert_close(got.cpu().double(), exact, rtol=8 * torch.finfo(dtype).eps, atol=1e-6)
    else:
        assert_as_accurate(got, formula(x), exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 6.0])
@pytest.mark.parametrize("name", PLAIN)
def test_activations_alone_are_as_accurate_as_pytorchs(name: str, scale: float, dtype: torch.dtype) -> None:
    seed = random.randrange(2**31)
    print("seed", seed)
    x = (torch.randn(9001, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)
    function = PLAIN[name]
    assert_as_accurate(function(x.to("musa")), function(x), function(x.double()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLAIN)
def test_activations_of_special_values(name: str, dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    x = torch.tensor(
        [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 88, -88, 104, -104, 1e-6, largest, -largest]
    )
    function = PLAIN[name]
    got = function(x.to(dtype).to("musa")).cpu().float()
    exact = function(x.to(dtype).double())
    finite = exact.isfinite()
    finite[-1] = False  # the largest negative number times what is 0 in float32 but not in float64
    torch.testing.assert_close(got[finite], exact[finite].to(dtype).float(), rtol=1e-2, atol=1e-6)
    assert got[2] == float("inf")
    assert got[4].isnan()
    assert got[-1] == 0


@pytest.mark.parametrize("name", PLAIN)
def test_activations_keep_the_layout(name: str) -> None:
    x = torch.randn(3, 5, 7)
    function = PLAIN[name]
    for view in (lambda t: t.transpose(0, 1), lambda t: t[:, ::2], lambda t: t[:0], lambda t: t[:1].expand(3, 5, 7)):
        got = function(view(x.to("musa")))
        assert got.stride() == function(view(x)).stride()
        torch.testing.assert_close(got.cpu(), function(view(x)))
    with pytest.raises(RuntimeError, match="gelu_and_mul takes approximate='none' or 'tanh', got 'erf'"):
        torch.ops.musa.gelu_and_mul(torch.ones(2, 4, device="musa"), "erf")
    with pytest.raises(RuntimeError, match="positive beta and linear_beta, got 0 and 25"):
        torch.ops.musa.situ_and_mul(torch.ones(2, 4, device="musa"), 0.0, 25.0)


def test_situ_has_the_values_of_its_formula() -> None:
    x = torch.tensor([[1.0, 1], [-1, -1], [0.5, -2], [10, 50], [-10, 50], [1e-4, 1e-4]], dtype=torch.float64)
    x[1, 1] = 1
    got = torch.ops.musa.situ_and_mul(x.float().to("musa"), *BETAS).cpu().double().flatten()
    torch.testing.assert_close(
        got[:5], torch.tensor([0.715818, -0.263335, -0.617920, 95.10802, -0.00431790]).double(), rtol=2e-6, atol=0
    )
    torch.testing.assert_close(got, situ_and_mul(x).flatten(), rtol=1e-6, atol=0)
    half = x.half().to("musa")
    torch.testing.assert_close(
        torch.ops.musa.situ_and_mul(half, *BETAS).cpu().double(), situ_and_mul(x.half().double()), rtol=1e-3, atol=6e-8
    )


@pytest.mark.parametrize("name", GATED)
def test_derivatives(name: str) -> None:
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(GATED[name][0], x)
    grads = []
    for device in ("cpu", "musa"):
        leaf = x.detach().to(device, torch.float32).requires_grad_()
        GATED[name][0](leaf).square().sum().backward()
        grads.append(leaf.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-5)


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


@pytest.mark.parametrize("name", GATED)
def test_runs_on_the_cpu_and_on_meta(name: str) -> None:
    x = torch.randn(3, 8)
    operator, formula = GATED[name]
    torch.testing.assert_close(operator(x), formula(x))
    assert operator(x.to("meta")).shape == (3, 4)


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
