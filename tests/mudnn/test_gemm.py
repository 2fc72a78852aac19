"""mm, addmm, bmm, baddbmm and linear by our kernels."""

import itertools
import random

import pytest
import torch
from accuracy import assert_as_accurate

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# m, n, k: one row, few and many rows, odd sizes, tails of vectors, tiles and blocks, nothing at all.
SHAPES = [
    (1, 1, 1),
    (1, 67, 515),
    (3, 5, 7),
    (5, 33, 31),
    (16, 96, 64),
    (31, 130, 1100),
    (32, 3, 40),
    (33, 70, 513),
    (15, 31, 33),
    (100, 1, 65),
    (130, 9, 50),
    (70, 600, 48),
    (600, 40, 20),
    (0, 4, 5),
    (4, 0, 5),
    (4, 5, 0),
    (28, 64, 1029),
]


def numbers(*size: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(size).to(dtype)


@pytest.fixture(autouse=True)
def seeded() -> None:
    seed = random.randrange(2**31)
    print("seed", seed)
    torch.manual_seed(seed)


def stored(x: torch.Tensor, by_columns: bool) -> torch.Tensor:
    """The same values, contiguous in the last or in the last but one dimension."""
    return x.mT.contiguous().mT if by_columns else x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_mm_is_as_accurate_as_pytorchs_in_every_layout(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    m, n, k = shape
    a, b = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype)
    exact = a.double() @ b.double()
    for columns_a, columns_b in itertools.product((False, True), repeat=2):
        x, y = stored(a, columns_a), stored(b, columns_b)
        assert_as_accurate(x.to("musa") @ y.to("musa"), x @ y, exact)


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_sums_are_as_accurate_as_pytorchs(dtype: torch.dtype) -> None:
    a, weight = numbers(40, 9000, dtype=dtype), numbers(36, 9000, dtype=dtype)
    for rows in (1, 7, 40):
        for b in (weight.T, weight.T.contiguous()):
            got = a[:rows].to("musa") @ b.to("musa")
            assert_as_accurate(got, a[:rows] @ b, a[:rows].double() @ b.double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (21,), (18, 1), (1, 21), (18, 21)])
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.5, -2), (0, 3)])
def test_addmm(shape: tuple[int, ...], dtype: torch.dtype, beta: float, alpha: float) -> None:
    bias, a, b = numbers(*shape, dtype=dtype), numbers(18, 50, dtype=dtype), numbers(50, 21, dtype=dtype)
    cpu = torch.addmm(bias, a, b, beta=beta, alpha=alpha)
    exact = torch.addmm(bias.double(), a.double(), b.double(), beta=beta, alpha=alpha)
    on_card = [x.to("musa") for x in (bias, a, b)]
    assert_as_accurate(torch.addmm(*on_card, beta=beta, alpha=alpha), cpu, exact)
    out = torch.empty(21, 18, dtype=dtype, device="musa").T
    assert torch.addmm(*on_card, beta=beta, alpha=alpha, out=out) is out
    assert_as_accurate(out, cpu, exact)
    if shape == (18, 21):
        target = stored(bias, True).to("musa")
        assert target.addmm_(on_card[1], on_card[2], beta=beta, alpha=alpha) is target
        assert_as_accurate(target, cpu, exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (4, 3, 9, 17), (3, 40, 33, 16), (2, 64, 8, 70), (0, 2, 3, 4), (5, 1, 64, 64)]
)
def test_bmm_and_baddbmm(shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    batch, m, n, k = shape
    for by_columns in (False, True):
        a = stored(numbers(batch, m, k, dtype=dtype), by_columns)
        b = stored(numbers(batch, k, n, dtype=dtype), by_columns)
        x, y = a.to("musa"), b.to("musa")
        assert_as_accurate(torch.bmm(x, y), torch.bmm(a, b), torch.bmm(a.double(), b.double()))
        for bias in (numbers(n, dtype=dtype), numbers(batch, 1, n, dtype=dtype), numbers(batch, m, n, dtype=dtype)):
            cpu = torch.baddbmm(bias, a, b, beta=2, alpha=0.5)
            exact = torch.baddbmm(bias.double(), a.double(), b.double(), beta=2, alpha=0.5)
            assert_as_accurate(torch.baddbmm(bias.to("musa"), x, y, beta=2, alpha=0.5), cpu, exact)
        target = bias.to("musa")
        assert_as_accurate(target.baddbmm_(x, y, beta=2, alpha=0.5), cpu, exact)
        strided = torch.zeros(n, batch, m, dtype=dtype, device="musa").permute(1, 2, 0)
        torch.bmm(x, y, out=strided)
        assert_as_accurate(strided, torch.bmm(a, b), torch.bmm(a.double(), b.double()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [(1,), (2, 3), (50,)])
def test_linear_multiplies_by_a_transposed_weight(rows: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight, bias = numbers(*rows, 48, dtype=dtype), numbers(37, 48, dtype=dtype), numbers(37, dtype=dtype)
    linear = torch.nn.functional.linear
    for b in (bias, None):
        got = linear(x.to("musa"), weight.to("musa"), None if b is None else b.to("musa"))
        exact = linear(x.double(), weight.double(), None if b is None else b.double())
        assert_as_accurate(got, linear(x, weight, b), exact)


def test_views_that_start_anywhere_and_skip() -> None:
    base = torch.randn(40, 90).bfloat16()
    other = torch.randn(40, 45).bfloat16()
    a, b = base[1:30, 3:43], other[:, 1:]
    card, card_other = base.to("musa"), other.to("musa")
    assert_as_accurate(card[1:30, 3:43] @ card_other[:, 1:], a @ b, a.double() @ b.double())
    a, b = base[::3, 1:81:2], other[:, ::4]
    assert_as_accurate(card[::3, 1:81:2] @ card_other[:, ::4], a @ b, a.double() @ b.double())
    a, b = base[:1].expand(6, 90), base.T
    assert_as_accurate(card[:1].expand(6, 90) @ card.T, a @ b, a.double() @ b.double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [2, 40])
def test_special_values_reach_only_the_products_they_take_part_in(rows: int, dtype: torch.dtype) -> None:
    a, weight = numbers(rows, 70, dtype=dtype), numbers(50, 70, dtype=dtype)
    a[1, 69] = float("nan")
    weight[3, 5] = float("inf")
    weight[4, 6] = float("-inf")
    for b in (weight.T, weight.T.contiguous()):
        got, cpu = (a.to("musa") @ b.to("musa")).cpu(), a @ b
        assert torch.equal(got.isnan(), cpu.isnan())
        assert torch.equal(got.isinf(), cpu.isinf())
        assert got[1].isnan().all()
        assert got[0, :3].isfinite().all()


def test_beta_zero_does_not_look_at_what_is_added() -> None:
    a, b = torch.randn(3, 4, device="musa"), torch.randn(4, 5, device="musa")
    bad = torch.full((3, 5), float("nan"), device="musa")
    assert torch.equal(torch.addmm(bad, a, b, beta=0), a @ b)
    assert torch.equal(torch.baddbmm(bad[None], a[None], b[None], beta=0), (a @ b)[None])
    assert torch.equal(bad.addmm_(a, b, beta=0), a @ b)


def test_results_without_depth_are_zero_or_what_is_added() -> None:
    a, b = torch.ones(3, 0, device="musa"), torch.ones(0, 5, device="musa")
    assert torch.equal((a @ b).cpu(), torch.zeros(3, 5))
    bias = torch.randn(5)
    got = torch.addmm(bias.to("musa"), a, b, beta=2, alpha=float("inf"))
    assert torch.equal(got.cpu(), (2 * bias).expand(3, 5))


def test_out_may_overlap_what_is_read() -> None:
    x, y = torch.randn(6, 6), torch.randn(6, 6)
    exact = x.double() @ y.double()
    a, b = x.to("musa"), y.to("musa")
    torch.mm(a, b, out=a)
    assert_as_accurate(a, x @ y, exact)
    store = torch.randn(7, 6)
    a, target = x.to("musa"), store.to("musa")
    torch.addmm(target[:6], a, b, out=target[1:])
    assert_as_accurate(target[1:], store[:6] + x @ y, store[:6].double() + exact)
    a = x.to("musa")
    assert_as_accurate(a.addmm_(a, a), x + x @ x, x.double() + x.double() @ x.double())


def test_out_is_resized_and_must_not_overlap_itself() -> None:
    a, b = torch.randn(3, 4, device="musa"), torch.randn(4, 5, device="musa")
    out = torch.empty(0, device="musa")
    assert torch.mm(a, b, out=out).shape == (3, 5)
    assert torch.equal(out, a @ b)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.mm(a, b, out=torch.empty(1, device="musa").expand(3, 5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, b: torch.mm(a, b.T), "mat1 and mat2 shapes cannot be multiplied"),
        (lambda a, b: torch.mm(a, b.double()), "same dtype"),
        (lambda a, b: torch.mm(a, b[0]), "mat2 must be a matrix"),
        (lambda a, b: torch.addmm(torch.ones(7, device="musa"), a, b), "size"),
        (lambda a, b: torch.bmm(a[None], b.expand(2, 4, 5)), "batch"),
        (lambda a, b: torch.mm(a, b, out=torch.empty(3, 5, device="musa", dtype=torch.float64)), "dtype"),
    ],
)
def test_wrong_calls_are_refused_as_on_the_cpu(call, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(torch.ones(3, 4, device="musa"), torch.ones(4, 5, device="musa"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.complex64])
def test_other_dtypes_come_from_the_reference(dtype: torch.dtype) -> None:
    a, b = (torch.randn(3, 4) * 9).to(dtype), (torch.randn(4, 5) * 9).to(dtype)
    torch.musa.reset_op_statistics()
    assert torch.equal((a.to("musa") @ b.to("musa")).cpu(), a @ b)
    (entry,) = [op for op in torch.musa.op_statistics() if op.name == "aten::mm"]
    assert (entry.calls, entry.native_calls) == (1, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_threads_or_other_rows(dtype: torch.dtype) -> None:
    a, weight = numbers(300, 600, dtype=dtype).to("musa"), numbers(520, 600, dtype=dtype).to("musa")
    batches = numbers(9, 30, 80, dtype=dtype).to("musa")

    def results() -> list[torch.Tensor]:
        return [a @ weight.T, a[:5] @ weight.T, a[:5] @ weight.T.contiguous(), batches @ batches.mT]

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = results()
        torch.set_num_threads(2)
        two = results()
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(x, y) for x, y in zip(one, two, strict=True))
    changed = a.clone()
    changed[1:] = float("nan")
    assert torch.equal((changed @ weight.T)[0], one[0][0])
    assert torch.equal((changed[:5] @ weight.T)[0], one[1][0])


@pytest.mark.parametrize("name", ["mm", "addmm", "bmm", "baddbmm"])
def test_counts_as_native(name: str) -> None:
    a = torch.ones(2, 2, device="musa")
    if name.startswith("b"):
        a = a[None]
    torch.musa.reset_op_statistics()
    getattr(torch, name)(*[a] * (3 if "add" in name else 2))
    (entry,) = [op for op in torch.musa.op_statistics() if op.name == f"aten::{name}"]
    assert (entry.calls, entry.native_calls, entry.bridged) == (1, 1, False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_out_dtype_keeps_the_sums_in_float32(dtype: torch.dtype) -> None:
    a, b, bias = numbers(20, 70, dtype=dtype), numbers(70, 33, dtype=dtype), torch.randn(33)
    wide, exact = a.float() @ b.float(), a.double() @ b.double()
    x, y, z = a.to("musa"), b.to("musa"), bias.to("musa")
    assert_as_accurate(torch.mm(x, y, out_dtype=torch.float32), wide, exact)
    assert_as_accurate(torch.bmm(x[None], y[None], out_dtype=torch.float32)[0], wide, exact)
    for added in (z, z.to(dtype)):
        got = torch.addmm(added, x, y, out_dtype=torch.float32, beta=2, alpha=3)
        batched = torch.baddbmm(added, x[None], y[None], out_dtype=torch.float32, beta=2, alpha=3)
        host = added.cpu()
        assert_as_accurate(got, 2 * host + 3 * wide, 2 * host.double() + 3 * exact)
        assert torch.equal(batched[0], got)
    out = torch.empty(33, 20, device="musa").T
    assert torch.mm(x, y, out_dtype=torch.float32, out=out) is out
    assert_as_accurate(out, wide, exact)
    assert torch.equal(torch.mm(x, y, out_dtype=dtype), x @ y)


def test_out_dtype_is_the_operands_or_wider() -> None:
    x = torch.ones(2, 2, device="musa")
    with pytest.raises(RuntimeError, match="float32 for float16 and bfloat16; got BFloat16 for Float"):
        torch.mm(x, x, out_dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match=r"\[m, k\] and \[k, n\], got \[2, 2\] and \[1, 2\]"):
        torch.mm(x, x[:1], out_dtype=torch.float32)
