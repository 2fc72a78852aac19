"""Norms, activations and the other work between the products."""

from collections.abc import Iterator

import torch

from kernel_rows.row import Case, Goal, Row, on, rand

WIDTH = 4096


def swiglu(tokens: int) -> Case:
    x = rand(tokens, 2 * WIDTH)
    gate, up = x.chunk(2, -1)
    (device,) = on("musa", x)
    silu = torch.nn.functional.silu
    return Case(
        musa=lambda: torch.ops.musa.silu_and_mul(device),
        rivals={"torch": lambda: silu(gate) * up},
        bytes=x.nbytes * 1.5,
        calls=max(1, 2048 // tokens),
    )


def rows() -> Iterator[Row]:
    yield Row("SwiGLU bf16 T=1", (Goal(2, "torch"),), lambda: swiglu(1))
    yield Row("SwiGLU bf16 T=2048", (Goal(8, "torch"),), lambda: swiglu(2048))
