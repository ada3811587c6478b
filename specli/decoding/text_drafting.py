"""Drafts by a model with another tokenizer: its text counts, not its tokens.

This is string-level exact matching (Timor et al. 2025, arXiv 2502.05202): what the draft model writes is tokenized
again for the target and proposed as certain. No distributions are mapped; such a draft is like one that was looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from specli.decoding.drafting import Outcome
from specli.decoding.model import LanguageModel
from specli.decoding.sampling import Distribution, confidence
from specli.decoding.schedule import DraftPlan, Experience
from specli.decoding.sequences import shared_prefix
from specli.decoding.verification import Draft

TEXT_EXPERIENCE = Experience((0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85), 0.55)  # until more is known


class TextBridge(Protocol):
    """Text in the tokens of either model."""

    def read(self, tokens: Sequence[int]) -> list[int] | None:
        """Return the target's tokens as the draft model's, None if it cannot; each call continues the one before."""

    def write(self, tokens: Sequence[int], drafted: Sequence[int]) -> list[int]:
        """Return the draft model's tokens `drafted`, which follow the target's `tokens`, as the target's."""


class TextDrafter:
    """Drafts the most probable text of a model, as tokens of the target.

    A proposal without probabilities is accepted as often as the target draws the same, which is most often where the
    draft model's best token is proposed. The last token is held back, as it may be the beginning of a longer one.
    `end_token` is proposed where the draft model ends.
    """

    def __init__(self, model: LanguageModel, bridge: TextBridge, end_token: int | None) -> None:
        self._model = model
        self._bridge = bridge
        self._end_token = end_token
        self._num_read = 0  # of the target's tokens, in the last call

    def backlog(self, tokens: Sequence[int]) -> int:
        """Return about how many tokens before the last one the model has not read."""
        return max(0, len(tokens) - 1 - self._num_read)

    def prefill(self, tokens: Sequence[int]) -> None:
        """Read the prompt, all that fits."""
        if reading := self._read(tokens):
            self._model.feed(reading[self._model.n_past :], rows=0)

    def propose(self, tokens: Sequence[int], limit: int, plan: DraftPlan | None = None) -> Draft:
        """Propose up to `limit` tokens; a plan may end the draft earlier."""
        reading = self._read(tokens)
        if not reading or limit <= 0:
            return Draft()
        most = min(2 * limit + 1, self._model.n_context - len(reading) + 1)
        pending, drafted, ended = reading[self._model.n_past :], list[int](), False
        while len(drafted) < most and (plan is None or plan.wants_pass()):
            row = self._model.feed(pending, rows=1)[0]
            token = int(row.argmax())
            if plan is not None and not plan.wants_token(confidence(row, Distribution.one_hot(token))):
                break
            if ended := token in self._model.end_tokens:
                break
            drafted.append(token)
            if len(drafted) > limit and len(self._bridge.write(tokens, drafted)) > limit:
                break
            pending = drafted[-1:]
        proposed = self._bridge.write(tokens, drafted)
        if not ended:
            proposed = proposed[:-1]
        elif self._end_token is not None:
            proposed.append(self._end_token)
        proposed = proposed[:limit]
        if plan is not None:
            plan.resize(len(proposed))
        return Draft(proposed, [Distribution.one_hot(token) for token in proposed])

    def observe(self, outcome: Outcome) -> None:
        """Learn nothing: what to forget shows when the text is read again."""

    def _read(self, tokens: Sequence[int]) -> list[int] | None:
        """Return the text in the model's tokens, of which its cache then holds the first ones; None if it cannot."""
        reading = self._bridge.read(tokens)
        self._num_read = len(tokens)
        if not reading or len(reading) > self._model.n_context:
            return None
        self._model.rewind(min(shared_prefix(self._model.tokens, reading), len(reading) - 1))
        return reading
