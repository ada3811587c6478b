"""The statistical tests: known values, the right rate of false alarms, and the power to see a bias."""

from __future__ import annotations

import numpy as np
import pytest

from specli.evaluation.statistics import chi_square_tail, g_test, mean_test, uniformity_test


@pytest.mark.parametrize(
    ("statistic", "degrees", "expected"),
    [(3.841, 1, 0.05), (6.635, 1, 0.01), (18.307, 10, 0.05), (29.588, 10, 0.001), (124.342, 100, 0.05),
     (77.929, 100, 0.95), (1074.68, 1000, 0.05), (0.0, 5, 1.0)],
)  # fmt: skip
def test_chi_square_tail_against_the_printed_tables(statistic, degrees, expected):
    assert chi_square_tail(statistic, degrees) == pytest.approx(expected, rel=2e-3)


def test_chi_square_tail_with_two_degrees_is_an_exponential():
    for statistic in (0.1, 1.0, 5.0, 40.0):
        assert chi_square_tail(statistic, 2) == pytest.approx(np.exp(-statistic / 2), rel=1e-12)


PROBS = {"a": 0.5, "b": 0.3, "c": 0.15, "d": 0.05}


def test_g_test_is_quiet_when_there_is_nothing_and_loud_when_there_is():
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(500):
        counts = dict(zip(PROBS, rng.multinomial(2000, list(PROBS.values())), strict=True))
        alarms += g_test(counts, PROBS).p_value < 0.05
    assert 10 <= alarms <= 45  # 25 expected
    shifted = dict(zip(PROBS, rng.multinomial(20_000, [0.53, 0.27, 0.15, 0.05]), strict=True))
    assert g_test(shifted, PROBS).p_value < 1e-6
    assert g_test({"e": 1, "a": 99}, PROBS).p_value == 0.0


def test_rare_cells_are_put_together():
    probs = dict.fromkeys(range(500), 0.001) | {"rest": 0.5}
    result = g_test({"rest": 60, 3: 20, 4: 20}, probs)
    assert result.degrees == 1


def test_uniform_values():
    rng = np.random.default_rng(2)
    assert min(uniformity_test(rng.random(5000)).p_value, mean_test(rng.random(5000)).p_value) > 0.001
    assert mean_test(rng.random(5000) * 0.96).p_value < 1e-3
    assert uniformity_test(rng.beta(1.2, 1.2, 5000)).p_value < 1e-6
