"""Dropout on musa: scale, mask, gradient, and what happens at the borders of p."""

import pytest
import torch
from torch.nn import functional

aten = torch.ops.aten


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64], ids=str
)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_scale_and_mask(dtype, p):
    x = torch.full((100_000,), 3.0, dtype=dtype, device="musa")
    y, mask = torch.native_dropout(x, p, True)
    assert (y.dtype, mask.dtype) == (dtype, torch.bool)
    expected = torch.full((1,), 3.0 / (1 - p), dtype=dtype).item()
    kept = y[mask].cpu()
    torch.testing.assert_close(kept, torch.full_like(kept, expected))
    assert (y[~mask] == 0).all()
    assert abs(mask.float().mean().item() - (1 - p)) < 0.005


@pytest.mark.parametrize("train", [True, None])
def test_borders(train):
    x = torch.randn(1000, device="musa")
    y, mask = torch.native_dropout(x, 0.0, train)
    assert torch.equal(y, x)
    assert mask.all()
    y, mask = torch.native_dropout(x, 1.0, train)
    assert not y.any()
    assert not mask.any()
    y, mask = torch.native_dropout(x[:0], 0.5, train)
    assert y.numel() == mask.numel() == 0


def test_evaluation_is_the_identity():
    x = torch.randn(1000, device="musa")
    state = torch.musa.get_rng_state()
    y, mask = torch.native_dropout(x, 0.5, False)
    assert torch.equal(y, x)
    assert y.data_ptr() != x.data_ptr()
    assert mask.all()
    assert torch.equal(functional.dropout(x, 0.5, training=False), x)
    assert torch.equal(torch.musa.get_rng_state(), state)


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_bad_probability(p):
    with pytest.raises(RuntimeError, match="dropout probability has to be between 0 and 1, but got"):
        torch.native_dropout(torch.ones(3, device="musa"), p, True)


def test_gradient_uses_the_mask():
    x = torch.randn(64, 33, device="musa", requires_grad=True)
    y = functional.dropout(x, 0.25)
    y.sum().backward()
    torch.testing.assert_close(x.grad * x, y)
    x.grad = None
    values, mask = aten._fused_dropout(x, 0.6)
    values.sum().backward()
    torch.testing.assert_close(x.grad, mask.float() / 0.6)


@pytest.mark.parametrize("kind", [functional.dropout, functional.alpha_dropout, functional.feature_alpha_dropout])
def test_every_kind_follows_the_seed(kind):
    x = torch.randn(4, 8, 5, device="musa")
    results = []
    for seed in (1, 1, 2):
        torch.musa.manual_seed(seed)
        results.append(kind(x, 0.5, training=True))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_channels_are_dropped_whole():
    x = torch.ones(16, 32, 5, 5, device="musa")
    totals = functional.dropout2d(x, 0.5).sum((2, 3)).cpu()
    assert set(totals.unique().tolist()) == {0.0, 50.0}


def test_strides_are_kept():
    x = torch.randn(2, 3, 4, 5, device="musa").contiguous(memory_format=torch.channels_last)
    torch.musa.manual_seed(1)
    y, mask = torch.native_dropout(x, 0.5, True)
    assert y.stride() == x.stride() == mask.stride()
    torch.musa.manual_seed(1)
    plain = torch.native_dropout(x.contiguous(), 0.5, True)
    assert torch.equal(plain[0], y)
    assert torch.equal(plain[1], mask)


def test_attention_with_dropout():
    q, k, v = (torch.randn(2, 3, 32, 16, device="musa") for _ in range(3))
    torch.musa.manual_seed(3)
    first = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    torch.musa.manual_seed(3)
    second = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    assert torch.equal(first, second)
    assert not torch.equal(first, functional.scaled_dot_product_attention(q, k, v))
