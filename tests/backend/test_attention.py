"""Scaled dot product attention takes the kernel that the CPU takes, and gives its bits."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

B, H, S, D = 2, 4, 17, 8


def qkv(dtype=torch.float32, kv_heads=H, kv_length=S):
    generator = torch.Generator().manual_seed(3)
    q = torch.randn(B, H, S, D, generator=generator).to(dtype)
    k = torch.randn(B, kv_heads, kv_length, D, generator=generator).to(dtype)
    v = torch.randn(B, kv_heads, kv_length, D, generator=generator).to(dtype)
    return q, k, v


def masks():
    generator = torch.Generator().manual_seed(4)
    full = torch.randn(B, H, S, S, generator=generator)
    return {
        "none": {},
        "causal": {"is_causal": True},
        "bool": {"attn_mask": full > -1},
        "float": {"attn_mask": full},
        "2d": {"attn_mask": full[0, 0]},
        "broadcast_over_keys": {"attn_mask": full[:, :, :, :1]},
        "strided": {"attn_mask": full.transpose(-1, -2)},
        "expanded": {"attn_mask": full[:, :1, :1, :1].expand(B, H, S, S)},
        "scale": {"scale": 0.3},
    }


def to(device, options):
    return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in options.items()}


def both(tensors, options):
    """Output and gradients on cpu and on musa."""
    results = []
    for device in ("cpu", "musa"):
        leaves = [t.to(device, copy=True).requires_grad_() for t in tensors]
        out = F.scaled_dot_product_attention(*leaves, **to(device, options))
        results.append([out, *torch.autograd.grad(out.float().square().sum(), leaves)])
    return results


def assert_bits(results):
    for want, have in zip(*results, strict=True):
        assert have.device.type == "musa"
        assert have.stride() == want.stride()
        assert torch.equal(have.cpu(), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mask", masks())
def test_equals_cpu(mask, dtype):
    options = {
        k: v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in masks()[mask].items()
    }
    assert_bits(both(qkv(dtype), options))


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_grouped_queries_and_other_key_length(mask):
    assert_bits(both(qkv(kv_heads=2), {"enable_gqa": True, **masks()[mask]}))
    assert_bits(both(qkv(kv_length=5), masks()[mask]))


@pytest.mark.parametrize("layout", ["unbatched", "transposed", "odd_stride"])
def test_layouts(layout):
    change = {
        "unbatched": lambda t: t[0],
        "transposed": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
        "odd_stride": lambda t: t.transpose(2, 3).contiguous().transpose(2, 3),
    }[layout]
    results = []
    for device in ("cpu", "musa"):
        results.append([F.scaled_dot_product_attention(*(change(t.to(device)) for t in qkv()))])
    assert_bits(results)


@pytest.mark.parametrize("mask", masks())
def test_the_choice_is_the_cpus(mask):
    options = masks()[mask]
    cpu = torch._fused_sdp_choice(*qkv(), **options)
    musa = torch._fused_sdp_choice(*(t.to("musa") for t in qkv()), **to("musa", options))
    assert cpu == musa
    assert torch._fused_sdp_choice(*(t.to("musa") for t in qkv())) == SDPBackend.FLASH_ATTENTION.value
    assert torch._fused_sdp_choice(*(t.to("musa") for t in qkv()), dropout_p=0.5) == SDPBackend.MATH.value


def profiled_ops(function):
    with torch.profiler.profile() as profile:
        function()
    return {event.name for event in profile.events()}


def test_the_kernel_context_is_respected():
    q, k, v = (t.to("musa") for t in qkv())
    flash = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert flash in profiled_ops(lambda: F.scaled_dot_product_attention(q, k, v))
    with sdpa_kernel(SDPBackend.MATH):
        assert flash not in profiled_ops(lambda: F.scaled_dot_product_attention(q, k, v))
        want = F.scaled_dot_product_attention(*qkv())
        assert torch.equal(F.scaled_dot_product_attention(q, k, v).cpu(), want)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert flash in profiled_ops(lambda: F.scaled_dot_product_attention(q, k, v))


@pytest.mark.parametrize("backend", [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION])
def test_a_kernel_that_does_not_exist_is_refused(backend):
    with sdpa_kernel(backend), pytest.raises(RuntimeError, match=r"[Nn]o (viable|available)"):
        F.scaled_dot_product_attention(*(t.to("musa") for t in qkv()))


def test_dropout_goes_through_math():
    torch.manual_seed(0)
    q, k, _ = (t.to("musa") for t in qkv())
    ones = torch.ones_like(k)
    out = F.scaled_dot_product_attention(q, k, ones, dropout_p=0.5)
    assert 0.8 < out.mean().item() < 1.2  # dropped probabilities are scaled up by 2
    assert out.std().item() > 0.05


def test_transforms():
    q, k, v = (t.double() for t in qkv())
    attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    loss = lambda q, k, v: attend(q, k, v).square().sum()
    for transform in (torch.vmap(attend), torch.func.grad(loss), torch.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))):
        want = transform(q, k, v)
        have = transform(*(t.to("musa") for t in (q, k, v)))
        for w, h in zip(torch.utils._pytree.tree_leaves(want), torch.utils._pytree.tree_leaves(have), strict=True):
            torch.testing.assert_close(h.cpu(), w)


def test_dropout_under_vmap():
    x = torch.ones(3, 1000, device="musa")
    out = torch.vmap(lambda t: F.dropout(t, 0.25), randomness="different")(x)
    kept = (out != 0).double().mean().item()
    assert 0.7 < kept < 0.8
    assert not torch.equal(out[0], out[1])
    grad = torch.vmap(torch.func.grad(lambda t: F.dropout(t, 0.25).sum()), randomness="different")(x)
    assert set(grad.mul(3).round().unique().tolist()) == {0.0, 4.0}  # dropped, or scaled by 4/3


def test_multihead_attention_module_equals_cpu():
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    x = torch.randn(2, 5, 16)
    want = module(x, x, x, need_weights=False)[0]
    have = module.to("musa")(x.to("musa"), x.to("musa"), x.to("musa"), need_weights=False)[0]
    torch.testing.assert_close(have.cpu(), want, rtol=1e-5, atol=1e-6)


def test_overrideable_operator_equals_flash():
    results = []
    for device in ("cpu", "musa"):
        leaves = [t.to(device).requires_grad_() for t in qkv()]
        if device == "cpu":
            out = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*leaves, 0.0, True)[0]
        else:
            out = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(*leaves, None, 0.0, True)[0]
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    assert_bits(results)


def test_overrideable_operator_refuses_what_it_lacks():
    leaves = [t.to("musa") for t in qkv()]
    with pytest.raises(NotImplementedError, match="has no dropout"):
        torch.ops.aten._scaled_dot_product_fused_attention_overrideable(*leaves, None, 0.5)
    bias = torch.zeros(B, H, S, S, device="musa", requires_grad=True)
    out = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(*leaves, bias)[0]
    with pytest.raises(NotImplementedError, match="no gradient of attn_bias"):
        out.sum().backward()
