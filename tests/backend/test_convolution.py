"""Convolutions equal the CPU's bit for bit, forward and backward, with the CPU's strides."""

import pytest
import torch
import torch.nn.functional as F

CASES = {
    "conv1d": (F.conv1d, (2, 4, 9), (6, 4, 3), {}),
    "conv1d_strided_dilated": (F.conv1d, (2, 4, 16), (6, 2, 3), {"stride": 2, "dilation": 2, "groups": 2}),
    "conv2d": (F.conv2d, (2, 4, 8, 9), (6, 4, 3, 3), {"padding": 1}),
    "conv2d_same": (F.conv2d, (2, 4, 8, 9), (6, 4, 3, 2), {"padding": "same"}),
    "conv2d_depthwise": (F.conv2d, (2, 4, 8, 8), (4, 1, 3, 3), {"groups": 4}),
    "conv2d_pointwise": (F.conv2d, (2, 4, 8, 8), (5, 4, 1, 1), {}),
    "conv2d_dilated": (F.conv2d, (1, 3, 12, 12), (4, 3, 3, 3), {"dilation": 2}),
    "conv2d_unbatched": (F.conv2d, (4, 8, 9), (6, 4, 3, 3), {}),
    "conv2d_empty_batch": (F.conv2d, (0, 4, 8, 9), (6, 4, 3, 3), {}),
    "conv3d": (F.conv3d, (2, 3, 5, 6, 7), (4, 3, 2, 3, 3), {"padding": 1}),
    "transposed1d": (F.conv_transpose1d, (2, 4, 9), (4, 6, 3), {"stride": 2, "output_padding": 1}),
    "transposed2d": (F.conv_transpose2d, (2, 4, 5, 6), (4, 3, 3, 3), {"stride": 2, "groups": 2}),
    "transposed3d": (F.conv_transpose3d, (1, 2, 3, 4, 5), (2, 3, 2, 2, 2), {}),
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64]


def make(case, dtype):
    conv, input_size, weight_size, options = CASES[case]
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(input_size, generator=generator).to(dtype)
    w = torch.randn(weight_size, generator=generator).to(dtype)
    outputs = weight_size[1] * options.get("groups", 1) if "transposed" in case else weight_size[0]
    return conv, x, w, torch.randn(outputs, generator=generator).to(dtype), options


def run(conv, tensors, options):
    """Output and gradients of all arguments for a fixed outer gradient."""
    leaves = [t.requires_grad_() for t in tensors]
    out = conv(*leaves, **options)
    outer = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape).to(out.dtype).to(out.device)
    return [out, *torch.autograd.grad(out, leaves, outer)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_equals_cpu(case, dtype):
    conv, x, w, b, options = make(case, dtype)
    expected = run(conv, [x.clone(), w.clone(), b.clone()], options)
    got = run(conv, [t.to("musa") for t in (x, w, b)], options)
    for want, have in zip(expected, got, strict=True):
        assert have.device.type == "musa"
        assert have.stride() == want.stride()
        assert torch.equal(have.cpu(), want)


@pytest.mark.parametrize("bias", [True, False])
def test_channels_last_in_gives_the_cpus_strides(bias):
    conv, x, w, b, options = make("conv2d", torch.float32)
    x = x.to(memory_format=torch.channels_last)
    args = (x, w, b) if bias else (x, w)
    want = conv(*args, **options)
    have = conv(*(t.to("musa") for t in args), **options)
    assert have.stride() == want.stride()
    assert torch.equal(have.cpu(), want)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2), (1, 2)], ids=str)
def test_only_the_asked_gradients(wanted):
    conv, x, w, b, options = make("conv2d", torch.float32)
    results = []
    for device in ("cpu", "musa"):
        tensors = [t.to(device, copy=True) for t in (x, w, b)]
        for i in wanted:
            tensors[i].requires_grad_()
        conv(*tensors, **options).sum().backward()
        results.append([t.grad for t in tensors])
    for want, have in zip(*results, strict=True):
        assert (want is None) == (have is None)
        assert want is None or torch.equal(have.cpu(), want)


def test_double_backward_equals_cpu():
    results = []
    for device in ("cpu", "musa"):
        conv, x, w, b, options = make("conv2d", torch.float64)
        leaves = [t.to(device).requires_grad_() for t in (x, w, b)]
        grads = torch.autograd.grad(conv(*leaves, **options).pow(2).sum(), leaves, create_graph=True)
        results.append(torch.autograd.grad(sum(g.pow(2).sum() for g in grads), leaves))
    for want, have in zip(*results, strict=True):
        torch.testing.assert_close(have.cpu(), want, rtol=1e-12, atol=1e-12)


def test_transforms():
    conv, x, w, _, options = make("conv2d", torch.float64)
    xs = torch.stack([x, x + 1])
    loss = lambda x, w: conv(x, w, **options).square().sum()
    for transform in (
        torch.vmap(lambda x, w: conv(x, w, **options), (0, None)),
        torch.vmap(torch.func.grad(loss, argnums=1), (0, None)),
    ):
        torch.testing.assert_close(transform(xs.to("musa"), w.to("musa")).cpu(), transform(xs, w))
    have = torch.func.grad(loss)(x.to("musa"), w.to("musa"))
    torch.testing.assert_close(have.cpu(), torch.func.grad(loss)(x, w))


def test_devices_must_match():
    _, x, w, b, _ = make("conv2d", torch.float32)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        F.conv2d(x.to("musa"), w)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        F.conv2d(x.to("musa"), w.to("musa"), b)
    with pytest.raises(RuntimeError, match="same"):
        F.conv2d(x, w.to("musa"))


def test_autocast_of_the_cpu_does_not_reach_the_card():
    conv, x, w, b, options = make("conv2d", torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert conv(x.to("musa"), w.to("musa"), b.to("musa"), **options).dtype == torch.float32
