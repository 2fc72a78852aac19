"""Attention of whole prompts and of single tokens."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from kernel_rows.row import Case, Goal, Row, on, rand, rotating

HEADS, TOKENS, DIM = 16, 2048, 128
CAUSAL_FLOPS = 2 * 2 * HEADS * TOKENS * (TOKENS + 1) / 2 * DIM


def prefill() -> Case:
    q, k, v = (rand(1, HEADS, TOKENS, DIM, seed=seed) for seed in range(3))
    device = on("musa", q, k, v)
    return Case(
        musa=lambda: F.scaled_dot_product_attention(*device, is_causal=True),
        rivals={"torch": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)},
        flops=CAUSAL_FLOPS,
    )


def decode(keys: int) -> Case:
    copies = max(1, (200 << 20) // (keys * 8 * DIM * 4))
    q = rand(1, 32, 1, DIM)
    caches = [(rand(1, 8, keys, DIM, seed=2 * i), rand(1, 8, keys, DIM, seed=2 * i + 1)) for i in range(copies)]

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    return Case(
        musa=rotating(attend, [on("musa", q, *cache) for cache in caches]),
        rivals={"torch": rotating(attend, [(q, *cache) for cache in caches])},
        bytes=caches[0][0].nbytes * 2,
    )


def rows() -> Iterator[Row]:
    yield Row("attention prefill 1x16x2048x128 causal bf16", (Goal(0.55, "F"), Goal(1.8, "torch")), prefill)
    for keys in (4096, 32768):
        yield Row(
            f"attention decode 32/8 heads {keys // 1024}k bf16", (Goal(8, "torch"),), lambda keys=keys: decode(keys)
        )
