"""torch.musa.batch_invariant: a row comes out the same, bit for bit, however many rows are computed with it."""

import random
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F

ROWS = (1, 2, 3, 17, 64, 300)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]

Rows = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    seed = random.randrange(2**31)
    print("seed", seed)
    torch.manual_seed(seed)
    with torch.musa.batch_invariant():
        yield


def numbers(*size: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(size).to(dtype).to("musa")


def assert_rows_are_their_own(rows: Rows, x: torch.Tensor) -> None:
    """rows(x) of the first rows of x, and of some in the middle, against rows(x) of all 300."""
    whole = rows(x).cpu()
    for count in ROWS:
        for first in {0, 150 - count // 2}:
            part = rows(x[first : first + count]).cpu()
            assert torch.equal(part, whole[first : first + count]), f"{count} rows from {first}"


def linear(columns: int, by_columns: bool, bias: bool) -> Callable[[torch.dtype], Rows]:
    def make(dtype: torch.dtype) -> Rows:
        weight = numbers(columns, 515, dtype=dtype) if by_columns else numbers(515, columns, dtype=dtype).T
        more = numbers(columns, dtype=dtype) if bias else None
        return lambda x: F.linear(x, weight, more)

    return make


def bmm(by_columns: bool) -> Callable[[torch.dtype], Rows]:
    def make(dtype: torch.dtype) -> Rows:
        b = numbers(2, 30, 515, dtype=dtype).mT if by_columns else numbers(2, 515, 30, dtype=dtype)
        return lambda x: torch.bmm(torch.stack((x, -x)), b).transpose(0, 1)

    return make


def column_major(dtype: torch.dtype) -> Rows:
    weight = numbers(40, 515, dtype=dtype)
    return lambda x: x.T.contiguous().T @ weight.T


def unary(function: Rows) -> Callable[[torch.dtype], Rows]:
    return lambda dtype: function


def fused_moe(dtype: torch.dtype) -> Rows:
    gate_up, down = numbers(4, 64, 515, dtype=dtype), numbers(4, 515, 32, dtype=dtype)

    def rows(x: torch.Tensor) -> torch.Tensor:
        weights, ids = torch.ops.musa.route_experts(x[:, :4], 2)
        return torch.ops.musa.fused_moe(x, gate_up, down, ids, weights)[0]

    return rows


def normed(function: Callable[..., torch.Tensor]) -> Callable[[torch.dtype], Rows]:
    def make(dtype: torch.dtype) -> Rows:
        weight = numbers(515, dtype=dtype)
        return lambda x: function(x, (515,), weight)

    return make


def add_rms_norm(dtype: torch.dtype) -> Rows:
    return lambda x: torch.ops.musa.add_rms_norm(x, x.flip(1))[0]


def rotary(dtype: torch.dtype) -> Rows:
    angles = numbers(64, dtype=torch.float32)

    def rows(x: torch.Tensor) -> torch.Tensor:
        q = x[:, :512].reshape(1, -1, 8, 64)
        cos, sin = angles.cos().expand(1, x.size(0), 64), angles.sin().expand(1, x.size(0), 64)
        return torch.ops.musa.rotary_embedding(q, q, cos, sin, 2)[0][0]

    return rows


OPERATORS: dict[str, Callable[[torch.dtype], Rows]] = {
    "linear": linear(130, True, False),
    "linear with bias": linear(130, True, True),
    "linear, narrow": linear(5, True, False),
    "linear, one column": linear(1, True, False),
    "mm": linear(130, False, False),
    "mm, narrow": linear(5, False, False),
    "addmm": linear(130, False, True),
    "mm of columns": column_major,
    "bmm by columns": bmm(True),
    "bmm by rows": bmm(False),
    "layer_norm": normed(F.layer_norm),
    "rms_norm": normed(F.rms_norm),
    "add_rms_norm": add_rms_norm,
    "softmax": unary(lambda x: x.softmax(-1)),
    "log_softmax": unary(lambda x: x.log_softmax(-1)),
    "silu": unary(F.silu),
    "gelu": unary(F.gelu),
    "silu_and_mul": unary(lambda x: torch.ops.musa.silu_and_mul(x[:, :514])),
    "rotary_embedding": rotary,
    "topk": unary(lambda x: x.topk(8)[0]),
    "route_experts": unary(lambda x: torch.ops.musa.route_experts(x, 8)[0]),
    "fused_moe": fused_moe,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_rows_are_the_same_in_any_number(name: str, dtype: torch.dtype) -> None:
    assert_rows_are_their_own(OPERATORS[name](dtype), numbers(300, 515, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("by_columns", [True, False])
def test_grouped_products_are_those_of_the_rows_alone(by_columns: bool, dtype: torch.dtype) -> None:
    x = numbers(320, 64, dtype=dtype)
    weight = numbers(3, 48, 64, dtype=dtype).mT if by_columns else numbers(3, 64, 48, dtype=dtype)
    ends = torch.tensor([1, 70, 320], dtype=torch.int32, device="musa")
    whole = torch._grouped_mm(x, weight, ends).cpu()
    alone = torch._grouped_mm(x[60:90], weight, torch.tensor([0, 10, 30], dtype=torch.int32, device="musa")).cpu()
    assert torch.equal(alone, whole[60:90])
    assert torch.equal((x[:1] @ weight[0]).cpu(), whole[:1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [(4, 4), (8, 2)])
@pytest.mark.parametrize("kind", ["full", "causal", "window", "mask"])
def test_a_query_is_the_same_alone_and_among_others(kind: str, heads: tuple[int, int], dtype: torch.dtype) -> None:
    total = 300
    query, key, value = (numbers(1, h, total, 48, dtype=dtype) for h in (heads[0], heads[1], heads[1]))
    mask = numbers(1, 1, total, total, dtype=dtype)

    def attend(first: int, last: int) -> torch.Tensor:
        q = query[:, :, first:last]
        if kind in ("causal", "window"):  # the last query stands at the last key
            left = 40 if kind == "window" else -1
            k, v = key[:, :, :last], value[:, :, :last]
            return torch.ops.musa.attention(q, k, v, left=left, right=0)[0].cpu()
        given = mask[:, :, first:last] if kind == "mask" else None
        return F.scaled_dot_product_attention(q, key, value, attn_mask=given, enable_gqa=True).cpu()

    whole = attend(0, total)
    for count in ROWS:
        for first in {0, (total - count) // 2, total - count}:
            assert torch.equal(attend(first, first + count), whole[:, :, first : first + count]), (count, first)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sequences_of_a_batch_are_the_same_alone(dtype: torch.dtype) -> None:
    x = numbers(5, 40, 64, dtype=dtype)
    weight = numbers(48, 64, dtype=dtype)
    assert torch.equal(F.linear(x, weight)[3].cpu(), F.linear(x[3:4], weight)[0].cpu())
    q = x.reshape(5, 40, 4, 16).transpose(1, 2)
    whole = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert torch.equal(whole[3].cpu(), F.scaled_dot_product_attention(q[3:4], q[3:4], q[3:4], is_causal=True)[0].cpu())


def test_the_mode_is_put_back_also_after_an_error_and_takes_only_truth_values() -> None:
    with torch.musa.batch_invariant(False):
        with torch.musa.batch_invariant():
            assert torch.musa.is_batch_invariant()
        with pytest.raises(ZeroDivisionError), torch.musa.batch_invariant():
            _ = 1 / 0
        assert not torch.musa.is_batch_invariant()
        torch.musa.batch_invariant(True)
        assert torch.musa.is_batch_invariant()
    assert torch.musa.is_batch_invariant()
    with pytest.raises(TypeError, match="True or False"):
        torch.musa.batch_invariant(1)  # type: ignore[arg-type]
