"""How much faster a draft model may make a target, from the sizes of their files alone.

The assumptions: a pass takes as long as reading the model's file, however many tokens it checks, and each draft token
is accepted with the same probability. Both hold best for large targets on hardware whose memory is the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

ACCEPTANCE = 0.7  # of a draft token of a model of the same family
TEXT_ACCEPTANCE = 0.5  # of one that was tokenized again
LARGEST_SHARE = 0.6  # of the target's bytes; larger models do not make good drafts
_LONGEST_DRAFT = 8


@dataclass(frozen=True, slots=True)
class Prediction:
    """How fast a pair would be beside the target alone, and with how many draft tokens a round."""

    speedup: float
    draft_length: int


def predict(target_bytes: int, draft_bytes: int, acceptance: float) -> Prediction:
    """Return the best speedup over draft lengths from 1 on.

    A round yields (1 - a^(k+1)) / (1 - a) tokens and takes 1 + k c passes of the target (Leviathan et al. 2023, theorem
    3.8), where `a` is the acceptance, `k` the draft length and `c` the share of the draft model's bytes.
    """
    share = draft_bytes / target_bytes
    speedups = {
        length: sum(acceptance**position for position in range(length + 1)) / (1 + length * share)
        for length in range(1, _LONGEST_DRAFT + 1)
    }
    best = max(speedups, key=speedups.__getitem__)
    return Prediction(speedups[best], best)
