"""torch._int_mm and torch.ops.musa.w8a8_linear."""

import random

import pytest
import torch

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(1, 1, 1), (1, 64, 4), (3, 63, 5), (5, 130, 33), (16, 257, 66), (17, 65, 31), (30, 1, 70), (33, 1601, 35)]
SHAPES += [(0, 8, 3), (2, 0, 3), (20, 0, 3), (2, 8, 0)]


def int8(*size: int) -> torch.Tensor:
    return torch.randint(-128, 128, size, dtype=torch.int8)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.long() @ b.long()


@pytest.fixture(autouse=True)
def seed() -> None:
    value = random.randrange(2**31)
    print("seed", value)
    torch.manual_seed(value)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", ["rows", "columns", "left by columns", "gaps"])
def test_int_mm_is_exact(shape: tuple[int, int, int], layout: str) -> None:
    m, k, n = shape
    a, b = int8(m, k), int8(k, n)
    if layout == "columns":
        x, y = a.to("musa"), b.t().contiguous().to("musa").t()
    elif layout == "left by columns":
        x, y = a.t().contiguous().to("musa").t(), b.to("musa")
    elif layout == "gaps":
        x, y = int8(m, 2 * k + 1).to("musa")[:, 1::2], int8(2 * k, 3 * n).to("musa")[::2, ::3]
        x.copy_(a)
        y.copy_(b)
    else:
        x, y = a.to("musa"), b.to("musa")
    got = torch._int_mm(x, y)
    assert got.dtype == torch.int32
    assert torch.equal(got.cpu().long(), product(a, b))
    out = torch.empty(n, m, dtype=torch.int32, device="musa").t()
    torch._int_mm(x, y, out=out)
    assert torch.equal(out, got)


@pytest.mark.parametrize("m", [1, 4, 40])
@pytest.mark.parametrize("signs", [(-128, -128), (-128, 127), (127, -128), (127, 127)])
def test_int_mm_does_not_saturate_at_the_extremes(m: int, signs: tuple[int, int]) -> None:
    k, n = 4099, 37
    a = torch.full((m, k), signs[0], dtype=torch.int8, device="musa")
    b = torch.full((n, k), signs[1], dtype=torch.int8, device="musa")
    for right in (b.t(), b.t().contiguous()):
        assert torch._int_mm(a, right).cpu().eq(k * signs[0] * signs[1]).all()


def formula(
    x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None, static: torch.Tensor | None
) -> torch.Tensor:
    """In float64 but for the rounding to int8, whose input must be the operator's."""
    wide = x.float()
    row = (wide.abs().amax(-1, keepdim=True) / 127).clamp_min(2**-126) if static is None else static.expand(1)
    rounded = (wide * row.reciprocal()).clamp(-128, 127).round()
    out = rounded.double() @ weight.double().t() * row.double() * scale.double()
    return out if bias is None else out + bias.double()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("shape", [(1, 64, 4), (3, 63, 5), (7, 130, 33), (35, 321, 47)])
def test_w8a8_linear_is_the_formula(shape: tuple[int, int, int], static: bool, dtype: torch.dtype) -> None:
    m, k, n = shape
    x = torch.randn(m, k).to(dtype)
    weight, scale, bias = int8(n, k), torch.rand(n) / 64 + 1e-3, torch.randn(n).to(dtype)
    input_scale = torch.tensor(0.015) if static else None  # so small that some numbers are clamped
    for b in (bias, None):
        expected = formula(x, weight, scale, b, input_scale)
        arguments = (x, weight, scale, b, input_scale)
        cpu = torch.ops.musa.w8a8_linear(*arguments)
        got = torch.ops.musa.w8a8_linear(*(t if t is None else t.to("musa") for t in arguments))
        largest = expected.abs().max().item()
        for result in (got.cpu(), cpu):
            assert result.dtype == dtype
            eps = max(torch.finfo(dtype).eps, 4 * torch.finfo(torch.float32).eps)
            torch.testing.assert_close(result.double(), expected, rtol=eps, atol=eps * largest)


def test_w8a8_linear_rounds_each_row_by_itself() -> None:
    x, weight, scale = torch.randn(40, 96), int8(33, 96), torch.rand(33)
    x[3] *= 1e6
    x[5, 7] = float("nan")
    x[6, 1] = float("inf")
    x[7] = 0
    on_card = [t.to("musa") for t in (weight, scale)]
    got = torch.ops.musa.w8a8_linear(x.to("musa"), *on_card).cpu()
    for row in (0, 3, 7, 39):
        assert torch.equal(got[row], torch.ops.musa.w8a8_linear(x[row].to("musa"), *on_card).cpu())
    assert got[5].isnan().all()
    assert got[6].isnan().all()
    assert got[7].eq(0).all()
    assert got[8:].isfinite().all()
    assert torch.equal(got.isnan(), torch.ops.musa.w8a8_linear(x, weight, scale).isnan())


def test_w8a8_linear_of_nothing() -> None:
    weight, scale, bias = int8(3, 0).to("musa"), torch.ones(3, device="musa"), torch.arange(3.0, device="musa")
    assert torch.equal(torch.ops.musa.w8a8_linear(torch.empty(2, 0, device="musa"), weight, scale, bias)[1], bias)
    empty = torch.ops.musa.w8a8_linear(torch.empty(2, 0, 5, device="musa"), int8(3, 5).to("musa"), scale)
    assert empty.shape == (2, 0, 3)


def test_w8a8_linear_says_what_it_takes() -> None:
    x, weight, scale = torch.randn(2, 8), int8(3, 8), torch.ones(3)
    for device in ("cpu", "musa", "meta"):
        a, w, s = (t.to(device) for t in (x, weight, scale))
        with pytest.raises(ValueError, match=r"x \[\.\.\., k\] and weight \[n, k\]"):
            torch.ops.musa.w8a8_linear(a[:, :7], w, s)
        with pytest.raises(ValueError, match="one weight_scale for each"):
            torch.ops.musa.w8a8_linear(a, w, s[:2])
        with pytest.raises(TypeError, match="an int8 weight"):
            torch.ops.musa.w8a8_linear(a, w.float(), s)
        if device != "meta":
            with pytest.raises(ValueError, match="positive"):
                torch.ops.musa.w8a8_linear(a, w, s, None, torch.zeros(1, device=device))
    assert torch.ops.musa.w8a8_linear(x.to("meta"), weight.to("meta"), scale.to("meta")).shape == (2, 3)


@pytest.mark.parametrize("device", ["musa", "cpu"])
def test_w8a8_linear_refuses_a_wanted_derivative(device: str) -> None:
    x = torch.ones(1, 4, device=device, requires_grad=True)
    weight, scale = torch.ones(2, 4, dtype=torch.int8, device=device), torch.ones(2, device=device)
    with pytest.raises(NotImplementedError, match="w8a8_linear has no derivative: call it under"):
        torch.ops.musa.w8a8_linear(x, weight, scale)
    with torch.no_grad():
        assert not torch.ops.musa.w8a8_linear(x, weight, scale).requires_grad
