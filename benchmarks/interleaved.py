"""Timing of several ways to do the same thing, side by side in one process."""

import time
from collections.abc import Callable, Sequence

Batch = Callable[[int], int]


def least_times(sides: Sequence[Batch], calls: int, seconds: float) -> list[float]:
    """Least CPU time of one call in ns for each side, from alternating batches for about `seconds` of wall time.

    sides: functions that make n calls and return the CPU time of all of them in ns. Least, because whatever disturbs a
    batch only adds.
    """
    for side in sides:  # warm-up: caches, lazy initialisation, the card's first touch of its memory
        side(calls)
        side(calls)
    least = [float("inf")] * len(sides)
    order = list(range(len(sides)))
    end, batches = time.monotonic() + seconds, 0
    while batches < 8 or time.monotonic() < end:
        for which in order if batches % 2 else reversed(order):
            least[which] = min(least[which], sides[which](calls) / calls)
        batches += 1
    return least


def shown(ns: float) -> str:
    return f"{ns / 1e6:.2f} ms" if ns >= 1e6 else f"{ns / 1e3:.2f} us"
