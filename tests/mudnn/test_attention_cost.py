"""What the virtual clock counts for torch.ops.musa.attention and attention_varlen.

float64 is slow on the modelled card: its time is that of the arithmetic, i.e. of the pairs that attend.
"""

import itertools
from collections.abc import Callable
from functools import cache

import pytest
import torch
import torch.nn.functional as F

ops = torch.ops.musa
H, KV, E, EV = 8, 1, 64, 32


def counted(function: Callable[[], object]) -> tuple[int, int]:
    """Virtual nanoseconds and bytes of the one attention that `function` calls."""
    torch.musa.reset_op_statistics()
    function()
    (entry,) = (op for op in torch.musa.op_statistics() if "attention" in op.name)
    return entry.device_ns, entry.bytes


def inputs(queries: int, keys: int, dtype: torch.dtype = torch.float64, batch: int = 1) -> list[torch.Tensor]:
    shapes = [(batch, H, queries, E), (batch, KV, keys, E), (batch, KV, keys, EV)]
    return [torch.zeros(shape, dtype=dtype, device="musa") for shape in shapes]


@cache
def launch_and_pair() -> tuple[float, float]:
    """Nanoseconds of a launch, and of one pair in all heads."""
    small, large = (counted(lambda n=n: ops.attention(*inputs(n, n)))[0] for n in (64, 128))
    pair = (large - small) / (128 * 128 - 64 * 64)
    return small - pair * 64 * 64, pair


def pairs(nanoseconds: int) -> float:
    launch, pair = launch_and_pair()
    return (nanoseconds - launch) / pair


def visible(queries: int, keys: int, left: int, right: int, global_keys: int, align_end: bool) -> torch.Tensor:
    position = torch.arange(queries).unsqueeze(1) + (keys - queries if align_end else 0)
    key = torch.arange(keys)
    live = torch.ones(queries, keys, dtype=torch.bool)
    if left >= 0:
        live &= (key >= position - left) | (key < global_keys)
    if right >= 0:
        live &= key <= position + right
    return live


@pytest.mark.parametrize("sizes", [(40, 40), (30, 55), (55, 30)], ids=str)
@pytest.mark.parametrize("align_end", [True, False])
def test_pairs_and_keys_that_the_window_hides_cost_nothing(sizes: tuple[int, int], align_end: bool) -> None:
    q, k, v = inputs(*sizes)
    for left, right, global_keys in itertools.product((-1, 4, 11), (-1, 0, 7), (0, 6)):
        options = {"left": left, "right": right, "global_keys": global_keys, "align_end": align_end}
        live = visible(*sizes, **options)
        time, size = counted(lambda o=options: ops.attention(q, k, v, **o))
        assert pairs(time) == pytest.approx(live.sum().item(), abs=1), options
        keys = live.any(0).sum().item()
        assert size == H * sizes[0] * ((E + EV) * 8 + 4) + KV * keys * (E + EV) * 8, options


def test_causal_counts_as_much_as_scaled_dot_product_attention_does() -> None:
    q, k, _ = inputs(60, 60)
    want, _ = counted(lambda: F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True))
    assert counted(lambda: ops.attention(q, k, k, right=0))[0] == want


def test_masks_and_sinks_are_read() -> None:
    q, k, v = inputs(4, 9)
    _, plain = counted(lambda: ops.attention(q, k, v))
    mask = torch.zeros(4, 9, device="musa")
    blocks = torch.ones(1, 1, 1, 1, dtype=torch.bool, device="musa")
    sinks = torch.zeros(H, device="musa")
    _, full = counted(lambda: ops.attention(q, k, v, mask=mask, block_mask=blocks, sinks=sinks))
    assert full - plain == 4 * 9 * 4 + 1 + H * 4


@pytest.mark.parametrize("window", [{}, {"right": 0}, {"left": 3, "right": 0}], ids=str)
def test_sequences_count_as_so_many_of_equal_length(window: dict[str, int]) -> None:
    q, k, v = inputs(30, 50, batch=2)
    starts, key_starts = (torch.tensor([0, n, 2 * n], dtype=torch.int32, device="musa") for n in (30, 50))
    flat = [t.transpose(1, 2).reshape(-1, t.shape[1], t.shape[3]) for t in (q, k, v)]
    time, size = counted(lambda: ops.attention(q, k, v, **window))
    have = counted(lambda: ops.attention_varlen(*flat, starts, key_starts, 30, 50, **window))
    assert have == (time, size + 2 * 3 * 4)


def test_a_decoded_token_costs_the_window_and_not_the_cache() -> None:
    q, k, v = inputs(1, 8192, torch.bfloat16)
    time, size = counted(lambda: ops.attention(q, k, v, right=0))
    short, small = counted(lambda: ops.attention(q, k, v, left=127, right=0))
    assert size > 20 * small
    assert time > short
