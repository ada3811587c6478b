"""Costs and experience on disk."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from specli.decoding.costs import PassCosts
from specli.decoding.options import SamplingOptions
from specli.decoding.schedule import Experience
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions
from specli.state.experience import costs_path, load_costs, load_experience, save_costs, save_experience

COSTS = PassCosts(32, {1: 0.1, 2: 0.15}, 0.02)
NEW = Experience()
LEARNED = replace(NEW, acceptance=(0.5,) * len(NEW.acceptance), overall=0.6)


def test_what_is_saved_is_loaded(home):
    assert load_costs("a") is None
    save_costs("a", COSTS)
    save_costs("b", PassCosts(8, {1: 1.0}, None))
    assert (load_costs("a"), load_costs("b"), load_costs("c")) == (COSTS, PassCosts(8, {1: 1.0}, None), None)
    assert [path.name for path in home.iterdir()] == ["costs.json"]


def test_experience_is_kept_beside_the_costs_for_each_use(home):
    assert load_experience("a", "auto high") == NEW
    save_costs("a", COSTS)
    save_experience("a", "auto high", LEARNED)
    assert (load_costs("a"), load_experience("a", "auto high")) == (COSTS, LEARNED)
    assert load_experience("a", "auto greedy") == load_experience("b", "auto high") == NEW
    save_costs("a", COSTS)
    save_experience("a", "auto greedy", replace(LEARNED, overall=0.9))
    assert load_experience("a", "auto high") == LEARNED
    save_experience("b", "auto high", LEARNED)
    assert load_costs("b") is None


def test_experience_of_the_first_edition_is_where_every_use_starts(home):
    """It had no kinds of temperature and no overall rate, and a matrix that is no longer needed."""
    written = {"acceptance": LEARNED.acceptance, "shares": [[0.1] * 9] * 10, "matches": NEW.matches}
    calibration = {"context": 32, "target": {"1": 0.1, "2": 0.15}, "draft": 0.02}
    costs_path().write_text(json.dumps({"a": calibration | {"experience": written}}))
    assert load_costs("a") == COSTS
    start = replace(LEARNED, overall=NEW.overall)
    assert load_experience("a", "auto high") == load_experience("a", "model greedy") == start
    save_experience("a", "auto high", NEW)
    assert (load_experience("a", "auto high"), load_experience("a", "auto low")) == (NEW, start)


def test_experience_that_cannot_be_is_as_good_as_none(home):
    for changed in (
        {"acceptance": (0.5,)},
        {"acceptance": (7.0,) * len(NEW.acceptance)},
        {"matches": (float("nan"),) * len(NEW.matches)},
        {"overall": -1.0},
        {"overall": "x"},
    ):
        costs_path().write_text(json.dumps({"a auto high": {"experience": asdict(LEARNED) | changed}}))
        assert load_experience("a", "auto high") == NEW


@pytest.mark.parametrize("content", ["", "x", "[]", '{"a": 1}', '{"a": {"target": {}, "draft": 1, "context": 1}}',
                                     '{"a": {"target": {"1": "x"}, "draft": 1, "context": 1}}'])  # fmt: skip
def test_a_damaged_file_is_as_good_as_none(home, content):
    costs_path().write_text(content)
    assert load_costs("a") is None
    assert load_experience("a", "auto high") == NEW
    save_costs("a", COSTS)
    assert load_costs("a") == COSTS


def test_a_folder_that_cannot_be_written(home):
    costs_path().mkdir()
    save_costs("a", COSTS)
    assert load_costs("a") is None


def test_a_greedy_reply_does_not_change_what_a_warm_one_starts_from(tiny_file, tiny_draft_file, home):
    load = LoadOptions(context=256, threads=1)
    with Engine(LlamaModel(tiny_file, load), LlamaModel(tiny_draft_file, load)) as engine:
        pair = f"{engine.target.cost_key},{engine.draft.cost_key}"
        save_experience(pair, "auto high", LEARNED)
        for temperature, use in ((0.0, "auto greedy"), (0.3, "auto low")):
            options = ReplyOptions(SamplingOptions(temperature=temperature), max_tokens=24, ignore_eos=True)
            for _ in engine.reply([1, 2, 3], options):
                pass
            engine.remember(options)
            assert use in "".join(json.loads(costs_path().read_text()))
    assert load_experience(pair, "auto high") == LEARNED
