"""Sums over repeated rows are the same in every run and for every thread count, or greedy decoding would not be."""

import pytest
import torch

TOKENS, TOP_K, HIDDEN = 257, 4, 64


def rows_and_source(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    rows = torch.arange(TOKENS).repeat_interleave(TOP_K)
    order = torch.randperm(TOKENS * TOP_K, generator=generator)
    return rows[order].to("musa"), torch.randn(TOKENS * TOP_K, HIDDEN, generator=generator).to("musa", dtype)


def zeros(like: torch.Tensor) -> torch.Tensor:
    return torch.zeros(TOKENS, HIDDEN, dtype=like.dtype, device=like.device)


def embedding_gradient(rows: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    weight = zeros(source).requires_grad_()
    return torch.autograd.grad(torch.nn.functional.embedding(rows, weight), weight, source)[0]


def index_gradient(rows: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    table = zeros(source).requires_grad_()
    return torch.autograd.grad(table[rows], table, source)[0]


def spread(rows: torch.Tensor) -> torch.Tensor:
    return rows[:, None].expand(-1, HIDDEN)


ACCUMULATE = {
    "index_add": lambda rows, source: zeros(source).index_add(0, rows, source),
    "index_add_alpha": lambda rows, source: zeros(source).index_add(0, rows, source, alpha=2) / 2,
    "index_put": lambda rows, source: zeros(source).index_put_((rows,), source, accumulate=True),
    "scatter_add": lambda rows, source: zeros(source).scatter_add(0, spread(rows), source),
    "scatter_reduce": lambda rows, source: zeros(source).scatter_reduce(0, spread(rows), source, "sum"),
    "embedding_gradient": embedding_gradient,
    "index_gradient": index_gradient,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ACCUMULATE)
def test_runs_and_thread_counts_agree_bit_for_bit(name, dtype):
    rows, source = rows_and_source(dtype)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 1, 2):
            torch.set_num_threads(threads)
            found.append(ACCUMULATE[name](rows, source).cpu())
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("name", ACCUMULATE)
def test_value(name):
    rows, source = rows_and_source(torch.float32)
    expected = torch.zeros(TOKENS, HIDDEN, dtype=torch.float64).index_add(0, rows.cpu(), source.cpu().double())
    torch.testing.assert_close(ACCUMULATE[name](rows, source).cpu().double(), expected, rtol=1e-5, atol=1e-5)
