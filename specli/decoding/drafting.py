"""Where draft tokens come from.

Knows the `LanguageModel` protocol and distributions. Must not know how drafts are verified.

A drafter may propose anything: what comes out stays exact as long as each token is reported with the very
distribution it was drawn from, and a token that was drawn is kept. Whether to draw one more may depend on all
that is known before drawing it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from specli.decoding.sampling import Distribution, Floats, SamplingOptions, distribution


class LanguageModel(Protocol):
    """What the algorithm asks of a model: logits for tokens, and a cache that can be rewound."""

    @property
    def n_vocab(self) -> int:
        """Width of a row of logits."""

    @property
    def n_context(self) -> int:
        """How many tokens the cache holds at most."""

    @property
    def batch_size(self) -> int:
        """How many tokens one pass takes at most."""

    @property
    def max_rows(self) -> int:
        """How many rows of logits one pass returns at most."""

    @property
    def n_past(self) -> int:
        """How many tokens the cache holds now."""

    @property
    def end_tokens(self) -> frozenset[int]:
        """End-of-generation tokens."""

    def feed(self, tokens: Sequence[int], rows: int) -> Floats:
        """Append tokens to the cache and return logits for the last `rows` of them, [rows, n_vocab].

        The array is a view that is valid until the next call.
        """

    def rewind(self, length: int) -> None:
        """Drop cached tokens so that at most `length` are left.

        More are dropped where the model cannot go back exactly; `n_past` says where it stands.
        """


@dataclass(frozen=True, slots=True)
class Draft:
    """One proposed run of tokens, each with the distribution it was drawn from."""

    tokens: Sequence[int] = ()  # [k]
    probs: Sequence[Distribution] = field(default=())  # [k]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a draft."""

    num_accepted: int
    valid: int  # how many tokens of the text a cache may keep: up to the last draft token that was emitted


class Drafter(Protocol):
    """Proposes tokens. The loop knows nothing else about it."""

    def prefill(self, tokens: Sequence[int]) -> None:
        """Get ready for drafts that continue `tokens`, so that the prompt is not read on the first draft's time."""

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """Propose up to `limit` tokens that continue `tokens`."""

    def observe(self, outcome: Outcome) -> None:
        """Learn what became of the last draft."""


class DraftModelDrafter:
    """Drafts with a smaller model of the same vocabulary.

    Args:
        model: the draft model.
        sampling: what draft tokens are drawn from; best is what the target is sampled with.
        draw: draws a token for a position of the text, see `Verifier.draw_draft`.
        n_vocab: draft only token ids below this, which the target knows; vocabularies may differ by padding.
    """

    def __init__(
        self,
        model: LanguageModel,
        sampling: SamplingOptions,
        draw: Callable[[Distribution, int], int],
        n_vocab: int,
    ) -> None:
        self._model = model
        self._sampling = sampling
        self._draw = draw
        self._n_vocab = min(n_vocab, model.n_vocab)

    def prefill(self, tokens: Sequence[int]) -> None:
        """Read the prompt, all that fits; a draft model with a shorter context drafts while it lasts."""
        if self._can_read(tokens):
            self._model.feed(tokens[self._model.n_past :], rows=0)

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """Draw up to `limit` tokens from the model, an end-of-generation token being the last one."""
        limit = min(limit, self._model.n_context - len(tokens) + 1)  # the last draft token is not fed
        if limit <= 0 or not self._can_read(tokens):
            return Draft()
        drafted: list[int] = []
        probs: list[Distribution] = []
        pending = tokens[self._model.n_past :]
        while True:
            row = self._model.feed(pending, rows=1)[0, : self._n_vocab]
            history = [*tokens, *drafted] if self._sampling.has_penalties else ()
            probs.append(distribution(row, self._sampling, history))
            drafted.append(self._draw(probs[-1], len(tokens) + len(drafted)))
            if len(drafted) == limit or drafted[-1] in self._model.end_tokens:
                return Draft(drafted, probs)
            pending = drafted[-1:]

    def observe(self, outcome: Outcome) -> None:
        """Forget the rejected tail."""
        if self._model.n_past > outcome.valid:
            self._model.rewind(outcome.valid)

    def _can_read(self, tokens: Sequence[int]) -> bool:
        """Whether all unread tokens fit and are in the vocabulary; the target's padding may hold ids of its own."""
        unread = tokens[self._model.n_past :]
        return len(tokens) <= self._model.n_context and max(unread, default=0) < self._model.n_vocab
