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


def backward() -> Case:
    q, k, v, grad = (rand(1, HEADS, TOKENS, DIM, seed=seed) for seed in range(4))
    device = on("musa", q, k, v)
    device_grad = grad.to("musa")
    aten = torch.ops.aten
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)
    device_out, device_lse, *_, seed, offset, _ = aten._scaled_dot_product_flash_attention(*device, 0.0, True)
    state = (None, None, TOKENS, TOKENS, 0.0, True, seed, offset)
    return Case(
        musa=lambda: aten._scaled_dot_product_flash_attention_backward(
            device_grad, *device, device_out, device_lse, *state
        ),
        rivals={
            "torch": lambda: aten._scaled_dot_product_flash_attention_for_cpu_backward(
                grad, q, k, v, out, lse, 0.0, True
            )
        },
        flops=2.5 * CAUSAL_FLOPS,
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


def window() -> Case:
    q, k, v = (rand(1, HEADS, TOKENS, DIM, seed=seed) for seed in range(3))
    device = on("musa", q, k, v)
    distance = torch.arange(TOKENS).view(-1, 1) - torch.arange(TOKENS)
    mask = (distance >= 0) & (distance < 512)
    return Case(
        musa=lambda: torch.ops.musa.attention(*device, left=511, right=0),
        rivals={"torch": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)},
    )


def blocks(live: float) -> Case:
    device = on("musa", *(rand(1, HEADS, TOKENS, DIM, seed=seed) for seed in range(3)))
    count = TOKENS // 64
    mask = (torch.rand(1, HEADS, count, count, generator=torch.Generator().manual_seed(0)) < live).to("musa")
    return Case(
        musa=lambda: torch.ops.musa.attention(*device, block_mask=mask),
        rivals={"dense": lambda: torch.ops.musa.attention(*device)},
    )


def sequences() -> Case:
    lengths = [700, 33, 256, 1, 900, 158]
    q, k, v = (t.transpose(0, 1).contiguous() for t in on("musa", *(rand(HEADS, 2048, DIM, seed=s) for s in range(3))))
    ends = torch.tensor(lengths).cumsum(0).tolist()
    starts = torch.tensor([0, *ends], dtype=torch.int32, device="musa")
    parts = [[t[end - n : end].transpose(0, 1)[None] for t in (q, k, v)] for n, end in zip(lengths, ends, strict=True)]
    return Case(
        musa=lambda: torch.ops.musa.attention_varlen(q, k, v, starts, starts, 900, 900, right=0),
        rivals={"loop": lambda: [F.scaled_dot_product_attention(*part, is_causal=True) for part in parts]},
    )


def rows() -> Iterator[Row]:
    yield Row("attention prefill 1x16x2048x128 causal bf16", (Goal(0.55, "F"), Goal(1.8, "torch")), prefill)
    yield Row("attention backward 1x16x2048x128 causal bf16", (Goal(1.2, "torch"),), backward)
    for keys in (4096, 32768):
        yield Row(
            f"attention decode 32/8 heads {keys // 1024}k bf16", (Goal(8, "torch"),), lambda keys=keys: decode(keys)
        )
    yield Row("attention sliding window 512 of 2048 bf16", (Goal(3, "torch"),), window)
    # At most 1.3 times the live share of the dense time.
    yield Row("attention quarter of the blocks bf16", (Goal(1 / 1.3 / 0.25, "dense"),), lambda: blocks(0.25))
    yield Row("attention sequences of many lengths bf16", (Goal(1, "loop"),), sequences)
