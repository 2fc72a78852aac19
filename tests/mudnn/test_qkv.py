"""torch.ops.musa.qkv_norm_rope."""

import random

import pytest
import torch
from accuracy import assert_as_accurate

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ops = torch.ops.musa
Tensors = tuple[torch.Tensor, ...]


def randn(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    seed = random.randrange(2**31)
    print("seed", seed)
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def angles(rows: int, pairs: int, dtype: torch.dtype = torch.float32) -> Tensors:
    """cos and sin of one angle for each pair."""
    angle = randn(rows, pairs) * 10
    return angle.cos().to(dtype), angle.sin().to(dtype)


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """x [tokens, heads, d] with angles [tokens, pairs]."""
    pairs = cos.shape[-1]
    c, s = cos.unsqueeze(1), sin.unsqueeze(1)
    if interleaved:
        a, b = x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
        part = torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)
    else:
        a, b = x[..., :pairs], x[..., pairs : 2 * pairs]
        part = torch.cat([a * c - b * s, b * c + a * s], -1)
    return torch.cat([part, x[..., 2 * pairs :]], -1)


def formula(
    qkv: torch.Tensor, heads: int, kv_heads: int, cos: torch.Tensor, sin: torch.Tensor,
    weights: tuple[torch.Tensor | None, torch.Tensor | None], eps: float, offset: float, interleaved: bool,
) -> Tensors:  # fmt: skip
    """As models have it, operator by operator, in the dtype of qkv; a row of cos and sin [tokens, pairs] a token."""
    parts = qkv.unflatten(-1, (heads + 2 * kv_heads, -1)).split([heads, kv_heads, kv_heads], -2)
    results = []
    for x, weight in zip(parts, weights, strict=False):
        if weight is not None:
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (weight + offset)
        results.append(turned(x, cos, sin, interleaved))
    return *results, parts[2]


def check(got: Tensors, theirs: Tensors, exact: Tensors) -> None:
    for mine, cpu, right in zip(got, theirs, exact, strict=True):
        assert mine.is_contiguous()
        assert_as_accurate(mine, cpu, right)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("weighted", ["both", "none", "q", "k"])
