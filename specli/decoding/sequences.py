"""What two sequences of tokens have in common."""

from __future__ import annotations

from collections.abc import Sequence


def shared_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens two sequences have in common before they first differ."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))
