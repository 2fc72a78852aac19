"""Matrix products of quantised operands."""

from collections.abc import Iterator

import torch

from kernel_rows.row import Case, Goal, Row, on, rand, rotating

WIDTH = 4096
COPIES = 10  # of the weight: 160 MiB, more than any cache


def int8(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(-128, 128, size, dtype=torch.int8, generator=torch.Generator().manual_seed(seed))


def gemm(size: int) -> Case:
    a, b = int8(size, size), int8(size, size, seed=1)
    x, y = on("musa", a, b)
    return Case(
        musa=lambda: torch._int_mm(x, y),
        rivals={"torch": lambda: torch._int_mm(a, b)},
        flops=2 * size**3,
        dtype=torch.int8,
    )


def w8a8(rows: int) -> Case:
    """The rival is PyTorch's linear in bfloat16."""
    x, scale = rand(rows, WIDTH), torch.full((WIDTH,), 0.01)
    weights = [int8(WIDTH, WIDTH, seed=i) for i in range(COPIES)]
    dense = [weight.bfloat16() for weight in weights[: COPIES // 2]]
    device, scales = on("musa", x, scale)
    return Case(
        musa=rotating(torch.ops.musa.w8a8_linear, [(device, weight, scales) for weight in on("musa", *weights)]),
        rivals={"torch": rotating(torch.nn.functional.linear, [(x, weight) for weight in dense])},
        bytes=weights[0].nbytes,
        flops=2 * rows * WIDTH * WIDTH,
        dtype=torch.int8,
        calls=COPIES if rows < 64 else 1,
    )


def rows() -> Iterator[Row]:
    yield Row("GEMM int8 2048^3", (Goal(0.90, "F"), Goal(1, "torch")), lambda: gemm(2048))
    yield Row("W8A8 linear M=1", (Goal(0.8, "B"),), lambda: w8a8(1))
    for m in (16, 512):
        yield Row(f"W8A8 linear M={m}", (Goal(1, "torch"),), lambda m=m: w8a8(m))
