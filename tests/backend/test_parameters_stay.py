"""Module.to("musa") changes the data of Parameters, not the Parameters: ties and optimizer references survive."""

import torch
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def test_parameters_are_the_same_objects():
    model = Tied()
    before = list(model.parameters())
    model.to("musa")
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert model.head.weight is model.embed.weight
    assert model.embed.weight.device.type == "musa"
    model.to("cpu")
    assert model.head.weight is before[0]
    assert before[0].device.type == "cpu"


def test_an_older_optimizer_still_steps_the_model():
    results = []
    for device in ("cpu", "musa"):
        torch.manual_seed(0)
        model = Tied()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model.to(device)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.tensor([1, 2, 3], device=device)).square().sum().backward()
            optimizer.step()
        results.append(model.embed.weight.detach().cpu())
    torch.testing.assert_close(*results)  # products round otherwise than the CPU's


def test_gradients_move_with_their_parameters():
    model = Tied()
    model(torch.tensor([1])).sum().backward()
    model.to("musa")
    assert model.embed.weight.grad.device.type == "musa"


def test_the_answer():
    cpu, musa = torch.zeros(2), torch.zeros(2, device="musa")
    assert torch._has_compatible_shallow_copy_type(cpu, musa)
    assert torch._has_compatible_shallow_copy_type(musa, cpu)
    assert torch._has_compatible_shallow_copy_type(musa, musa)
    assert not torch._has_compatible_shallow_copy_type(musa, torch.zeros(2).to_sparse())
    assert not torch._has_compatible_shallow_copy_type(musa, torch.zeros(2, device="meta"))
