"""Functions and modules that the real stack adds to torch: SwishGLU and rotary position embedding.

They work on every device, are composed of torch's operators and differentiate through them.
"""

import torch
from torch import Tensor, nn


def swish_glu(input: Tensor) -> Tensor:
    """silu(first half) * second half along the last dimension: (..., 2 n) to (..., n).

    Raises ValueError when the last dimension can't be halved.
    """
    if input.dim() == 0 or input.size(-1) % 2:
        raise ValueError(f"swish_glu halves the last dimension, but got a tensor of shape {tuple(input.shape)}")
    gate, value = input.chunk(2, -1)
    return nn.functional.silu(gate) * value


def gated_silu(input: Tensor) -> Tensor:
    """The same as `swish_glu`, under its older name."""
    return swish_glu(input)


def rope(
    input: Tensor,
    freq_cis: Tensor,
    rotary_interleaved: bool = False,
    batch_first: bool = False,
    multi_latent_attention: bool = False,
) -> Tensor:
    """Rotary position embedding of (tokens, batch, heads, dim), with batch_first of (batch, tokens, heads, dim).

    freq_cis: angles, (tokens, rotated); the first `rotated` of the `dim` components are turned, the others pass.
    rotary_interleaved: component 2 i turns with 2 i + 1 instead of i with i + rotated / 2. multi_latent_attention: the
    even components are first put before the odd ones. Raises ValueError for shapes that don't fit.
    """
    if input.dim() != 4 or freq_cis.dim() != 2:
        raise ValueError(f"rope takes 4 dimensions and angles of 2, but got {input.dim()} and {freq_cis.dim()}")
    tokens, rotated = freq_cis.shape
    if input.size(1 if batch_first else 0) != tokens or rotated > input.size(-1) or rotated % 2:
        raise ValueError(
            f"angles of shape {tuple(freq_cis.shape)} don't fit an input of shape {tuple(input.shape)} with "
            f"batch_first={batch_first}: they need one row a token and an even number of columns, at most the last size"
        )
    angles = freq_cis.view(1, tokens, 1, rotated) if batch_first else freq_cis.view(tokens, 1, 1, rotated)
    turned, passed = input[..., :rotated], input[..., rotated:]
    if multi_latent_attention:
        turned = torch.cat([turned[..., 0::2], turned[..., 1::2]], -1)
    if rotary_interleaved:
        across = torch.stack([-turned[..., 1::2], turned[..., 0::2]], -1).flatten(-2)
    else:
        first, second = turned.chunk(2, -1)
        across = torch.cat([-second, first], -1)
    turned = turned * angles.cos().to(turned.dtype) + across * angles.sin().to(turned.dtype)
    return torch.cat([turned, passed], -1) if passed.size(-1) else turned


class SwishGLU(nn.Module):
    """`swish_glu` as a module."""

    def forward(self, input: Tensor) -> Tensor:
        return swish_glu(input)


class RoPE(nn.Module):
    """`rope` as a module that holds the angles, a buffer which moves with it."""

    freq_cis: Tensor

    def __init__(
        self,
        freq_cis: Tensor,
        rotary_interleaved: bool = False,
        batch_first: bool = False,
        multi_latent_attention: bool = False,
    ) -> None:
        super().__init__()
        self.register_buffer("freq_cis", freq_cis)
        self.rotary_interleaved = rotary_interleaved
        self.batch_first = batch_first
        self.multi_latent_attention = multi_latent_attention

    def forward(self, input: Tensor) -> Tensor:
        return rope(input, self.freq_cis, self.rotary_interleaved, self.batch_first, self.multi_latent_attention)

    def extra_repr(self) -> str:
        return (
            f"rotary_interleaved={self.rotary_interleaved}, batch_first={self.batch_first}, "
            f"multi_latent_attention={self.multi_latent_attention}"
        )


def install() -> None:
    """Puts them where the real stack's torch has them; what is there stays."""
    for place, name, value in (
        (torch, "swish_glu", swish_glu),
        (torch, "gated_silu", gated_silu),
        (torch, "rope", rope),
        (nn.functional, "swish_glu", swish_glu),
        (nn.functional, "rope", rope),
        (nn, "SwishGLU", SwishGLU),
        (nn, "RoPE", RoPE),
    ):
        if not hasattr(place, name):
            setattr(place, name, value)
