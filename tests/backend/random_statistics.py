"""Test statistics for random numbers, and Philox4x32-10 in numpy. No scipy: the limits are textbook approximations."""

import numpy as np

PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Random words of each counter. `counter`: uint32, (n, 4); `key`: two 32-bit words. Result: uint32, (n, 4)."""
    words = counter.astype(np.uint64).T.copy()
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    keys = list(key)
    for _ in range(10):
        first = words[0] * np.uint64(PHILOX_MULTIPLIERS[0])
        second = words[2] * np.uint64(PHILOX_MULTIPLIERS[1])
        words = np.stack(
            [
                (second >> shift) ^ words[1] ^ np.uint64(keys[0]),
                second & low,
                (first >> shift) ^ words[3] ^ np.uint64(keys[1]),
                first & low,
            ]
        )
        keys = [(k + w) & 0xFFFFFFFF for k, w in zip(keys, PHILOX_WEYL, strict=True)]
    return words.T.astype(np.uint32)


def kolmogorov_smirnov(sample: np.ndarray, cdf) -> float:
    """sqrt(n) times the largest distance between the sample's and the exact distribution function.

    For a continuous distribution it exceeds 1.95 with probability 2 exp(-2 * 1.95 ** 2) = 0.001 (Kolmogorov 1933).
    """
    values = np.sort(np.asarray(sample, dtype=np.float64).ravel())
    count = len(values)
    exact = np.asarray(cdf(values), dtype=np.float64)
    above = np.arange(1, count + 1) / count - exact
    below = exact - np.arange(count) / count
    return float(np.sqrt(count) * max(above.max(), below.max()))


def chi_square(counts, probabilities) -> float:
    """Pearson's statistic as a standard normal number (Wilson and Hilferty 1931); above 3.1 with probability 0.001.

    `counts` and `probabilities` have one entry per class; what the probabilities lack to 1 must have no draws. Classes
    that expect fewer than 5 draws are merged into the last one that expects more.
    """
    counts = np.asarray(counts, dtype=np.float64)
    expected = np.asarray(probabilities, dtype=np.float64) * counts.sum()
    rare = expected < 5
    if rare.any():
        merged = expected[~rare].copy(), counts[~rare].copy()
        merged[0][-1] += expected[rare].sum()
        merged[1][-1] += counts[rare].sum()
        expected, counts = merged
    assert abs(expected.sum() / counts.sum() - 1) < 1e-6, "the probabilities do not add up to 1"
    freedom = len(counts) - 1
    statistic = float(((counts - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - spread)) / np.sqrt(spread))
