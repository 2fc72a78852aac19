"""The real package's optimizers: one step after the other as torch's, or as the paper's formula in float64."""

import copy

import pytest
import torch
from torch_musa import _ext, optim
from torch_musa.multi_tensor_apply import multi_tensor_applier

SHAPES = [(4, 3), (7,), (2, 2, 2)]


def parameters(dtype: torch.dtype = torch.float32, device: str = "musa") -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(s, generator=generator).to(device, dtype)) for s in SHAPES]


def set_gradients(tensors: list[torch.nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for tensor in tensors:
        tensor.grad = torch.randn(tensor.shape, generator=generator).to(tensor.device, tensor.dtype)


@pytest.mark.parametrize(
    "options",
    [{}, {"weight_decay": 0.1, "amsgrad": True}, {"lr": torch.tensor(0.01)}, {"maximize": True, "capturable": True}],
    ids=str,
)
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_fused_adam_steps_as_torch_does(name, options):
    fused, plain = parameters(), parameters(device="cpu")
    rate = options.get("lr")
    on_card = options | ({"lr": rate.to("musa")} if isinstance(rate, torch.Tensor) else {})
    first = getattr(optim, f"Fused{name}")(fused, **on_card)
    second = getattr(torch.optim, name)(plain, fused=True, **options)
    for step in range(3):
        for tensors, optimizer in ((fused, first), (plain, second)):
            set_gradients(tensors, step)
            optimizer.step()
    for ours, theirs in zip(fused, plain, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-6, atol=1e-7)


def test_fused_adam_goes_on_from_the_state_of_another_adam():
    first, second = parameters(), parameters()
    plain, fused = torch.optim.Adam(first, foreach=True), optim.FusedAdam(second)
    set_gradients(first, 0)
    plain.step()
    fused.load_state_dict(copy.deepcopy(plain.state_dict()))  # or both would share the state
    with torch.no_grad():
        for ours, theirs in zip(second, first, strict=True):
            ours.copy_(theirs)
    for tensors, optimizer in ((first, plain), (second, fused)):
        set_gradients(tensors, 1)
        optimizer.step()
    for ours, theirs in zip(second, first, strict=True):
        torch.testing.assert_close(ours, theirs)


def lamb_in_float64(
    weights: list[torch.Tensor], grads: list[list[torch.Tensor]], lr: float, decay: float, adam_w: bool, nv: bool
) -> list[torch.Tensor]:
    """The paper's algorithm 2, step by step."""
    beta1, beta2, eps = 0.9, 0.999, 1e-6
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
    for t, step in enumerate(grads, start=1):
        norm = torch.sqrt(sum(g.square().sum() for g in step))
        for i, gradient in enumerate(step):
            g, w = gradient / max(1.0, norm.item()), weights[i]
            if not adam_w:
                g = g + decay * w
            m = beta1 * moments[i][0] + (1 - beta1) * g
            v = beta2 * moments[i][1] + (1 - beta2) * g**2
            moments[i] = (m, v)
            r = (m / (1 - beta1**t)) / (torch.sqrt(v / (1 - beta2**t)) + eps)
            if adam_w:
                r = r + decay * w
            ratio = w.norm() / r.norm() if decay or nv else 1.0
            weights[i] = w - lr * ratio * r
    return weights


@pytest.mark.parametrize(("decay", "nv"), [(0.01, False), (0.0, False), (0.0, True)])
@pytest.mark.parametrize("adam_w", [True, False])
def test_lamb_follows_the_paper(decay, nv, adam_w):
    tensors = parameters()
    weights = [tensor.detach().cpu().double() for tensor in tensors]
    optimizer = optim.FusedLAMB(tensors, lr=0.02, weight_decay=decay, adam_w_mode=adam_w, use_nvlamb=nv)
    grads = []
    for step in range(3):
        set_gradients(tensors, step)
        grads.append([tensor.grad.cpu().double() for tensor in tensors])
        optimizer.step()
    expected = lamb_in_float64(weights, grads, 0.02, decay, adam_w, nv)
    for ours, right in zip(tensors, expected, strict=True):
        torch.testing.assert_close(ours.detach().cpu().double(), right, rtol=1e-5, atol=1e-6)


def test_lamb_changes_nothing_while_the_flag_is_set():
    tensors = [tensor.detach() for tensor in parameters()]
    before = [tensor.clone() for tensor in tensors]
    moments = [[torch.zeros_like(tensor) for tensor in tensors] for _ in range(2)]
    flag, norm = torch.ones(1, dtype=torch.int32, device="musa"), torch.ones(1, device="musa")
    lists = [[torch.ones_like(tensor) for tensor in tensors], tensors, *moments]
    arguments = (0.1, 0.9, 0.999, 1e-6, 1, 1, 0.01, 1, 1, norm, 1.0)
    multi_tensor_applier(_ext.multi_tensor_lamb, flag, lists, *arguments)
    assert all(torch.equal(*pair) for pair in zip(tensors, before, strict=True))
    flag.zero_()
    multi_tensor_applier(_ext.multi_tensor_lamb, flag, lists, *arguments)
    assert not any(torch.equal(*pair) for pair in zip(tensors, before, strict=True))


def test_lamb_refuses_what_it_has_not():
    with pytest.raises(RuntimeError, match="no AMSGrad"):
        optim.FusedLAMB(parameters(), amsgrad=True)
    with pytest.raises(ValueError, match="betas in"):
        optim.FusedLAMB(parameters(), betas=(1.0, 0.9))


def test_l2norm_and_its_flag():
    tensors = [torch.full((3,), 2.0, device="musa"), torch.full((4,), -1.0, device="musa")]
    flag = torch.zeros(1, dtype=torch.int32, device="musa")
    total, each = _ext.multi_tensor_l2norm(1024, flag, [tensors], True)
    assert total.item() == pytest.approx(4.0)
    assert each.tolist() == pytest.approx([12**0.5, 2.0])
    assert flag.item() == 0
    _ext.multi_tensor_l2norm(1024, flag, [[tensors[0] / 0]])
    assert flag.item() == 1
    with pytest.raises(ValueError, match="takes 1 lists"):
        _ext.multi_tensor_l2norm(1024, flag, [tensors, tensors])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_over_columns_of_two_ranks(reduction):
    seed = 3
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(5, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 7, 3, 4, 2])
    expected = torch.nn.functional.cross_entropy(whole, targets, reduction=reduction)
    (gradient,) = torch.autograd.grad(expected.sum(), whole)
    parts = [part.contiguous().to("musa") for part in whole.detach().chunk(2, 1)]
    on_card = targets.to("musa")
    gathered = torch.cat([_ext.online_softmax(part, on_card, rank) for rank, part in enumerate(parts)], 1)
    for rank, part in enumerate(parts):
        loss = _ext.cross_entropy_loss(part, on_card, gathered, rank, 2, reduction)
        torch.testing.assert_close(loss.cpu(), expected.detach(), msg=f"seed {seed}")
    torch.testing.assert_close(torch.cat(parts, 1).cpu(), gradient, msg=f"seed {seed}")


def test_the_fused_operators_have_names_of_their_own():
    weight = torch.ones(3, device="musa")
    others = [torch.zeros(3, device="musa") for _ in range(2)]
    torch.ops.musa._fused_adam_(
        [weight], [torch.ones(3, device="musa")], [others[0]], [others[1]], [], [torch.ones((), device="musa")],
        lr=0.1, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip
    assert weight.tolist() == pytest.approx([0.9] * 3)


@pytest.mark.parametrize(("name", "decay"), [("adam", 0.5), ("adamw", 0.5)])
def test_the_extension_s_step_is_the_optimizer_s(name, decay):
    plain = torch.nn.Parameter(torch.full((3,), 2.0))
    plain.grad = torch.ones(3)
    getattr(torch.optim, {"adam": "Adam", "adamw": "AdamW"}[name])([plain], lr=0.1, weight_decay=decay).step()
    weight = torch.full((3,), 2.0, device="musa")
    state = [[torch.zeros(3, device="musa")] for _ in range(2)]
    steps = [torch.ones((), device="musa")]
    step = getattr(_ext, f"fused_{name}")
    step([weight], [torch.ones(3, device="musa")], *state, [], steps, 0.1, 0.9, 0.999, decay, 1e-8, False, False)
    torch.testing.assert_close(weight.cpu(), plain.detach())
