"""foreach and fused optimizers train like the plain loop, keep their state on the card and resume from a file."""

import copy

import pytest
import torch

OPTIMIZERS = {
    "AdamW": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "Adam": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    "SGD": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.05}),
}
PATHS = {"default": {}, "foreach": {"foreach": True}, "loop": {"foreach": False}, "fused": {"fused": True}}


def train(device: str, name: str, options: dict, steps: int = 5):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(device)
    kind, settings = OPTIMIZERS[name]
    optimizer = kind(model.parameters(), **settings, **options)
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(7, 6, generator=generator).to(device)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_same_steps_as_the_loop_on_cpu(name, path):
    model, optimizer = train("musa", name, PATHS[path])
    reference, _ = train("cpu", name, {"foreach": False})
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=2e-5)
    for state in optimizer.state.values():
        assert all(t.is_musa for t in state.values() if isinstance(t, torch.Tensor) and t.dim())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resume_from_a_state_dict(name, path):
    model, optimizer = train("musa", name, PATHS[path])
    parameters = [p.detach().clone().requires_grad_() for p in model.parameters()]
    kind, settings = OPTIMIZERS[name]
    resumed = kind(parameters, **settings, **PATHS[path])
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for ours, theirs in zip(model.parameters(), parameters, strict=True):
        ours.grad, theirs.grad = torch.full_like(ours, 0.1), torch.full_like(theirs, 0.1)
    optimizer.step()
    resumed.step()
    for ours, theirs in zip(model.parameters(), parameters, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("path", PATHS)
def test_master_weights_of_16_bit_parameters(path):
    weight = torch.nn.Parameter(torch.ones(8, device="musa", dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW([weight], lr=0.125, **PATHS[path])
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert weight.dtype == torch.bfloat16
    assert weight.lt(1).all().item()


@pytest.mark.parametrize("path", ["foreach", "loop", "fused"])
def test_parameters_on_two_cards(path):
    weights = [torch.nn.Parameter(torch.ones(4, device=f"musa:{card}")) for card in (0, 1)]
    optimizer = torch.optim.AdamW(weights, lr=0.5, **PATHS[path])
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert torch.equal(weights[0].cpu(), weights[1].cpu())
    assert [w.device.index for w in weights] == [0, 1]
