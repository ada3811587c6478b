"""When to stop drafting: what one more draft token is worth, with all that may follow (optimal stopping).

Knows chances and costs as numbers. Must not know where they come from.
"""

from __future__ import annotations

import math

import numpy as np

from specli.decoding.sampling import Floats

_REACHES, _REACH_STEP = 24, 0.85  # the grid of chances that a draft is accepted so far: 1, 0.85, 0.72, ...


class StoppingTable:
    """What drafting on is worth at each step of a draft, by backward induction (optimal stopping).

    Before a pass of the draft model, a draft has a length, a chance that all of it is accepted (its reach), and the
    confidence of its last token. The pass costs its time and shows the confidence of the next token; taking that token
    costs the longer target pass and adds its reach. Worth is in tokens; time is worth the rate.

    Args:
        acceptance: [bins] by confidence.
        shares: [bins + 1, bins] how often a confidence follows another one; the last row is for the first token.
        rows: [limit] what one more row of the target pass costs, after 1, 2, ... rows.
        draft: what a pass of the draft model costs.
    """

    def __init__(self, acceptance: Floats, shares: Floats, rows: Floats, draft: float) -> None:
        reaches = _REACH_STEP ** np.arange(_REACHES)  # [reaches]
        steps = np.log(np.maximum(acceptance, 1e-3)) / np.log(_REACH_STEP)  # [bins]
        places = np.minimum(np.arange(_REACHES)[:, None] + steps, _REACHES - 1.0)  # [reaches, bins]
        low = places.astype(np.intp)
        high, part = np.minimum(low + 1, _REACHES - 1), places - low
        bins = np.arange(len(acceptance))
        shares = shares / shares.sum(axis=1, keepdims=True)
        after = np.zeros((_REACHES, len(acceptance) + 1))  # worth of a pass: [reaches, confidence before]
        self._pass, self._token = [after], []  # [limit + 1] and [limit], from the end
        for row in rows[::-1]:
            later = (1 - part) * after[low, bins] + part * after[high, bins]
            token = reaches[:, None] * acceptance - row + later  # [reaches, bins]
            after = np.maximum(np.maximum(token, 0) @ shares.T - draft, 0)
            self._token.append(token)
            self._pass.append(after)

    def worth(self, length: int, reach: float, before: int) -> float:
        """Return what finding out the next distribution is worth; 0 if it is not worth its time."""
        return self._at(self._pass[-1 - length], reach, before)

    def token_worth(self, length: int, reach: float, confidence: int) -> float:
        """Return what taking the token is worth, with all that may follow."""
        return self._at(self._token[-1 - length], reach, confidence)

    def _at(self, table: Floats, reach: float, column: int) -> float:
        place = min(math.log(max(reach, 1e-9)) / math.log(_REACH_STEP), _REACHES - 1.0)
        low = int(place)
        high = min(low + 1, _REACHES - 1)
        return float(table[low, column] + (place - low) * (table[high, column] - table[low, column]))
