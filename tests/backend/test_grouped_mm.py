"""Grouped matrix products: exact to what float32 sums and one rounding allow, one operator, no host synchronisation."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

G, M, N, K = 4, 40, 24, 16
OFFSETS = torch.tensor([8, 8, 24, 40], dtype=torch.int32)  # an empty group among them


def operands(kind, dtype):
    generator = torch.Generator().manual_seed(5)
    make = lambda *size: torch.randn(size, generator=generator).to(dtype)
    return {
        "2d_3d": (make(M, K), make(G, K, N), OFFSETS),
        "2d_2d": (make(K, M), make(M, N), OFFSETS),
        "3d_2d": (make(G, N, K), make(K, M), OFFSETS),
        "3d_3d": (make(G, M, K), make(G, K, N), None),
    }[kind]


def offsets_to(offsets, device):
    return None if offsets is None else offsets.to(device)


def group_by_group(kind, a, b, offsets):
    """The definition, in float64; differentiable."""
    a, b = a.double(), b.double()
    if offsets is None:
        return a @ b
    ends = offsets.tolist()
    parts = list(enumerate(itertools.pairwise([0, *ends])))
    if kind == "2d_3d":
        return torch.cat([a[begin:end] @ b[i] for i, (begin, end) in parts])
    if kind == "3d_2d":
        return torch.cat([a[i] @ b[:, begin:end] for i, (begin, end) in parts], dim=1)
    return torch.stack([a[:, begin:end] @ b[begin:end] for _, (begin, end) in parts])


def assert_sums(have, exact, magnitudes):
    """Sums of up to M products: each of up to 2 M + 2 operations in float32 rounds by half a unit of at most the sum of
    the magnitudes, and the result is rounded once to its dtype (whose smallest numbers may be flushed)."""
    have = have.detach().cpu()
    single, info = torch.finfo(torch.float32), torch.finfo(have.dtype)
    allowed = info.eps * exact.abs() + (M + 1) * single.eps * magnitudes + info.tiny
    assert ((have.double() - exact).abs() <= allowed).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", ["2d_3d", "2d_2d", "3d_2d", "3d_3d"])
def test_values_and_gradients(kind, dtype):
    a, b, offsets = operands(kind, dtype)
    cpu = [a.clone().requires_grad_(), b.clone().requires_grad_()]
    musa = [a.to("musa").requires_grad_(), b.to("musa").requires_grad_()]
    want = F.grouped_mm(*cpu, offs=offsets)
    have = F.grouped_mm(*musa, offs=offsets_to(offsets, "musa"))
    outer = torch.linspace(-1, 1, want.numel()).reshape(want.shape).to(dtype)
    with_like = zip(
        [want, *torch.autograd.grad(want, cpu, outer)],
        [have, *torch.autograd.grad(have, musa, outer.to("musa"))],
        strict=True,
    )
    exact, magnitudes = (
        (out := group_by_group(kind, *leaves, offsets), *torch.autograd.grad(out, leaves, up.double()))
        for leaves, up in (
            ([a.double().requires_grad_(), b.double().requires_grad_()], outer),
            ([a.abs().double().requires_grad_(), b.abs().double().requires_grad_()], outer.abs()),
        )
    )
    for (like, got), value, magnitude in zip(with_like, exact, magnitudes, strict=True):
        assert got.device.type == "musa"
        assert got.dtype == like.dtype
        assert got.stride() == like.stride()
        assert_sums(got, value, magnitude)


@pytest.mark.parametrize("sizes", [[1, 0, 2, 5], [33, 36, 0, 70]], ids=["few_rows", "many_rows"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_experts_of_a_model(sizes, dtype, transposed):
    generator = torch.Generator().manual_seed(7)
    offsets = torch.tensor(sizes).cumsum(0).int()
    a = torch.randn(sum(sizes), K, generator=generator).to(dtype)
    b = torch.randn(G, K, N, generator=generator).to(dtype)
    weight = b.to("musa").mT.contiguous().mT if transposed else b.to("musa")
    have = F.grouped_mm(a.to("musa"), weight, offs=offsets.to("musa"))
    assert_sums(have, group_by_group("2d_3d", a, b, offsets), group_by_group("2d_3d", a.abs(), b.abs(), offsets))
    again = F.grouped_mm(a.to("musa"), weight, offs=offsets.to("musa"))
    assert torch.equal(have, again)


def test_a_group_does_not_depend_on_the_others():
    a, b, offsets = (t.to("musa") for t in operands("2d_3d", torch.bfloat16))
    want = F.grouped_mm(a, b, offs=offsets)
    other = a.clone()
    other[8:] = float("nan")
    have = F.grouped_mm(other, b, offs=offsets)
    assert torch.equal(have[:8], want[:8])
    assert have[8:].isnan().all()


def test_groups_are_the_same_on_two_threads():
    generator = torch.Generator().manual_seed(9)
    a = torch.randn(160, 320, generator=generator).bfloat16().to("musa")
    b = torch.randn(G, 320, 512, generator=generator).bfloat16().to("musa")
    offsets = torch.tensor([100, 100, 120, 160], dtype=torch.int32, device="musa")
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append([F.grouped_mm(a, weight, offs=offsets).cpu() for weight in (b, b.mT.contiguous().mT)])
    finally:
        torch.set_num_threads(threads)
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_rows_past_the_last_offset_are_left_alone():
    a, b, _ = operands("2d_3d", torch.float32)
    offsets = torch.tensor([8, 8, 16, 24], dtype=torch.int32)
    have = F.grouped_mm(a.to("musa"), b.to("musa"), offs=offsets.to("musa"))
    assert have.shape == (M, N)
    assert_sums(have[:24], group_by_group("2d_3d", a, b, offsets), group_by_group("2d_3d", a.abs(), b.abs(), offsets))


def test_offsets_that_fall_mean_what_they_do_on_cpu():
    a, b, _ = operands("2d_3d", torch.float32)
    offsets = torch.tensor([16, 8, 30, 40], dtype=torch.int32)
    want = F.grouped_mm(a, b, offs=offsets)
    have = F.grouped_mm(a.to("musa"), b.to("musa"), offs=offsets.to("musa"))
    torch.testing.assert_close(have.cpu(), want)


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


def test_is_one_operator():
    a, b, offsets = (t.to("musa") for t in operands("2d_3d", torch.float32))
    with torch.profiler.profile() as profile:
        F.grouped_mm(a, b, offs=offsets)
    names = {event.name for event in profile.events()}
    assert "aten::_grouped_mm" in names
    with Recorder() as recorder:
        F.grouped_mm(a, b, offs=offsets)
    assert recorder.ops == ["aten._grouped_mm.default"]


def test_bad_operands_are_refused_as_on_cpu():
    a, b, offsets = (t.to("musa") for t in operands("2d_3d", torch.float32))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        F.grouped_mm(a, b.cpu(), offs=offsets)
    for arguments in ((a, b, None), (a, b, offsets.long()), (a[:, :8], b, offsets)):
        messages = []
        for device in ("cpu", "musa"):
            with pytest.raises((RuntimeError, ValueError)) as error:
                F.grouped_mm(*(t.to(device) for t in arguments[:2]), offs=offsets_to(arguments[2], device))
            messages.append(str(error.value))
        assert messages[0] == messages[1]
