"""Speculative decoding keeps the target's distribution: exact enumeration, and wrong rules that must be caught."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from toys import Setting, ToyModel, reply_error, round_error, shared

from specli.decoding import verification
from specli.decoding.costs import PassCosts
from specli.decoding.drafting import Draft, DraftModelDrafter, LookupDrafter, ScheduledDrafter
from specli.decoding.lookup import LookupIndex
from specli.decoding.options import SamplingOptions
from specli.decoding.sampling import Distribution, distribution
from specli.decoding.schedule import Schedule
from specli.decoding.verification import RULES, Verdict

EXACT = 1e-12
WIDE_OPEN = SamplingOptions(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
rules = pytest.mark.parametrize("rule", ["token", "block", "match"])


def pair(seed: int, n_vocab: int = 3, zeros: float = 0.25, **kwargs) -> dict:
    return {
        "target": ToyModel(seed, n_vocab, zeros, **kwargs),
        "draft": ToyModel(seed + 1000, n_vocab, zeros, **kwargs),
    }


@rules
@pytest.mark.parametrize("draft_length", [1, 2, 3, 4])
@pytest.mark.parametrize("n_vocab", [2, 3])
def test_one_round(rule, draft_length, n_vocab):
    for seed in range(4 if draft_length < 4 else 2):
        assert round_error(Setting(**pair(seed, n_vocab), rule=rule, draft_length=draft_length)) < EXACT


@rules
def test_one_round_with_four_tokens(rule):
    for seed in range(4):
        assert round_error(Setting(**pair(seed, 4), rule=rule, draft_length=2)) < EXACT


@rules
def test_plain_decoding(rule):
    for seed in range(4):
        assert reply_error(Setting(**pair(seed), rule=rule, draft_length=0), max_tokens=3) < EXACT


@rules
@pytest.mark.parametrize(("draft_length", "max_tokens"), [(1, 4), (2, 4), (4, 4)])
def test_whole_replies_over_several_rounds(rule, draft_length, max_tokens):
    for seed in range(2):
        setting = Setting(**pair(seed, 2), rule=rule, draft_length=draft_length)
        assert reply_error(setting, max_tokens) < EXACT


@rules
def test_replies_that_end_by_themselves(rule):
    for seed in range(3):
        setting = Setting(**pair(seed, 3, end_tokens=frozenset({2})), rule=rule, draft_length=3)
        assert round_error(setting) < EXACT
        assert reply_error(Setting(**pair(seed, 3, end_tokens=frozenset({2})), rule=rule, draft_length=2), 3) < EXACT


@rules
def test_equal_models(rule):
    for seed in range(3):
        setting = Setting(ToyModel(seed), ToyModel(seed), rule=rule, draft_length=3)
        assert round_error(setting) < EXACT


class Disjoint(ToyModel):
    """Never gives a token that its counterpart gives."""

    def logits(self, prefix):
        row = super().logits(prefix)
        row[[0, 1] if self.seed >= 1000 else [2, 3]] = -np.inf
        return row


@rules
def test_disjoint_supports(rule):
    for seed in range(3):
        setting = Setting(Disjoint(seed, 4, 0.0), Disjoint(seed + 1000, 4, 0.0), rule=rule, draft_length=2)
        assert round_error(setting) < EXACT


@rules
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingOptions(temperature=0.6, top_k=2, top_p=1.0, min_p=0.0),
        SamplingOptions(temperature=1.4, top_k=0, top_p=0.7, min_p=0.0),
        SamplingOptions(temperature=0.9, top_k=0, top_p=1.0, min_p=0.3),
        SamplingOptions(temperature=1.0, top_k=3, top_p=0.9, min_p=0.1, repeat_penalty=1.5),
        SamplingOptions(1.0, 0, 1.0, 0.0, frequency_penalty=0.7, presence_penalty=0.4, repeat_last_n=2),
        SamplingOptions(1.0, 0, 1.0, 0.0, repeat_penalty=2.0, repeat_last_n=-1),
        SamplingOptions(1.0, 0, 1.0, 0.0, logit_bias=((0, -math.inf), (1, 1.5))),
        SamplingOptions(temperature=0.0),
    ],
    ids=["top-k", "top-p", "min-p", "repeat", "frequency", "long-memory", "bias", "greedy"],
)
def test_filters_and_penalties(rule, sampling):
    for seed in range(3):
        # Both share the filters.
        assert round_error(Setting(**pair(seed, 4, 0.0), rule=rule, draft_length=2, sampling=sampling)) < EXACT
        # Only the target has them; the draft samples in its own way.
        setting = Setting(**pair(seed, 4, 0.0), rule=rule, draft_length=2, sampling=sampling, draft_sampling=WIDE_OPEN)
        assert round_error(setting) < EXACT


@rules
@pytest.mark.parametrize(
    "draft_sampling",
    [SamplingOptions(temperature=0.0), SamplingOptions(0.3, 2, 1.0, 0.0), SamplingOptions(2.0, 0, 1.0, 0.0)],
    ids=["one-hot", "cold-top-2", "hot"],
)
def test_any_proposal_is_lossless(rule, draft_sampling):
    for seed in range(3):
        setting = Setting(**pair(seed), rule=rule, sampling=WIDE_OPEN, draft_sampling=draft_sampling)
        assert round_error(setting) < EXACT


class SharesLittle(DraftModelDrafter):
    """For a draft model whose token 1 is another one, which knows token 2 as 0, and does not have token 3."""

    def __init__(self, model, sampling, draw, vocabulary):
        assert vocabulary.size == model.n_vocab == 3
        little = replace(vocabulary, differing=(1,), readings={2: 0}, stand_in=2)
        super().__init__(model, sampling, draw, little)

    def propose(self, tokens, limit):
        draft = super().propose(tokens, limit)
        assert 1 not in draft.tokens
        assert all(probs.probability(1) == 0 for probs in draft.probs)
        return draft


@rules
def test_vocabularies_that_differ(rule):
    for seed in range(3):
        models = {"target": ToyModel(seed, 4, end_tokens=frozenset({2})), "draft": ToyModel(seed + 1000, 3, zeros=0.0)}
        setting = Setting(**models, rule=rule, draft_length=2, drafter_class=SharesLittle, prompt=(3, 1, 2))
        assert round_error(setting) < EXACT
        assert reply_error(setting, 3) < EXACT


class StopsByPrefix(DraftModelDrafter):
    """Decides before each draw, from the distribution alone, whether to draw one more."""

    def propose(self, tokens, limit):
        drafted, probs = [], []
        while len(drafted) < limit:
            row = self._model.feed([*tokens, *drafted][self._model.n_past :], rows=1)[0]
            dist = distribution(row, self._sampling)
            if drafted and dist.probs.max() < 0.6:
                break
            probs.append(dist)
            drafted.append(self._draw(dist, 0))
        return Draft(drafted, probs)


class ByTheSchedule(ScheduledDrafter):
    """The real schedule, with the draft model and with lookup, over costs that let it draft at length."""

    costs = (0, {1: 1.0, 2: 1.1, 3: 1.2, 4: 1.3, 5: 1.4}, 0.3)
    look_up = True

    def __init__(self, model, sampling, draw, vocabulary):
        schedule = Schedule(PassCosts(*self.costs, learns=False))
        inner = DraftModelDrafter(model, sampling, draw, vocabulary)
        super().__init__(schedule, model, inner, LookupIndex() if self.look_up else None)


class ByTheHesitantSchedule(ByTheSchedule):
    """Over costs that make it stop early, and look at a distribution without drawing from it."""

    costs = (0, {1: 1.0, 2: 1.4, 3: 1.8, 4: 2.2, 5: 2.6}, 0.4)


class ByTheScheduleAlone(ByTheSchedule):
    look_up = False


class LooksUp(LookupDrafter):
    """Looks up, as many tokens as the limit allows."""

    def __init__(self, model, sampling, draw, vocabulary):
        super().__init__(LookupIndex())


def counting(drafter_class: type[ByTheSchedule], seen: set[tuple[bool, int]]) -> type[ByTheSchedule]:
    """Return the drafter, noting whether each draft was looked up, and its length."""

    class Counting(drafter_class):
        def propose(self, tokens, limit):
            draft = super().propose(tokens, limit)
            seen.add((self.plan.lookup_length > 0, len(draft.tokens)))
            return draft

    return Counting


@rules
@pytest.mark.parametrize("drafter_class", [ByTheSchedule, ByTheHesitantSchedule, ByTheScheduleAlone, LooksUp])
def test_the_schedule_keeps_the_distribution(rule, drafter_class):
    for seed in range(2):
        setting = Setting(
            **pair(seed, 2), rule=rule, draft_length=3, drafter_class=drafter_class, prompt=(0, 1, 1, 0, 1, 1)
        )
        assert reply_error(setting, 5) < EXACT


def test_all_that_a_schedule_can_decide_is_covered():
    seen: set[tuple[bool, int]] = set()
    for drafter_class in (ByTheSchedule, ByTheHesitantSchedule):
        counted = counting(drafter_class, seen)
        for seed in range(3):
            setting = Setting(**pair(seed, 2), draft_length=3, drafter_class=counted, prompt=(0, 1, 1, 0, 1, 1))
            assert reply_error(setting, 5) < EXACT
    assert {length for looked_up, length in seen if not looked_up} >= {0, 1, 3}
    assert {length for looked_up, length in seen if looked_up} >= {1, 3}


@rules
def test_a_stop_rule_that_looks_before_drawing(rule):
    for seed in range(4):
        assert round_error(Setting(**pair(seed), rule=rule, drafter_class=StopsByPrefix)) < EXACT


@rules
def test_draft_with_a_shorter_vocabulary(rule):
    for seed in range(3):
        setting = Setting(ToyModel(seed, 4, 0.0), ToyModel(seed + 1000, 3, 0.0), rule=rule, draft_length=2)
        assert round_error(setting) < EXACT


# --- Wrong rules: the enumeration must find each of them ---


def resample_from_target(draft_tokens, draft_probs, target_probs, rng):
    for place, token in enumerate(draft_tokens):
        if not rng.random() < target_probs[place].probability(token) / draft_probs[place].probability(token):
            return Verdict(place, target_probs[place].draw(rng))
    return Verdict(len(draft_tokens), target_probs[len(draft_tokens)].draw(rng))


def softmax_of_residual(draft_tokens, draft_probs, target_probs, rng):
    for place, token in enumerate(draft_tokens):
        if not rng.random() < target_probs[place].probability(token) / draft_probs[place].probability(token):
            mass, residual = target_probs[place].minus(draft_probs[place])
            weights = np.exp(residual.probs * mass)
            return Verdict(place, Distribution.dense(weights / weights.sum()).draw(rng))
    return Verdict(len(draft_tokens), target_probs[len(draft_tokens)].draw(rng))


def _block(draft_tokens, draft_probs, target_probs, rng, *, row=1, shared=False, early_end=False):
    weights, chances = [1.0], []
    for place, token in enumerate(draft_tokens):
        weights.append(
            min(1.0, weights[-1] * target_probs[place].probability(token) / draft_probs[place].probability(token))
        )
        if place + 1 == len(draft_tokens):
            chances.append(weights[-1])
        else:
            mass, _ = target_probs[place + row].minus(draft_probs[place + row], weights[-1])
            rest = mass + 1 - weights[-1]
            chances.append(mass / rest if rest > 0 else 1.0)
    uniform, kept = rng.random(), 0
    for length, chance in enumerate(chances, start=1):
        if (uniform if shared else rng.random()) < chance:
            kept = length
        elif early_end:
            break
    if kept == len(draft_tokens):
        return Verdict(kept, target_probs[kept].draw(rng))
    _, residual = target_probs[kept].minus(draft_probs[kept], weights[kept])
    return Verdict(kept, residual.draw(rng))


def residual_of_the_wrong_row(*args):
    return _block(*args, row=0)


def one_uniform_for_the_block(*args):
    return _block(*args, shared=True)


def end_at_the_first_failure(*args):
    return _block(*args, early_end=True)


def bonus_from_the_wrong_row(draft_tokens, draft_probs, target_probs, rng):
    verdict = verification.token_verification(draft_tokens, draft_probs, target_probs, rng)
    if verdict.num_accepted == len(draft_tokens) > 0:
        return Verdict(verdict.num_accepted, target_probs[len(draft_tokens) - 1].draw(rng))
    return verdict


class DropsADrawnToken(DraftModelDrafter):
    """Draws a token and then drops it because it was unlikely."""

    def propose(self, tokens, limit):
        draft = super().propose(tokens, limit)
        kept = 0
        while kept < len(draft.tokens) and draft.probs[kept].probability(draft.tokens[kept]) > 0.4:
            kept += 1
        self._model.rewind(len(tokens) + max(kept - 1, 0))
        return Draft(draft.tokens[:kept], draft.probs[:kept])


class ReportsTheFullDistribution(DraftModelDrafter):
    """Draws from the two most probable tokens and reports the distribution over all."""

    narrow = SamplingOptions(temperature=1.0, top_k=2, top_p=1.0, min_p=0.0)

    def propose(self, tokens, limit):
        drafted, probs = [], []
        while len(drafted) < limit:
            row = self._model.feed([*tokens, *drafted][self._model.n_past :], rows=1)[0]
            probs.append(distribution(row, self._sampling))
            drafted.append(self._draw(distribution(row, self.narrow), 0))
        return Draft(drafted, probs)


class GreedyReportedAsSampled(ReportsTheFullDistribution):
    narrow = SamplingOptions(temperature=0.0)


def largest_error(rule: str, drafter_class: type = DraftModelDrafter) -> float:
    return max(
        round_error(Setting(**pair(seed, 3, 0.0), rule=rule, draft_length=2, drafter_class=drafter_class))
        for seed in range(4)
    )


WRONG_RULES = [
    resample_from_target,
    softmax_of_residual,
    residual_of_the_wrong_row,
    one_uniform_for_the_block,
    end_at_the_first_failure,
    bonus_from_the_wrong_row,
]
WRONG_DRAFTERS = [DropsADrawnToken, ReportsTheFullDistribution, GreedyReportedAsSampled]


@pytest.mark.parametrize("wrong", WRONG_RULES, ids=lambda rule: rule.__name__)
def test_a_wrong_rule_is_found(wrong, monkeypatch):
    monkeypatch.setitem(RULES, "wrong", wrong)
    error = largest_error("wrong")
    print(f"total variation {error:.3f}: {wrong.__name__}")  # shown by pytest -rP
    assert error > 1e-3


@pytest.mark.parametrize("wrong", WRONG_DRAFTERS, ids=lambda drafter: drafter.__name__)
@pytest.mark.parametrize("rule", ["token", "block"])
def test_a_wrong_drafter_is_found(wrong, rule):
    error = largest_error(rule, wrong)
    print(f"total variation {error:.3f}: {wrong.__name__} with {rule}")
    assert error > 1e-3


def test_dropping_a_drawn_token_is_harmless_only_for_match():
    assert largest_error("match", DropsADrawnToken) < EXACT


def expected_accepted(setting: Setting) -> float:
    """How many draft tokens one round accepts in expectation."""
    from toys import BranchingVerifier, Chance, branching

    total, script = 0.0, []
    with branching():
        while script is not None:
            chance = Chance(script)
            verifier = BranchingVerifier(setting.rule, chance)
            setting.target.rewind(0)
            setting.draft.rewind(0)
            drafter = DraftModelDrafter(
                setting.draft, setting.sampling, verifier.draw_draft, shared(setting.target, setting.draft)
            )
            tokens = list(setting.prompt)
            draft = drafter.propose(tokens, setting.draft_length)
            rows = setting.target.feed([*tokens, *draft.tokens], rows=len(draft.tokens) + 1)
            target = [distribution(row, setting.sampling) for row in rows]
            total += chance_of(verifier.verify(draft, target, 0).num_accepted, chance)
            script = chance.next_script()
    return total


def chance_of(num_accepted: int, chance) -> float:
    return num_accepted * chance.weight


def test_block_accepts_at_least_as_much_as_token_and_token_as_much_as_match():
    gains = []
    for seed in range(12):
        block, token, match = (
            expected_accepted(Setting(**pair(seed, 3, 0.1), rule=rule, draft_length=3))
            for rule in ("block", "token", "match")
        )
        assert block >= token - EXACT
        assert token >= match - EXACT
        gains.append(block - token)
    assert max(gains) > 0.01  # and it is worth having
