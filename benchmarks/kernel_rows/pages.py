"""The paged cache of keys and values."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from kernel_rows.row import Case, Goal, Row, on, rand, rotating

HEADS, KV_HEADS, DIM, PAGE = 32, 8, 128, 16


def pages_of(keys: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pages of one sequence, in no order."""
    key, value = (rand(keys // PAGE, KV_HEADS, PAGE, DIM, seed=2 * seed + i) for i in range(2))
    order = torch.randperm(keys // PAGE, generator=torch.Generator().manual_seed(seed))
    return key, value, order.to(torch.int32)[None]


def copies_of(keys: int) -> int:
    return max(1, (200 << 20) // (keys * KV_HEADS * DIM * 4))


def decode(keys: int) -> Case:
    caches = [pages_of(keys, seed) for seed in range(copies_of(keys))]
    q = rand(1, HEADS, DIM)
    starts, lengths = on("musa", torch.tensor([0, 1], dtype=torch.int32), torch.tensor([keys], dtype=torch.int32))

    def paged(q: torch.Tensor, key: torch.Tensor, value: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.musa.paged_attention(q, key, value, table, starts, lengths, 1, keys)[0]
        return out

    def plain(q: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, key, value, enable_gqa=True)

    rows = [[t.view(1, KV_HEADS, keys, DIM) for t in cache[:2]] for cache in caches]
    return Case(
        musa=rotating(paged, [on("musa", q, *cache) for cache in caches]),
        rivals={"torch": rotating(plain, [(q[:, :, None], *cache) for cache in rows])},
        bytes=caches[0][0].nbytes * 2,
    )


def prefill() -> Case:
    tokens = 2048
    q, k, v = (
        t.transpose(0, 1).contiguous() for t in on("musa", *(rand(HEADS, tokens, DIM, seed=s) for s in range(3)))
    )
    k, v = k[:, :KV_HEADS].contiguous(), v[:, :KV_HEADS].contiguous()
    key, value, table = on("musa", *pages_of(tokens, 0))
    starts, lengths = on(
        "musa", torch.tensor([0, tokens], dtype=torch.int32), torch.tensor([tokens], dtype=torch.int32)
    )
    return Case(
        musa=lambda: torch.ops.musa.paged_attention(q, key, value, table, starts, lengths, tokens, tokens, right=0),
        rivals={"rows": lambda: torch.ops.musa.attention_varlen(q, k, v, starts, starts, tokens, tokens, right=0)},
    )


def append(tokens: int = 2048) -> Case:
    caches = [pages_of(tokens, seed)[:2] for seed in range(copies_of(tokens))]
    rows = on("musa", *(rand(tokens, KV_HEADS, DIM, seed=seed) for seed in range(2)))
    (slots,) = on("musa", torch.arange(tokens))
    return Case(
        musa=rotating(torch.ops.musa.kv_append, [(*on("musa", *cache), *rows, slots) for cache in caches]),
        rivals={},
        bytes=rows[0].nbytes * 4,
    )


def gather(tokens: int = 2048) -> Case:
    caches = [pages_of(tokens, seed) for seed in range(copies_of(tokens))]
    (lengths,) = on("musa", torch.tensor([tokens], dtype=torch.int32))
    return Case(
        musa=rotating(torch.ops.musa.kv_gather, [(*on("musa", *cache), lengths, tokens) for cache in caches]),
        rivals={},
        bytes=caches[0][0].nbytes * 4,
    )


def rows() -> Iterator[Row]:
    for keys in (4096, 32768):
        yield Row(
            f"paged attention decode 32/8 heads {keys // 1024}k bf16",
            (Goal(20, "torch"),),
            lambda keys=keys: decode(keys),
        )
    yield Row("paged attention prefill 2048 32/8 heads bf16", (Goal(1 / 1.2, "rows"),), prefill)
    yield Row("kv append 2048 tokens bf16", (Goal(0.6, "B"),), append)
    yield Row("kv gather 2048 tokens bf16", (Goal(0.6, "B"),), gather)
