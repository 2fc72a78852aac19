"""torch.ops.musa.sample and filter_logits."""

import random

import pytest
import torch

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
Limits = dict[str, torch.Tensor]


def plain_support(
    logits: torch.Tensor, temperature: float = 1, top_k: int = 0, top_p: float = 1, min_p: float = 0
) -> torch.Tensor:
    """Of one row: which tokens may be drawn, by sorting; sums in float64."""
    scores = logits.float() / temperature
    order = scores.sort(descending=True, stable=True).indices
    if top_k >= 1:
        order = order[:top_k]
    weights = (scores[order].double() - scores.max().double()).exp()
    if top_p < 1:
        before = weights.cumsum(0) - weights
        order = order[(before < torch.tensor(top_p).double() * weights.sum()) | (before == 0)]
    order = order[scores[order] >= scores.max() + torch.tensor(min_p).log()]
    return torch.zeros(logits.numel(), dtype=torch.bool).scatter_(0, order, True)


def limits_of(rows: int, device: str, **values: float) -> Limits:
    return {
        name: torch.full((rows,), value, dtype=torch.int64 if name == "top_k" else torch.float32, device=device)
        for name, value in values.items()
    }


CASES: list[dict[str, float]] = [
    {},
    {"temperature": 0.7},
    {"top_k": 1},
    {"top_k": 50},
    {"top_k": 10**9},
    {"top_p": 0.9},
    {"top_p": 0.01},
    {"top_p": 0.0},
    {"top_p": 0.9999},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"temperature": 1.7, "top_k": 40, "top_p": 0.8, "min_p": 0.02},
    {"temperature": 0.3, "top_k": 400, "top_p": 0.95},
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("vocabulary", "spread"), [(1, 1.0), (7, 3.0), (1000, 2.0), (5003, 0.01), (3000, 30.0)])
def test_what_may_be_drawn_is_what_sorting_says(
    vocabulary: int, spread: float, case: dict[str, float], dtype: torch.dtype
) -> None:
    seed = random.randrange(2**31)
    print("seed", seed)
    logits = (torch.randn(2, vocabulary, generator=torch.Generator().manual_seed(seed)) * spread).to(dtype)
    got = torch.ops.musa.filter_logits(logits.to("musa"), **limits_of(2, "musa", **case)).cpu()
    cpu = torch.ops.musa.filter_logits(logits, **limits_of(2, "cpu", **case))
    for row in range(2):
        expected = plain_support(logits[row], **case)
        assert torch.equal(got[row] != -torch.inf, expected)
        scores = logits[row].float() / torch.tensor(case.get("temperature", 1.0))
        assert torch.equal(got[row], scores.masked_fill(~expected, -torch.inf))
    assert torch.equal(got, cpu)


@pytest.mark.parametrize("case", [{"top_k": 5}, {"top_p": 0.5}, {"top_k": 50, "top_p": 0.7}], ids=str)
def test_of_equal_logits_the_lowest_ids_are_kept(case: dict[str, float]) -> None:
    for kinds in (1, 2, 5):
        logits = torch.randint(kinds, (3, 700), generator=torch.Generator().manual_seed(kinds)).float()
        got = torch.ops.musa.filter_logits(logits.to("musa"), **limits_of(3, "musa", **case)).cpu()
        for row in range(3):
            assert torch.equal(got[row] != -torch.inf, plain_support(logits[row], **case))


def test_a_large_vocabulary() -> None:
    logits = torch.randn(2, 151936, generator=torch.Generator().manual_seed(4))
    for case in ({"top_p": 0.9}, {"top_k": 1000, "top_p": 0.95}):
        got = torch.ops.musa.filter_logits(logits.to("musa"), **limits_of(2, "musa", **case)).cpu()
        for row in range(2):
            assert torch.equal(got[row] != -torch.inf, plain_support(logits[row], **case))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@pytest.mark.parametrize("case", [{}, {"temperature": 0.8, "top_k": 20, "top_p": 0.9}, {"min_p": 0.1}], ids=str)
def test_draws_are_those_of_the_plain_formula(case: dict[str, float], dtype: torch.dtype) -> None:
    rows = 64
    logits = torch.randn(rows, 2500, generator=torch.Generator().manual_seed(1)).to(dtype)
    seeds = torch.arange(rows) * 7919 - 5
    offsets = torch.arange(rows) % 3
    expected = torch.ops.musa.sample(logits, seeds=seeds, offsets=offsets, **limits_of(rows, "cpu", **case))
    got = torch.ops.musa.sample(
        logits.to("musa"), seeds=seeds.to("musa"), offsets=offsets.to("musa"), **limits_of(rows, "musa", **case)
    )
    assert got.dtype == torch.int64
    assert torch.equal(got.cpu(), expected)
    allowed = torch.ops.musa.filter_logits(logits, **limits_of(rows, "cpu", **case)) != -torch.inf
    assert allowed.gather(1, got.cpu().unsqueeze(1)).all()


def test_frequencies_follow_the_distribution() -> None:
    probabilities = torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03])
    draws = 20000
    logits = probabilities.log().repeat(draws, 1).to("musa")
    temperature = {"temperature": torch.ones(draws, device="musa")}
    for offsets in (torch.zeros(draws, dtype=torch.long), torch.arange(draws)):
        seeds = torch.arange(draws) if offsets[-1] == 0 else torch.full((draws,), 42)
        ids = torch.ops.musa.sample(logits, seeds=seeds.to("musa"), offsets=offsets.to("musa"), **temperature)
        counts = torch.bincount(ids.cpu(), minlength=5)
        chi_square = ((counts - draws * probabilities).square() / (draws * probabilities)).sum().item()
        assert chi_square < 23.5, f"{counts.tolist()}"  # 4 degrees of freedom, 1 in 10000; the seeds are fixed


