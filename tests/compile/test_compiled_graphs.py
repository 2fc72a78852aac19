"""Compiled code and musa graphs: as a node of a captured graph, and captured by the compiler itself."""

import copy
import warnings

import pytest
import torch
from compiled import MUSA, assert_close, on_card, regions
from torch import nn


def ours(seen):
    return [str(w.message) for w in seen if "without a musa graph" in str(w.message)]


def test_compiled_code_is_one_node_of_a_captured_graph():
    product = torch.compile(lambda x: (x @ x).relu() * 2 + 1, fullgraph=True)
    drop = torch.compile(lambda x: nn.functional.dropout(x, 0.5), fullgraph=True)

    @torch.compile(fullgraph=True)
    def bump(x):
        x.add_(1)
        return x * 2

    x, buffer = torch.randn(8, 8, device=MUSA), torch.zeros(4, device=MUSA)
    with torch.no_grad():
        product(x), drop(x), bump(buffer.clone())
        state = torch.musa.get_rng_state()
        graph = torch.musa.MUSAGraph()
        with torch.musa.graph(graph):
            y = product(x)
            dropped, doubled = drop(y), bump(buffer)
        assert y.isnan().all()  # nothing has run
        assert not buffer.any()
        assert torch.equal(torch.musa.get_rng_state(), state)
        assert [node["kernel_name"] for node in graph.nodes()] == ["musa_sim::compiled_region"] * 3
        masks = []
        for run in (1, 2):
            x.copy_(torch.randn(8, 8))
            graph.replay()
            assert_close(y, (x @ x).relu() * 2 + 1)
            assert_close((buffer, doubled), (torch.full((4,), 1.0 * run), torch.full((4,), 2.0 * run)))
            masks.append(dropped != 0)
    assert not torch.equal(*masks)


def test_capture_refuses_compiled_code_that_the_host_waits_for():
    f = torch.compile(lambda x: (x + 1).cpu(), fullgraph=True)
    x = torch.zeros(2, device=MUSA)
    f(x)
    with (
        pytest.raises(RuntimeError, match="not permitted when stream is capturing"),
        torch.musa.graph(torch.musa.MUSAGraph()),
    ):
        f(x)
    assert_close(f(x), torch.ones(2))


def test_reduce_overhead_trains_as_eager_and_keeps_earlier_results():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    card = copy.deepcopy(model).to(MUSA)
    fast = torch.compile(card, mode="reduce-overhead", fullgraph=True)
    latest = torch.musa.MUSAGraph.get_latest_instance()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        results = []
        for _ in range(4):
            x = torch.randn(3, 4)
            y, expected = fast(x.to(MUSA)), model(x)
            y.square().sum().backward()
            expected.square().sum().backward()
            results.append((y.detach(), expected.detach()))
    assert not ours(seen)
    assert torch.musa.MUSAGraph.get_latest_instance() is not latest
    for y, expected in results:
        assert_close(y, expected)
    assert_close([p.grad for p in card.parameters()], [p.grad for p in model.parameters()], atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        for p, q in zip(card.parameters(), model.parameters(), strict=True):
            p.add_(1)  # where they lie: the graph sees it
            q.add_(1)
    assert_close(fast(x.to(MUSA)), model(x))


def test_reduce_overhead_draws_new_numbers_each_time():
    f = torch.compile(lambda x: nn.functional.dropout(x, 0.5), mode="reduce-overhead", fullgraph=True)
    x = torch.ones(64, device=MUSA)
    results = [f(x) for _ in range(4)]
    assert len({tuple(r.tolist()) for r in results}) == 4


def test_reduce_overhead_takes_expanded_inputs():
    f = torch.compile(lambda x, y: x * 2 + y, mode="reduce-overhead", fullgraph=True)
    for seed in range(4):
        row, column = torch.randn(1, 4) + seed, torch.randn(3, 1)
        ours = f(row.to(MUSA).expand(3, 4), column.to(MUSA).expand(3, 4))
        assert_close(ours, (row * 2 + column).expand(3, 4))


@pytest.mark.parametrize(
    ("why", "function", "arguments"),
    [
        ("in place", lambda x: x.add_(1), (torch.zeros(3),)),
        ("on the cpu", lambda x: (x + 1).cpu(), (torch.zeros(3),)),
    ],
)
def test_what_cannot_be_captured_runs_without_after_one_warning(why, function, arguments):
    f = torch.compile(function, mode="reduce-overhead", fullgraph=True)
    mine = on_card(arguments)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            assert_close(f(*mine), function(*arguments))
    assert len(ours(seen)) == 1
    assert why in ours(seen)[0]


def test_dynamic_shapes_run_without_a_graph():
    f = torch.compile(lambda x: x * 2, mode="reduce-overhead", dynamic=True, fullgraph=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for n in (3, 5, 7):
            assert_close(f(torch.ones(n, device=MUSA)), torch.full((n,), 2.0))
    assert len(ours(seen)) == 1
    assert "dynamic" in ours(seen)[0]


def test_musagraphs_replays_the_traced_operators():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    card = copy.deepcopy(model).to(MUSA)
    fast = torch.compile(card, backend="musagraphs", fullgraph=True)
    latest = torch.musa.MUSAGraph.get_latest_instance()
    for _ in range(4):
        x = torch.randn(3, 4)
        y, expected = fast(x.to(MUSA)), model(x)
        y.square().sum().backward()
        expected.square().sum().backward()
        assert_close(y, expected)
    assert_close([p.grad for p in card.parameters()], [p.grad for p in model.parameters()], atol=1e-5, rtol=1e-4)
    assert not regions()
    assert torch.musa.MUSAGraph.get_latest_instance() is not latest
