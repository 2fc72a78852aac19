"""torch.ops.musa.attention, attention_varlen and merge_attention_states: windows, sinks, caps, blocks, sequences."""

import pytest
import torch
from accuracy import assert_as_accurate

MAPS = {
    "plain": {},
    "causal": {"right": 0},
    "top_left": {"right": 0, "align_end": False},
    "window": {"left": 20, "right": 0},
    "both_sides": {"left": 5, "right": 9},
    "anchors": {"left": 20, "right": 0, "global_keys": 7},
    "many_anchors": {"left": 3, "right": 0, "global_keys": 140},
    "softcap": {"right": 0, "softcap": 2.0},
    "sinks": {"right": 0, "sinks": True},
    "sinks_and_cap": {"softcap": 5.0, "sinks": True, "scale": 0.4},
    "blocks": {"block_mask": (16, 32)},
    "causal_blocks": {"right": 0, "block_mask": (64, 64)},
    "mask": {"right": 0, "mask": True},
}
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def inputs(batch, heads, kv_heads, queries, keys, dim, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, heads, queries, dim), (batch, kv_heads, keys, dim), (batch, kv_heads, keys, dim)]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def options_of(name, batch, heads, queries, keys):
    generator = torch.Generator().manual_seed(1)
    options = dict(MAPS[name])
    if "sinks" in options:
        options["sinks"] = torch.randn(heads, generator=generator)
    if "mask" in options:
        options["mask"] = torch.randn(queries, keys, generator=generator) > -0.5
    if "block_mask" in options:
        size = options["block_mask"]
        blocks = (1, heads, -(-queries // size[0]), -(-keys // size[1]))
        options |= {"block_mask": torch.rand(blocks, generator=generator) > 0.5, "block_size": size}
    return options


def exact(q, k, v, *, scale=None, left=-1, right=-1, global_keys=0, align_end=True, softcap=0.0, sinks=None, mask=None,
          block_mask=None, block_size=(64, 64)):  # fmt: skip
    """Pair by pair, in float64."""
    q, k, v = (t.double() for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    offset = k.shape[2] - q.shape[2] if align_end else 0
    for i in range(q.shape[2]):
        for j in range(k.shape[2]):
            p = i + offset
            seen = (right < 0 or j <= p + right) and (left < 0 or j >= p - left or j < global_keys)
            if not seen:
                scores[:, :, i, j] = -torch.inf
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    if block_mask is not None:
        rows = torch.arange(q.shape[2]) // block_size[0]
        columns = torch.arange(k.shape[2]) // block_size[1]
        scores = scores.masked_fill(~block_mask[:, :, rows][..., columns], -torch.inf)
    full = scores
    if sinks is not None:
        full = torch.cat([scores, sinks.double().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    weights = torch.softmax(full, -1).nan_to_num(0)[..., : k.shape[2]]
    return weights @ v, full.logsumexp(-1)


def to_musa(options):
    return {name: value.to("musa") if isinstance(value, torch.Tensor) else value for name, value in options.items()}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(1, 4, 2, 3, 150, 24), (1, 2, 1, 70, 150, 24)], ids=["few", "many"])
@pytest.mark.parametrize("name", MAPS)
def test_values(name, sizes, dtype):
    batch, heads, _, queries, keys, _ = sizes
    q, k, v = inputs(*sizes, dtype)
    options = options_of(name, batch, heads, queries, keys)
    out, lse = torch.ops.musa.attention(*(t.to("musa") for t in (q, k, v)), **to_musa(options))
    right, sums = exact(q, k, v, **options)
    plain = torch.ops.musa.attention(q.float(), k.float(), v.float(), **options)[0]
    torch.testing.assert_close(plain.double(), right, rtol=1e-5, atol=1e-5)  # the reference, another formula
    torch.testing.assert_close(lse.cpu().double(), sums, rtol=1e-5, atol=2e-5)
    if dtype is torch.float32:
        torch.testing.assert_close(out.cpu().double(), right, rtol=1e-5, atol=1e-5)
    else:
        # PyTorch's error is that of its weights, rounded to the dtype before they multiply the values.
        rounded = [t.to(dtype) for t in (q, k, v)]
        torch.testing.assert_close(out.cpu().double(), exact(*rounded, **options)[0], rtol=2e-2, atol=2e-2)


def test_causal_is_as_accurate_as_pytorchs():
    q, k, v = inputs(1, 2, 2, 90, 90, 64, torch.bfloat16)
    cpu = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    got = torch.ops.musa.attention(*(t.to("musa") for t in (q, k, v)), right=0)[0]
    assert_as_accurate(got, cpu, exact(q, k, v, right=0)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("lengths", [[3, 0, 70, 1], [1, 1, 2], [130]])
@pytest.mark.parametrize("name", ["plain", "causal", "anchors", "sinks"])
def test_sequences_of_any_lengths_equal_one_call_each(name, lengths, dtype):
    generator = torch.Generator().manual_seed(2)
    keys = [length + (5 if length else 0) for length in lengths]
    q = torch.randn(sum(lengths), 4, 16, generator=generator).to(dtype)
    k, v = (torch.randn(sum(keys), 2, 16, generator=generator).to(dtype) for _ in range(2))
    starts = [torch.tensor([0, *torch.tensor(n).cumsum(0)], dtype=torch.int32) for n in (lengths, keys)]
    options = options_of(name, 1, 4, 1, 1)
    options.pop("align_end", None)
    limits = (max(lengths), max(keys))
    out, lse = torch.ops.musa.attention_varlen(*(t.to("musa") for t in (q, k, v, *starts)), *limits, **to_musa(options))
    reference = torch.ops.musa.attention_varlen(q.float(), k.float(), v.float(), *starts, *limits, **options)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(out.cpu().float(), reference[0], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(lse.cpu(), reference[1], rtol=1e-5, atol=2e-5)
    for i, length in enumerate(lengths):
        rows = slice(starts[0][i], starts[0][i + 1])
        columns = slice(starts[1][i], starts[1][i + 1])
        one = [t[None].transpose(1, 2) for t in (q[rows], k[columns], v[columns])]
        if length:
            want, sums = exact(*one, **options)
            torch.testing.assert_close(reference[0][rows].double(), want[0].transpose(0, 1), rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(reference[1][:, rows].double(), sums[0], rtol=1e-5, atol=1e-5)


def test_parts_merge_to_the_whole():
    q, k, v = (t.to("musa") for t in inputs(2, 2, 2, 40, 100, 16))
    whole = torch.ops.musa.attention(q, k, v)
    parts = [torch.ops.musa.attention(q, k[:, :, a:b], v[:, :, a:b]) for a, b in ((0, 33), (33, 100))]
    merged = torch.ops.musa.merge_attention_states(*parts[0], *parts[1])
    for got, want in zip(merged, whole, strict=True):
        torch.testing.assert_close(got, want)
    nothing = (torch.zeros_like(whole[0]), torch.full_like(whole[1], -torch.inf))
    assert torch.equal(torch.ops.musa.merge_attention_states(*whole, *nothing)[0], whole[0])
    assert torch.equal(torch.ops.musa.merge_attention_states(*nothing, *nothing)[0], nothing[0])


def test_gradients_come_by_the_formula():
    options = {"left": 6, "right": 0, "softcap": 3.0, "sinks": torch.randn(2).double()}
    q, k, v = (t.double().requires_grad_() for t in inputs(1, 2, 1, 5, 9, 4))
    assert torch.autograd.gradcheck(lambda *t: torch.ops.musa.attention(*t, **options), (q, k, v))
    results = []
    for device in ("cpu", "musa"):
        leaves = [t.detach().float().to(device).requires_grad_() for t in (q, k, v)]
        on = {n: t.float().to(device) if isinstance(t, torch.Tensor) else t for n, t in options.items()}
        results.append(torch.autograd.grad(torch.ops.musa.attention(*leaves, **on)[0].square().sum(), leaves))
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), want)


def test_shapes_on_meta():
    q, k, v = (t.to("meta") for t in inputs(2, 4, 2, 5, 9, 8))
    out, lse = torch.ops.musa.attention(q, k, v[..., :3])
    assert (out.shape, lse.shape) == ((2, 4, 5, 3), (2, 4, 5))
    starts = torch.empty(3, dtype=torch.int32, device="meta")
    out, lse = torch.ops.musa.attention_varlen(
        q[0].transpose(0, 1), k[0].transpose(0, 1), v[0].transpose(0, 1), starts, starts, 5, 9
    )
    assert (out.shape, lse.shape) == ((5, 4, 8), (4, 5))


def test_bad_input_is_refused():
    q, k, v = (t.to("musa") for t in inputs(1, 4, 2, 5, 9, 8))
    attention = torch.ops.musa.attention
    with pytest.raises(ValueError, match="kv heads that divide heads"):
        attention(q[:, :3], k, v)
    with pytest.raises(ValueError, match=r"left and right of at least -1 .* got -2"):
        attention(q, k, v, left=-2)
    with pytest.raises(ValueError, match="one sink for each of 4 query heads"):
        attention(q, k, v, sinks=torch.ones(2, device="musa"))
    with pytest.raises(ValueError, match=r"bool block_mask \[batch or 1, heads or 1, 1, 1\]"):
        attention(q, k, v, block_mask=torch.ones(1, 1, 2, 2, dtype=torch.bool, device="musa"))
    with pytest.raises(ValueError, match="two results"):
        torch.ops.musa.merge_attention_states(q, q, q, q)
    flat = [t[0].transpose(0, 1) for t in (q, k, v)]
    starts = torch.tensor([0, 5], dtype=torch.int32, device="musa")
    with pytest.raises(ValueError, match="key_starts from 0 to the number of tokens, 9, got 0 to 5"):
        torch.ops.musa.attention_varlen(*flat, starts, starts, 5, 9)
    with pytest.raises(ValueError, match="int32"):
        torch.ops.musa.attention_varlen(*flat, starts.long(), starts.long(), 5, 9)
    keys = torch.tensor([0, 9], dtype=torch.int32, device="musa")
    with pytest.raises(ValueError, match="sequence 0 has 5 tokens by its query_starts, accepted are 0 to 4"):
        torch.ops.musa.attention_varlen(*flat, starts, keys, 4, 9)
