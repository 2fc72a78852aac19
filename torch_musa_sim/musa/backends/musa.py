"""`torch.backends.musa`: what torch.backends.cuda offers, for musa.

The flags are torch's own ones for CUDA, which have no other meaning beside a simulated card: whichever of the two
modules a program names, the other shows the same. They change the modelled time, never a value: matrix products of
float32 tensors take the time of the card's TF32 units when `matmul.allow_tf32` (or torch.set_float32_matmul_precision)
lets them, and are computed in float32.
"""

import torch
from torch.backends.cuda import (
    SDPAParams,
    allow_fp16_bf16_reduction_math_sdp,
    cudnn_sdp_enabled,
    enable_cudnn_sdp,
    enable_flash_sdp,
    enable_math_sdp,
    enable_mem_efficient_sdp,
    flash_sdp_enabled,
    fp16_bf16_reduction_math_sdp_allowed,
    math_sdp_enabled,
    matmul,
    mem_efficient_sdp_enabled,
    sdp_kernel,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = [
    "SDPAParams",
    "allow_fp16_bf16_reduction_math_sdp",
    "can_use_cudnn_attention",
    "can_use_efficient_attention",
    "can_use_flash_attention",
    "cudnn_sdp_enabled",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "fp16_bf16_reduction_math_sdp_allowed",
    "is_built",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "sdp_kernel",
]


def is_built() -> bool:
    """True: the native part of this package was built. For visible cards ask torch.musa.is_available."""
    return True


def is_flash_attention_available() -> bool:
    """True: scaled_dot_product_attention has a flash kernel on musa."""
    return True


def _choice(params: SDPAParams) -> int:
    return torch._fused_sdp_choice(
        params.query,
        params.key,
        params.value,
        params.attn_mask,
        params.dropout,
        params.is_causal,
        enable_gqa=params.enable_gqa,
    )


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether scaled_dot_product_attention would take its flash kernel for these arguments, all of musa.

    debug: accepted for CUDA's signature; the reasons are those of the documentation of scaled_dot_product_attention.
    """
    return _choice(params) == int(SDPBackend.FLASH_ATTENTION.value)


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether its memory-efficient kernel takes these arguments: those that flash takes, and masks without gradient."""
    if not mem_efficient_sdp_enabled():
        return False
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        return _choice(params) == int(SDPBackend.EFFICIENT_ATTENTION.value)


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """False: musa has a flash, a memory-efficient and a plain kernel."""
    return False
