"""Comparing token sequences."""

from __future__ import annotations

from collections.abc import Sequence


def shared_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens two sequences have in common at their beginning."""
    pairs = zip(first, second, strict=False)
    shorter = min(len(first), len(second))
    return next((index for index, (one, other) in enumerate(pairs) if one != other), shorter)
