"""torch.ops.musa.rotary_embedding and rotary_embedding_."""

import random

import pytest
import torch
from accuracy import assert_as_accurate

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ops = torch.ops.musa


def randn(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    seed = random.randrange(2**31)
    print("seed", seed)
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False) -> torch.Tensor:
    """x [..., d] with angles [..., r] that broadcast to it, one for each element of the rotated part."""
    size = cos.shape[-1]
    part, rest = x[..., :size], x[..., size:]
    if interleaved:
        partner = torch.stack([-part[..., 1::2], part[..., ::2]], -1).flatten(-2)
    else:
        partner = torch.cat([-part[..., size // 2 :], part[..., : size // 2]], -1)
    return torch.cat([part * cos + partner * sin, rest], -1)


def angles(*size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of one angle for each pair."""
    angle = randn(*size) * 10
    return angle.cos().to(dtype), angle.sin().to(dtype)


def spread(pairs: torch.Tensor, interleaved: bool) -> torch.Tensor:
    return pairs.repeat_interleave(2, -1) if interleaved else torch.cat([pairs, pairs], -1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("batch", "tokens", "heads", "kv_heads", "dim", "rotary"),
    [(1, 1, 32, 8, 128, 128), (2, 5, 3, 1, 16, 6), (2, 7, 4, 2, 10, 10), (1, 0, 2, 2, 8, 8), (3, 2, 2, 2, 80, 34)],
)
@pytest.mark.parametrize("heads_first", [True, False])
def test_values_are_as_accurate_as_pytorchs(
    batch: int, tokens: int, heads: int, kv_heads: int, dim: int, rotary: int, heads_first: bool, whole: bool,
    interleaved: bool, dtype: torch.dtype,
) -> None:  # fmt: skip
    q, k = randn(batch, tokens, heads, dim, dtype=dtype), randn(batch, tokens, kv_heads, dim, dtype=dtype)
    cos, sin = angles(batch, tokens, rotary // 2, dtype=dtype)
    full = [spread(t, interleaved) for t in (cos, sin)]
    given = full if whole else [cos, sin]
    axis = 1 if heads_first else 2
    if heads_first:
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    got = ops.rotary_embedding(
        q.to("musa"), k.to("musa"), given[0].to("musa"), given[1].to("musa"), axis, interleaved, rotary
    )
    broadcast = [t.unsqueeze(axis) for t in full]
    for result, x in zip(got, (q, k), strict=True):
        assert result.stride() == x.to("musa").stride()
        exact = turned(x.double(), *(t.double() for t in broadcast), interleaved)
        assert_as_accurate(result, turned(x, *broadcast, interleaved), exact)


def test_what_is_beside_the_rotated_part_stays() -> None:
    q, k = randn(3, 2, 12).to("musa"), randn(3, 1, 12).to("musa")
    cos, sin = (t.to("musa") for t in angles(3, 4, dtype=torch.float32))
    for interleaved in (False, True):
        for got, x in zip(ops.rotary_embedding(q, k, cos, sin, 1, interleaved), (q, k), strict=True):
            assert torch.equal(got[..., 4:], x[..., 4:])
            assert not torch.equal(got[..., :4], x[..., :4])


def test_angles_are_broadcast_and_layouts_are_free() -> None:
    q, k = randn(2, 4, 3, 8), randn(2, 2, 3, 8)
    for cos, sin in (angles(1, 3, 8, dtype=torch.float32), angles(3, 8, dtype=torch.float32)):
        axis = cos.dim() - 2
        expected = [turned(x, cos.unsqueeze(axis), sin.unsqueeze(axis)) for x in (q, k)]
        got = ops.rotary_embedding(q.to("musa"), k.to("musa"), cos.to("musa"), sin.to("musa"), axis)
        torch.testing.assert_close([t.cpu() for t in got], expected)
        mixed = cos.to("musa"), sin.to("musa").mT.contiguous().mT
        got = ops.rotary_embedding(q.to("musa").mT.contiguous().mT, k.to("musa")[:, :, :, :], *mixed, axis)
        torch.testing.assert_close([t.cpu() for t in got], expected)
    wide = randn(2, 3, 8, 8)
    cos, sin = angles(2, 3, 8, dtype=torch.float32)
    sliced = wide.to("musa")
    got = ops.rotary_embedding(sliced[:, :, :5], sliced[:, :, 5:7], cos.to("musa"), sin.to("musa"), 2)
    expected = turned(wide, cos.unsqueeze(2), sin.unsqueeze(2))
    torch.testing.assert_close(got[0].cpu(), expected[:, :, :5])
    torch.testing.assert_close(got[1].cpu(), expected[:, :, 5:7])


def test_wide_angles_for_narrow_heads() -> None:
    q, k = randn(1, 2, 5, 16, dtype=torch.bfloat16), randn(1, 1, 5, 16, dtype=torch.bfloat16)
    cos, sin = angles(1, 5, 16, dtype=torch.float32)
    for got, x in zip(ops.rotary_embedding(*(t.to("musa") for t in (q, k, cos, sin))), (q, k), strict=True):
        assert got.dtype == torch.bfloat16
        exact = turned(x.double(), cos.double().unsqueeze(1), sin.double().unsqueeze(1))
        assert_as_accurate(got, turned(x.float(), cos.unsqueeze(1), sin.unsqueeze(1)).bfloat16(), exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("heads_apart", [False, True])
def test_in_place_by_positions(heads_apart: bool, interleaved: bool, dtype: torch.dtype) -> None:
    tokens, dim, rotary = 6, 16, 12
    cos, sin = angles(50, rotary // 2, dtype=dtype)
    cache = torch.cat([cos, sin], -1).to("musa")
    qkv = randn(tokens, (4 + 2 + 2) * dim, dtype=dtype)
    positions = torch.tensor([0, 49, 3, 3, 17, 1])
    on_card = qkv.to("musa")
    q, k = on_card[:, : 4 * dim], on_card[:, 4 * dim : 6 * dim]
    if heads_apart:
        q, k = q.unflatten(1, (4, dim)), k.unflatten(1, (2, dim))
    torch.musa.reset_op_statistics()
    assert ops.rotary_embedding_(positions.to("musa"), q, k, dim, cache, interleaved) is None
    (entry,) = [op for op in torch.musa.op_statistics() if op.name == "musa::rotary_embedding_"]
    assert entry.native_calls == 1
    heads = qkv[:, : 6 * dim].unflatten(1, (6, dim))
    full = [spread(t[positions], interleaved).unsqueeze(1) for t in (cos, sin)]
    exact = turned(heads.double(), *(t.double() for t in full), interleaved)
    assert_as_accurate(on_card[:, : 6 * dim].unflatten(1, (6, dim)), turned(heads, *full, interleaved), exact)
    assert torch.equal(on_card[:, 6 * dim :].cpu(), qkv[:, 6 * dim :])
    alone = qkv.to("musa")[:, : 4 * dim].contiguous()
    ops.rotary_embedding_(positions.int().to("musa"), alone, None, dim, cache, interleaved)
    assert torch.equal(alone, on_card[:, : 4 * dim])
    on_cpu = qkv[:, : 4 * dim].clone()
    ops.rotary_embedding_(positions, on_cpu, None, dim, cache.cpu(), interleaved)
    torch.testing.assert_close(on_cpu, alone.cpu(), rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("interleaved", [False, True])
def test_derivatives(interleaved: bool) -> None:
    tensors = [randn(2, 3, 4, 6, dtype=torch.float64), randn(2, 1, 4, 6, dtype=torch.float64)]
    tensors += [t.double() for t in angles(2, 4, 4, dtype=torch.float32)]
    leaves = [t.requires_grad_() for t in tensors]
    torch.autograd.gradcheck(lambda *t: ops.rotary_embedding(*t, 1, interleaved), leaves)
    grads = []
    for device in ("cpu", "musa"):
        moved = [t.detach().to(device, torch.float32).requires_grad_() for t in tensors]
        sum(part.square().sum() for part in ops.rotary_embedding(*moved, 1, interleaved)).backward()
        grads.append([t.grad.cpu() for t in moved])
    torch.testing.assert_close(grads[1], grads[0])


def test_runs_on_the_cpu_and_on_meta() -> None:
    q, k = randn(2, 5, 3, 8).transpose(1, 2), randn(2, 5, 1, 8).transpose(1, 2)
    cos, sin = angles(2, 5, 8, dtype=torch.float32)
    expected = [turned(x, cos.unsqueeze(1), sin.unsqueeze(1)) for x in (q, k)]
    torch.testing.assert_close(list(ops.rotary_embedding(q, k, cos, sin)), expected)
    meta = ops.rotary_embedding(*(t.to("meta") for t in (q, k, cos, sin)))
    assert [t.stride() for t in meta] == [q.stride(), k.stride()]
    positions = torch.zeros(4, dtype=torch.long, device="meta")
    ops.rotary_embedding_(positions, q.to("meta"), None, 8, torch.empty(3, 8, device="meta"))


def test_wrong_operands_are_refused() -> None:
    q, cos = torch.ones(2, 3, 4, 8, device="musa"), torch.ones(2, 4, 8, device="musa")
    with pytest.raises(RuntimeError, match=r"rotary_dim 6, head dim 8 and cos \[2, 4, 8\]"):
        ops.rotary_embedding(q, q, cos, cos, 1, False, 6)
    with pytest.raises(RuntimeError, match=r"can't broadcast cos \[2, 3, 8\]"):
        ops.rotary_embedding(q, q, cos[:, :3], cos[:, :3])
    with pytest.raises(RuntimeError, match=r"q and k of one dtype"):
        ops.rotary_embedding(q, q.half(), cos, cos)
    with pytest.raises(RuntimeError, match=r"differ in their heads \(dimension 1\) only"):
        ops.rotary_embedding(q, q[:1], cos, cos)
    positions = torch.tensor([0, 7], device="musa")
    x, cache = torch.ones(2, 16, device="musa"), torch.ones(7, 8, device="musa")
    with pytest.raises(IndexError, match=r"position 7, but the cos_sin_cache has rows for 0 \.\. 6"):
        ops.rotary_embedding_(positions, x, None, 8, cache)
    with pytest.raises(RuntimeError, match="for 2 positions and head_dim 7"):
        ops.rotary_embedding_(positions, x, None, 7, cache[:, :6])
    with pytest.raises(RuntimeError, match="use rotary_embedding"):
        ops.rotary_embedding_(positions, x.requires_grad_(), None, 8, cache)


def test_results_do_not_depend_on_threads_or_other_tokens() -> None:
    q, k = randn(1, 8, 300, 64).bfloat16().to("musa"), randn(1, 2, 300, 64).bfloat16().to("musa")
    cos, sin = (t.to("musa") for t in angles(1, 300, 64, dtype=torch.bfloat16))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = ops.rotary_embedding(q, k, cos, sin)
        torch.set_num_threads(2)
        two = ops.rotary_embedding(q, k, cos, sin)
    finally:
        torch.set_num_threads(threads)
    alone = ops.rotary_embedding(q[:, :, 7:8], k[:, :, 7:8], cos[:, 7:8], sin[:, 7:8])
    for a, b, c in zip(one, two, alone, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a[:, :, 7:8], c)
