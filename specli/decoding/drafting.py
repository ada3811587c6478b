"""Where draft tokens come from.

A drafter may propose anything: what comes out stays exact as long as each token is reported with the very
distribution it was drawn from, and a token that was drawn is kept. Whether to draw one more may depend on all
that is known before drawing it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from specli.decoding.lookup import LookupIndex
from specli.decoding.model import LanguageModel
from specli.decoding.options import SamplingOptions
from specli.decoding.sampling import Distribution, confidence, distribution
from specli.decoding.schedule import DraftPlan, Schedule
from specli.decoding.verification import Draft
from specli.decoding.vocabularies import SharedVocabulary


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a draft."""

    num_accepted: int
    valid: int  # how many tokens of the text a cache may keep: up to the last draft token that was emitted
    rows: int = 0  # of the target pass that verified it; 0 when there was no round
    pass_seconds: float = 0.0
    draft_seconds: float = 0.0


class Drafter(Protocol):
    """Proposes tokens. The loop knows nothing else about it."""

    def prefill(self, tokens: Sequence[int]) -> None:
        """Get ready for drafts that continue `tokens`, so that the prompt is not read on the first draft's time."""

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """Propose up to `limit` tokens that continue `tokens`."""

    def observe(self, outcome: Outcome) -> None:
        """Learn what became of the last draft."""


class ModelDrafter(Drafter, Protocol):
    """Drafts with a model, as a plan says."""

    def backlog(self, tokens: Sequence[int]) -> int:
        """Return how many tokens before the last one the model has not read."""

    def propose(self, tokens: Sequence[int], limit: int, plan: DraftPlan | None = None) -> Draft:
        """Propose up to `limit` tokens; a plan may end the draft earlier, asked before each pass and each token."""


class DraftModelDrafter:
    """Drafts with a smaller model of the same vocabulary, or nearly the same.

    Best is the sampling of the target. `draw` draws a token for a position of the text, see `Verifier.draw_draft`. Only
    tokens are drafted that are the same for the target.
    """

    def __init__(
        self,
        model: LanguageModel,
        sampling: SamplingOptions,
        draw: Callable[[Distribution, int], int],
        vocabulary: SharedVocabulary,
    ) -> None:
        never = tuple((token, -math.inf) for token in vocabulary.differing)
        self._model = model
        self._sampling = replace(sampling, logit_bias=(*sampling.logit_bias, *never)) if never else sampling
        self._draw = draw
        self._vocabulary = vocabulary

    def backlog(self, tokens: Sequence[int]) -> int:
        """Return how many tokens before the last one the model has not read."""
        return max(0, len(tokens) - 1 - self._model.n_past)

    def prefill(self, tokens: Sequence[int]) -> None:
        """Read the prompt, all that fits; a draft model with a shorter context drafts while it lasts."""
        if self._can_read(tokens):
            self._model.feed(self._vocabulary.read(tokens[self._model.n_past :]), rows=0)

    def propose(self, tokens: Sequence[int], limit: int, plan: DraftPlan | None = None) -> Draft:
        """Draw up to `limit` tokens from the model, an end-of-generation token being the last one.

        A plan may end the draft earlier: before a pass, or before drawing from the distribution that the pass gave.
        """
        limit = min(limit, self._model.n_context - len(tokens) + 1)  # the last draft token is not fed
        if limit <= 0 or not self._can_read(tokens):
            return Draft()
        drafted: list[int] = []
        probs: list[Distribution] = []
        pending = self._vocabulary.read(tokens[self._model.n_past :])
        while plan is None or plan.wants_pass():
            row = self._model.feed(pending, rows=1)[0, : self._vocabulary.size]
            history = [*tokens, *drafted] if self._sampling.has_penalties else ()
            found = distribution(row, self._sampling, history)
            if plan is not None and not plan.wants_token(confidence(row, found)):
                break
            probs.append(found)
            drafted.append(self._draw(probs[-1], len(tokens) + len(drafted)))
            if len(drafted) == limit or drafted[-1] in self._vocabulary.end_tokens:
                break
            pending = drafted[-1:]
        return Draft(drafted, probs)

    def observe(self, outcome: Outcome) -> None:
        """Forget the rejected tail."""
        self._model.rewind(outcome.valid)  # also if there is none: a recurrent model learns what stays

    def _can_read(self, tokens: Sequence[int]) -> bool:
        return len(tokens) <= self._model.n_context


class LookupDrafter:
    """Drafts what followed the last time, wherever the end of the text has occurred before; needs no model."""

    def __init__(self, index: LookupIndex) -> None:
        self._index = index

    def prefill(self, tokens: Sequence[int]) -> None:
        """Take over the prompt."""
        self._index.replace(tokens)

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """Propose `limit` tokens, if there is a match."""
        self._index.extend(tokens)
        match = self._index.find()
        return _looked_up(self._index.continuation(match, limit)) if match is not None else Draft()

    def observe(self, outcome: Outcome) -> None:
        """Learn nothing."""


def _looked_up(tokens: Sequence[int]) -> Draft:
    return Draft(tokens, [Distribution.one_hot(token) for token in tokens])


class ScheduledDrafter:
    """Drafts as a schedule plans: with a draft model, by looking up what occurred before, or not at all."""

    def __init__(
        self, schedule: Schedule, target: LanguageModel, model: ModelDrafter | None, index: LookupIndex | None
    ) -> None:
        self._schedule = schedule
        self._target = target
        self._model = model
        self._index = index
        self.plan = schedule.plan(0)  # of the present round

    def prefill(self, tokens: Sequence[int]) -> None:
        """Read the prompt, with the draft model only if drafts promise to pay: it takes time before the first token."""
        self._schedule.begin_reply()
        if self._index is not None:
            self._index.replace(tokens)
        if self._model is not None and self._schedule.expects_drafts:
            self._model.prefill(tokens)

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """Propose what promises the most tokens per second; nothing, where plain decoding does."""
        match = None
        if self._index is not None:
            self._index.extend(tokens)
            match = self._index.find()
        backlog = self._model.backlog(tokens) if self._model is not None else 0
        replayed = max(0, len(tokens) - 1 - self._target.n_past)
        self.plan = self._schedule.plan(limit, backlog, match.length if match is not None else 0, replayed)
        if self._index is not None and match is not None and self.plan.lookup_length:
            return _looked_up(self._index.continuation(match, self.plan.lookup_length))
        return self._model.propose(tokens, limit, self.plan) if self._model is not None else Draft()

    def observe(self, outcome: Outcome) -> None:
        """Learn what the draft was worth."""
        if self._model is not None:
            self._model.observe(outcome)
        if outcome.rows:
            self._schedule.observe(self.plan, outcome.num_accepted, outcome.pass_seconds, outcome.draft_seconds)
