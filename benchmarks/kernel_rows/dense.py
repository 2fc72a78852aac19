"""Matrix products."""

from collections.abc import Iterator

import torch

from kernel_rows.row import Case, Goal, Row, on, rand, rotating

WIDTH = 4096
COPIES = 5  # of the weight: 160 MiB in bfloat16, more than any cache


def linear(rows: int, dtype: torch.dtype, by_rows: bool = False) -> Case:
    """WIDTH x WIDTH, weights from memory. by_rows: the weight is [in, out], as in x @ w."""
    x = rand(rows, WIDTH, dtype=dtype)
    weights = [rand(WIDTH, WIDTH, dtype=dtype, seed=i) for i in range(COPIES)]
    (device,) = on("musa", x)
    on_card = on("musa", *weights)
    function = torch.mm if by_rows else torch.nn.functional.linear
    return Case(
        musa=rotating(function, [(device, weight) for weight in on_card]),
        rivals={"torch": rotating(function, [(x, weight) for weight in weights])},
        bytes=weights[0].nbytes,
        flops=2 * rows * WIDTH * WIDTH,
        dtype=dtype,
        calls=COPIES if rows < 64 else 1,
    )


def gemm(size: int, dtype: torch.dtype) -> Case:
    a, b = rand(size, size, dtype=dtype), rand(size, size, dtype=dtype, seed=1)
    x, y = on("musa", a, b)
    return Case(
        musa=lambda: torch.mm(x, y),
        rivals={"torch": lambda: torch.mm(a, b)},
        flops=2 * size**3,
        dtype=dtype,
    )


def rows() -> Iterator[Row]:
    bf16, fp32 = torch.bfloat16, torch.float32
    yield Row("linear bf16 M=1", (Goal(0.85, "B"), Goal(2.5, "torch")), lambda: linear(1, bf16))
    yield Row("linear bf16 M=4", (Goal(1.8, "torch"),), lambda: linear(4, bf16))
    yield Row("linear bf16 M=16", (Goal(0.65, "F"), Goal(1, "torch")), lambda: linear(16, bf16))
    for m in (64, 512):
        yield Row(f"linear bf16 M={m}", (Goal(1, "torch"),), lambda m=m: linear(m, bf16))
    for m in (1, 16, 64):
        yield Row(f"x @ w bf16 M={m}", (Goal(1, "torch"),), lambda m=m: linear(m, bf16, by_rows=True))
    for m in (1, 16):
        yield Row(f"linear fp32 M={m}", (Goal(1, "torch"),), lambda m=m: linear(m, fp32))
    yield Row("GEMM bf16 2048^3", (Goal(0.88, "F"), Goal(1, "torch")), lambda: gemm(2048, bf16))
    yield Row("GEMM fp32 2048^3", (Goal(0.73, "F"), Goal(1, "torch")), lambda: gemm(2048, fp32))
