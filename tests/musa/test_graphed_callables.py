"""make_graphed_callables: drop-in replacements whose passes are replays."""

import copy

import pytest
import torch


def net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3)).to("musa")


def batches(count, *size):
    return torch.randn(count, *size, generator=torch.Generator().manual_seed(4)).to("musa")


def train(model, data, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for batch in data[:steps]:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_with_a_graphed_module_equals_training_with_the_module():
    model = net()
    reference = copy.deepcopy(model)
    data = batches(4, 5, 6)
    graphed = torch.musa.make_graphed_callables(model, (torch.zeros(5, 6, device="musa"),))
    assert graphed is model
    assert train(graphed, data) == train(reference, data)
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(one.cpu(), other.cpu())


def test_passes_run_as_graphs():
    model = torch.musa.make_graphed_callables(net(), (torch.zeros(5, 6, device="musa"),))
    data = batches(1, 5, 6)[0]
    torch.musa.synchronize()
    from torch_musa_sim import _C

    before = _C._host_clock_ns()
    out = model(data)
    assert _C._host_clock_ns() - before <= 27_900 + 2 * 6_260  # the copy of the input, and one launch
    assert out.requires_grad


def test_the_other_training_mode_runs_the_original_forward():
    model = net()
    reference = copy.deepcopy(model)
    torch.musa.make_graphed_callables(model, (torch.zeros(5, 6, device="musa"),))
    model.eval()
    odd_size = batches(1, 2, 6)[0]
    assert torch.equal(model(odd_size).cpu(), reference(odd_size).cpu())


def test_several_callables_with_nested_outputs_and_input_gradients():
    w = torch.randn(6, 6, generator=torch.Generator().manual_seed(1)).to("musa").requires_grad_()

    def first(x, y):
        return {"sum": (x + y) @ w, "product": x * y}

    def second(a):
        return a.tanh(), a.detach() * 2

    samples = torch.zeros(4, 6, device="musa", requires_grad=True)
    one, two = torch.musa.make_graphed_callables(
        (lambda x, y: first(x, y), second),
        ((samples, torch.zeros_like(samples, requires_grad=True)), (torch.zeros_like(samples, requires_grad=True),)),
        allow_unused_input=True,
    )
    inputs = [value.requires_grad_() for value in batches(2, 4, 6).unbind(0)]

    def run(f, g):
        result = f(*inputs)
        smooth, plain = g(result["sum"])
        grads = torch.autograd.grad((smooth.sum() + result["product"].sum()), inputs)
        return [smooth, plain, result["product"], *grads]

    for value, wanted in zip(run(one, two), run(first, second), strict=True):
        assert torch.equal(value.cpu(), wanted.cpu())


def test_bf16_autocast_with_gradients():
    model = net()
    reference = copy.deepcopy(model)
    data = batches(2, 5, 6)
    with torch.autocast("musa", torch.bfloat16, cache_enabled=False):
        torch.musa.make_graphed_callables(model, (data[0].clone(),))
        for batch in data:
            model(batch).sum().backward()
            reference(batch).sum().backward()
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(one.grad.cpu(), other.grad.cpu())


def test_gradients_add_up_over_several_backward_passes():
    model = net()
    reference = copy.deepcopy(model)
    x, y = (torch.ones(5, 6, device="musa", requires_grad=True) for _ in range(2))
    torch.musa.make_graphed_callables(model, (torch.zeros(5, 6, device="musa", requires_grad=True),))
    for factor in (1.0, 2.0, 3.0):
        (model(x) * factor).sum().backward()
        (reference(y) * factor).sum().backward()
    for one, other in zip([x, *model.parameters()], [y, *reference.parameters()], strict=True):
        assert torch.equal(one.grad.cpu(), other.grad.cpu())


def test_autocast_with_its_cache_is_refused():
    with torch.autocast("musa", torch.bfloat16), pytest.raises(RuntimeError, match="cache_enabled=False"):
        torch.musa.make_graphed_callables(net(), (torch.zeros(5, 6, device="musa"),))


def test_hooks_buffers_that_train_and_numbers_are_refused():
    hooked = net()
    hooked.register_forward_hook(lambda *args: None)
    sample = torch.zeros(5, 6, device="musa")
    with pytest.raises(RuntimeError, match="must not have hooks"):
        torch.musa.make_graphed_callables(hooked, (sample,))
    buffered = net()
    buffered.register_buffer("extra", torch.zeros(1, device="musa", requires_grad=True))
    with pytest.raises(RuntimeError, match="only parameters may be trainable"):
        torch.musa.make_graphed_callables(buffered, (sample,))
    with pytest.raises(TypeError, match="must contain only Tensors"):
        torch.musa.make_graphed_callables(net(), (sample, 3))


def test_unused_input_is_an_error_unless_allowed():
    sample = torch.zeros(3, device="musa", requires_grad=True)
    other = torch.zeros(3, device="musa", requires_grad=True)
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        torch.musa.make_graphed_callables(lambda a, b: a * 2, (sample, other))
    f = torch.musa.make_graphed_callables(lambda a, b: a * 2, (sample, other), allow_unused_input=True)
    a, b = (torch.ones(3, device="musa", requires_grad=True) for _ in range(2))
    f(a, b).sum().backward()
    assert a.grad.cpu().eq(2).all()
    assert b.grad is None
