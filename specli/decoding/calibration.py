"""What a pass costs: the target by number of rows, the draft model by token; and what acceptance that asks for.

Knows the `LanguageModel` protocol and the clock. Must not know what the costs are used for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_low
from time import perf_counter

from specli.decoding.drafting import LanguageModel

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
_CHECKS = 2  # how often sizes that look too dear are measured again


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds for passes after a context of some length."""

    context: int  # tokens
    target: Mapping[int, float]  # seconds by number of rows
    draft: float | None  # seconds for one draft token

    def break_even(self, draft_length: int) -> float | None:
        """Return the acceptance rate from which drafts of a length pay, as if it were the same at every place.

        With acceptance a, a round yields 1 + a + ... + a**length tokens. None where even full acceptance is too little,
        or the length was not measured.
        """
        if self.draft is None or draft_length + 1 not in self.target:
            return None
        needed = (draft_length * self.draft + self.target[draft_length + 1]) / self.target[1]
        if needed > draft_length + 1:
            return None
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            enough = sum(middle**place for place in range(draft_length + 1)) >= needed
            low, high = (low, middle) if enough else (middle, high)
        return high


def measure_costs(
    target: LanguageModel,
    draft: LanguageModel | None,
    text: Sequence[int],
    *,
    rows: Sequence[int] = ROWS,
    repeats: int = 5,
    seconds: float = math.inf,
    progress: Callable[[int, int], None] = lambda done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> CostCurve | None:
    """Time passes after a context, sizes taking turns; medians, the lower of two.

    A size that looks too dear, see `doubtful`, is measured again: a pass that something else held up would keep drafts
    of that length away for good.

    Args:
        target: its cache is emptied.
        draft: the draft model, if there is one; likewise.
        text: token ids, more than the largest of `rows`; the context is what comes before the last ones.
        rows: numbers of rows to measure, in order; one that stands there twice is measured twice as often.
        repeats: how often each is timed, after once to warm up.
        seconds: stop repeating after this.
        progress: called with how many passes are done, and how many there are.
        interrupted: asked between passes; True ends and returns None.
    """
    context = len(text) - max(rows)
    for model in (target, draft):
        if model is not None:
            model.rewind(0)
            model.feed(text[:context], rows=0)
    taken: dict[int, list[float]] = {size: [] for size in rows}
    drafting: list[float] = []
    started = perf_counter()
    for repeat in range(repeats + 1):  # the first is dropped, if there is another
        if repeat and perf_counter() - started > seconds:
            break
        for number, size in enumerate(rows):
            if interrupted():
                return None
            progress(repeat * len(rows) + number, (repeats + 1) * len(rows))
            taken[size].append(_seconds(target, text[context : context + size], size))
            if draft is not None:
                drafting.append(_seconds(draft, text[context : context + 1], 1))
    for _ in range(_CHECKS):
        for size in doubtful(_typical(taken)):
            if interrupted():
                return None
            taken[size].append(_seconds(target, text[context : context + size], size))
    return CostCurve(context, _typical(taken), median(drafting[len(rows) :] or drafting) if drafting else None)


def _typical(taken: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {size: median_low(found[1:] or found) for size, found in taken.items()}


def doubtful(seconds: Mapping[int, float]) -> list[int]:
    """Return the numbers of rows that seem too dear: more than a larger one, or more by the row than a smaller one."""
    return [
        size
        for size, taken in seconds.items()
        if any(taken > one if other > size else taken / size > one / other for other, one in seconds.items())
    ]


def _seconds(model: LanguageModel, tokens: Sequence[int], rows: int) -> float:
    before = model.n_past
    started = perf_counter()
    model.feed(tokens, rows=rows)
    seconds = perf_counter() - started
    model.rewind(before)
    return seconds
