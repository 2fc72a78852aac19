"""Gradients of attention by the native kernel."""

import pytest
import torch
import torch.nn.functional as F
from accuracy import assert_as_accurate

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# batch, heads, kv heads, queries, keys, head dim
SIZES = [
    (1, 2, 2, 7, 9, 8),
    (2, 4, 2, 1, 33, 64),
    (1, 4, 1, 13, 100, 80),
    (1, 2, 2, 130, 250, 72),
    (1, 3, 3, 201, 97, 128),
    (1, 2, 1, 17, 5, 33),
    (1, 1, 1, 100, 200, 256),
    (1, 1, 1, 70, 2, 1),
]
MASKS = ["none", "causal", "bool", "float"]


def inputs(size: tuple[int, ...], dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    """query, key, value and the gradient of the output"""
    batch, heads, kv_heads, queries, keys, dim = size
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, heads, queries, dim), *[(batch, kv_heads, keys, dim)] * 2, (batch, heads, queries, dim)]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def mask_of(kind: str, size: tuple[int, ...], dtype: torch.dtype, seed: int) -> dict:
    batch, heads, _, queries, keys, _ = size
    generator = torch.Generator().manual_seed(seed + 1)
    if kind == "bool":
        mask = torch.rand(queries, keys, generator=generator) > 0.4
        mask[:, 0] = True  # PyTorch's CPU kernel gives NaN to queries that see nothing
        return {"attn_mask": mask}
    if kind == "float":
        return {"attn_mask": torch.randn(batch, heads, queries, keys, generator=generator).to(dtype)}
    return {"is_causal": kind == "causal"}


def on(device: str, options: dict) -> dict:
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in options.items()}


def gradients(device: str, tensors: list[torch.Tensor], **options) -> list[torch.Tensor]:
    *leaves, grad = (t.to(device) for t in tensors)
    leaves = [t.detach().requires_grad_() for t in leaves]
    out = F.scaled_dot_product_attention(*leaves, enable_gqa=True, **on(device, options))
    return [g.cpu() for g in torch.autograd.grad(out, leaves, grad)]


def exact(tensors: list[torch.Tensor], **options) -> list[torch.Tensor]:
    """In float64, by the formula; a query that sees nothing gives no gradient."""
    *leaves, grad = (t.double() for t in tensors)
    leaves = q, k, v = [t.detach().requires_grad_() for t in leaves]
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * options.get("scale", q.shape[-1] ** -0.5)
    if options.get("is_causal"):
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -1e300)
    mask = options.get("attn_mask")
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e300) if mask.dtype is torch.bool else scores + mask.double()
    weights = torch.softmax(scores, -1) * (scores > -1e300)
    return list(torch.autograd.grad(weights @ v, leaves, grad))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", MASKS)
def test_gradients_are_as_accurate_as_pytorchs(kind: str, dtype: torch.dtype) -> None:
    seed = 20  # random ones took at most 0.6 of what is allowed
    # One number can be exact by luck: the sizes are judged together.
    found = []
    for size in SIZES:
        tensors = inputs(size, dtype, seed)
        options = mask_of(kind, size, dtype, seed)
        found.append(
            [gradients("musa", tensors, **options), gradients("cpu", tensors, **options), exact(tensors, **options)]
        )
    for which in range(3):
        assert_as_accurate(*(torch.cat([f[way][which].flatten() for f in found]) for way in range(3)))


def test_run_as_native_kernels() -> None:
    tensors = inputs((1, 2, 2, 4, 9, 16), torch.bfloat16, 13)
    torch.musa.reset_op_statistics()
    gradients("musa", tensors)
    gradients("musa", tensors, attn_mask=torch.ones(4, 9, dtype=torch.bool))
    counts = {op.name: (op.calls, op.bridged) for op in torch.musa.op_statistics()}
    assert counts["aten::_scaled_dot_product_flash_attention_backward"] == (1, False)
    assert counts["aten::_scaled_dot_product_efficient_attention_backward"] == (1, False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_query_that_sees_nothing_gives_zeros(dtype: torch.dtype) -> None:
    tensors = inputs((1, 2, 1, 100, 50, 16), dtype, 10)
    mask = torch.ones(100, 50, dtype=torch.bool)
    mask[3:99] = False
    have = gradients("musa", tensors, attn_mask=mask)
    assert torch.count_nonzero(have[0][:, :, 3:99]) == 0
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]
    for got, want in zip(have, exact(tensors, attn_mask=mask), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scale", [0.0, -0.7, 1.5])
def test_any_scale(scale: float) -> None:
    tensors = inputs((1, 2, 2, 30, 60, 16), torch.float32, 6)
    for got, want in zip(gradients("musa", tensors, scale=scale), exact(tensors, scale=scale), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-5)


def test_values_of_another_width_than_keys() -> None:
    q, k, _, _ = inputs((1, 2, 2, 40, 60, 24), torch.float32, 7)
    for width in (7, 100):
        generator = torch.Generator().manual_seed(width)
        v, grad = (torch.randn(1, 2, n, width, generator=generator) for n in (60, 40))
        tensors = [q, k, v, grad]
        have = gradients("musa", tensors, is_causal=True)
        for got, want in zip(have, exact(tensors, is_causal=True), strict=True):
            torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-5)


