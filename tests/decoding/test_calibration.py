"""What passes cost: one that was held up is noticed and measured again."""

from __future__ import annotations

import pytest
from toys import ToyModel

from specli.decoding import calibration
from specli.decoding.calibration import doubtful, measure_costs

TRUE = {1: 60.0, 2: 84.0, 4: 104.0, 8: 115.0, 16: 180.0}


def test_what_looks_too_dear():
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

    monkeypatch.setattr(calibration, "_seconds", seconds)
    curve = measure_costs(ToyModel(1), None, [1] * 20, rows=tuple(TRUE), repeats=2, seconds=0.0)
    assert curve.target == TRUE
    assert len(calls) <= len(TRUE) + 3
