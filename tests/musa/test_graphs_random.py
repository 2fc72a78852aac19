"""Generators inside a capture: what may be read and set, and what would be frozen into the graph and is refused."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

DROPOUT = torch.nn.functional.dropout


def capture(body):
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        result = body()
    return graph, result


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_draws_the_same_numbers_in_both_passes_of_each_replay(reentrant):
    x = torch.randn(4, 8, device="musa", requires_grad=True)

    def block(value):
        return DROPOUT(torch.rand_like(value) * value, 0.5)

    def step():
        x.grad = None
        y = DROPOUT(checkpoint(block, x, use_reentrant=reentrant), 0.3)
        y.square().sum().backward()
        return y.detach(), x.grad, torch.rand(5, device="musa")

    step()  # first calls outside of a capture
    torch.musa.manual_seed(9)
    expected = [[value.cpu() for value in step()] for _ in range(2)]
    state = torch.musa.get_rng_state()
    graph, results = capture(step)
    assert torch.equal(torch.musa.get_rng_state(), state)
    torch.musa.manual_seed(9)
    for run in expected:
        graph.replay()
        for mine, eager in zip(results, run, strict=True):
            assert torch.equal(mine.cpu(), eager)
    assert torch.equal(torch.musa.get_rng_state(), state)


def test_a_sequence_gone_back_to_is_that_of_its_own_generator():
    generator = torch.Generator("musa").manual_seed(1)

    def body():
        before = generator.get_state()
        first = torch.rand(6, device="musa", generator=generator)
        torch.rand(6, device="musa")
        generator.set_state(before)
        return first, torch.rand(6, device="musa", generator=generator)

    graph, (first, second) = capture(body)
    for _ in range(2):
        graph.replay()
        assert torch.equal(first, second)
    eager = torch.Generator("musa").manual_seed(1)
    eager.set_offset(4)
    assert torch.equal(first, torch.rand(6, device="musa", generator=eager))


def test_a_state_swapped_in_during_the_capture_is_what_replays_draw_from():
    default = torch.musa.default_generators[0]
    other = torch.Generator("musa").manual_seed(77)

    def body():
        own = default.graphsafe_get_state()
        default.graphsafe_set_state(other)
        a, b = torch.rand(6, device="musa"), torch.empty(6, device="musa").geometric_(0.3)
        default.graphsafe_set_state(own)
        return a, b, torch.rand(6, device="musa")

    graph, results = capture(body)
    torch.musa.manual_seed(5)
    graph.replay()
    again = torch.Generator("musa").manual_seed(77)
    assert torch.equal(results[0], torch.rand(6, device="musa", generator=again))
    assert torch.equal(results[1], torch.empty(6, device="musa").geometric_(0.3, generator=again))
    torch.musa.manual_seed(5)
    assert torch.equal(results[2], torch.rand(6, device="musa"))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda generator, old: generator.get_offset(), "Cannot call MUSAGeneratorImpl::get_offset during MUSA graph"),
        (lambda generator, old: generator.set_offset(8), "Cannot call MUSAGeneratorImpl::set_offset during MUSA graph"),
        (lambda generator, old: generator.seed(), "Cannot call MUSAGeneratorImpl::seed during MUSA graph capture"),
        (lambda generator, old: torch.Generator("musa"), "Cannot construct a new MUSAGeneratorImpl during MUSA graph"),
        (lambda generator, old: torch.musa.manual_seed(99), "only if new seed is the same as the original seed"),
        (lambda generator, old: generator.set_state(old), "got from it in the same capture"),
    ],
)
def test_what_would_be_frozen_is_refused_and_the_capture_goes_on(call, text):
    generator = torch.musa.default_generators[0]
    torch.musa.manual_seed(4)
    torch.rand(3, device="musa")
    old = generator.get_state()
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        with pytest.raises(RuntimeError, match=text):
            call(generator, old)
        torch.musa.manual_seed(4)  # the seed it has: nothing to do
        out = torch.rand(5, device="musa")
    assert torch.equal(generator.get_state(), old)
    graph.replay()
    generator.set_state(old)
    assert torch.equal(out, torch.rand(5, device="musa"))
