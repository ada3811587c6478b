"""The table of optimal stopping against plain recursion, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from specli.decoding.stopping import StoppingTable

ACCEPTANCE = np.array([0.85**3, 0.85])  # on the table's grid, so that nothing is interpolated
SHARES = np.array([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5]])


def worth(rows: list[float], draft: float, length: int, reach: float, before: int) -> float:
    """What a pass is worth: its cost, and for each confidence the better of stopping and going on."""
    if length == len(rows):
        return 0.0
    chances = zip(SHARES[before], range(len(ACCEPTANCE)), strict=True)
    return max(0.0, sum(share * max(0.0, token_worth(rows, draft, length, reach, at)) for share, at in chances) - draft)


def token_worth(rows: list[float], draft: float, length: int, reach: float, confidence: int) -> float:
    accepted = reach * ACCEPTANCE[confidence]
    return accepted - rows[length] + worth(rows, draft, length + 1, accepted, confidence)


@pytest.mark.parametrize(
    ("rows", "draft"),
    [([0.1] * 5, 0.1), ([0.3] * 5, 0.05), ([0.2, 1.5, 0.0, 0.0, 0.0], 0.02), ([0.9] * 5, 0.3), ([], 0.1)],
    ids=["cheap", "dear rows", "a step", "never", "no drafts"],
)
def test_against_recursion(rows, draft):
    table = StoppingTable(ACCEPTANCE, SHARES, np.array(rows), draft)
    for length in range(len(rows) + 1):
        for power in range(8):
            for before in range(3):
                wanted = worth(rows, draft, length, 0.85**power, before)
                assert table.worth(length, 0.85**power, before) == pytest.approx(wanted, abs=1e-12)
            if length < len(rows):
                for confidence in range(2):
                    wanted = token_worth(rows, draft, length, 0.85**power, confidence)
                    assert table.token_worth(length, 0.85**power, confidence) == pytest.approx(wanted, abs=1e-12)


def test_a_step_is_crossed_when_it_is_worth_it():
    shares = np.ones((2, 1))
    for later, pays in ((0.0, True), (1.0, False)):
        rows = np.array([0.1, 1.5, later, later, later, later])
        table = StoppingTable(np.array([0.85]), shares, rows, 0.01)
        assert (table.worth(1, 0.85, 0) > 0) == pays


def test_between_the_places_of_the_grid():
    table = StoppingTable(np.array([0.7, 0.95]), SHARES, np.full(6, 0.15), 0.05)
    values = [table.worth(0, reach, 2) for reach in np.geomspace(1, 0.05, 200)]
    assert values == sorted(values, reverse=True)
    assert max(np.diff(values[::-1])) < 0.1
