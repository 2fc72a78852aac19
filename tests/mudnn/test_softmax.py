"""softmax and log_softmax, forward and backward."""

import random
from collections.abc import Callable

import pytest
import torch
from accuracy import FACTOR, assert_as_accurate
from torch.nn import functional

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(1, 151936), (3, 5), (170, 130), (2, 3, 66), (0, 8), (300, 17), (96, 1037), (4096,), (9, 1)]
FUNCTIONS = [functional.softmax, functional.log_softmax]


def randn(*size: int, dtype: torch.dtype) -> torch.Tensor:
    seed = random.randrange(2**31)
    print("seed", seed)
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_mean_as_accurate(got: torch.Tensor, cpu: torch.Tensor, exact: torch.Tensor) -> None:
    """Root mean squares of errors. The largest is that of one difference of nearly equal numbers, and chance."""
    if got.numel():
        ours, theirs = ((t.cpu().double() - exact).square().mean().sqrt() for t in (got, cpu))
        unit = torch.finfo(got.dtype).eps * exact.square().mean().sqrt()
        assert ours <= FACTOR * theirs + unit / 2, f"root mean square error {ours:.3g}, PyTorch's {theirs:.3g}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_and_gradients_are_as_accurate_as_pytorchs(
    function: Callable[..., torch.Tensor], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x, grad = randn(*shape, dtype=dtype), randn(*shape, dtype=dtype)

    def results(device: str, of: torch.dtype) -> list[torch.Tensor]:
        leaf = x.to(device, of, copy=True).requires_grad_()
        out = function(leaf, -1)
        out.backward(grad.to(device, of))
        return [out.detach(), leaf.grad]

    ours, exact = results("musa", dtype), results("cpu", torch.float64)
    for got, theirs, right in zip(ours, results("cpu", dtype), exact, strict=True):
        if got.numel() == 0 or len(got.view(-1, got.shape[-1])) >= 64:
            (assert_as_accurate if right is exact[0] else assert_mean_as_accurate)(got, theirs, right)
        else:  # few rows: one number of them decides, in which PyTorch may be exact by chance
            unit = torch.finfo(dtype).eps * max(1.0, right.abs().max().item())
            torch.testing.assert_close(got.cpu().double(), right, rtol=0, atol=16 * unit)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_special_values_stay_in_their_row(function: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    rows = [[1.0, 2, -inf], [inf, 0, 0], [-inf, -inf, -inf], [nan, 0, 0], [0, nan, 5], [0, 0, 0], [6e4, -6e4, 0]]
    x = torch.tensor([row * 13 for row in rows]).to(dtype)
    x[0, 5] = 9
    got, cpu = function(x.to("musa"), -1).cpu(), function(x.float(), -1).to(dtype)
    torch.testing.assert_close(got, cpu, equal_nan=True)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_other_dimensions_layouts_and_dtypes(function: Callable[..., torch.Tensor]) -> None:
    x = randn(3, 4, 5, dtype=torch.float32)
    for view, dim in ((lambda t: t, 1), (lambda t: t.mT, -1), (lambda t: t[..., ::2], 2), (lambda t: t[0, 0, 0], 0)):
        torch.testing.assert_close(function(view(x.to("musa")), dim).cpu(), function(view(x), dim))
    assert torch.equal(function(x.double().to("musa"), -1).cpu(), function(x.double(), -1))
    wide = function(x.half().to("musa"), -1, dtype=torch.float32)
    torch.testing.assert_close(wide.cpu(), function(x.half(), -1, dtype=torch.float32))
    with pytest.raises(IndexError, match="Dimension out of range"):
        function(x.to("musa"), 3)


def test_cross_entropy_and_its_gradient() -> None:
    x = randn(50, 1000, dtype=torch.float32)
    target = torch.arange(50) * 3
    target[7] = -100
    grads, losses = [], []
    for device, dtype in (("musa", torch.float32), ("cpu", torch.float64)):
        leaf = x.to(device, dtype, copy=True).requires_grad_()
        loss = functional.cross_entropy(leaf, target.to(device), label_smoothing=0.1)
        loss.backward()
        losses.append(loss.item())
        grads.append(leaf.grad.cpu().double())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_do_not_depend_on_threads_or_other_rows(function: Callable[..., torch.Tensor]) -> None:
    x = randn(300, 200, dtype=torch.bfloat16).to("musa")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = function(x, -1)
        torch.set_num_threads(2)
        two = function(x, -1)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one, two)
    assert torch.equal(function(x[5:6], -1), one[5:6])
