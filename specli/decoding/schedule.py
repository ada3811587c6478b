"""How long the next draft is, where it comes from, and whether to draft at all: what pays, in tokens per second.

Knows what passes cost and what was accepted. Must not know models, tokens or probabilities of the target.

A round with a draft of k tokens takes `k * draft + target(k + 1)` seconds and yields one token more than it accepts.
Decoding is fastest when each decision is worth its time at the best rate r that can be had: draft one more token while

    P(the whole draft with it is accepted) > r * (what it costs)

(renewal theory: the best policy makes tokens - r * seconds as large as it can be, r being the rate it reaches). Target
passes have steps, so the rule looks as far ahead as drafts can be long. Whether a token will be accepted is estimated
before it is drawn, from the largest probability of the draft distribution, and the estimate is calibrated by what was
accepted. Looking at the distribution before drawing keeps the output exact; dropping a drawn token would not.

Estimates can be wrong, so there is a purse: what drafts may lose against plain decoding, in plain tokens. A draft whose
complete rejection the purse cannot bear is not made. While no drafts are made, estimates slowly return to what was
assumed at first, so that drafting is tried again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

# Bounds of the bins of confidence (the largest draft probability), finer where it matters; and the bins' middles.
_CONFIDENCES = (0.3, 0.5, 0.65, 0.8, 0.9, 0.97)
_MIDDLES = (0.2, 0.4, 0.57, 0.72, 0.85, 0.94, 0.99)
_SHARES = (0.05, 0.08, 0.08, 0.09, 0.1, 0.1, 0.5)  # how often each bin is seen
# Bounds of the bins of how many tokens before a looked up draft have occurred before.
_MATCHES = (3, 4, 6, 9, 16, 32)
_MEMORY = 0.985  # weight of an old observation when a new one comes: some seventy count
_RELAX = 0.02  # how far estimates return to what was assumed at first, for each round without a draft
# Plain tokens: what the purse holds at first, what each token adds, and the most it holds. A draft of several tokens
# may risk no more than a share of it.
_PURSE, _PURSE_GROWTH, _PURSE_BOUND, _RISK = 2.0, 0.01, 12.0, 0.8
# A token that a draft model must catch up with, in draft tokens: many are read in one pass.
CATCH_UP = 0.3


class Average:
    """A mean that forgets, starting from an assumption that counts like so many observations."""

    def __init__(self, value: float, weight: float) -> None:
        self.value, self.weight = value, weight
        self._assumed, self._least = value, weight

    def add(self, observed: float) -> None:
        """Count one observation."""
        self.weight = self.weight * _MEMORY + 1
        self.value += (observed - self.value) / self.weight

    def relax(self) -> None:
        """Forget a little of what was observed."""
        self.value += _RELAX * (self._assumed - self.value)
        self.weight = max(self._least, self.weight * (1 - _RELAX))


class Costs:
    """Seconds of passes, from a calibration and kept true by what passes really take.

    Args:
        target: seconds by number of rows, at least for 1.
        draft: seconds for one draft token; 0 where there is no draft model.
        learns: whether to follow what passes take. Without, decisions are the same each time, and so is the text of a
            seed.
    """

    def __init__(self, target: Mapping[int, float], draft: float, *, learns: bool = True) -> None:
        self._rows = sorted(target)
        self._seconds = [target[rows] for rows in self._rows]
        self._draft = draft
        self._learns = learns
        self._target_factor, self._draft_factor = Average(1.0, 4), Average(1.0, 4)  # for all sizes: load, long context
        self._factors = [Average(1.0, 4) for _ in self._rows]  # for each size: the calibration had noise

    @property
    def draft(self) -> float:
        """Seconds for one draft token."""
        return self._draft * self._draft_factor.value

    def target(self, rows: int) -> float:
        """Seconds for a target pass; between measured sizes in proportion, beyond the last one at its slope."""
        if len(self._rows) == 1:
            return self._known(0) * rows / self._rows[0]
        place = min(max(bisect_right(self._rows, rows) - 1, 0), len(self._rows) - 2)
        left, right = self._rows[place], self._rows[place + 1]
        low, high = self._known(place), self._known(place + 1)
        return max(low + (high - low) * (rows - left) / (right - left), 1e-6)

    def _known(self, place: int) -> float:
        return self._seconds[place] * self._target_factor.value * self._factors[place].value

    def observe(self, rows: int, seconds: float, drafted: float, draft_seconds: float) -> float:
        """Learn what the passes of a round took, and return the seconds of the round to reckon with."""
        if not self._learns:
            return self.target(rows) + drafted * self.draft
        if drafted and self._draft > 0:
            self._draft_factor.add(_bounded(draft_seconds / (self._draft * drafted)))
        self._target_factor.add(self._target_factor.value * _bounded(seconds / self.target(rows)))
        if rows in self._rows:
            factor = self._factors[self._rows.index(rows)]
            factor.add(factor.value * _bounded(seconds / self.target(rows)))
        return seconds + draft_seconds


def _bounded(factor: float) -> float:
    """Keep a single pass that was held up from being believed."""
    return min(max(factor, 0.3), 3.0)


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """How long a looked up draft should be, and what it is worth: tokens beyond those its time would give anyway."""

    length: int
    value: float


class Schedule:
    """Decides token by token how long a draft gets.

    Args:
        costs: what passes cost.
        limit: the longest draft by a draft model.
        lookup_limit: the longest looked up draft.
    """

    def __init__(self, costs: Costs, limit: int = 16, lookup_limit: int = 48) -> None:
        self._costs = costs
        self._limit, self._lookup_limit = limit, lookup_limit
        # Acceptance by confidence bin, and how often each bin is seen.
        self._by_confidence = [Average(0.31 + 0.59 * middle, 8) for middle in _MIDDLES]
        self._frequencies = [Average(share, 20) for share in _SHARES]
        # Acceptance of the next token, not knowing its distribution yet, by the bin of the one before; the last entry
        # is for the first token of a draft.
        self._next = [Average(0.39 + 0.41 * middle, 6) for middle in _MIDDLES] + [Average(0.85, 6)]
        # Acceptance of looked up tokens, by how much has occurred before.
        self._by_match = [Average(chance, 4) for chance in (0.5, 0.6, 0.7, 0.8, 0.9, 0.93, 0.96)]
        self._tokens = Average(1.0, 8)  # of a round
        self._seconds = Average(costs.target(1), 8)
        self._purse = _PURSE
        self._bins: list[int] = []  # of the tokens of the present draft
        self._match: int | None = None  # the bin of the present draft, if it was looked up
        self._reach = 1.0  # chance that all of its tokens are accepted
        self._rate = 1 / costs.target(1)
        self._round_limit = self._backlog = 0

    @property
    def costs(self) -> Costs:
        """What passes cost."""
        return self._costs

    @property
    def rate(self) -> float:
        """Tokens per second that a decision must be worth: the best that a fixed length would reach, or plain decoding.

        But no more than what was reached lately, if that is better than plain decoding.
        """
        plain = 1 / self._costs.target(1)
        reached = self._tokens.value / self._seconds.value
        best, tokens, reach = plain, 1.0, 1.0
        for length in range(1, self._limit + 1):
            reach *= self._average
            tokens += reach
            best = max(best, tokens / (length * self._costs.draft + self._costs.target(length + 1)))
        return min(best, reached) if reached > plain else plain

    def can_ever_pay(self) -> bool:
        """Whether drafts by the model would pay if all of them were accepted."""
        plain = self._costs.target(1)
        return any(self._round_cost(length) < (length + 1) * plain for length in range(1, self._limit + 1))

    def begin(self, limit: int, backlog: int = 0) -> None:
        """Start a round.

        Args:
            limit: how many tokens its draft may have.
            backlog: how many tokens the draft model must catch up with before it can draft.
        """
        self._bins, self._reach, self._match = [], 1.0, None
        self._rate = self.rate
        self._backlog = backlog
        self._round_limit = self._affordable(min(limit, self._limit))
        self._lookup_round_limit = min(limit, self._lookup_limit)

    def plan_lookup(self, match: int) -> LookupPlan:
        """Return the best length of a looked up draft.

        Args:
            match: how many tokens before the draft have occurred before in the same order.
        """
        chance = self._by_match[bisect_right(_MATCHES, match)].value
        base, plain = self._costs.target(1), self._costs.target(1)
        best, gained, reach = LookupPlan(0, 0.0), 0.0, 1.0
        for length in range(1, self._lookup_round_limit + 1):
            reach *= chance
            gained += reach
            cost = self._costs.target(length + 1) - base
            if cost / plain > (_RISK if length > 1 else 1.0) * self._purse:
                continue  # a longer one may be cheaper where passes have steps
            value = gained - self._rate * cost
            if value > best.value:
                best = LookupPlan(length, value)
        return best

    def use_lookup(self, match: int) -> None:
        """Note that this round's draft is looked up."""
        self._match = bisect_right(_MATCHES, match)

    def model_value(self) -> float:
        """Return what a draft by the model is worth, as `LookupPlan.value`; 0 where none is made."""
        return self._value(self._next[-1].value, paid=False)

    def wants_pass(self) -> bool:
        """Whether to find out the next draft distribution, which costs a pass of the draft model."""
        if len(self._bins) >= self._round_limit:
            return False
        before = self._bins[-1] if self._bins else len(self._next) - 1
        return self._value(self._next[before].value, paid=False) > 0

    def wants_token(self, confidence: float) -> bool:
        """Whether to draw a token from the distribution, whose largest probability is `confidence`."""
        place = bisect_right(_CONFIDENCES, confidence)
        chance = self._by_confidence[place].value
        if self._value(chance, paid=True) <= 0:
            return False
        self._bins.append(place)
        self._reach *= chance
        return True

    def _value(self, chance: float, *, paid: bool) -> float:
        """Return what one more token, or that and more, is worth.

        Args:
            chance: that the next token is accepted if those before it are.
            paid: whether the draft pass for it has been made.
        """
        length = len(self._bins)
        draft, base = self._costs.draft, self._costs.target(length + 1)
        extra = 0.0 if length or paid else CATCH_UP * draft * self._backlog
        best, gained, reach = 0.0, 0.0, self._reach * chance
        later = self._average
        for more in range(1, self._round_limit - length + 1):
            gained += reach
            cost = extra + (more - paid) * draft + self._costs.target(length + more + 1) - base
            best = max(best, gained - self._rate * cost)
            reach *= later
        return best

    def _affordable(self, limit: int) -> int:
        """Return the longest draft whose complete rejection the purse can bear."""
        plain = self._costs.target(1)
        for length in range(limit, 0, -1):
            loss = (self._round_cost(length) + CATCH_UP * self._backlog * self._costs.draft) / plain - 1
            if loss <= (_RISK if length > 1 else 1.0) * self._purse:
                return length
        return 0

    def _round_cost(self, length: int) -> float:
        return length * self._costs.draft + self._costs.target(length + 1)

    @property
    def _average(self) -> float:
        """Acceptance of a token about which nothing is known."""
        shares = [one.value for one in self._frequencies]
        pairs = zip(shares, self._by_confidence, strict=True)
        return sum(share * one.value for share, one in pairs) / sum(shares)

    def observe(self, num_accepted: int, drafted: int, seconds: float) -> None:
        """Learn what became of the draft.

        Args:
            num_accepted: how many of its tokens were accepted.
            drafted: how many it had.
            seconds: what the round took.
        """
        if self._match is not None:
            for place in range(min(num_accepted + 1, drafted)):
                self._by_match[self._match].add(float(place < num_accepted))
        tested = self._bins[: num_accepted + 1]
        for place, found in enumerate(tested):
            accepted = float(place < num_accepted)
            self._by_confidence[found].add(accepted)
            for at, frequency in enumerate(self._frequencies):
                frequency.add(float(at == found))
            self._next[tested[place - 1] if place else -1].add(accepted)
        tokens = num_accepted + 1
        self._tokens.add(tokens)
        self._seconds.add(seconds)
        gained = tokens - seconds / self._costs.target(1)
        self._purse = min(self._purse + gained + _PURSE_GROWTH * tokens, _PURSE_BOUND)
        if not drafted:
            for average in (*self._by_confidence, *self._next, *self._by_match):
                average.relax()