@pytest.mark.parametrize(
    ("tokens", "heads", "kv_heads", "dim", "rotary"),
    [(1, 32, 8, 128, 128), (5, 3, 1, 16, 6), (7, 4, 2, 10, 10), (0, 2, 2, 8, 8), (3, 5, 2, 80, 34), (2, 1, 1, 7, 0)],
)
def test_values_are_as_accurate_as_pytorchs(
    tokens: int, heads: int, kv_heads: int, dim: int, rotary: int, weighted: str, interleaved: bool, dtype: torch.dtype
) -> None:
    qkv = randn(tokens, (heads + 2 * kv_heads) * dim, dtype=dtype)
    weights = [randn(dim, dtype=dtype) if weighted in ("both", side) else None for side in ("q", "k")]
    cos, sin = angles(tokens, rotary // 2, dtype)
    arguments = (heads, kv_heads, cos, sin)
    rest = (1e-5, 0.5, interleaved)
    theirs = formula(qkv, *arguments, (weights[0], weights[1]), *rest)
    wide = [None if w is None else w.double() for w in weights]
    exact = formula(qkv.double(), heads, kv_heads, cos.double(), sin.double(), (wide[0], wide[1]), *rest)
    on_card = [None if w is None else w.to("musa") for w in weights]
    torch.musa.reset_op_statistics()
    got = ops.qkv_norm_rope(
        qkv.to("musa"), heads, kv_heads, cos.to("musa"), sin.to("musa"), q_weight=on_card[0], k_weight=on_card[1],
        eps=1e-5, weight_offset=0.5, interleaved=interleaved, rotary_dim=rotary,
    )  # fmt: skip
    (entry,) = [op for op in torch.musa.op_statistics() if op.name == "musa::qkv_norm_rope"]
    assert entry.native_calls == 1
    check(got, theirs, exact)
    reference = ops.qkv_norm_rope(
        qkv, heads, kv_heads, cos, sin, q_weight=weights[0], k_weight=weights[1], eps=1e-5, weight_offset=0.5,
        interleaved=interleaved, rotary_dim=rotary,
    )  # fmt: skip
    check(reference, theirs, exact)


@pytest.mark.parametrize("interleaved", [False, True])
def test_positions_choose_the_angles_of_a_token(interleaved: bool) -> None:
    qkv, weight = randn(2, 3, 8 * 16, dtype=torch.bfloat16), randn(16)
    cos, sin = angles(50, 6)
    table = torch.cat([cos, sin], -1)
    positions = torch.tensor([[0, 49, 3], [3, 17, 1]])
    rows = positions.flatten()
    flat = qkv.flatten(0, 1)
    weights = (weight, weight)
    theirs = formula(flat.float(), 4, 2, cos[rows], sin[rows], weights, 1e-6, 0.0, interleaved)
    wide = (weight.double(), weight.double())
    exact = formula(flat.double(), 4, 2, cos[rows].double(), sin[rows].double(), wide, 1e-6, 0.0, interleaved)
    for device in ("musa", "cpu"):
        on_device = table.to(device)
        for index in (positions, positions.int()):
            got = ops.qkv_norm_rope(
                qkv.to(device), 4, 2, on_device[:, :6], on_device[:, 6:], positions=index.to(device),
                q_weight=weight.to(device), k_weight=weight.to(device), interleaved=interleaved, rotary_dim=12,
            )  # fmt: skip
            assert [tuple(t.shape) for t in got] == [(2, 3, 4, 16), (2, 3, 2, 16), (2, 3, 2, 16)]
            check(tuple(t.flatten(0, 1) for t in got), tuple(t.bfloat16() for t in theirs), exact)


def test_angles_of_each_element_may_differ_within_a_pair() -> None:
    qkv, angle = randn(3, 6 * 8), randn(3, 8)
    cos, sin = angle.cos(), angle.sin()
    for interleaved in (False, True):
        got = ops.qkv_norm_rope(
            qkv.to("musa"), 2, 2, cos.to("musa"), sin.to("musa"), interleaved=interleaved, rotary_dim=8
        )
        q, k, v = qkv.unflatten(-1, (6, 8)).split(2, 1)
        for mine, x in zip(got, (q, k), strict=False):
            if interleaved:
                partner = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
            else:
                partner = torch.cat([-x[..., 4:], x[..., :4]], -1)
            torch.testing.assert_close(mine.cpu(), x * cos.unsqueeze(1) + partner * sin.unsqueeze(1))
        assert torch.equal(got[2].cpu(), v)


def test_rows_may_be_strided_and_misaligned() -> None:
    storage = randn(9, 4 * 6 * 10 + 3, dtype=torch.bfloat16).to("musa")
    cos, sin = (t.to("musa") for t in angles(9, 5))
    weight = randn(21).to("musa")[1::2]
    for qkv in (storage[:, 3:243], storage[::2, 1:241]):
        n = qkv.shape[0]
        got = ops.qkv_norm_rope(qkv, 16, 4, cos[:n], sin[:n], q_weight=weight, k_weight=weight, rotary_dim=10)
        dense = ops.qkv_norm_rope(
            qkv.contiguous(), 16, 4, cos[:n], sin[:n].mT.contiguous().mT, q_weight=weight.contiguous(),
            k_weight=weight.contiguous(), rotary_dim=10,
        )  # fmt: skip
        for a, b in zip(got, dense, strict=True):
            assert torch.equal(a, b)


def test_a_row_depends_on_nothing_but_itself() -> None:
    qkv, weight = randn(300, 48 * 64, dtype=torch.bfloat16).to("musa"), randn(64, dtype=torch.bfloat16).to("musa")
    cos, sin = (t.to("musa") for t in angles(300, 32))

    def call(x: torch.Tensor, rows: slice = slice(None)) -> list[torch.Tensor]:
        return list(
            ops.qkv_norm_rope(x[rows], 32, 8, cos[rows], sin[rows], q_weight=weight, k_weight=weight, rotary_dim=64)
        )

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = call(qkv)
        torch.set_num_threads(2)
        two = call(qkv)
    finally:
        torch.set_num_threads(threads)
    spoilt = qkv.clone()
    spoilt[8:] = float("nan")
    spoilt[:7] = float("inf")
    for a, b, c, d in zip(one, two, call(qkv, slice(7, 8)), call(spoilt), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a[7:8], c)
        assert torch.equal(a[7], d[7])
        assert d[8:].isnan().all()


@pytest.mark.parametrize("positions", [None, [4, 0, 4]])
def test_derivatives(positions: list[int] | None) -> None:
    tensors = [randn(3, 5 * 6), *angles(3 if positions is None else 5, 2), randn(6), randn(6)]

    def call(qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Tensors:
        index = None if positions is None else torch.tensor(positions, device=qkv.device)[:3]
        results: Tensors = ops.qkv_norm_rope(
            qkv, 3, 1, cos, sin, positions=index, q_weight=a, k_weight=b, weight_offset=1.0, rotary_dim=4
        )
        return results

    torch.autograd.gradcheck(call, [t.double().requires_grad_() for t in tensors])
    grads = []
    for device in ("cpu", "musa"):
        moved = [t.detach().to(device).requires_grad_() for t in tensors]
        torch.cat([part.flatten() for part in call(*moved)]).square().sum().backward()
        grads.append([t.grad.cpu() for t in moved if t.grad is not None])
        assert len(grads[-1]) == 5
    torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("device", ["cpu", "musa"])
def test_is_traced_with_gradients(device: str) -> None:
    table, positions = randn(10, 4).to(device), torch.tensor([1, 9, 3], device=device)
    options = {"positions": positions, "q_weight": randn(8).to(device), "rotary_dim": 8}
    checks = ("test_schema", "test_faketensor")
    qkv = randn(3, 6 * 8).to(device).requires_grad_()
    torch.library.opcheck(ops.qkv_norm_rope.default, (qkv, 2, 2, table, table), options, test_utils=checks)
    compiled = torch.compile(lambda x: ops.qkv_norm_rope(x, 2, 2, table, table, **options), backend="aot_eager")
    expected = ops.qkv_norm_rope(qkv, 2, 2, table, table, **options)
    torch.testing.assert_close(list(compiled(qkv)), list(expected))


def test_meta_gives_shapes_and_dtypes() -> None:
    cos = torch.empty(4, 8, device="meta")
    qkv = torch.empty(2, 2, 8 * 16, dtype=torch.bfloat16, device="meta")
    q, k, v = ops.qkv_norm_rope(qkv, 4, 2, cos, cos, rotary_dim=16)
    assert q.shape == (2, 2, 4, 16)
    assert k.shape == v.shape == (2, 2, 2, 16)
    assert q.dtype == k.dtype == v.dtype == torch.bfloat16


def test_the_clock_counts_the_angles_that_are_read() -> None:
    qkv, table = torch.ones(3, 6 * 8, device="musa"), torch.ones(5000, 4, device="musa")
    positions, weight = torch.arange(3, device="musa"), torch.ones(8, device="musa")
    torch.musa.reset_op_statistics()
    ops.qkv_norm_rope(qkv, 2, 2, table, table, positions=positions, q_weight=weight, rotary_dim=8)
    (entry,) = torch.musa.op_statistics()
    assert entry.bytes == 2 * 3 * 48 * 4 + 3 * (2 * 4 * 4 + 8) + 8 * 4


def test_wrong_operands_are_refused() -> None:
    qkv, cos = torch.ones(2, 8 * 16, device="musa"), torch.ones(2, 16, device="musa")
    for device in ("cpu", "musa", "meta"):
        x, c = qkv.to(device), cos.to(device)
        with pytest.raises(ValueError, match="got heads=0 and kv_heads=2"):
            ops.qkv_norm_rope(x, 0, 2, c, c)
        with pytest.raises(RuntimeError, match=r"here \[\.\.\., 7 \* head_dim\], got .* of shape \[2, 128\]"):
            ops.qkv_norm_rope(x, 3, 2, c, c)
        with pytest.raises(RuntimeError, match=r"weights of shape \[16\], the head dim, got \[8\]"):
            ops.qkv_norm_rope(x, 4, 2, c, c, k_weight=c[0, :8])
        with pytest.raises(RuntimeError, match=r"one dtype and one shape .* got \[2, 16\] .* and \[2, 8\]"):
            ops.qkv_norm_rope(x, 4, 2, c, c[:, :8])
        with pytest.raises(RuntimeError, match=r"rotary_dim 12, head dim 16 and cos \[2, 16\]"):
            ops.qkv_norm_rope(x, 4, 2, c, c, rotary_dim=12)
        with pytest.raises(RuntimeError, match=r"each of 2 tokens, got Long of shape \[3\]"):
            ops.qkv_norm_rope(x, 4, 2, c, c, positions=torch.zeros(3, dtype=torch.long, device=device))
        with pytest.raises(RuntimeError, match=r"a row of cos and sin for each of 2 tokens, got \[1, 16\]"):
            ops.qkv_norm_rope(x, 4, 2, c[:1], c[:1])
    for device in ("cpu", "musa"):
        x, c = qkv.to(device), cos.to(device)
        for wrong in (-1, 2):
            with pytest.raises(IndexError, match=rf"position {wrong}, but cos and sin have rows for 0 \.\. 1"):
                ops.qkv_norm_rope(x, 4, 2, c, c, positions=torch.tensor([0, wrong], device=device))
