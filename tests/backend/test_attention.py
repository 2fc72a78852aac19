"""Scaled dot product attention takes the operators that it takes on CUDA."""

import contextlib

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


TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


def assert_same(results):
    """To rounding: the kernel of the card adds in another order."""
    for want, have in zip(*results, strict=True):
        assert have.device.type == "musa"
        torch.testing.assert_close(have.cpu(), want, rtol=TOLERANCE[want.dtype], atol=TOLERANCE[want.dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mask", masks())
def test_equals_cpu(mask, dtype):
    options = {
        k: v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in masks()[mask].items()
    }
    assert_same(both(qkv(dtype), options))


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_grouped_queries_and_other_key_length(mask):
    assert_same(both(qkv(kv_heads=2), {"enable_gqa": True, **masks()[mask]}))
    assert_same(both(qkv(kv_length=5), masks()[mask]))


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
    assert_same(results)


def choice(*tensors, **options):
    return SDPBackend(torch._fused_sdp_choice(*(t.to("musa") for t in tensors), **to("musa", options)))


@pytest.mark.parametrize("mask", masks())
def test_the_choice_is_flash_without_and_efficient_with_a_mask(mask):
    options = masks()[mask]
    wanted = SDPBackend.EFFICIENT_ATTENTION if "attn_mask" in options else SDPBackend.FLASH_ATTENTION
    assert choice(*qkv(), **options) == wanted


def test_what_the_fused_kernels_lack_takes_the_math_path():
    q, k, v = qkv()
    assert choice(q, k, v, dropout_p=0.5) == SDPBackend.MATH
    assert choice(q[0], k[0], v[0]) == SDPBackend.MATH
    assert choice(q, k[:, :2], v[:, :2]) == SDPBackend.MATH
    assert choice(q, k[:, :2], v[:, :2], enable_gqa=True) == SDPBackend.FLASH_ATTENTION
    assert choice(q, k, v, attn_mask=torch.zeros(S, S, requires_grad=True)) == SDPBackend.MATH
    assert choice(q, k, v[..., :5]) == SDPBackend.EFFICIENT_ATTENTION
    assert choice(q.to(torch.complex64), k.to(torch.complex64), v.to(torch.complex64)) == SDPBackend.MATH


def test_gradients_have_the_names_that_they_have_on_cuda():
    q, k, v = (t.to("musa").requires_grad_() for t in qkv())
    flash = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert flash.grad_fn.name() == "ScaledDotProductFlashAttentionBackward0"
    mask = torch.ones(S, S, dtype=torch.bool, device="musa")
    efficient = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert efficient.grad_fn.name() == "ScaledDotProductEfficientAttentionBackward0"


@pytest.mark.parametrize("transposed", [False, True])
def test_results_are_laid_out_as_on_cuda(transposed):
    q, k, v = (t.to("musa") for t in qkv())
    if transposed:
        q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))
    flash = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v)
    assert flash[0].stride() == q.stride()
    assert (flash[1].shape, flash[1].dtype) == ((B, H, S), torch.float32)
    assert (flash[2], flash[3], flash[4], flash[5]) == (None, None, S, S)
    assert [tuple(t.shape) for t in flash[6:]] == [(2,), (), (0,)]
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v[..., :5], None, True)
    assert efficient[0].stride() == (S * H * 5, 5, H * 5, 1)
    assert efficient[1].shape == (B, H, 32)
    torch.testing.assert_close(efficient[1][..., :S], flash[1])
    assert torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, False)[1].shape == (B, H, 0)


def test_inference_mode_takes_the_same_operators():
    q, k, v = (t.to("musa") for t in qkv())
    with torch.inference_mode():
        ran = profiled_ops(lambda: F.scaled_dot_product_attention(q, k, v))
        assert "aten::_scaled_dot_product_flash_attention" in ran
        ran = profiled_ops(lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=q[0, 0, :, :1] > 0))
        assert "aten::_scaled_dot_product_efficient_attention" in ran


@pytest.mark.parametrize("mask", ["none", "causal", "bool", "float"])
def test_gradients_of_gradients(mask):
    results = []
    for device in ("cpu", "musa"):
        q, k, v = (t.to(device, torch.float64).requires_grad_() for t in qkv(kv_heads=2))
        options = to(device, masks()[mask])
        if mask == "float":
            options = {"attn_mask": options["attn_mask"].double()}
        with sdpa_kernel(SDPBackend.MATH) if device == "cpu" else contextlib.nullcontext():
            out = F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)
        first = torch.autograd.grad(out.square().sum(), (q, k, v), create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), (q, k, v))
        results.append([*first, *second])
    assert_same(results)