def test_a_row_does_not_depend_on_its_batch_or_on_threads() -> None:
    logits = torch.randn(9, 4000, generator=torch.Generator().manual_seed(3)).to("musa")
    seeds = (torch.arange(9) + 100).to("musa")
    limits = {
        "temperature": torch.linspace(0.5, 2, 9, device="musa"),
        "top_k": torch.tensor([0, 5, 50, 0, 1, 0, 900, 0, 3], device="musa"),
        "top_p": torch.linspace(0.3, 1, 9, device="musa"),
    }
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = torch.ops.musa.sample(logits, seeds=seeds, **limits)
        torch.set_num_threads(2)
        two = torch.ops.musa.sample(logits, seeds=seeds, **limits)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one, two)
    for rows in (slice(4, 5), slice(2, 9)):
        part = {name: value[rows] for name, value in limits.items()}
        assert torch.equal(torch.ops.musa.sample(logits[rows], seeds=seeds[rows], **part), one[rows])


def test_without_seeds_or_with_temperature_0_the_first_largest_is_taken() -> None:
    logits = torch.zeros(3, 1000)
    logits[0, [17, 500]] = 2
    logits[2, 999] = 1
    for dtype in DTYPES:
        assert torch.ops.musa.sample(logits.to(dtype).to("musa")).tolist() == [17, 0, 999]
        cold = {"temperature": torch.zeros(3, device="musa"), "seeds": torch.arange(3, device="musa")}
        assert torch.ops.musa.sample(logits.to(dtype).to("musa"), **cold).tolist() == [17, 0, 999]
    assert torch.ops.musa.sample(logits).tolist() == [17, 0, 999]


def test_nan_and_infinite_scores_are_taken() -> None:
    logits = torch.randn(4, 100, generator=torch.Generator().manual_seed(3))
    logits[0, [30, 60]] = torch.nan
    logits[1, 5] = torch.inf
    logits[2] = -torch.inf
    logits[3] = -torch.inf
    logits[3, 50] = -3
    seeds = torch.arange(4)
    for device in ("cpu", "musa"):
        got = torch.ops.musa.sample(logits.to(device), seeds=seeds.to(device), **limits_of(4, device, top_p=0.9))
        assert got.tolist() == [30, 5, 0, 50]


def test_tokens_of_score_minus_infinity_are_never_drawn() -> None:
    rows = 2000
    logits = torch.full((rows, 40), -torch.inf)
    logits[:, 3:12:2] = torch.tensor([0.0, -20.0, -300.0, -690.0, -705.0])
    seeds = torch.arange(rows)
    expected = torch.ops.musa.sample(logits, seeds=seeds)
    got = torch.ops.musa.sample(logits.to("musa"), seeds=seeds.to("musa"))
    assert torch.equal(got.cpu(), expected)
    assert set(expected.tolist()) <= {3, 5, 7, 9, 11}


def test_no_rows() -> None:
    assert torch.ops.musa.sample(torch.ones(0, 5, device="musa")).shape == (0,)
    assert torch.ops.musa.filter_logits(torch.ones(0, 5, device="musa")).shape == (0, 5)


@pytest.mark.parametrize("device", ["musa", "cpu"])
def test_what_is_refused(device: str) -> None:
    logits = torch.ones(2, 8, device=device)
    seeds = torch.arange(2, device=device)
    cases: list[tuple[torch.Tensor, Limits, str]] = [
        (logits[0], {}, r"shape \[rows, vocabulary\]"),
        (logits, {"top_p": torch.ones(2, device=device)}, "sample draws at random by seeds"),
        (logits, {"seeds": seeds[:1]}, "seeds has one integer for each of the 2 rows"),
        (logits, {"seeds": seeds, "top_k": torch.ones(2, device=device)}, "top_k has one integer"),
        (logits, {"seeds": seeds, "temperature": seeds}, "temperature has one floating point number"),
        (logits, {"seeds": seeds, "temperature": torch.tensor([1.0, -1.0], device=device)}, "row 1 has temperature -1"),
        (logits, {"offsets": seeds}, "pass seeds"),
    ]
    for values, options, text in cases:
        with pytest.raises((RuntimeError, ValueError), match=text):
            torch.ops.musa.sample(values, **options)


def test_shapes_on_meta_and_native_calls() -> None:
    assert torch.ops.musa.sample(torch.ones(3, 8, device="meta")).shape == (3,)
    assert torch.ops.musa.filter_logits(torch.ones(3, 8, device="meta").half()).dtype == torch.float32
    torch.musa.reset_op_statistics()
    torch.ops.musa.sample(torch.ones(3, 8, device="musa"))
    (entry,) = [op for op in torch.musa.op_statistics() if op.name == "musa::sample"]
    assert (entry.calls, entry.native_calls) == (1, 1)


def test_is_captured_and_replayed_by_graphs() -> None:
    logits = torch.randn(4, 64, device="musa")
    options = limits_of(4, "musa", top_p=0.9) | {"seeds": torch.arange(4, device="musa")}
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        ids = torch.ops.musa.sample(logits, **options)
    logits.copy_(torch.randn(4, 64))
    options["seeds"].add_(9)
    graph.replay()
    assert torch.equal(ids, torch.ops.musa.sample(logits, **options))
