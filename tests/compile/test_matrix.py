"""Many small programs on musa: compiled equals eager, and equals what the CPU's compiled code gives."""

import copy

import pytest
import torch
from compiled import MUSA, assert_close, on_card
from torch import nn

PROGRAMS = {
    "elementwise": lambda x: (x.sigmoid() * x.tanh(), x.clamp(-1, 1).exp(), torch.where(x > 0, x, -x).log1p()),
    "reductions": lambda x: (x.sum(0), x.mean(1), x.var(0), x.amax(1), x.argmax(0), x.softmax(-1), x.cumsum(1)),
    "views": lambda x: (x.t().contiguous(), x[::2].flip(0), x.unfold(1, 2, 1).sum(-1), x.view(-1).chunk(3)),
    "indexing": lambda x: (x[[0, 2]], x.gather(1, x.argsort(1)), x.topk(2).values, x.index_select(0, x.argmax(0) % 2)),
    "creation": lambda x: (
        torch.arange(5, device=x.device) * 2,
        torch.full_like(x, 3) + x,
        torch.eye(4, device=x.device),
    ),
    "linalg": lambda x: (
        x @ x.t(),
        torch.linalg.norm(x),
        torch.einsum("ij,kj->ik", x, x),
        torch.baddbmm(x, x[None], x.t()[None] @ x),
    ),
    "casts": lambda x: (x.half() * 2, x.bfloat16() * 3, x.int() // 2, (x > 0).long().sum(), x.double().sqrt()),
    "complex": lambda x: (torch.fft.rfft(x).abs(), torch.view_as_complex(x.reshape(-1, 2)).conj() * 2),
    "sorting": lambda x: (
        x.sort(0).values,
        torch.searchsorted(x.flatten().sort().values, x),
        x.median(),
        x.unique_consecutive(),
    ),
    "in_place": lambda x: (
        x.clone().mul_(2).add_(1),
        torch.zeros_like(x).copy_(x).t_(),
        x.clone().index_fill_(0, torch.tensor([1], device=x.device), 9),
    ),
    "losses": lambda x: (
        nn.functional.cross_entropy(x, x.argmax(1)),
        nn.functional.mse_loss(x, x * 2),
        nn.functional.kl_div(x, x.softmax(1), reduction="batchmean"),
    ),
    "transforms": lambda x: torch.func.vmap(torch.func.grad(lambda y: (y**3).sum()))(x),
    "branches": lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos(), (x,)),
}


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).abs() + 0.1
    program = PROGRAMS[name]
    compiled = torch.compile(program)
    ours = compiled(x.to(MUSA))
    assert_close(ours, program(x.to(MUSA)))
    assert_close(ours, compiled(x))
    for result in torch.utils._pytree.tree_leaves(ours):
        assert result.device == MUSA


MODULES = {
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0), (2, 5, 16)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.AvgPool2d(2)),
        (2, 3, 8, 8),
    ),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose1d(4, 6, 3, stride=2), nn.BatchNorm1d(6)), (2, 4, 7)),
    "recurrent": (lambda: nn.GRUCell(4, 4), (3, 4)),
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), (2, 5, 8)),
}


@pytest.mark.full
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_module_trains(name, dynamic):
    make, size = MODULES[name]
    torch.manual_seed(0)
    model = make()
    card = copy.deepcopy(model).to(MUSA)
    x = torch.randn(size, requires_grad=True)
    inputs = (x, x, x) if name == "attention" else (x,)
    mine = on_card((x,))[0]
    ours = torch.compile(card, dynamic=dynamic)(*([mine] * len(inputs)))
    expected = model(*inputs)
    if isinstance(expected, tuple):
        ours, expected = ours[0], expected[0]
    assert_close(ours, expected, atol=1e-5, rtol=1e-4)
    ours.square().sum().backward()
    expected.square().sum().backward()
    assert_close(mine.grad, x.grad, atol=1e-4, rtol=1e-3)
    assert_close([p.grad for p in card.parameters()], [p.grad for p in model.parameters()], atol=1e-4, rtol=1e-3)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes(mode):
    x = torch.randn(8, 8)
    f = torch.compile(lambda x: (x @ x).relu() + 1, mode=mode)
    for _ in range(3):
        assert_close(f(x.to(MUSA)), (x @ x).relu() + 1)


@pytest.mark.full
def test_freezing_and_options():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).to(MUSA).eval()
    x = torch.randn(1, 3, 8, 8, device=MUSA)
    with torch.no_grad():
        frozen = torch.compile(model, options={"freezing": True})
        assert_close(frozen(x), model(x), atol=1e-5, rtol=1e-4)


@pytest.mark.full
def test_compiled_autograd():
    model = nn.Linear(4, 4).to(MUSA)
    x = torch.randn(2, 4, device=MUSA)
    with torch._dynamo.compiled_autograd._enable(torch.compile(fullgraph=True)):
        model(x).sum().backward()
    compiled, model.weight.grad = model.weight.grad, None
    model(x).sum().backward()
    assert_close(compiled, model.weight.grad)
