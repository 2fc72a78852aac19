"""Attention kernels: scaled_dot_product_attention and its operators."""

import random

import pytest
import torch
import torch.nn.functional as F
from accuracy import assert_as_accurate

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# batch, heads, kv heads, queries, keys, head dim
SIZES = [
    (1, 2, 2, 7, 9, 8),
    (2, 4, 2, 1, 33, 64),
    (1, 4, 1, 4, 100, 80),
    (1, 2, 2, 130, 150, 72),
    (1, 3, 3, 61, 257, 128),
    (1, 2, 1, 17, 5, 33),
    (1, 1, 1, 140, 200, 256),
    (1, 8, 2, 1, 4500, 128),
    (1, 1, 1, 70, 2, 1),
    (1, 2, 1, 1, 1, 5),
]
MASKS = ["none", "causal", "bool", "float"]


def inputs(size: tuple[int, ...], dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    batch, heads, kv_heads, queries, keys, dim = size
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, heads, queries, dim), (batch, kv_heads, keys, dim), (batch, kv_heads, keys, dim)]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def mask_of(kind: str, size: tuple[int, ...], dtype: torch.dtype, seed: int) -> dict:
    batch, heads, _, queries, keys, _ = size
    generator = torch.Generator().manual_seed(seed + 1)
    if kind == "bool":
        return {"attn_mask": torch.rand(queries, keys, generator=generator) > 0.4}
    if kind == "float":
        return {"attn_mask": torch.randn(batch, heads, queries, keys, generator=generator).to(dtype)}
    return {"is_causal": kind == "causal"}


def to(options: dict, *args) -> dict:
    return {name: value.to(*args) if isinstance(value, torch.Tensor) else value for name, value in options.items()}


def attend(q, k, v, **options):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)


