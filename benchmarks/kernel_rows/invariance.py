"""What it costs that a row doesn't depend on the number of rows."""

from collections.abc import Iterator

import torch

from kernel_rows.row import Call, Case, Goal, Row, on, rand


def invariant(call: Call) -> Call:
    def run() -> object:
        with torch.musa.batch_invariant():
            return call()

    return run


def linear(rows: int) -> Case:
    x, weight = on("musa", rand(rows, 4096), rand(4096, 4096, seed=1))

    def call() -> torch.Tensor:
        return torch.nn.functional.linear(x, weight)

    return Case(musa=invariant(call), rivals={"default": call}, bytes=weight.nbytes, flops=2 * rows * 4096**2)


def attention(queries: int, keys: int) -> Case:
    query, key = on("musa", rand(1, 32, queries, 128), rand(1, 8, keys, 128, seed=1))

    def call() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query, key, key, is_causal=queries > 1, enable_gqa=True)

    return Case(musa=invariant(call), rivals={"default": call}, bytes=2 * key.nbytes)


def rows() -> Iterator[Row]:
    for m, least in ((1, 0.9), (16, 0.85), (512, 0.75)):
        yield Row(f"invariant linear bf16 M={m}", (Goal(least, "default"),), lambda m=m: linear(m))
    yield Row("invariant prompt of 512", (Goal(0.9, "default"),), lambda: attention(512, 512))
    yield Row("invariant decode of 4096 keys", (Goal(0.12, "default"),), lambda: attention(1, 4096))