def test_layouts_give_the_same_bits() -> None:
    tensors = inputs((2, 4, 4, 50, 77, 40), torch.bfloat16, 8)
    want = gradients("musa", tensors)
    transposed = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors]
    for got, same in zip(gradients("musa", transposed), want, strict=True):
        assert torch.equal(got, same)
    shifted = [torch.cat([t, t], -1)[..., 1:41].copy_(t) for t in tensors]
    for got, same in zip(gradients("musa", shifted), want, strict=True):
        assert torch.equal(got, same)
    columns = [t.transpose(2, 3).contiguous().transpose(2, 3) for t in tensors]
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    q, k, v, grad = (t.to("musa") for t in columns)
    out, lse, *_ = flash(q, k, v)
    state = torch.zeros((), dtype=torch.long, device="musa")
    backward = torch.ops.aten._scaled_dot_product_flash_attention_backward
    for got, same in zip(
        backward(grad, q, k, v, out, lse, None, None, 50, 77, 0.0, False, state, state), want, strict=True
    ):
        assert torch.equal(got.cpu(), same)


def test_results_do_not_depend_on_threads_or_other_batches() -> None:
    tensors = inputs((3, 4, 2, 130, 300, 64), torch.bfloat16, 12)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = gradients("musa", tensors, is_causal=True)
        torch.set_num_threads(2)
        two = gradients("musa", tensors, is_causal=True)
    finally:
        torch.set_num_threads(threads)
    alone = gradients("musa", [t[1:2] for t in tensors], is_causal=True)
    for a, b, c in zip(one, two, alone, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a[1:2], c)


@pytest.mark.parametrize("sizes", [(2, 4, 40, 7), (1, 1, 1, 7), (1, 1, 40, 7), (2, 1, 40, 1)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_the_gradient_of_an_added_mask_has_its_shape(sizes: tuple[int, ...], causal: bool) -> None:
    tensors = inputs((2, 4, 2, 40, 7, 16), torch.float32, 15)
    mask = torch.randn(sizes, generator=torch.Generator().manual_seed(2))
    q, k, v, grad = (t.to("musa") for t in tensors)
    bias = mask.to("musa")
    out, lse, seed, offset = torch.ops.aten._scaled_dot_product_efficient_attention(
        q, k, v, bias, True, is_causal=causal
    )
    have = torch.ops.aten._scaled_dot_product_efficient_attention_backward(
        grad, q, k, v, bias, out, lse, seed, offset, 0.0, [True, True, True, True], causal
    )
    leaves = [t.double().requires_grad_() for t in (*tensors[:3], mask)]
    full = leaves[3].expand(2, 4, 40, 7)
    if causal:
        full = full.masked_fill(torch.ones(40, 7, dtype=torch.bool).triu(1), -torch.inf)
    want = torch.autograd.grad(
        F.scaled_dot_product_attention(*leaves[:3], attn_mask=full, enable_gqa=True), leaves, tensors[3].double()
    )
    for got, right in zip(have, want, strict=True):
        assert got.shape == right.shape
        torch.testing.assert_close(got.cpu().double(), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 2, 2, 0, 5, 8), (1, 2, 2, 5, 0, 8), (0, 2, 2, 5, 5, 8)], ids=str)
def test_nothing_gives_zeros(size: tuple[int, ...]) -> None:
    q, k, v, grad = (t.to("musa") for t in inputs(size, torch.float32, 1))
    lse = torch.full(q.shape[:3], -torch.inf, device="musa")
    state = torch.zeros((), dtype=torch.long, device="musa")
    have = torch.ops.aten._scaled_dot_product_flash_attention_backward(
        grad, q, k, v, torch.zeros_like(q), lse, None, None, size[3], size[4], 0.0, False, state, state
    )
    for got, like in zip(have, (q, k, v), strict=True):
        assert got.shape == like.shape
        assert torch.count_nonzero(got) == 0
