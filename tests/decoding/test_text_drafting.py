"""Drafts as text: exact by enumeration, in every round and every reply; the loop over toys with two tokenizers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from toys import Setting, ToyModel, reply_error, round_error

from specli.decoding.costs import PassCosts
from specli.decoding.drafting import Outcome, ScheduledDrafter
from specli.decoding.sampling import Distribution
from specli.decoding.schedule import Schedule
from specli.decoding.text_drafting import TextDrafter
from specli.decoding.verification import Draft

EXACT = 1e-12
TARGET, DRAFT = ("a", "b", "ab", "."), ("b", "a", "ba")  # texts of the tokens
rules = pytest.mark.parametrize("rule", ["token", "block", "match"])


def tokenized(text: str, vocabulary: Sequence[str]) -> list[int]:
    """The longest token that fits, from the left on."""
    tokens = []
    while text:
        token = max((one for one in vocabulary if text.startswith(one)), key=len)
        tokens.append(vocabulary.index(token))
        text = text[len(token) :]
    return tokens


class ToyBridge:
    def read(self, tokens):
        text = "".join(TARGET[token] for token in tokens)
        return None if text.endswith(".") else tokenized(text.replace(".", ""), DRAFT)

    def write(self, tokens, drafted):
        return tokenized("".join(DRAFT[token] for token in drafted), TARGET)


class Texts(TextDrafter):
    def __init__(self, model, sampling, draw, vocabulary):
        super().__init__(model, ToyBridge(), end_token=3)


class ScheduledTexts(ScheduledDrafter):
    def __init__(self, model, sampling, draw, vocabulary):
        costs = PassCosts(0, {1: 1.0, 2: 1.1, 3: 1.2, 4: 1.3, 5: 1.4}, 0.2, learns=False)
        super().__init__(Schedule(costs, held_back=1), model, Texts(model, sampling, draw, vocabulary), None)


class Overconfident(Texts):
    """A wrong variant: says that its tokens were drawn from a distribution."""

    def propose(self, tokens, limit):
        draft = super().propose(tokens, limit)
        return Draft(draft.tokens, [Distribution.dense(np.full(4, 0.25)) for _ in draft.tokens])


def setting(rule, drafter_class, seed, ends=False):
    models = {
        "target": ToyModel(seed, 4, end_tokens=frozenset({3} if ends else ())),
        "draft": ToyModel(seed + 1000, 3, zeros=0.0, end_tokens=frozenset({2} if ends else ())),
    }
    return Setting(**models, rule=rule, draft_length=3, drafter_class=drafter_class, prompt=(0, 1, 2))


@rules
@pytest.mark.parametrize("drafter_class", [Texts, ScheduledTexts])
def test_drafts_as_text_keep_the_distribution(rule, drafter_class):
    for seed in range(4):
        for ends in (False, True):
            assert round_error(setting(rule, drafter_class, seed, ends)) < EXACT
            assert reply_error(setting(rule, drafter_class, seed, ends), 4) < EXACT


@pytest.mark.parametrize("rule", ["token", "block"])
def test_a_wrong_variant_is_caught(rule):
    assert max(round_error(setting(rule, Overconfident, seed)) for seed in range(4)) > 0.01


class Scripted:
    """A draft model that writes one text whatever it reads, and then ends with its token 2, if it does."""

    def __init__(self, text: str, n_context: int = 64) -> None:
        self.text, self.tokens, self.n_context, self.start = text, [], n_context, 0
        self.n_vocab, self.end_tokens, self.passes = 3, frozenset({2}), 0

    @property
    def n_past(self) -> int:
        return len(self.tokens)

    def feed(self, tokens, rows):
        self.tokens += tokens
        self.passes += rows
        row = np.zeros((rows, 3))
        if rows:
            at = self.n_past - self.start
            row[:, DRAFT.index(self.text[at]) if at < len(self.text) else 2] = 1
        return row

    def rewind(self, length):
        del self.tokens[length:]


def propose(text, limit, prompt=(0,), n_context=64):
    model = Scripted(text, n_context)
    model.start = len(ToyBridge().read(prompt) or [])
    return list(Texts(model, None, None, None).propose(list(prompt), limit).tokens), model.passes


def test_the_last_token_is_held_back():
    assert propose("bbbbbbbb", 3) == ([1, 1, 1], 4)
    assert propose("abababab", 2) == ([2, 2], 5)  # two of its tokens make one, so it writes on: "ab", "ab", and "a"
    assert propose("abbababa", 2) == ([2, 1], 4)


def test_where_the_draft_model_ends_the_target_is_to_end():
    assert propose("ab", 4) == ([2, 3], 3)
    assert propose("", 4) == ([3], 1)
    assert propose("abb", 2) == ([2, 1], 4)  # there is no room for the end


def test_what_cannot_be_read_is_not_drafted_on():
    assert propose("bbb", 3, prompt=(0, 3)) == ([], 0)
    assert propose("bbb", 0) == ([], 0)
    assert propose("bbb", 3, prompt=(0, 1, 0, 1, 0), n_context=2) == ([], 0)
    assert propose("bbbbbb", 3, prompt=(0, 1, 0), n_context=4) == ([1, 1], 3)  # as far as its context reaches


def test_a_model_keeps_what_it_has_read():
    model = Scripted("bbbbbbbb")
    drafter = Texts(model, None, None, None)
    tokens = [0, 0]
    model.start = 2
    drafter.prefill(tokens)
    assert (model.tokens, drafter.backlog([*tokens, 1, 1]), drafter.backlog(tokens)) == ([1, 1], 1, 0)
    draft = drafter.propose(tokens, 3)
    tokens += draft.tokens
    drafter.observe(Outcome(3, len(tokens)))
    fed = model.n_past
    drafter.propose(tokens, 1)
    assert model.tokens[:fed] == tokenized("aabbb", DRAFT)[:fed]
