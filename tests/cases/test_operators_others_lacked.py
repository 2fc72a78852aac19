"""Operators that users of young backends found missing: they run on musa, without a warning, like on cpu."""

import warnings

import pytest
import torch
import torch.nn.functional as F

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(5, 7, generator=GENERATOR)
IDS = torch.randint(0, 6, (5, 7), generator=GENERATOR)
MASK = X > 0

OPERATORS = {
    "std": lambda x, i, m: x.std(unbiased=False),
    "std_correction": lambda x, i, m: x.std(-1, correction=2),
    "var_mean": lambda x, i, m: torch.var_mean(x, 1),
    "cumprod": lambda x, i, m: x.cumprod(-1),
    "cumsum_of_ints": lambda x, i, m: i.cumsum(0),
    "cummax": lambda x, i, m: x.cummax(1),
    "logcumsumexp": lambda x, i, m: x.logcumsumexp(1),
    "where": lambda x, i, m: torch.where(m, x, -x),
    "where_indices": lambda x, i, m: torch.where(m),
    "isnan": lambda x, i, m: torch.isnan(x / x.relu()),
    "tril": lambda x, i, m: x.tril(-1),
    "triu_of_bool": lambda x, i, m: m.triu(1),
    "all_of_ints": lambda x, i, m: i.all(),
    "all_of_bytes": lambda x, i, m: i.byte().all(1),
    "all_of_floats": lambda x, i, m: x.all(0),
    "any_of_floats": lambda x, i, m: x.any(1),
    "prod_of_bool": lambda x, i, m: m.prod(),
    "prod_of_bool_dim": lambda x, i, m: m.prod(1),
    "repeat_interleave": lambda x, i, m: torch.arange(5, device=x.device).repeat_interleave(i[:, 0]),
    "isin": lambda x, i, m: torch.isin(i, torch.tensor([1, 4], device=x.device)),
    "isin_many": lambda x, i, m: torch.isin(i, torch.arange(64, device=x.device) * 3),
    "isin_scalar": lambda x, i, m: torch.isin(i, 3),
    "isin_inverted": lambda x, i, m: torch.isin(i, torch.tensor([1], device=x.device), invert=True),
    "bincount": lambda x, i, m: torch.bincount(i.flatten()),
    "unique": lambda x, i, m: torch.unique(i, return_counts=True, return_inverse=True),
    "unique_dim": lambda x, i, m: torch.unique(i, dim=1),
    "unique_consecutive": lambda x, i, m: torch.unique_consecutive(i.flatten()),
    "sort_stable": lambda x, i, m: i.sort(dim=-1, stable=True),
    "argsort": lambda x, i, m: x.argsort(0, descending=True),
    "topk": lambda x, i, m: x.topk(3),
    "kthvalue": lambda x, i, m: x.kthvalue(2),
    "median": lambda x, i, m: x.median(1),
    "mode": lambda x, i, m: i.mode(1),
    "searchsorted": lambda x, i, m: torch.searchsorted(x[0].sort()[0], x[1]),
    "bucketize": lambda x, i, m: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0], device=x.device)),
    "masked_select": lambda x, i, m: x[m],
    "nonzero": lambda x, i, m: m.nonzero(),
    "take_along_dim": lambda x, i, m: x.take_along_dim(i, 1),
    "one_hot": lambda x, i, m: F.one_hot(i, 6),
    "roll": lambda x, i, m: x.roll(2, 1),
    "flip": lambda x, i, m: x.flip(0, 1),
    "shifts": lambda x, i, m: (i << 2) | 1,
    "floor_division": lambda x, i, m: i // 4 % 3,
    "float_power": lambda x, i, m: x.float_power(2),
    "aminmax": lambda x, i, m: torch.aminmax(x),
    "masked_scatter": lambda x, i, m: torch.zeros_like(x).masked_scatter(m, x),
    "scatter_reduce": lambda x, i, m: torch.zeros_like(x).scatter_reduce(1, i, x, "amax", include_self=False),
    "segment_reduce": lambda x, i, m: torch.segment_reduce(x[0], "sum", lengths=torch.tensor([3, 4], device=x.device)),
    "pad": lambda x, i, m: F.pad(x, (1, 2), value=9.0),
    "pad_reflect": lambda x, i, m: F.pad(x[None], (2, 2), mode="reflect"),
    "unfold": lambda x, i, m: F.unfold(x[None, None], 3),
    "interpolate": lambda x, i, m: F.interpolate(x[None, None], size=(10, 4), mode="nearest"),
    "cdist": lambda x, i, m: torch.cdist(x, x),
    "einsum": lambda x, i, m: torch.einsum("ij,kj->ik", x, x),
    "baddbmm": lambda x, i, m: torch.baddbmm(x[None, :, :5], x[None], x.t()[None]),
    "erfinv": lambda x, i, m: x.tanh().erfinv(),
    "int_mm": lambda x, i, m: torch._int_mm(
        torch.ones(32, 16, dtype=torch.int8, device=x.device), torch.full((16, 8), 2, dtype=torch.int8, device=x.device)
    ),
    "float8": lambda x, i, m: x.to(torch.float8_e4m3fn).float(),
    "meshgrid": lambda x, i, m: torch.meshgrid(x[0], x[1], indexing="ij"),
    "linspace": lambda x, i, m: torch.linspace(0, 1, 5, device=x.device),
    "tril_indices": lambda x, i, m: torch.tril_indices(4, 4, device=x.device),
    "nan_to_num": lambda x, i, m: torch.nan_to_num(x / 0),
    "glu": lambda x, i, m: F.glu(x[:, :6]),
    "nll_loss": lambda x, i, m: F.nll_loss(x.log_softmax(-1), i[:, 0], ignore_index=2),
    "ctc_loss": lambda x, i, m: F.ctc_loss(
        x[:, None].log_softmax(-1), torch.tensor([[1, 2]], device=x.device), torch.tensor([5]), torch.tensor([2])
    ),
    "gelu": lambda x, i, m: F.gelu(x, approximate="tanh"),
    "rms_norm": lambda x, i, m: F.rms_norm(x, (7,)),
    "group_norm": lambda x, i, m: F.group_norm(x[:, :6, None], 3),
    "conv1d": lambda x, i, m: F.conv1d(x[None], torch.ones(4, 5, 3, device=x.device), padding=1),
    "casts": lambda x, i, m: x.double().half().to(torch.int32),
    "inverse": lambda x, i, m: torch.linalg.inv(x[:5, :5] + 9 * torch.eye(5, device=x.device)),
    "qr": lambda x, i, m: torch.linalg.qr(x),
    "svdvals": lambda x, i, m: torch.linalg.svdvals(x),
    "eigh": lambda x, i, m: torch.linalg.eigh(x @ x.t()),
    "cholesky": lambda x, i, m: torch.linalg.cholesky(x @ x.t() + torch.eye(5, device=x.device)),
    "lstsq": lambda x, i, m: torch.linalg.lstsq(x.t(), x.t()[:, :2])[0],
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = OPERATORS[name](X, IDS, MASK)
        actual = OPERATORS[name](X.to("musa"), IDS.to("musa"), MASK.to("musa"))
    actual, expected = [[r] if isinstance(r, torch.Tensor) else list(r) for r in (actual, expected)]
    for got, want in zip(actual, expected, strict=True):
        assert got.device.type == "musa"
        torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
                                   torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)  # fmt: skip
@pytest.mark.parametrize("reduce", ["all", "any", "prod", "sum", "cumsum", "cumprod", "amax", "unique", "sort"])
def test_reductions_of_every_dtype(reduce, dtype):
    x = torch.tensor([[1, 0, 2], [1, 1, 1]]).to(dtype)
    for options in ({}, {"dim": 1}):
        if reduce.startswith("cum") and not options:
            continue
        actual, expected = getattr(torch, reduce)(x.to("musa"), **options), getattr(torch, reduce)(x, **options)
        if not isinstance(expected, torch.Tensor):
            actual, expected = actual[0], expected[0]
        assert actual.device.type == "musa"
        assert actual.dtype == expected.dtype
        assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_multinomial(dtype, replacement):
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0], [1.0, 0.0, 1.0, 0.0]], dtype=dtype, device="musa")
    drawn = torch.multinomial(weights, 2, replacement=replacement)
    assert drawn.device.type == "musa"
    assert drawn.dtype == torch.int64
    assert weights.cpu().gather(1, drawn.cpu()).gt(0).all(), "only entries with weight are drawn"
    if not replacement:
        assert [sorted(row) for row in drawn.tolist()] == [[1, 3], [0, 2]]
