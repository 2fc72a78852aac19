"""torch.ops.musa.paged_attention: attention over a cache in pages."""

import random
from typing import Any

import pytest
import torch
from accuracy import assert_as_accurate

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ops = torch.ops.musa


def randn(*size: int, dtype: torch.dtype) -> torch.Tensor:
    seed = random.randrange(2**31)
    print("seed", seed)
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Cache:
    """Sequences of `lengths` in pages whose other slots hold NaN, and what lies in them in plain order."""

    def __init__(self, lengths: list[int], heads: int, dim: int, value_dim: int, size: int, dtype: torch.dtype) -> None:
        need = [-(-n // size) for n in lengths]
        free = torch.randperm(sum(need) + 1, generator=torch.Generator().manual_seed(3)).tolist()
        self.table = torch.full((len(lengths), max(need)), -1, dtype=torch.int32)
        slots = []
        for i, (length, count) in enumerate(zip(lengths, need, strict=True)):
            pages = [free.pop() for _ in range(count)]
            self.table[i, :count] = torch.tensor(pages, dtype=torch.int32)
            slots += [pages[t // size] * size + t % size for t in range(length)]
        self.lengths = torch.tensor(lengths, dtype=torch.int32)
        self.keys = randn(sum(lengths), heads, dim, dtype=dtype)
        self.values = randn(sum(lengths), heads, value_dim, dtype=dtype)
        self.key_pages, self.value_pages = (
            torch.full((sum(need) + 1, heads, size, n), float("nan"), dtype=dtype) for n in (dim, value_dim)
        )
        ops.kv_append(self.key_pages, self.value_pages, self.keys, self.values, torch.tensor(slots))

    def on(self, device: str) -> tuple[torch.Tensor, ...]:
        return tuple(t.to(device) for t in (self.key_pages, self.value_pages, self.table))


def starts_of(counts: list[int]) -> torch.Tensor:
    return torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=torch.int32)


def attend(cache: Cache, query: torch.Tensor, counts: list[int], device: str = "musa", **options: Any) -> Any:
    given = [t.to(device) for t in (starts_of(counts), cache.lengths)]
    most = int(cache.lengths.max())
    return ops.paged_attention(query.to(device), *cache.on(device), *given, max(counts), most, **options)


def exactly(cache: Cache, query: torch.Tensor, counts: list[int], dtype: torch.dtype, **options: Any) -> Any:
    """The formula over the keys and values in plain order."""
    starts = starts_of(cache.lengths.tolist())
    sinks = options.pop("sinks", None)
    return ops.attention_varlen(
        query.to(dtype), cache.keys.to(dtype), cache.values.to(dtype), starts_of(counts), starts, max(counts),
        int(cache.lengths.max()), sinks=None if sinks is None else sinks.to(dtype), **options,
    )  # fmt: skip


OPTIONS = [
    {},
    {"left": 20, "right": 0},
    {"left": 3, "right": 0, "global_keys": 5},
    {"scale": 0.3, "softcap": 2.0, "right": 0},
    {"sinks": torch.tensor([0.5, -1.0, 2.0, 0.0])},
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
@pytest.mark.parametrize(
    ("counts", "lengths", "dim", "value_dim", "size"),
    [
        ([1, 1, 1, 1], [1, 40, 0, 129], 64, 64, 16),  # one token each
        ([1, 3, 1], [17, 50, 33], 34, 6, 32),  # a few, odd sizes
        ([20, 1, 0, 90], [150, 77, 5, 90], 80, 96, 16),  # a part of a prompt, a token, nothing, a whole prompt
    ],
)
def test_values_are_as_accurate_as_the_formula(
    dtype: torch.dtype,
    options: dict[str, Any],
    counts: list[int],
    lengths: list[int],
    dim: int,
    value_dim: int,
    size: int,
) -> None:
    moved = {name: x.to("musa") if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    found = []
    # The errors of a few numbers are chance: some thousands are judged together.
    for _ in range(1 + 4096 // (sum(counts) * 4 * value_dim)):
        cache = Cache(lengths, 2, dim, value_dim, size, dtype)
        query = randn(sum(counts), 4, dim, dtype=dtype)
        out, logsumexp = attend(cache, query, counts, **moved)
        exact, exact_sum = exactly(cache, query, counts, torch.float64, **options)
        rounded, _ = exactly(cache, query, counts, dtype, **options)
        found.append((out.cpu(), rounded, exact))
        torch.testing.assert_close(
            logsumexp.cpu(), exact_sum.float(), rtol=1e-2 if dtype == torch.bfloat16 else 1e-3, atol=1e-2
        )
    assert_as_accurate(*(torch.cat(parts) for parts in zip(*found, strict=True)))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
def test_the_reference_is_the_formula_over_plain_rows(dtype: torch.dtype) -> None:
    cache = Cache([40, 3], 2, 8, 6, 16, dtype)
    query = randn(5, 4, 8, dtype=dtype)
    got = attend(cache, query, [4, 1], "cpu", right=0)
    for a, b in zip(got, exactly(cache, query, [4, 1], dtype, right=0), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_contexts_are_the_same_for_any_number_of_threads(dtype: torch.dtype) -> None:
    cache = Cache([5000, 2049], 1, 32, 32, 16, dtype)
    query = randn(2, 2, 32, dtype=dtype)
    threads = torch.get_num_threads()
    results = []
    try:
        for n in (1, 2, 2):
            torch.set_num_threads(n)
            results.append(attend(cache, query, [1, 1]))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert torch.equal(results[0][0], other[0])
        assert torch.equal(results[0][1], other[1])
    exact, _ = exactly(cache, query, [1, 1], torch.float64)
    rounded, _ = exactly(cache, query, [1, 1], dtype)
    assert_as_accurate(results[0][0], rounded, exact)


@pytest.mark.parametrize("device", ["cpu", "musa"])
def test_what_does_not_fit_is_named(device: str) -> None:
    cache = Cache([40, 3], 2, 8, 8, 16, torch.float32)
    query = torch.zeros(2, 4, 8)
    cache.table[0, 1] = 99
    with pytest.raises(IndexError, match="entry 1 of sequence 0 in the page table is page 99"):
        attend(cache, query, [1, 1], device)
    cache.table[0, 1] = 0
    with pytest.raises(ValueError, match="0 to the number of tokens, 2, got 0 to 3"):
        attend(cache, query, [1, 2], device)
    with pytest.raises(ValueError, match="kv heads that divide heads"):
        attend(cache, torch.zeros(2, 3, 8), [1, 1], device)
    cache.lengths[1] = 49
    with pytest.raises(IndexError, match=r"sequence 1 has length 49, but the page table holds 0 \.\. 48"):
        attend(cache, query, [1, 1], device)


def test_a_captured_graph_looks_at_lengths_at_replay() -> None:
    cache = Cache([40], 2, 64, 64, 16, torch.bfloat16)
    query = randn(1, 4, 64, dtype=torch.bfloat16)
    pages = cache.on("musa")
    q, starts, lengths = (t.to("musa") for t in (query, starts_of([1]), torch.tensor([1], dtype=torch.int32)))
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        out, _ = ops.paged_attention(q, *pages, starts, lengths, 1, 48)
    for n in (7, 40):
        lengths.fill_(n)
        graph.replay()
        torch.musa.synchronize()
        assert torch.equal(out, ops.paged_attention(q, *pages, starts, lengths, 1, 48)[0])
        assert not out.isnan().any()
