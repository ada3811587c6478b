"""Drafts without a model: what followed the last time the text ended as it does now.

The idea is prompt lookup decoding (Saxena 2023). The index maps each run of three tokens to the position after its last
occurrence, and each position to the one before it with the same run: a hash chain, as in the compressor of RFC 1951,
section 4. Appending a token, removing one and finding a match take the same time whatever the length of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specli.decoding.sequences import shared_prefix

_RUN = 3  # tokens that must agree at least
_CANDIDATES = 8  # occurrences that are looked at, latest first
_LONGEST = 64  # tokens by which they are compared


@dataclass(frozen=True, slots=True)
class Match:
    """An earlier position where the text went on after the same tokens."""

    position: int  # of the first token that followed
    length: int  # how many tokens before it are the same, `_LONGEST` at most


class LookupIndex:
    """Finds where the end of a text has occurred before in the text."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._latest: dict[tuple[int, ...], int] = {}  # run -> the position after its last occurrence
        self._before: list[int] = []  # position -> the one before it after the same run; -1 if none

    def __len__(self) -> int:
        return len(self._tokens)

    def replace(self, tokens: Sequence[int]) -> None:
        """Take over another text; what it shares with the one before is kept."""
        self.rewind(shared_prefix(self._tokens, tokens))
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Take over a text that is the one before and more."""
        for token in tokens[len(self._tokens) :]:
            self._append(token)

    def _append(self, token: int) -> None:
        position = len(self._tokens)  # the token follows the run that ends before it
        run = tuple(self._tokens[position - _RUN :]) if position >= _RUN else ()
        self._before.append(self._latest.get(run, -1) if run else -1)
        if run:
            self._latest[run] = position
        self._tokens.append(token)

    def rewind(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        while len(self._tokens) > length:
            self._tokens.pop()
            before, position = self._before.pop(), len(self._tokens)
            if position >= _RUN:
                run = tuple(self._tokens[position - _RUN :])
                if before < 0:
                    del self._latest[run]
                else:
                    self._latest[run] = before

    def find(self) -> Match | None:
        """Return the longest match of the end of the text, the latest among equals; None if there is none."""
        end = len(self._tokens)
        if end < _RUN:
            return None
        position = self._latest.get(tuple(self._tokens[end - _RUN :]), -1)
        best: Match | None = None
        for _ in range(_CANDIDATES):
            if position < 0:
                break
            length = self._agreement(position, end)
            if best is None or length > best.length:
                best = Match(position, length)
            position = self._before[position]
        return best

    def _agreement(self, position: int, end: int) -> int:
        length = _RUN
        longest = min(position, _LONGEST)
        while length < longest and self._tokens[position - 1 - length] == self._tokens[end - 1 - length]:
            length += 1
        return length

    def continuation(self, match: Match, length: int) -> list[int]:
        """Return `length` tokens that followed; a match that reaches the end of the text goes on into itself."""
        found = self._tokens[match.position : match.position + length]
        period = len(self._tokens) - match.position
        while len(found) < length:
            found.append(found[len(found) - period])
        return found
