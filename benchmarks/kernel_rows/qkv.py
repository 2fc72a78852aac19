"""Between the projections and attention."""

from collections.abc import Iterator

import torch

from kernel_rows.glue import hf_rms_norm, rotate_half
from kernel_rows.row import Case, Goal, Row, on, rand

HEADS, KV_HEADS, DIM = 32, 8, 128


def split_norm_rope(tokens: int) -> Case:
    """Split, norms of the heads of queries and keys, rotation by positions."""
    qkv, weight = rand(tokens, (HEADS + 2 * KV_HEADS) * DIM), rand(DIM, seed=2)
    angle = rand(4096, DIM // 2, dtype=torch.float32, seed=1)
    cos, sin = angle.cos().bfloat16(), angle.sin().bfloat16()
    positions = torch.arange(tokens)
    device, device_weight, device_cos, device_sin, device_positions = on("musa", qkv, weight, cos, sin, positions)
    cache = torch.cat([device_cos, device_sin], -1)
    whole_cos, whole_sin = (torch.cat([table, table], -1)[:tokens] for table in (cos, sin))
    split = [HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM]
    ops = torch.ops.musa

    def separate() -> object:
        q, k, v = device.split(split, -1)
        q, k = ops.qk_norm(
            q.unflatten(-1, (HEADS, DIM)), k.unflatten(-1, (KV_HEADS, DIM)), device_weight, device_weight
        )
        ops.rotary_embedding_(device_positions, q, k, DIM, cache)
        return q, k, v

    def hf() -> object:
        q, k, v = (part.unflatten(-1, (-1, DIM)) for part in qkv.split(split, -1))
        q, k = hf_rms_norm(q, weight), hf_rms_norm(k, weight)
        c, s = whole_cos.unsqueeze(1), whole_sin.unsqueeze(1)
        return (q * c) + (rotate_half(q) * s), (k * c) + (rotate_half(k) * s), v

    return Case(
        musa=lambda: ops.qkv_norm_rope(
            device, HEADS, KV_HEADS, device_cos, device_sin, positions=device_positions, q_weight=device_weight,
            k_weight=device_weight, rotary_dim=DIM,
        ),
        rivals={"separate": separate, "hf": hf},
        bytes=2 * qkv.nbytes,
        calls=max(1, 2048 // tokens),
    )  # fmt: skip


def rows() -> Iterator[Row]:
    for tokens in (1, 16, 2048):
        yield Row(
            f"QKV split, norm, RoPE bf16 T={tokens}",
            (Goal(1, "separate"), Goal(5, "hf")),
            lambda t=tokens: split_norm_rope(t),
        )
