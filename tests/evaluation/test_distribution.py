"""The audit of single tokens: the values it tests, its false alarms, its power, and wrong rules it must find."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_exactness import bonus_from_the_wrong_row, end_at_the_first_failure, softmax_of_residual

from specli.decoding.options import SamplingOptions
from specli.decoding.sampling import Distribution
from specli.decoding.verification import RULES
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.errors import PromptError
from specli.evaluation.distribution import (
    SIGNIFICANCE,
    interval_of,
    judge,
    midpoint_variance,
    sample_tokens,
    teacher_forced,
)
from specli.evaluation.prompts import Prompt
from specli.evaluation.statistics import detectable_shift, mean_test
from specli.llama.text import Message

PROMPTS = [
    Prompt("own", f"own-{number}", (Message("user", text),)) for number, text in enumerate(("abc", "hello", "xy"))
]
FULL = SamplingOptions(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
FILTERED = SamplingOptions(temperature=0.9, top_k=6, top_p=0.9, min_p=0.02, repeat_penalty=1.2)


@st.composite
def distributions(draw, size=5):
    weights = draw(st.lists(st.integers(0, 9), min_size=size, max_size=size).filter(any))
    probs = np.array(weights) / sum(weights)
    if draw(st.booleans()):
        return Distribution.dense(probs)
    ids = np.flatnonzero(probs)
    return Distribution.sparse(ids, probs[ids])


@given(distributions(), distributions())
def test_intervals_tile_the_unit_and_their_midpoints_have_the_stated_moments(target, draft):
    tokens = [token for token in range(5) if target.probability(token) > 0]
    intervals = {token: interval_of(target, draft, token) for token in tokens}
    ends = sorted(intervals.values())
    assert ends[0][0] == 0  # no gap, also among ratios that are equal but for rounding
    assert ends[-1][1] == pytest.approx(1)
    for (_, high), (low, _) in pairwise(ends):
        assert high == pytest.approx(low)
    midpoints = {token: (low + high) / 2 for token, (low, high) in intervals.items()}
    mean = sum(target.probability(token) * midpoint for token, midpoint in midpoints.items())
    square = sum(target.probability(token) * midpoint**2 for token, midpoint in midpoints.items())
    assert mean == pytest.approx(0.5)
    assert square - mean**2 == pytest.approx(midpoint_variance(target), abs=1e-12)
    ratios = [draft.probability(token) / target.probability(token) for token in sorted(tokens, key=intervals.get)]
    assert ratios == pytest.approx(sorted(ratios))


def test_a_bias_of_the_stated_size_is_found_nine_times_in_ten():
    rng = np.random.default_rng(5)
    found, runs, tokens, significance = 0, 400, 2000, 0.0005
    for _ in range(runs):
        # Two halves of three tokens each, so that mass can be moved from the lower one to the upper one, evenly.
        probs = np.concatenate([rng.dirichlet(np.ones(3), size=tokens) / 2 for _ in range(2)], axis=1)
        variances = (1 - (probs**3).sum(axis=1)) / 12
        variation = 2 * detectable_shift(variances, significance)
        biased = probs * (1 + 2 * variation * np.array([-1, -1, -1, 1, 1, 1]))
        assert np.abs(biased - probs).sum() / 2 == pytest.approx(variation * tokens)
        edges = np.cumsum(probs, axis=1)
        chosen = (rng.random((tokens, 1)) > np.cumsum(biased, axis=1)).sum(axis=1).clip(max=5)
        midpoints = (edges - probs / 2)[np.arange(tokens), chosen]
        found += mean_test(midpoints, variances).p_value < significance
    assert 0.85 < found / runs < 0.95  # 0.9 expected, with a standard error of 0.015


@pytest.mark.parametrize("sampling", [FULL, FILTERED], ids=["full", "filtered"])
@pytest.mark.parametrize("rule", ["block", "token", "match", "coupled"])
def test_right_rules_pass(engine, rule, sampling):
    options = ReplyOptions(sampling, draft_length=3, verification=rule, max_tokens=40, seed=1)
    report = judge(sample_tokens(engine, PROMPTS, options, 3000))
    assert report.p_value > 0.01
    assert not report.found
    assert (report.impossible, report.borderline) == (0, 0)
    assert report.tokens >= 3000
    assert report.groups[0].position is None
    assert sum(report.groups[0].counts) == report.tokens
    assert report.detectable < 0.06


def test_another_draft_temperature_passes_too(engine):
    options = ReplyOptions(FULL, draft_length=3, draft_temperature=0.4, max_tokens=40, seed=2)
    assert judge(sample_tokens(engine, PROMPTS, options, 3000)).p_value > 0.01


@pytest.mark.parametrize("sampling", [FULL, FILTERED], ids=["full", "filtered"])
def test_the_control_is_found(engine, sampling):
    options = ReplyOptions(sampling, draft_length=3, max_tokens=40, seed=1)
    report = judge(sample_tokens(engine, PROMPTS, options, 8000, control=True))
    assert report.found
    assert report.p_value < SIGNIFICANCE
    assert report.estimate > report.detectable


@pytest.mark.parametrize("control", [False, True], ids=["right", "control"])
def test_drafts_that_are_looked_up_without_a_draft_model(engine, control):
    repetitive = SamplingOptions(temperature=1.0, top_k=2, top_p=1.0, min_p=0.0)
    options = ReplyOptions(repetitive, draft_length=3, drafter="lookup", max_tokens=400, seed=1)
    found = sample_tokens(Engine(engine.target), PROMPTS, options, 4000, control=control)
    assert found.tested > 1000
    assert judge(found).found == control


@pytest.mark.parametrize(
    "wrong", [bonus_from_the_wrong_row, end_at_the_first_failure, softmax_of_residual], ids=lambda rule: rule.__name__
)
def test_other_wrong_rules_are_found(engine, wrong, monkeypatch):
    monkeypatch.setitem(RULES, "block", wrong)
    options = ReplyOptions(FULL, draft_length=3, max_tokens=40, seed=1)
    assert judge(sample_tokens(engine, PROMPTS, options, 6000)).found


def test_tokens_that_the_filters_exclude_are_a_fault(engine):
    generated = ReplyOptions(FULL, draft_length=3, max_tokens=40, seed=1)

    class Ignoring(Engine):
        """Generates with every token allowed, whatever is asked for."""

        def reply(self, prompt, options=None, **more):
            return super().reply(prompt, generated, **more)

    ignoring = Ignoring(engine.target, engine.draft)
    report = judge(sample_tokens(ignoring, PROMPTS, ReplyOptions(FILTERED, draft_length=3, seed=1), 500))
    assert report.impossible > 20
    assert report.found


def test_a_prompt_that_does_not_fit_is_no_endless_loop(engine):
    prompts = [Prompt("own", "own-1", (Message("user", "a" * 600),))]
    with pytest.raises(PromptError, match=r"own-1 has 6\d\d tokens"):
        sample_tokens(engine, prompts, ReplyOptions(FULL, seed=1), 10)


def test_teacher_forcing_gives_the_rows_of_single_passes(engine):
    engine.target.rewind(0)
    tokens = [1, *range(5, 35), *range(5, 35), *range(5, 35)]
    rows = [row.copy() for row in teacher_forced(engine.target, tokens, 4)]
    assert len(rows) == len(tokens) - 4
    for at in (4, 20, 70, len(tokens) - 1):
        engine.target.rewind(0)
        alone = engine.target.feed(tokens[:at], rows=1)[0]
        np.testing.assert_allclose(rows[at - 4], alone, atol=0.01)
