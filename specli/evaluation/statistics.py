"""Tests of whether tokens follow the distribution they should, and what such a test can detect."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

import numpy as np

Cell = TypeVar("Cell", bound=Hashable)


@dataclass(frozen=True, slots=True)
class TestResult:
    """The outcome of a test of "these tokens follow this distribution"."""

    __test__ = False  # not a test case, despite its name

    statistic: float
    degrees: int  # of freedom
    p_value: float  # how likely a statistic this large is when they do


def g_test(counts: Mapping[Cell, int], probabilities: Mapping[Cell, float], min_expected: float = 5.0) -> TestResult:
    """Compare counts with exact probabilities by the likelihood ratio, 2 * sum(count * log(count / expected)).

    The probabilities add up to 1. Cells with an expected count below `min_expected` are pooled into one. The p-value is
    0 when an impossible cell was seen.
    """
    total = sum(counts.values())
    if any(probabilities.get(cell, 0.0) == 0.0 for cell, count in counts.items() if count):
        return TestResult(math.inf, 0, 0.0)
    groups: list[tuple[float, float]] = []  # expected, seen
    rare_expected = rare_seen = 0.0
    for cell, probability in probabilities.items():
        expected, seen = probability * total, counts.get(cell, 0)
        if expected >= min_expected:
            groups.append((expected, seen))
        else:
            rare_expected, rare_seen = rare_expected + expected, rare_seen + seen
    if rare_expected > 0:
        groups.append((rare_expected, rare_seen))
    statistic = 2 * sum(seen * math.log(seen / expected) for expected, seen in groups if seen)
    degrees = max(len(groups) - 1, 1)
    return TestResult(statistic, degrees, chi_square_tail(statistic, degrees))


def chi_square_tail(statistic: float, degrees: int) -> float:
    """Return the probability that a chi-square variable exceeds the statistic.

    A finite sum, two degrees of freedom at a time (Abramowitz and Stegun, 26.4.4 and 26.4.5).
    """
    if statistic <= 0 or math.isinf(statistic):
        return float(statistic <= 0)
    first = degrees % 2 / 2
    tail = math.erfc(math.sqrt(statistic / 2)) if first else 0.0
    return min(1.0, tail + sum(_poisson(first + count, statistic / 2) for count in range(degrees // 2)))


def _poisson(count: float, mean: float) -> float:
    """Return the probability of a count of the Poisson distribution, continued to counts between whole numbers."""
    return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def uniformity_test(values: np.ndarray, bins: int = 20) -> TestResult:
    """Test by chi-square whether values in [0, 1) are uniform; `values` is [n]."""
    counts = histogram(values, bins)
    expected = len(values) / bins
    statistic = float(((counts - expected) ** 2).sum() / expected)
    return TestResult(statistic, bins - 1, chi_square_tail(statistic, bins - 1))


def histogram(values: np.ndarray, bins: int = 20) -> np.ndarray:
    """Count the values in [0, 1) in equal bins; [n] to [bins]."""
    return np.bincount(np.minimum((values * bins).astype(int), bins - 1), minlength=bins)


def mean_test(values: np.ndarray, variances: np.ndarray | float = 1 / 12) -> TestResult:
    """Test whether values [n] have mean 0.5, given variances [n], or one for all; the statistic is z."""
    spread = math.sqrt(float(np.broadcast_to(variances, values.shape).sum()))
    z = float((values - 0.5).sum()) / spread if spread > 0 else 0.0
    return TestResult(z, 1, math.erfc(abs(z) / math.sqrt(2)))


def detectable_shift(variances: np.ndarray, significance: float, power: float = 0.9) -> float:
    """Return the smallest shift of a mean that `mean_test` detects with this power; `variances` is [n]."""
    normal = NormalDist()
    errors = normal.inv_cdf(1 - significance / 2) + normal.inv_cdf(power)
    return errors * math.sqrt(float(variances.sum())) / len(variances)


def detectable_variation(total: int, degrees: int, significance: float, power: float = 0.9) -> float:
    """Return a total variation that a chi-square or G-test detects with this power, however it is spread.

    With `total` observations, a total variation of d makes the noncentrality at least 4 * total * d**2 (Cauchy and
    Schwarz); the noncentrality that is needed is found by bisection.
    """
    bound = _smallest(lambda value: chi_square_tail(value, degrees) <= significance)
    noncentrality = _smallest(lambda value: _noncentral_tail(bound, degrees, value) >= power)
    return math.sqrt(noncentrality / (4 * total))


def _smallest(enough: Callable[[float], bool]) -> float:
    """Return the smallest positive number that is enough; larger ones must be, too."""
    low, high = 0.0, 1.0
    while not enough(high):
        low, high = high, 2 * high
    for _ in range(50):
        value = (low + high) / 2
        low, high = (low, value) if enough(value) else (value, high)
    return high


def _noncentral_tail(bound: float, degrees: int, noncentrality: float) -> float:
    """Return how probably a noncentral chi-square variable exceeds the bound: a Poisson mixture of central ones."""
    center = noncentrality / 2
    tail, total = chi_square_tail(bound, degrees), 0.0
    for count in range(int(center + 8 * math.sqrt(center)) + 12):
        total += _poisson(count, center) * tail
        tail += _poisson(degrees / 2 + count, bound / 2)  # two more degrees of freedom
    return total
