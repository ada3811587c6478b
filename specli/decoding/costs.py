"""What passes cost: the target by number of rows, the draft model by token. Measured, interpolated, and kept true."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from statistics import median, median_low
from time import perf_counter

import numpy as np

from specli.decoding.model import LanguageModel
from specli.decoding.sampling import Floats, Ids

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
# What the draft model takes for a token that it only has to catch up with, in draft tokens: many are read in one pass.
CATCH_UP = 0.4
_CHECKS = 2  # how often sizes that look too expensive are measured again
_STEP = 0.02  # how far one pass can move an estimate: no single one that was held up is believed, but thirty are


@dataclass
class PassCosts:
    """Seconds of passes after a context of some length: as measured, and as learned from later passes."""

    context: int  # tokens
    target: Mapping[int, float]  # seconds by number of rows, as measured; at least for one row
    draft: float | None  # seconds for one draft token, as measured; None without a draft model
    learns: InitVar[bool] = True  # False: decisions must not depend on the clock

    def __post_init__(self, learns: bool) -> None:
        if 1 not in self.target or not all(0 < one < math.inf for one in (*self.target.values(), self.draft or 1.0)):
            raise ValueError(f"no passes take {dict(self.target)} seconds")
        self._learns = learns
        self._sizes = sorted(self.target)
        self._seconds = np.array([self.target[size] for size in self._sizes])  # [sizes] as learned
        self.draft_seconds = self.draft or 0.0  # for one draft token, as learned

    def seconds(self, rows: int) -> float:
        """Return the seconds of a target pass, as learned."""
        return float(self.all_seconds(np.array([rows]))[0])

    def all_seconds(self, rows: Ids) -> Floats:
        """Return the seconds of target passes, [n], for numbers of rows, [n].

        Between measured sizes in proportion, beyond the last one by the row. The slope between the last two would not
        do: a size that fills the kernels' tiles can cost less than one before.
        """
        seconds: Floats = np.interp(rows, self._sizes, self._seconds) * np.maximum(1.0, rows / self._sizes[-1])
        return seconds

    def observe(self, rows: int, seconds: float, drafted: float, draft_seconds: float) -> tuple[float, float]:
        """Learn that a target pass took `seconds`, and drafting so many tokens `draft_seconds`.

        Returns the seconds of both to reckon with: without learning, those that were measured.
        """
        if not self._learns:
            return self.seconds(rows), drafted * self.draft_seconds
        if drafted and self.draft_seconds:
            ratio = draft_seconds / (self.draft_seconds * drafted)
            self.draft_seconds *= min(max(ratio, 1 - _STEP), 1 + _STEP)
        step = min(max(seconds / self.seconds(rows), 1 - _STEP), 1 + _STEP)
        self._seconds *= step  # the machine's load and a longer context change all sizes
        if rows in self.target:
            self._seconds[self._sizes.index(rows)] *= step  # and each was measured with noise
        return seconds, draft_seconds

    def break_even(self, draft_length: int) -> float | None:
        """Return the acceptance rate from which drafts of a length pay, as if it were the same at every position.

        With acceptance a, a round yields 1 + a + ... + a**length tokens. None where even full acceptance is too little,
        or the length was not measured.
        """
        if self.draft is None or draft_length + 1 not in self.target:
            return None
        needed = (draft_length * self.draft + self.target[draft_length + 1]) / self.target[1]
        if needed > draft_length + 1:
            return None
        rates = np.linspace(0.0, 1.0, 10_001)
        tokens = np.sum([rates**position for position in range(draft_length + 1)], axis=0)
        return float(np.interp(needed, tokens, rates))


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
) -> PassCosts | None:
    """Time passes after a context; medians, the lower of two.

    The context is `text` without its last max(rows) tokens, on which passes are timed; it replaces what the caches of
    both models hold. The sizes in `rows` take turns, one that stands there twice being timed twice as often: `repeats`
    times after a warm-up, but not for longer than `seconds`. A size that looks too expensive is timed again, as a pass
    that was held up would rule out drafts of that length. `progress` is called with how many passes are done and how
    many there are; `interrupted` is asked between passes, and True ends and returns None.
    """
    context = len(text) - max(rows)
    known = [min(token, draft.n_vocab - 1) for token in text] if draft is not None else []  # whatever they mean to it
    for model, read in ((target, text), (draft, known)):
        if model is not None:
            model.rewind(0)
            model.feed(read[:context], rows=0)
    taken: dict[int, list[float]] = {size: [] for size in rows}
    drafting: list[float] = []
    started = perf_counter()
    for done in range((repeats + 1) * len(rows)):  # the first of each is dropped, if there is another
        repeat, number = divmod(done, len(rows))
        if repeat and not number and perf_counter() - started > seconds:
            break
        if interrupted():
            return None
        progress(done, (repeats + 1) * len(rows))
        taken[rows[number]].append(_time_pass(target, text[context:], rows[number]))
        if draft is not None:
            drafting.append(_time_pass(draft, known[context:], 1))
    for size in (size for _ in range(_CHECKS) for size in doubtful(_typical(taken))):
        if interrupted():
            return None
        taken[size].append(_time_pass(target, text[context:], size))
    return PassCosts(context, _typical(taken), median(drafting[len(rows) :] or drafting) if drafting else None)


def _typical(taken: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {size: median_low(found[1:] or found) for size, found in taken.items()}


def doubtful(seconds: Mapping[int, float]) -> list[int]:
    """Return the sizes that seem too expensive: more than a larger one, or more by the row than a smaller one."""
    return [
        size
        for size, taken in seconds.items()
        if any(taken > one if other > size else taken / size > one / other for other, one in seconds.items())
    ]


def _time_pass(model: LanguageModel, tokens: Sequence[int], rows: int) -> float:
    before, started = model.n_past, perf_counter()
    model.feed(tokens[:rows], rows=rows)
    seconds = perf_counter() - started
    model.rewind(before)
    return seconds
