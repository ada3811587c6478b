"""How the token ids of a draft model relate to those of its target, where nearly all of them mean the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SharedVocabulary:
    """Token ids that a target and its draft model share.

    Where the two differ, the draft model reads something else than the target does. That costs acceptance, never
    exactness: a draft may come from anything.
    """

    size: int  # ids below it are in both
    end_tokens: frozenset[int]  # of the target: a draft ends there
    differing: tuple[int, ...] = ()  # ids below `size` that are another text for each of them: never drafted
    readings: Mapping[int, int] = field(default_factory=dict)  # the draft model's id for a text that has two
    stand_in: int = 0  # what the draft model reads for ids of the target that it does not have

    def read(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return what the draft model is fed for the target's tokens [n]: as many tokens, [n]."""
        if not self.readings and max(tokens, default=0) < self.size:
            return tokens
        return [self.readings.get(token, token if token < self.size else self.stand_in) for token in tokens]
