"""Identity of greedy texts: what counts as a difference, what explains one, and what does not."""

from __future__ import annotations

import pytest

from specli.decoding.sampling import Distribution
from specli.decoding.verification import RULES, Verdict
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.evaluation.identity import (
    Difference,
    GreedyRun,
    IdentityReport,
    PromptIdentity,
    compare_runs,
    identity_audit,
    identity_lines,
    largest_noise,
)
from specli.evaluation.prompts import Prompt
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions
from specli.llama.text import Message

PROMPTS = [Prompt("own", f"own-{number}", (Message("user", text),)) for number, text in enumerate(("abc", "hello"))]


def run(tokens, gaps=None):
    gaps = gaps or [1.0] * len(tokens)
    return GreedyRun(tuple(tokens), dict(enumerate(gaps)))


def test_where_two_texts_diverge():
    assert compare_runs(run([1, 2, 3]), run([1, 2, 3])) is None
    assert compare_runs(run([1, 2, 3], [1, 2, 0.1]), run([1, 2, 4], [1, 2, 0.2])) == Difference(2, 3, 4, 0.1, 0.2)
    assert compare_runs(run([1, 2]), run([1, 2, 4], [1, 1, 0.2])) == Difference(2, None, 4, 0.0, 0.2)


def test_noise_is_seen_where_texts_agree():
    assert largest_noise(run([1, 2, 3], [1, 2, 9]), run([1, 2, 4], [1.25, 2, 1])) == 0.25


@pytest.mark.parametrize(("gap", "exact", "unexplained"), [(0.1, False, 0), (0.3, False, 1), (0.1, True, 1)])
def test_what_explains_a_difference(gap, exact, unexplained):
    difference = Difference(7, 1, 2, gap, gap)
    report = IdentityReport((PromptIdentity("one", 9, difference), PromptIdentity("two", 9, None)), 0.2, exact)
    assert report.differences == 1
    assert report.unexplained == unexplained
    first, which, last = identity_lines(report, lambda token: f"<{token}>")
    assert first == "Texts at temperature 0: 2 prompts, 18 tokens"
    assert which.startswith("  one: token 8 is '<1>' without and '<2>' with the draft; the two best logits are ")
    assert last.startswith("Fault: 1 " if unexplained else "1 texts differ where two logits are nearly equal")


@pytest.fixture(scope="module", params=[False, True], ids=["fast", "exact"])
def engine(request, tiny_file, tiny_draft_file):
    load = LoadOptions(context=512, threads=1)
    target = LlamaModel(tiny_file, LoadOptions(context=512, threads=1, exact=request.param))
    with Engine(target, LlamaModel(tiny_draft_file, load)) as engine:
        yield engine


def test_right_rules_give_the_same_text(engine):
    report = identity_audit(engine, PROMPTS, ReplyOptions(draft_length=3, max_tokens=60, seed=0))
    assert [prompt.prompt for prompt in report.prompts] == ["own-0", "own-1"]
    assert report.differences == report.unexplained == 0
    assert (report.noise == 0) == report.exact or not report.exact
    assert engine.target.observer is None


def test_a_rule_that_keeps_what_it_should_reject_is_a_fault(engine, monkeypatch):
    def keep_all(draft_tokens, draft_probs, target_probs, rng):
        last: Distribution = target_probs[len(draft_tokens)]
        return Verdict(len(draft_tokens), last.draw(rng))

    monkeypatch.setitem(RULES, "block", keep_all)
    report = identity_audit(engine, PROMPTS, ReplyOptions(draft_length=3, max_tokens=60, seed=0))
    assert report.unexplained == 2