def test_one_tensor_in_all_places_has_the_sum_of_gradients_twice_over():
    results = []
    for device in ("cpu", "musa"):
        x = qkv()[0].to(device, torch.float64).requires_grad_()
        with sdpa_kernel(SDPBackend.MATH) if device == "cpu" else contextlib.nullcontext():
            out = F.scaled_dot_product_attention(x, x, x)
        (first,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        results.append([first, *torch.autograd.grad(first.square().sum(), x)])
    assert_same(results)


@pytest.mark.parametrize("mask", ["none", "causal", "bool"])
def test_tangents(mask):
    results = []
    for device in ("cpu", "musa"):
        q, k, v = (t.to(device) for t in qkv())
        options = to(device, masks()[mask])
        with sdpa_kernel(SDPBackend.MATH) if device == "cpu" else contextlib.nullcontext():
            attend = lambda a, o=options, k=k, v=v: F.scaled_dot_product_attention(a, k, v, **o)
            results.append(list(torch.func.jvp(attend, (q,), (torch.ones_like(q),))))
    assert_same(results)


def test_fused_operators_refuse_what_they_lack():
    q, k, v = (t.to("musa") for t in qkv())
    with pytest.raises(NotImplementedError, match=r"has no dropout, got dropout_p=0\.5"):
        torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.5)
    with pytest.raises(RuntimeError, match="values as wide as keys"):
        torch.ops.aten._scaled_dot_product_flash_attention(q, k, v[..., :4])
    with pytest.raises(RuntimeError, match="kv heads that divide heads"):
        torch.ops.aten._scaled_dot_product_efficient_attention(q, k[:, :3], v[:, :3], None, False)


def test_without_native_kernels_values_are_the_cpus_bit_for_bit(run_script):
    run_script(
        """
    import torch
    import torch.nn.functional as F
    for dtype in (torch.float32, torch.bfloat16):
        q, k, v = (torch.randn(2, 4, 17, 8).to(dtype) for _ in range(3))
        for options in ({}, {"is_causal": True}, {"attn_mask": torch.rand(17, 17) > 0.2}):
            results = []
            for device in ("cpu", "musa"):
                leaves = [t.to(device, copy=True).requires_grad_() for t in (q, k, v)]
                on_device = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
                out = F.scaled_dot_product_attention(*leaves, **on_device)
                results.append([out, *torch.autograd.grad(out.float().square().sum(), leaves)])
            for want, have in zip(*results):
                assert torch.equal(have.cpu(), want), (dtype, options)
    """,
        TORCH_MUSA_SIM_NATIVE="0",
    )


def profiled_ops(function):
    with torch.profiler.profile() as profile:
        function()
    return {event.name for event in profile.events()}


def test_the_kernel_context_is_respected():
    q, k, v = (t.to("musa") for t in qkv())
    flash = "aten::_scaled_dot_product_flash_attention"
    assert flash in profiled_ops(lambda: F.scaled_dot_product_attention(q, k, v))
    with sdpa_kernel(SDPBackend.MATH):
        assert flash not in profiled_ops(lambda: F.scaled_dot_product_attention(q, k, v))
        want = F.scaled_dot_product_attention(*qkv())
        torch.testing.assert_close(F.scaled_dot_product_attention(q, k, v).cpu(), want, rtol=1e-5, atol=1e-5)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert flash in profiled_ops(lambda: F.scaled_dot_product_attention(q, k, v))


def test_a_kernel_that_does_not_exist_or_fit_is_refused():
    q, k, v = (t.to("musa") for t in qkv())
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), pytest.raises(RuntimeError, match=r"[Nn]o (viable|available)"):
        F.scaled_dot_product_attention(q, k, v)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match=r"[Nn]o (viable|available)"):
        F.scaled_dot_product_attention(q, k, v, attn_mask=q[0, 0, :, :1] > 0)


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
    assert_same(results)


def test_overrideable_operator_refuses_what_it_lacks():
    leaves = [t.to("musa") for t in qkv()]
    with pytest.raises(NotImplementedError, match="has no dropout"):
        torch.ops.aten._scaled_dot_product_fused_attention_overrideable(*leaves, None, 0.5)
    bias = torch.zeros(B, H, S, S, device="musa", requires_grad=True)
    out = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(*leaves, bias)[0]
    with pytest.raises(NotImplementedError, match="no gradient of attn_bias"):
        out.sum().backward()
