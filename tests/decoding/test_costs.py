"""What passes cost: interpolated, followed online, and measured again where one was held up."""

from __future__ import annotations

import pytest
from toys import ToyModel

from specli.decoding import costs as costs_module
from specli.decoding.costs import PassCosts, doubtful, measure_costs

TRUE = {1: 60.0, 2: 84.0, 4: 104.0, 8: 115.0, 16: 180.0}


def test_what_looks_too_expensive():
    assert doubtful(TRUE) == []
    assert doubtful(TRUE | {8: 190.0}) == [8]  # more than sixteen rows
    assert doubtful(TRUE | {16: 400.0}) == [16]  # more a row than eight
    assert doubtful(TRUE | {1: 110.0}) == [1]


@pytest.mark.parametrize("held_up", [1, 4, 8, 16])
def test_a_pass_that_was_held_up_is_measured_again(monkeypatch, held_up):
    calls: list[int] = []

    def seconds(model, tokens, rows):
        calls.append(rows)
        return TRUE[rows] + 300.0 * (rows == held_up and calls.count(rows) == 1)

    monkeypatch.setattr(costs_module, "_time_pass", seconds)
    curve = measure_costs(ToyModel(1), None, [1] * 20, rows=tuple(TRUE), repeats=2, seconds=0.0)
    assert curve.target == TRUE
    assert len(calls) <= len(TRUE) + 3


def test_costs_between_and_beyond_what_was_measured():
    costs = PassCosts(0, {1: 1.0, 2: 2.0, 4: 3.0, 12: 6.0, 16: 5.0}, 0.1)
    assert [costs.seconds(rows) for rows in (1, 3, 8, 14, 16)] == [1.0, 2.5, 4.5, 5.5, 5.0]
    assert costs.seconds(48) == 15.0  # not less than sixteen rows
    assert PassCosts(0, {1: 2.0}, 0.1).seconds(3) == 6.0


def test_costs_follow_what_passes_take():
    measured = {1: 1.0, 2: 1.5, 4: 2.0, 8: 4.0}
    costs = PassCosts(0, measured, 0.5)
    assert (costs.seconds(3), costs.seconds(10)) == (1.75, 5.0)
    for _ in range(300):
        costs.observe(1, 2.0, 2, 2.0)
        costs.observe(4, 3.0, 0, 0.0)
    assert costs.seconds(1) == pytest.approx(2.0, rel=0.1)
    assert costs.seconds(4) == pytest.approx(3.0, rel=0.1)
    assert costs.draft_seconds == pytest.approx(1.0, rel=0.05)
    assert costs == PassCosts(0, measured, 0.5)  # what was measured stays


def test_one_pass_that_was_held_up_hardly_counts():
    costs = PassCosts(0, {1: 1.0, 2: 1.5}, 0.5)
    assert costs.observe(1, 100.0, 1, 50.0) == (100.0, 50.0)
    assert costs.seconds(1) == pytest.approx(1.0, rel=0.05)
    assert costs.draft_seconds == pytest.approx(0.5, rel=0.05)


def test_without_learning_the_clock_does_not_matter():
    costs = PassCosts(0, {1: 1.0, 2: 1.5}, 0.5, learns=False)
    assert costs.observe(2, 99.0, 2, 99.0) == (1.5, 1.0)
    assert (costs.seconds(1), costs.draft_seconds) == (1.0, 0.5)
