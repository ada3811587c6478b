"""Tests that find out whether tokens follow the distribution they should.

Knows counts and probabilities. Must not know where they come from.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Cell = TypeVar("Cell", bound=Hashable)


@dataclass(frozen=True, slots=True)
class TestResult:
    """The outcome of a test of "these tokens follow this distribution"."""

    __test__ = False  # no test case, whatever pytest thinks of the name

    statistic: float
    degrees: int  # of freedom
    p_value: float  # how likely a statistic this large is when they do


def g_test(counts: Mapping[Cell, int], probabilities: Mapping[Cell, float], least_expected: float = 5.0) -> TestResult:
    """Compare counts with exact probabilities by the likelihood ratio, 2 * sum(count * log(count / expected)).

    Args:
        counts: how often each cell was seen.
        probabilities: of each cell; adding up to 1.
        least_expected: cells with a smaller expected count are put together into one.

    Returns:
        The test's result; the p-value is 0 when a cell was seen that is impossible.
    """
    total = sum(counts.values())
    if any(probabilities.get(cell, 0.0) == 0.0 for cell, count in counts.items() if count):
        return TestResult(math.inf, 0, 0.0)
    groups: list[tuple[float, float]] = []  # expected, seen
    rare_expected = rare_seen = 0.0
    for cell, probability in probabilities.items():
        expected, seen = probability * total, counts.get(cell, 0)
        if expected >= least_expected:
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

    The regularised upper incomplete gamma function Q(degrees / 2, statistic / 2): its series where that converges
    fast, its continued fraction elsewhere (Abramowitz and Stegun, 6.5.29 and 6.5.31).
    """
    shape, bound = degrees / 2, statistic / 2
    if bound <= 0:
        return 1.0
    if math.isinf(bound):
        return 0.0
    front = math.exp(shape * math.log(bound) - bound - math.lgamma(shape))
    if bound < shape + 1:
        term = total = 1 / shape
        step = shape
        while abs(term) > 1e-15 * abs(total):
            step += 1
            term *= bound / step
            total += term
        return max(0.0, 1 - front * total)
    # Lentz's method for the continued fraction.
    below = bound + 1 - shape
    above, inverse = 1e300, 1 / below
    total = inverse
    for step in range(1, 10_000):
        factor = -step * (step - shape)
        below += 2
        inverse = 1 / (factor * inverse + below)
        above = below + factor / above
        total *= above * inverse
        if abs(above * inverse - 1) < 1e-15:
            break
    return float(min(1.0, front * total))


def uniformity_test(values: np.ndarray, bins: int = 20) -> TestResult:
    """Test by chi-square whether values in [0, 1) are uniform; `values` is [n]."""
    counts = np.bincount(np.minimum((values * bins).astype(int), bins - 1), minlength=bins)
    expected = len(values) / bins
    statistic = float(((counts - expected) ** 2).sum() / expected)
    return TestResult(statistic, bins - 1, chi_square_tail(statistic, bins - 1))


def mean_test(values: np.ndarray) -> TestResult:
    """Test whether the mean of values in [0, 1) is that of uniform ones; `values` is [n]. The statistic is z."""
    z = float((values.mean() - 0.5) * math.sqrt(12 * len(values)))
    return TestResult(z, 1, math.erfc(abs(z) / math.sqrt(2)))
