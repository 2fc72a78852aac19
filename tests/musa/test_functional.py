"""SwishGLU and rotary embedding, the functions that the real stack adds to torch."""

import pytest
import torch
import torch.nn.functional as F

DEVICES = ["cpu", "musa"]


def rotate(x: torch.Tensor, angles: torch.Tensor, interleaved: bool = False) -> torch.Tensor:
    """By complex multiplication, (tokens, batch, heads, dim) in float64."""
    pairs = angles.shape[-1] // 2
    x = x.double().cpu()
    part = x[..., : 2 * pairs]
    a, b = (part[..., 0::2], part[..., 1::2]) if interleaved else (part[..., :pairs], part[..., pairs:])
    one = angles.double().cpu()
    one = one[:, 0::2] if interleaved else one[:, :pairs]
    turned = torch.complex(a, b) * torch.polar(torch.ones_like(one), one).view(-1, 1, 1, pairs)
    if interleaved:
        result = torch.stack([turned.real, turned.imag], -1).flatten(-2)
    else:
        result = torch.cat([turned.real, turned.imag], -1)
    return torch.cat([result, x[..., 2 * pairs :]], -1)


def angles_of(tokens: int, rotated: int, interleaved: bool = False) -> torch.Tensor:
    one = torch.arange(tokens).outer(torch.rand(rotated // 2, generator=torch.Generator().manual_seed(1)))
    return one.repeat_interleave(2, -1) if interleaved else torch.cat([one, one], -1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("function", [torch.swish_glu, torch.gated_silu, F.swish_glu, torch.nn.SwishGLU()])
def test_swish_glu_gates_the_second_half(device, function):
    x = torch.randn(3, 2, 8, dtype=torch.float64, device=device, requires_grad=True)
    y = function(x)
    gate, value = x[..., :4], x[..., 4:]
    torch.testing.assert_close(y, gate / (1 + torch.exp(-gate)) * value)
    torch.autograd.gradcheck(function, x.detach().cpu().requires_grad_())
    y.sum().backward()
    torch.testing.assert_close(x.grad[..., 4:], F.silu(gate))


@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
def test_an_odd_last_dimension_is_refused(shape):
    with pytest.raises(ValueError, match="halves the last dimension"):
        torch.swish_glu(torch.ones(shape))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotated", [4, 8])
def test_rope_turns_pairs_of_components(device, interleaved, rotated):
    x = torch.randn(5, 2, 3, 8, device=device)
    angles = angles_of(5, rotated, interleaved)
    y = F.rope(x, angles.to(device), rotary_interleaved=interleaved)
    torch.testing.assert_close(y.double().cpu(), rotate(x, angles, interleaved), rtol=1e-5, atol=1e-5)
    swapped = torch.rope(x.transpose(0, 1), angles.to(device), interleaved, batch_first=True)
    torch.testing.assert_close(swapped.transpose(0, 1), y)


def test_latent_attention_sorts_the_components_first():
    x = torch.randn(4, 1, 2, 6)
    angles = angles_of(4, 6)
    sorted_x = x[..., [0, 2, 4, 1, 3, 5]]
    torch.testing.assert_close(
        F.rope(x, angles, multi_latent_attention=True).double(), rotate(sorted_x, angles), rtol=1e-5, atol=1e-5
    )


def test_the_module_s_angles_move_with_it():
    angles = angles_of(4, 8)
    module = torch.nn.RoPE(freq_cis=angles, rotary_interleaved=False, batch_first=False).musa()
    assert module.freq_cis.is_musa
    assert "batch_first=False" in repr(module)
    x = torch.randn(4, 2, 2, 8)
    torch.testing.assert_close(module(x.musa()).cpu(), F.rope(x, angles))


def test_turning_back_is_the_gradient():
    x = torch.randn(4, 2, 1, 8, dtype=torch.float64, requires_grad=True)
    angles = angles_of(4, 8).double()
    upstream = torch.randn(4, 2, 1, 8, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(F.rope(x, angles), x, upstream)
    torch.testing.assert_close(gradient, F.rope(upstream, -angles))


@pytest.mark.parametrize(
    ("shape", "angles"), [((4, 2, 8), (4, 8)), ((4, 2, 1, 8), (3, 8)), ((4, 2, 1, 8), (4, 10)), ((4, 2, 1, 8), (4, 3))]
)
def test_shapes_that_do_not_fit_are_refused(shape, angles):
    with pytest.raises(ValueError, match=r"rope takes|don.t fit"):
        F.rope(torch.ones(shape), torch.ones(angles))
