"""torch.ops.musa.route_experts, group_by_expert, and aten::topk of few values."""

import random

import pytest
import torch

Routing = dict[str, object]


def plain_ids(choice: torch.Tensor, top_k: int) -> torch.Tensor:
    """The k largest, of equal values the lowest index first, NaN before all."""
    return torch.sort(choice, dim=-1, descending=True, stable=True).indices[..., :top_k]


def plain_route(
    logits: torch.Tensor,
    top_k: int,
    scores: str = "softmax",
    bias: torch.Tensor | None = None,
    groups: int = 1,
    top_groups: int = 1,
    group_best: int = 2,
    renormalize: bool = False,
    scaling: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    wide = logits.float()
    every = wide.softmax(-1) if scores == "softmax" else wide.sigmoid()
    choice = every if bias is None else every + bias
    if top_groups < groups:
        grouped = choice.unflatten(-1, (groups, -1))
        chosen = plain_ids(grouped.topk(group_best).values.sum(-1), top_groups)
        allowed = torch.zeros(grouped.shape[:-1], dtype=torch.bool).scatter_(-1, chosen, True)
        choice = torch.where(allowed.unsqueeze(-1), grouped, -torch.inf).flatten(-2)
    ids = plain_ids(choice, top_k)
    weights = every.gather(-1, ids)
    if renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * scaling, ids


CASES: list[tuple[tuple[int, ...], int, Routing]] = [
    ((64, 256), 8, {}),
    ((64, 64), 8, {"renormalize": True}),
    ((33, 61), 3, {"scores": "sigmoid", "renormalize": True, "scaling": 2.5}),
    ((20, 256), 8, {"scores": "sigmoid", "bias": True, "groups": 8, "top_groups": 4, "renormalize": True}),
    ((20, 160), 6, {"groups": 8, "top_groups": 3, "group_best": 1, "scaling": 16.0}),
    ((7, 896), 16, {"scores": "sigmoid", "bias": True, "renormalize": True}),
    ((2, 3, 40), 5, {}),
    ((5, 4), 4, {}),
    ((5, 1), 1, {}),
    ((1, 300), 200, {}),
    ((0, 16), 2, {}),
]


def on_musa(logits: torch.Tensor, top_k: int, options: Routing) -> tuple[torch.Tensor, torch.Tensor]:
    moved = {name: value.to("musa") if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    weights, ids = torch.ops.musa.route_experts(logits.to("musa"), top_k, **moved)
    return weights.cpu(), ids.cpu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(("shape", "top_k", "options"), CASES)
def test_ids_are_those_of_the_plain_formula(
    shape: tuple[int, ...], top_k: int, options: Routing, dtype: torch.dtype
) -> None:
    seed = random.randrange(2**31)
    print("seed", seed)
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(shape, generator=generator).to(dtype)
    if options.get("bias"):
        options = options | {"bias": torch.randn(shape[-1], generator=generator) * 0.2}
    expected_weights, expected_ids = plain_route(logits, top_k, **options)
    for weights, ids in (on_musa(logits, top_k, options), torch.ops.musa.route_experts(logits, top_k, **options)):
        assert ids.dtype == torch.int64
        assert weights.dtype == torch.float32
        assert torch.equal(ids, expected_ids)
        torch.testing.assert_close(weights, expected_weights, rtol=1e-6, atol=0)


@pytest.mark.parametrize("columns", [1, 5, 16, 64, 100, 256, 1000])
@pytest.mark.parametrize("kinds", [1, 2, 7])
def test_of_equal_scores_the_lowest_id_comes_first(columns: int, kinds: int) -> None:
    logits = torch.randint(kinds, (20, columns), generator=torch.Generator().manual_seed(columns)).float()
    top_k = min(columns, 8)
    assert torch.equal(on_musa(logits, top_k, {})[1], plain_route(logits, top_k)[1])
    assert torch.equal(logits.to("musa").topk(top_k).indices.cpu(), plain_ids(logits, top_k))


def test_signed_zeros_are_equal_and_nan_comes_before_all() -> None:
    row = torch.full((40,), -1.0)
    row[[3, 30]] = torch.tensor([-0.0, 0.0])
    row[[9, 20]] = torch.nan
    row[12] = torch.inf
    row[13] = -torch.inf
    for columns in (14, 24, 40):
        expected = plain_ids(row[:columns], 4)
        assert torch.equal(row[:columns].to("musa").topk(4).indices.cpu(), expected)
        assert torch.equal(on_musa(row[:columns], 4, {"scores": "sigmoid"})[1], expected)


def test_nan_in_a_row_leaves_the_others_alone() -> None:
    logits = torch.randn(3, 64, generator=torch.Generator().manual_seed(3))
    logits[1, 5] = torch.nan
    weights, ids = on_musa(logits, 4, {"renormalize": True})
    assert ids[1].tolist() == [0, 1, 2, 3]  # its softmax is NaN throughout
    assert weights[1].isnan().all()
    assert torch.equal(ids, plain_route(logits, 4)[1])


@pytest.mark.parametrize("options", [{}, {"renormalize": True}, {"scores": "sigmoid", "renormalize": True}])
def test_gradient_of_the_weights(options: Routing) -> None:
    logits = torch.randn(6, 16, dtype=torch.float32, generator=torch.Generator().manual_seed(1))
    toward = torch.randn(6, 3, generator=torch.Generator().manual_seed(2))
    expected = logits.clone().requires_grad_()
    (plain_route(expected, 3, scaling=2.0, **options)[0] * toward).sum().backward()
    for device in ("cpu", "musa"):
        got = logits.detach().to(device).requires_grad_()
        weights, ids = torch.ops.musa.route_experts(got, 3, scaling=2.0, **options)
        assert not ids.requires_grad
        (weights * toward.to(device)).sum().backward()
        torch.testing.assert_close(got.grad.cpu(), expected.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("top_k", "options", "text"),
    [
        (0, {}, "top_k must be 1 .. 16"),
        (17, {}, "top_k must be 1 .. 16"),
        (9, {"groups": 4, "top_groups": 2}, "top_k must be 1 .. 8"),
        (2, {"groups": 3}, "groups must divide"),
        (2, {"groups": 4, "top_groups": 5}, "1 <= top_groups <= groups"),
        (2, {"scores": "relu"}, "'softmax' or 'sigmoid', got 'relu'"),
        (2, {"group_best": 3}, "group_best is 1 or 2"),
        (2, {"bias": torch.ones(15)}, "one number for each of the 16 experts"),
    ],
)
@pytest.mark.parametrize("device", ["musa", "cpu", "meta"])
def test_what_is_refused(device: str, top_k: int, options: Routing, text: str) -> None:
    moved = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    with pytest.raises((RuntimeError, ValueError), match=text):
        torch.ops.musa.route_experts(torch.ones(2, 16, device=device), top_k, **moved)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("shape", "experts"), [((50, 4), 8), ((3,), 5), ((0, 2), 3), ((10, 2), 0)])
def test_positions_are_grouped_by_expert_in_their_order(
    shape: tuple[int, ...], experts: int, dtype: torch.dtype
) -> None:
    ids = torch.randint(-1, experts + 2, shape, generator=torch.Generator().manual_seed(5), dtype=dtype)
    inside = [id if 0 <= id < experts else experts for id in ids.flatten().tolist()]
    order, counts = torch.ops.musa.group_by_expert(ids.to("musa"), experts)
    assert order.cpu().tolist() == sorted(range(len(inside)), key=lambda position: inside[position])
    assert counts.cpu().tolist() == [inside.count(expert) for expert in range(experts)]
    for got, cpu in zip((order, counts), torch.ops.musa.group_by_expert(ids, experts), strict=True):
        assert torch.equal(got.cpu(), cpu)


def test_shapes_on_meta() -> None:
    weights, ids = torch.ops.musa.route_experts(torch.ones(2, 3, 8, device="meta"), 4)
    assert (weights.shape, weights.dtype, ids.shape, ids.dtype) == ((2, 3, 4), torch.float32, (2, 3, 4), torch.int64)
    order, counts = torch.ops.musa.group_by_expert(ids, 8)
    assert (order.shape, counts.shape) == ((24,), (8,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("shape", "k"), [((4, 1000), 50), ((3, 2, 37), 9), ((128,), 8), ((2, 70), 70), ((0, 5), 2)])
def test_topk(shape: tuple[int, ...], k: int, dtype: torch.dtype) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(k)).to(dtype)
    values, indices = x.to("musa").topk(k)
    expected = x.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(values.cpu(), expected.values[..., :k])
    if k <= 64:
        assert torch.equal(indices.cpu(), expected.indices[..., :k])


def test_topk_of_other_orders_and_layouts() -> None:
    x = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
    musa = x.to("musa")
    assert torch.equal(musa.topk(3, dim=0).values.cpu(), x.topk(3, dim=0).values)
    assert torch.equal(musa.topk(3, largest=False).values.cpu(), x.topk(3, largest=False).values)
    assert torch.equal(musa.t().topk(3).indices.cpu(), x.t().topk(3).indices)
    assert torch.equal(musa.topk(0).values.cpu(), x.topk(0).values)


def test_results_do_not_depend_on_threads() -> None:
    logits = torch.randn(700, 64, generator=torch.Generator().manual_seed(8)).to("musa")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = torch.ops.musa.route_experts(logits, 4, renormalize=True)
        torch.set_num_threads(2)
        two = torch.ops.musa.route_experts(logits, 4, renormalize=True)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_routing_counts_as_native_and_is_captured_by_graphs() -> None:
    logits = torch.randn(4, 16, device="musa")
    torch.musa.reset_op_statistics()
    torch.ops.musa.route_experts(logits, 2)
    (entry,) = [op for op in torch.musa.op_statistics() if op.name == "musa::route_experts"]
    assert (entry.calls, entry.native_calls) == (1, 1)
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        weights, ids = torch.ops.musa.route_experts(logits, 2)
    logits.copy_(torch.randn(4, 16))
    graph.replay()
    expected = torch.ops.musa.route_experts(logits, 2)
    assert torch.equal(weights, expected[0])
    assert torch.equal(ids, expected[1])
