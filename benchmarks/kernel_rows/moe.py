"""Mixtures of experts: the choice of experts and their work."""

from collections.abc import Iterator

import torch

from kernel_rows.row import Case, Goal, Row, on, rand


def routing(tokens: int, experts: int, top_k: int) -> Case:
    logits = rand(tokens, experts, dtype=torch.float32)
    (device,) = on("musa", logits)
    return Case(
        musa=lambda: torch.ops.musa.route_experts(device, top_k),
        rivals={"torch": lambda: logits.softmax(-1).topk(top_k)},
        bytes=logits.nbytes,
    )


def rows() -> Iterator[Row]:
    yield Row("routing 4096x256 top-8", (Goal(5, "torch"),), lambda: routing(4096, 256, 8))
