"""What the algorithm asks of a language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from specli.decoding.sampling import Floats


class LanguageModel(Protocol):
    """Logits for tokens, and a cache that can be rewound."""

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
    def tokens(self) -> Sequence[int]:
        """The tokens that the cache holds."""

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