def exact(q, k, v, **options):
    """In float64, by the formula; a query that sees nothing gets zeros."""
    q, k, v = (t.double() for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if options.get("is_causal"):
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    mask = options.get("attn_mask")
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask.double()
    return torch.softmax(scores, -1).nan_to_num(0) @ v


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", MASKS)
def test_values_are_as_accurate_as_pytorchs(kind: str, dtype: torch.dtype) -> None:
    seed = random.randrange(2**31)
    print("seed", seed)
    # One number can be exact by luck: the sizes are judged together.
    ours, theirs, right = [], [], []
    for size in SIZES:
        q, k, v = inputs(size, dtype, seed)
        options = mask_of(kind, size, dtype, seed)
        got = attend(*(t.to("musa") for t in (q, k, v)), **to(options, "musa")).cpu()
        right.append(exact(q, k, v, **options).flatten())
        ours.append(got.flatten())
        theirs.append(attend(q, k, v, **options).flatten())
        if size[3] > 30:
            assert_as_accurate(ours[-1], theirs[-1], right[-1])
    assert_as_accurate(torch.cat(ours), torch.cat(theirs), torch.cat(right))


@pytest.mark.parametrize("queries", [3, 40])
def test_log_sum_exp(queries: int) -> None:
    q, k, v = inputs((2, 4, 2, queries, 70, 32), torch.float32, 5)
    got = torch.ops.aten._scaled_dot_product_flash_attention(*(t.to("musa") for t in (q, k, v)), scale=0.3)[1]
    scores = q.double() @ k.double().repeat_interleave(2, 1).transpose(-1, -2) * 0.3
    torch.testing.assert_close(got.cpu().double(), scores.logsumexp(-1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("queries", [2, 50])
@pytest.mark.parametrize("scale", [0.0, -0.7, 3.0])
def test_any_scale(queries: int, scale: float) -> None:
    q, k, v = inputs((1, 2, 2, queries, 60, 16), torch.float32, 6)
    want = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), scale=scale)
    got = F.scaled_dot_product_attention(*(t.to("musa") for t in (q, k, v)), scale=scale)
    torch.testing.assert_close(got.cpu().double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("queries", [1, 64])
def test_values_may_be_narrower_or_wider_than_keys(queries: int) -> None:
    q, k, _ = inputs((1, 2, 2, queries, 60, 24), torch.float32, 7)
    for width in (7, 24, 100):
        v = torch.randn(1, 2, 60, width)
        got = F.scaled_dot_product_attention(*(t.to("musa") for t in (q, k, v)), is_causal=True)
        want = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
        torch.testing.assert_close(got.cpu().double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("queries", [1, 3, 64])
def test_layouts_give_the_same_bits(queries: int) -> None:
    q, k, v = (t.to("musa") for t in inputs((2, 4, 4, queries, 77, 40), torch.bfloat16, 8))
    want = attend(q, k, v)
    transposed = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    assert torch.equal(attend(*transposed), want)
    shifted = [torch.cat([t, t], -1)[..., 1:41].copy_(t) for t in (q, k, v)]
    assert torch.equal(attend(*shifted), want)
    expanded = k[:, :1].expand(-1, 4, -1, -1)
    assert torch.equal(attend(q, expanded, expanded), attend(q, expanded.contiguous(), expanded.contiguous()))


@pytest.mark.parametrize("queries", [1, 64])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_of_any_layout_give_the_same_bits(kind: str, queries: int) -> None:
    size = (2, 2, 2, queries, 90, 16)
    q, k, v = (t.to("musa") for t in inputs(size, torch.float32, 9))
    mask = mask_of("float", size, torch.float32, 9)["attn_mask"].to("musa")
    mask = mask > 0 if kind == "bool" else mask
    want = attend(q, k, v, attn_mask=mask)
    turned = mask.transpose(-1, -2).contiguous().transpose(-1, -2)
    assert torch.equal(attend(q, k, v, attn_mask=turned), want)
    row = mask[:1, :1, :1]
    assert torch.equal(attend(q, k, v, attn_mask=row), attend(q, k, v, attn_mask=row.expand(2, 2, queries, 90).clone()))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("queries", [2, 64])
def test_a_query_that_sees_nothing_gets_zeros(queries: int, dtype: torch.dtype) -> None:
    q, k, v = (t.to("musa") for t in inputs((1, 2, 2, queries, 50, 16), dtype, 10))
    mask = torch.ones(queries, 50, dtype=torch.bool, device="musa")
    mask[1] = False
    got = attend(q, k, v, attn_mask=mask)
    assert torch.count_nonzero(got[:, :, 1]) == 0
    assert torch.equal(got[:, :, 0], attend(q, k, v)[:, :, 0])


@pytest.mark.parametrize("queries", [2, 64])
def test_special_values(queries: int) -> None:
    q, k, v = inputs((1, 1, 1, queries, 50, 16), torch.float32, 11)
    k[0, 0, 30, 3] = torch.nan
    got = attend(*(t.to("musa") for t in (q, k, v)), is_causal=True).cpu()
    assert got[0, 0, :30].isfinite().all()
    assert got[0, 0, 30:].isnan().all()
    q, k, v = inputs((1, 1, 1, queries, 50, 16), torch.float32, 11)
    q[0, 0, 0] = 1e30  # its largest score takes all of the weight
    got = attend(*(t.to("musa") for t in (q, k, v))).cpu()
    torch.testing.assert_close(got, exact(q, k, v).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("queries", [1, 70])
def test_results_do_not_depend_on_threads_or_other_rows(queries: int) -> None:
    q, k, v = (t.to("musa") for t in inputs((3, 4, 2, queries, 2500 if queries == 1 else 300, 64), torch.bfloat16, 12))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = attend(q, k, v)
        torch.set_num_threads(2)
        two = attend(q, k, v)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one, two)
    assert torch.equal(attend(q[1:2], k[1:2], v[1:2]), one[1:2])
    other = q.clone()
    other[:, :, 1:] += 1
    assert torch.equal(attend(other, k, v)[:, :, 0], one[:, :, 0])


def test_count_as_native() -> None:
    q, k, v = (t.to("musa") for t in inputs((1, 2, 2, 4, 9, 16), torch.bfloat16, 13))
    torch.musa.reset_op_statistics()
    attend(q, k, v)
    attend(q, k, v, attn_mask=torch.ones(4, 9, dtype=torch.bool, device="musa"))
    counts = {op.name: (op.calls, op.bridged) for op in torch.musa.op_statistics()}
    assert counts["aten::_scaled_dot_product_flash_attention"] == (1, False)
    assert counts["aten::_scaled_dot_product_efficient_attention"] == (1, False)


@pytest.mark.parametrize("kind", MASKS)
def test_is_captured_and_replayed_by_graphs(kind: str) -> None:
    size = (1, 2, 2, 20, 20, 16)
    q, k, v = (t.to("musa") for t in inputs(size, torch.float32, 14))
    options = to(mask_of(kind, size, torch.float32, 14), "musa")
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        out = attend(q, k, v, **options)
    q.copy_(torch.randn(q.shape))
    graph.replay()
    assert torch.equal(out, attend(q, k, v, **options))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", MASKS)
def test_gradients_are_as_accurate_as_pytorchs(kind: str, dtype: torch.dtype) -> None:
    ours, theirs, right = [], [], []
    for size in [(2, 4, 2, 33, 47, 40), (1, 2, 2, 130, 150, 64)]:
        tensors = inputs(size, dtype, 15)
        options = mask_of(kind, size, dtype, 15)
        upstream = torch.randn(*size[:2], size[3], size[5], generator=torch.Generator().manual_seed(16)).to(dtype)
        for device, kind_of, function, into in (
            ("musa", dtype, attend, ours),
            ("cpu", dtype, attend, theirs),
            ("cpu", torch.float64, exact, right),
        ):
            leaves = [t.to(device, kind_of, copy=True).requires_grad_() for t in tensors]
            out = function(*leaves, **to(options, device))
            into.extend(g.flatten().cpu() for g in torch.autograd.grad(out, leaves, upstream.to(device, kind_of)))
    assert_as_accurate(torch.cat(ours), torch.cat(theirs), torch.cat(right))
