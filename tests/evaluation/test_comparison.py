"""Comparisons: the order of turns, what is measured, the file, resuming, and the figures computed again by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from statistics import median

import numpy as np
import pytest

from specli.decoding.costs import PassCosts, measure_costs
from specli.decoding.options import SamplingOptions
from specli.engine.engine import Engine
from specli.errors import JournalError, OptionError, PromptError
from specli.evaluation.comparison import Configuration, Measurement, Plan, by_turns, make_configurations, measure
from specli.evaluation.journal import Header, Journal, read_journal
from specli.evaluation.prompts import Prompt
from specli.evaluation.settings import Settings
from specli.evaluation.summary import OVERALL, bootstrap_mean_of_classes, bootstrap_median, summarize, verdict
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions
from specli.llama.text import Message
from specli.state import jsonl
from specli.state.data import checked


def prompt(kind: str, number: int, text: str = "abc") -> Prompt:
    return Prompt(kind, f"{kind}-{number}", (Message("user", text),))


PROMPTS = (prompt("x", 1), prompt("x", 2, "hello"), prompt("y", 1, "xyz"))


def settings(**changes) -> Settings:
    load = LoadOptions(context=512, threads=1)
    values = {
        "target": "tiny", "drafts": ("small",), "draft_lengths": (2, 4), "verifications": ("block",),
        "temperatures": (0.0, 1.0), "prompts": PROMPTS, "repeats": 2, "tokens": 12, "seed": 0, "time_limit": None,
        "sampling": SamplingOptions(temperature=0.0), "draft_temperature": None,
        "target_load": load, "draft_load": load,
    }  # fmt: skip
    return Settings(**(values | changes))


def test_configurations():
    configurations = make_configurations(["a", "b"], [0, 2], ["block", "token"], [0.0])
    assert [one.name for one in configurations] == [
        "baseline", "baseline again",
        "a, length 2, block", "a, length 2, token", "b, length 2, block", "b, length 2, token",
    ]  # fmt: skip
    assert [one.is_baseline for one in configurations] == [True, *[False] * 5]


def test_configurations_take_turns_there_and_back():
    turns = list(settings(temperatures=(0.0,)).plan.turns())
    assert [index for _, index, _ in turns[:9]] == [0, 1, 2, 0, 1, 2, 2, 1, 0]
    assert [turn for _, _, turn in turns[:9]] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len(turns) == settings(temperatures=(0.0,)).plan.total == 27
    assert len(set(settings().plan.turns())) == settings().plan.total


def test_classes_take_turns():
    assert [one.name for one in by_turns(PROMPTS)] == ["x-1", "y-1", "x-2"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"repeats": 0}, "`repeats` is 0"),
        ({"tokens": 1}, "`tokens` is 1"),
        ({"time_limit": -1.0}, "`time_limit` is -1"),
        ({"draft_lengths": (-1,)}, "nothing to compare"),
        ({"drafts": ()}, "nothing to compare"),
        ({"verifications": ("blok",)}, "`verification` is 'blok'"),
        ({"temperatures": (-1.0,)}, "`temperature` is -1"),
        ({"drafter": "none"}, "`drafter` is 'none'"),
        ({"drafter": "model", "drafts": ("lookup",)}, "`drafter` is 'model', so the draft model 'none' is unused"),
        ({"drafter": "lookup"}, "the draft model 'small' is unused"),
    ],
)
def test_settings_that_cannot_be(changes, message):
    with pytest.raises(OptionError, match=message):
        settings(**changes)


def test_settings_survive_a_file():
    chosen = settings(
        sampling=SamplingOptions(logit_bias=((3, -1.0),)), draft_temperature=0.5, time_limit=3.0, drafter="model"
    )
    assert checked(json.loads(json.dumps(asdict(chosen))), Settings) == chosen


def test_a_file_of_the_first_edition(measured, tmp_path):
    chosen = settings()
    content = asdict(chosen)
    del content["drafter"]
    assert checked(json.loads(json.dumps(content)), Settings) == chosen
    old = asdict(measured[1])
    old["arm"] = old.pop("configuration")
    file = tmp_path / "first.jsonl"
    Journal.create(file, {"settings": content, "models": []})
    with file.open("ab") as lines:
        lines.write(json.dumps(old).encode() + b"\n")
    assert read_journal(file) == (Header(chosen, ()), [measured[1]])


def header() -> dict[str, object]:
    return {"settings": asdict(settings()), "models": []}


@pytest.fixture(scope="module")
def models(tiny_file, tiny_draft_file):
    load = LoadOptions(context=512, threads=1)
    with LlamaModel(tiny_file, load) as target, LlamaModel(tiny_draft_file, load) as draft:
        yield target, draft


@pytest.fixture(scope="module")
def measured(models) -> list[Measurement]:
    target, draft = models
    chosen = settings()
    return list(measure(Engine(target), {"small": draft}, chosen.plan, chosen.reply))


def test_all_that_was_planned_is_measured(measured):
    chosen = settings()
    assert [one.key for one in measured] == [(p.name, index, turn) for p, index, turn in chosen.plan.turns()]
    for one in measured:
        configuration = chosen.configurations[one.configuration]
        assert one.drafted == 0 or configuration.draft == "small"
        assert one.turn == 0 or len(one.tokens) == 12
        assert len(one.tested_at) <= configuration.draft_length
        assert sum(one.tested_at) == one.tested
        assert sum(one.accepted_at) == one.accepted
        assert one.decode_seconds >= one.draft_seconds + one.verify_seconds > 0
    greedy = {index for index, found in enumerate(chosen.configurations) if found.temperature == 0}
    by_turn: dict = {}
    for one in measured:
        if one.configuration in greedy:
            by_turn.setdefault((one.prompt, one.turn > 0), set()).add(tuple(one.tokens))
    assert all(len(texts) == 1 for texts in by_turn.values())  # the tiny model has no near-ties here


def test_figures_can_be_recomputed_from_the_measurements(measured):
    figures = summarize(settings().configurations, measured)
    assert {(one.kind, one.configuration) for one in figures} == {
        (kind, index) for kind in ("x", "y", OVERALL) for index in (1, 2, 4, 5)
    }
    chosen = next(one for one in figures if one.kind == "x" and one.configuration == 4)
    ours = [one for one in measured if one.kind == "x" and one.configuration == 4 and one.turn > 0]
    baseline = [one for one in measured if one.kind == "x" and one.configuration == 3 and one.turn > 0]
    ratios = [
        (12 / one.decode_seconds) / (12 / other.decode_seconds)
        for one in ours
        for other in baseline
        if (one.prompt, one.turn) == (other.prompt, other.turn)
    ]
    assert sorted(chosen.ratios) == pytest.approx(sorted(ratios))
    assert chosen.speedup.estimate == pytest.approx(median(ratios))
    assert chosen.speedup.low <= chosen.speedup.estimate <= chosen.speedup.high
    assert chosen.tokens_per_second == pytest.approx(median(12 / one.decode_seconds for one in ours))
    assert chosen.acceptance_rate == pytest.approx(sum(o.accepted for o in ours) / sum(o.tested for o in ours))
    assert chosen.acceptance_by_position[0] == pytest.approx(
        sum(o.accepted_at[0] for o in ours) / sum(o.tested_at[0] for o in ours)
    )
    assert chosen.tokens_per_pass == pytest.approx(48 / sum(o.rounds for o in ours))
    baseline_token = sum(o.decode_seconds for o in baseline) / 48
    assert chosen.round_cost == pytest.approx(
        sum(o.decode_seconds for o in ours) / sum(o.rounds for o in ours) / baseline_token
    )
    assert chosen.draft_share == pytest.approx(sum(o.draft_seconds for o in ours) / sum(o.decode_seconds for o in ours))
    assert chosen.compared == 0
    overall = next(one for one in figures if one.kind == OVERALL and one.configuration == 4)
    means = [
        np.mean(
            [np.log(ratio) for one in figures if one.kind == kind and one.configuration == 4 for ratio in one.ratios]
        )
        for kind in ("x", "y")
    ]
    assert overall.speedup.estimate == pytest.approx(np.exp(np.mean(means)))
    assert overall.speedup.low is None  # two classes are too few
    greedy = next(one for one in figures if one.kind == OVERALL and one.configuration == 1)
    assert (greedy.compared, greedy.differences) == (3, ())


def made(prompt_name: str, configuration: int, turn: int, seconds: float, tokens=(1, 2, 3, 4)) -> Measurement:
    kind = prompt_name.split("-")[0]
    counted = (4, 4, 2, [2, 2], [1, 1]) if configuration else (0, 0, 0, [], [])
    times = (0.1, 0.2, seconds, seconds / 4, seconds / 2)
    return Measurement(prompt_name, kind, configuration, turn, list(tokens), "length", 5, 2, *counted, *times)


CONFIGURATIONS = (Configuration(None, 0, "", 0.0), Configuration("small", 2, "block", 0.0))


def test_the_verdict_follows_the_intervals():
    speed = {"win": 2.0, "loss": 0.5}
    found = [
        made(f"{kind}-{number}", index, turn, 1.0 / (speed[kind] if index else 1))
        for kind in speed
        for number in (1, 2, 3)
        for index in (0, 1)
        for turn in (0, 1, 2)
    ]
    first, why = verdict(CONFIGURATIONS, summarize(CONFIGURATIONS, found))
    assert "small, length 2, block" in first
    assert "it is faster for win (2.00x)" in first
    assert "it is slower for loss (0.50x)" in first
    assert "a round yields 2.00 tokens (50 % of the tested draft tokens are accepted)" in why


def test_texts_that_differ_are_named():
    found = [
        made("x-1", index, turn, 1.0, (1, 2, 9, 4) if index and not turn else (1, 2, 3, 4))
        for index in (0, 1)
        for turn in (0, 1)
    ]
    figures = summarize(CONFIGURATIONS, found)
    assert [(one.prompt, one.position) for one in figures[-1].differences] == [("x-1", 2)]


def test_measurements_without_their_baseline_do_not_count():
    found = [made("x-1", 0, 1, 1.0), made("x-1", 1, 1, 0.5), made("x-1", 1, 2, 0.1)]
    assert summarize(CONFIGURATIONS, found)[-1].ratios == (2.0,)
    assert summarize(CONFIGURATIONS, found[1:]) == []


def test_bootstrap_intervals_hold_what_they_promise():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        interval = bootstrap_median(rng.lognormal(0, 0.1, size=25))
        hits += interval.low <= 1 <= interval.high
    assert hits >= 180  # 190 expected


def test_overall_intervals_hold_what_they_promise():
    """Twenty-five classes drawn from a population of classes, two turns in each."""
    rng = np.random.default_rng(4)
    hits = 0
    for _ in range(200):
        speedups = rng.lognormal(0.3, 0.4, size=25)
        interval = bootstrap_mean_of_classes([list(one * rng.lognormal(0, 0.05, size=2)) for one in speedups])
        hits += interval.low <= np.exp(0.3) <= interval.high
    assert 178 <= hits <= 199  # 190 expected


def test_overall_of_few_classes_has_no_interval():
    interval = bootstrap_mean_of_classes([[2.0], [0.5, 0.5]])
    assert (interval.low, interval.high) == (None, None)
    assert interval.estimate == pytest.approx(1.0)


def test_a_file_of_measurements(tmp_path, measured):
    path = tmp_path / "results.jsonl"
    journal = Journal.create(path, header())
    for one in measured[:3]:
        journal.add(one)
    assert read_journal(path) == (Header(settings(), ()), measured[:3])
    with pytest.raises(OptionError, match="exists already"):
        Journal.create(path, {})


def test_a_line_that_was_cut_short_is_replaced_by_the_next_one(tmp_path, measured):
    path = tmp_path / "results.jsonl"
    journal = Journal.create(path, header())
    journal.add(measured[0])
    whole = path.read_bytes()
    line = json.dumps(asdict(measured[1])).encode()
    for length in (1, 30, len(line) - 1, len(line)):
        path.write_bytes(whole + line[:length])
        kept = measured[: 2 if length == len(line) else 1]  # a measurement that lacks only its line end is complete
        assert read_journal(path)[1] == kept
        journal.add(measured[2])
        assert read_journal(path)[1] == [*kept, measured[2]]
        assert path.read_bytes().startswith(whole + line if len(kept) == 2 else whole + b'{"prompt"')
        assert path.read_bytes().count(b"\n") == len(kept) + 2


HEAD = b'{"kind": "comparison", "version": 1}\n'


@pytest.mark.parametrize(
    "content", [b"", b"hello\n", b"{}\n", b"[1]\n", b"\xff\xfe\n", HEAD.replace(b"1", b"99"), HEAD]
)
def test_files_that_are_no_comparison(tmp_path, content):
    path = tmp_path / "other.jsonl"
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"other\.jsonl holds no comparison"):
        read_journal(path)
    with pytest.raises(JournalError, match="cannot read"):
        read_journal(tmp_path / "lost.jsonl")


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": "x"},
        {"decode_seconds": 0.0},
        {"rounds": 0},
        {"tested_at": [1] * 9},
        {"turn": 9},
        {"prompt": "lost"},
        {"configuration": -1},
        {"configuration": 99},
    ],
)
def test_measurements_that_cannot_be_are_made_again(tmp_path, measured, changes):
    journal = Journal.create(tmp_path / "results.jsonl", header())
    journal.add(measured[0])
    jsonl.append(tmp_path / "results.jsonl", asdict(measured[1]) | changes)
    assert read_journal(tmp_path / "results.jsonl")[1] == measured[:1]


def test_what_is_done_is_not_measured_again(models, measured):
    target, draft = models
    chosen = settings()
    rest = list(measure(Engine(target), {"small": draft}, chosen.plan, chosen.reply, measured[:20]))
    assert [one.key for one in [*measured[:20], *rest]] == [one.key for one in measured]
    assert [one.tokens for one in rest] == [one.tokens for one in measured[20:]]


def test_time_limit_and_interrupt(models):
    target, draft = models
    chosen = settings()
    engine = Engine(target)
    assert list(measure(engine, {"small": draft}, chosen.plan, chosen.reply, seconds=-1.0)) == []
    found = []
    for one in measure(engine, {"small": draft}, chosen.plan, chosen.reply, interrupted=lambda: len(found) >= 5):
        found.append(one)
    assert len(found) == 5


def test_a_prompt_that_does_not_fit(models):
    target, draft = models
    plan = Plan((prompt("x", 1, "a" * 600),), CONFIGURATIONS, 1, 12, 0)
    with pytest.raises(PromptError, match=r"x-1 has 6\d\d tokens"):
        list(measure(Engine(target), {"small": draft}, plan, settings().reply))


def test_break_even():
    curve = PassCosts(100, {1: 1.0, 2: 1.0, 3: 1.0, 5: 6.0}, 0.25)
    assert curve.break_even(1) == pytest.approx(0.25)
    assert curve.break_even(2) == pytest.approx((np.sqrt(3) - 1) / 2)  # 1 + a + a * a = 1.5
    assert curve.break_even(4) is None  # costs 7 and yields 5 at most
    assert curve.break_even(3) is None  # not measured
    assert PassCosts(100, {1: 1.0, 2: 1.0}, None).break_even(1) is None


def test_costs_are_measured_and_caches_left_as_they_were(models):
    target, draft = models
    shown = []
    curve = measure_costs(target, draft, [5] * 60, rows=(1, 2, 4), progress=lambda *at: shown.append(at))
    assert set(curve.target) == {1, 2, 4}
    assert min(*curve.target.values(), curve.draft) > 0
    assert (curve.context, target.n_past, draft.n_past) == (56, 56, 56)
    assert shown[-1] == (17, 18)
    assert measure_costs(target, None, [5] * 60, rows=(1, 2), interrupted=lambda: True) is None
