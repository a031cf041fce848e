"""Statistical tests of random number generators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

Generator: TypeAlias = "Callable[[int], np.ndarray]"
Bucket: TypeAlias = "float | tuple[float, float]"


def gen_buckets_probs_with_ppf(
    ppf: Callable[[float], float], nbuckets: int
) -> tuple[list[tuple[float, float]], list[float]]:
    """Intervals of equal probability, and the probabilities.

    ppf : the inverse of the distribution function
    """
    if nbuckets < 1:
        raise ValueError(f"{nbuckets} is not a number of buckets")
    edges = [ppf(number / nbuckets) for number in range(nbuckets + 1)]
    return list(zip(edges, edges[1:])), [1 / nbuckets] * nbuckets


def mean_check(generator: Generator, mu: float, sigma: float, nsamples: int = 1000000) -> bool:
    """Whether the mean of samples is within three standard errors of `mu`."""
    return bool(abs(np.array(generator(nsamples)).mean() - mu) < 3 * sigma / np.sqrt(nsamples))


def var_check(generator: Generator, sigma: float, nsamples: int = 1000000) -> bool:
    """Whether the variance of normal samples is within three standard errors of sigma squared."""
    variance = np.array(generator(nsamples)).var(ddof=1)
    return bool(abs(variance - sigma**2) < 3 * np.sqrt(2 * sigma**4 / (nsamples - 1)))


def chi_square_check(
    generator: Generator, buckets: Sequence[Bucket], probs: Sequence[float], nsamples: int = 1000000
) -> tuple[float, np.ndarray, np.ndarray]:
    """Pearson's chi-square test. Returns the p value, the counts, and the expected counts.

    generator : gives n samples
    buckets : intervals (low, high), or single values of a discrete distribution
    probs : the probability of each bucket
    """
    import scipy.stats

    samples = np.array(generator(nsamples)).reshape(-1)
    counts = np.array([_count(samples, bucket) for bucket in buckets])
    expected = np.asarray(probs, "float64") * nsamples
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return float(scipy.stats.chi2.sf(statistic, len(expected) - 1)), counts, expected


def _count(samples: np.ndarray, bucket: Bucket) -> int:
    if isinstance(bucket, (list, tuple)):
        low, high = bucket
        return int(np.count_nonzero((samples >= low) & (samples < high)))
    return int(np.count_nonzero(samples == bucket))


def verify_generator(
    generator: Generator,
    buckets: Sequence[Bucket],
    probs: Sequence[float],
    nsamples: int = 1000000,
    nrepeat: int = 5,
    success_rate: float = 0.2,
    alpha: float = 0.05,
) -> list[float]:
    """Raise AssertionError if less than a part `success_rate` of `nrepeat` chi-square tests has p > `alpha`."""
    runs = [chi_square_check(generator, buckets, probs, nsamples) for _ in range(nrepeat)]
    values = [value for value, _, _ in runs]
    if sum(value > alpha for value in values) < nrepeat * success_rate:
        raise AssertionError(
            f"the generator has another distribution: p values {values}\n"
            f"counts {[each.tolist() for _, each, _ in runs]}\nexpected {[each.tolist() for _, _, each in runs]}\n"
            f"buckets {buckets}\nprobabilities {probs}"
        )
    return values
