"""Grouped matrix products: the CPU's bits, one operator, no host synchronisation."""

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", ["2d_3d", "2d_2d", "3d_2d", "3d_3d"])
def test_equals_cpu(kind, dtype):
    a, b, offsets = operands(kind, dtype)
    results = []
    for device in ("cpu", "musa"):
        leaves = [a.to(device, copy=True).requires_grad_(), b.to(device, copy=True).requires_grad_()]
        out = F.grouped_mm(*leaves, offs=offsets_to(offsets, device))
        outer = torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(dtype).to(device)
        results.append([out, *torch.autograd.grad(out, leaves, outer)])
    for want, have in zip(*results, strict=True):
        assert have.device.type == "musa"
        assert have.dtype == want.dtype
        assert have.stride() == want.stride()
        assert torch.equal(have.cpu(), want)


def test_transposed_weights_equal_cpu():
    a, b, offsets = operands("2d_3d", torch.bfloat16)
    weight = b.transpose(1, 2).contiguous().transpose(1, 2)
    want = F.grouped_mm(a, weight, offs=offsets)
    have = F.grouped_mm(a.to("musa"), weight.to("musa"), offs=offsets.to("musa"))
    assert torch.equal(have.cpu(), want)


def test_rows_past_the_last_offset_are_left_alone():
    a, b, _ = operands("2d_3d", torch.float32)
    offsets = torch.tensor([8, 8, 16, 24], dtype=torch.int32)
    want = F.grouped_mm(a, b, offs=offsets)
    have = F.grouped_mm(a.to("musa"), b.to("musa"), offs=offsets.to("musa"))
    assert have.shape == want.shape
    assert torch.equal(have[:24].cpu(), want[:24])


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
