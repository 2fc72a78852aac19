"""The choice of the next token."""

from collections.abc import Iterator

import torch

from kernel_rows.row import Case, Goal, Row, on, rand

VOCABULARY = 151936


def by_sorting(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """As stock samplers do it: sort, softmax, running sum, back to the order of ids, draw."""
    ordered, order = logits.sort(descending=True)
    probabilities = ordered.softmax(-1)
    beyond = probabilities.cumsum(-1) - probabilities > top_p
    probabilities = probabilities.masked_fill(beyond, 0)
    return order.gather(-1, torch.multinomial(probabilities, 1)).squeeze(-1)


def sampling(rows: int, **limits: float) -> Case:
    logits = rand(rows, VOCABULARY, dtype=torch.float32)
    (device,) = on("musa", logits)
    options = {name: torch.full((rows,), value, device="musa") for name, value in limits.items()}
    seeds = torch.arange(rows, device="musa")
    return Case(
        musa=lambda: torch.ops.musa.sample(device, seeds=seeds, **options),
        rivals={"sort": lambda: by_sorting(logits, limits["top_p"])},
        bytes=logits.nbytes,
    )


def greedy(rows: int) -> Case:
    logits = rand(rows, VOCABULARY, dtype=torch.float32)
    (device,) = on("musa", logits)
    return Case(
        musa=lambda: torch.ops.musa.sample(device),
        rivals={"torch": lambda: logits.argmax(-1)},
        bytes=logits.nbytes,
    )


def rows() -> Iterator[Row]:
    yield Row("sampling top-p V=151936 T=16", (Goal(20, "sort"),), lambda: sampling(16, top_p=0.9))
    yield Row("sampling argmax V=151936 T=16", (Goal(1, "torch"),), lambda: greedy(16))
