"""Calibrations on disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specli.decoding.calibration import CostCurve
from specli.decoding.schedule import NO_EXPERIENCE
from specli.state import experience as costs

CURVE = CostCurve(32, {1: 0.1, 2: 0.15}, 0.02)


def test_what_is_saved_is_loaded(home):
    assert costs.load("a") is None
    costs.save("a", CURVE)
    costs.save("b", CostCurve(8, {1: 1.0}, None))
    assert (costs.load("a"), costs.load("b"), costs.load("c")) == (CURVE, CostCurve(8, {1: 1.0}, None), None)
    assert [path.name for path in home.iterdir()] == ["costs.json"]


def test_experience_is_kept_beside_the_costs(home):
    assert costs.load_experience("a") is None
    changed = replace(NO_EXPERIENCE, acceptance=(0.5,) * len(NO_EXPERIENCE.acceptance))
    costs.save("a", CURVE)
    costs.save_experience("a", changed)
    assert (costs.load("a"), costs.load_experience("a")) == (CURVE, changed)
    costs.save("a", CURVE)
    assert costs.load_experience("a") == changed
    costs.save_experience("b", changed)
    assert costs.load("b") is None


def test_experience_that_cannot_be_is_as_good_as_none(home):
    bins = len(NO_EXPERIENCE.acceptance)
    for changed in (
        {"acceptance": (0.5,)},
        {"acceptance": (7.0,) * bins},
        {"matches": (float("nan"),) * len(NO_EXPERIENCE.matches)},
        {"shares": ((0.0,) * bins,) * (bins + 1)},
    ):
        costs.save_experience("a", replace(NO_EXPERIENCE, **changed))
        assert costs.load_experience("a") is None


@pytest.mark.parametrize("content", ["", "x", "[]", '{"a": 1}', '{"a": {"target": {}, "draft": 1, "context": 1}}',
                                     '{"a": {"target": {"1": "x"}, "draft": 1, "context": 1}}'])  # fmt: skip
def test_a_damaged_file_is_as_good_as_none(home, content):
    costs.costs_path().write_text(content)
    assert costs.load("a") is None
    assert costs.load_experience("a") is None
    costs.save("a", CURVE)
    assert costs.load("a") == CURVE


def test_a_folder_that_cannot_be_written(home):
    costs.costs_path().mkdir()
    costs.save("a", CURVE)
    assert costs.load("a") is None
