"""How long the next draft is, where it comes from, and whether to draft at all: what pays, in tokens per second.

Knows what passes cost and what was accepted. Must not know models, tokens or probabilities of the target.

A round with a draft of k tokens takes `k * draft + target(k + 1)` seconds and yields one token more than it accepts.
The best policy makes tokens - rate * seconds as large as it can be, where rate is the tokens per second that it reaches
(renewal theory): at that rate, a round is worth exactly nothing. So drafting is a problem of optimal stopping: what is
one more token worth, with all that may follow, if time is paid at the rate (`StoppingTable`)? That looks across the
steps that target passes have. Whether a token will be accepted is estimated before it is drawn, from the largest
probability of the draft distribution, and the estimate is calibrated by what was accepted. Looking at the distribution
before drawing keeps the output exact; dropping a drawn token would not.

Estimates can be wrong, so there is a purse: what drafts may lose against plain decoding, in plain tokens. A draft whose
complete rejection the purse cannot bear is not made. While no drafts are made, estimates slowly return to what was
assumed at first, so that drafting is tried again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specli.decoding.stopping import StoppingTable

# Bounds of the bins of confidence (the largest draft probability), finer where it matters; what acceptance is assumed
# at first in each bin, and how often each one is seen.
_CONFIDENCES = (0.3, 0.5, 0.65, 0.8, 0.9, 0.97, 0.99, 0.999)
_ACCEPTANCE = (0.38, 0.48, 0.58, 0.71, 0.83, 0.92, 0.96, 0.98, 0.99)
_SHARES = (0.08, 0.1, 0.09, 0.09, 0.08, 0.1, 0.09, 0.15, 0.22)
_START = len(_SHARES)  # stands for the confidence before the first token of a draft
# Bounds of the bins of how many tokens before a looked up draft have occurred before; and what is assumed.
_MATCHES = (3, 4, 6, 9, 16, 32)
_MATCH_ACCEPTANCE = (0.5, 0.6, 0.68, 0.75, 0.82, 0.87, 0.9)
# Rounds for which decisions follow the same tables; and where no drafts are made, so that this costs nothing.
_TABLE_AGE, _IDLE_TABLE_AGE = 6, 16
_SOLVING = 2  # steps of Newton's method towards the rate, each time
_MEMORY = 0.985  # weight of an old observation when a new one comes: some seventy count
_RELAX = 0.02  # how far estimates return to what was assumed at first, for each round without a draft
# Plain tokens: what the purse holds when a reply begins, what each token adds, and the most it holds. A draft of
# several tokens may risk no more than a share of it. Of what a looked up draft promises, half is believed: a long match
# is seldom wrong from its first token on.
_PURSE, _PURSE_GROWTH, _PURSE_BOUND, _RISK, _BELIEVED = 2.0, 0.012, 6.0, 0.8, 0.5
# The longest draft by a draft model, and the longest looked up.
LONGEST_DRAFT, LONGEST_LOOKUP = 24, 48
# A token that a draft model must catch up with, in draft tokens: many are read in one pass. Rounds to come share it.
CATCH_UP, _SHARING = 0.4, 5


class Average:
    """A mean that forgets, starting from an assumption that counts like so many observations."""

    def __init__(self, value: float, weight: float) -> None:
        self.value, self.weight = value, weight
        self._assumed, self._least = value, weight

    def add(self, observed: float) -> None:
        """Count one observation."""
        self.weight = self.weight * _MEMORY + 1
        self.value += (observed - self.value) / self.weight

    def relax(self, times: int) -> None:
        """Forget a little of what was observed, so many times."""
        kept = (1 - _RELAX) ** times
        self.value = self._assumed + kept * (self.value - self._assumed)
        self.weight = max(self._least, self.weight * kept)


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
        """Seconds for a target pass; between measured sizes in proportion, beyond the last one by the row.

        The slope between the last two would not do: a size that fills the kernels' tiles can cost less than one before.
        """
        if rows >= self._rows[-1]:
            return self._known(-1) * rows / self._rows[-1]
        place = max(bisect_right(self._rows, rows) - 1, 0)
        left, right = self._rows[place], self._rows[place + 1]
        low, high = self._known(place), self._known(place + 1)
        return max(low + (high - low) * (rows - left) / (right - left), 1e-6)

    def _known(self, place: int) -> float:
        return self._seconds[place] * self._target_factor.value * self._factors[place].value

    def observe(self, rows: int, seconds: float, drafted: float, draft_seconds: float) -> tuple[float, float]:
        """Learn what the passes of a round took; return the seconds of the target's and the draft's to reckon with."""
        if not self._learns:
            return self.target(rows), drafted * self.draft
        if drafted and self._draft > 0:
            self._draft_factor.add(_bounded(draft_seconds / (self._draft * drafted)))
        self._target_factor.add(self._target_factor.value * _bounded(seconds / self.target(rows)))
        if rows in self._rows:
            factor = self._factors[self._rows.index(rows)]
            factor.add(factor.value * _bounded(seconds / self.target(rows)))
        return seconds, draft_seconds


def _bounded(factor: float) -> float:
    """Keep a single pass that was held up from being believed."""
    return min(max(factor, 0.3), 3.0)


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """How long a looked up draft should be, and what it is worth: tokens beyond those its time would give anyway."""

    length: int
    value: float


def _shares_after(before: int) -> list[float]:
    """Return how often each confidence is assumed to follow another one: it tends to stay."""
    near = [0.4 * (at == before) for at in range(len(_SHARES))]
    left = 1 - sum(near)
    return [left * share + more for share, more in zip(_SHARES, near, strict=True)]


@dataclass(frozen=True, slots=True)
class Experience:
    """How often drafts were accepted; what a schedule assumes when it starts."""

    acceptance: tuple[float, ...]  # [bins] by confidence
    shares: tuple[tuple[float, ...], ...]  # [bins + 1, bins] how often a confidence follows another; last, the first
    matches: tuple[float, ...]  # acceptance of looked up tokens, by how much had occurred before


NO_EXPERIENCE = Experience(
    _ACCEPTANCE, tuple(tuple(_shares_after(before)) for before in range(_START + 1)), _MATCH_ACCEPTANCE
)


class Schedule:
    """Decides token by token how long a draft gets.

    Args:
        costs: what passes cost.
        limit: the longest draft by a draft model; 0 where there is none.
        lookup_limit: the longest looked up draft.
        experience: what is assumed at first.
    """

    def __init__(
        self,
        costs: Costs,
        limit: int = LONGEST_DRAFT,
        lookup_limit: int = LONGEST_LOOKUP,
        experience: Experience = NO_EXPERIENCE,
    ) -> None:
        self._costs = costs
        self._limit, self._lookup_limit = limit, lookup_limit
        self._acceptance = [Average(chance, 8) for chance in experience.acceptance]
        self._shares = [[Average(share, 12) for share in row] for row in experience.shares]
        self._by_match = [Average(chance, 6) for chance in experience.matches]
        self._seconds = Average(costs.target(1), 8)  # of a round
        self._purse = _PURSE
        self._bins: list[int] = []  # of the tokens of the present draft
        self._match: int | None = None  # the bin of the present draft, if it was looked up
        self._reach = 1.0  # chance that all of its tokens are accepted
        self._rate = 1 / costs.target(1)
        self._round_limit = self._lookup_round_limit = self._backlog = 0
        self._age, self._drafting, self._idle = 0, False, 0  # since the tables were made
        self._refresh()

    @property
    def costs(self) -> Costs:
        """What passes cost."""
        return self._costs

    @property
    def experience(self) -> Experience:
        """What drafts have taught so far."""
        return Experience(
            tuple(one.value for one in self._acceptance),
            tuple(tuple(one.value for one in row) for row in self._shares),
            tuple(one.value for one in self._by_match),
        )

    @property
    def rate(self) -> float:
        """Tokens per second that each decision must be worth."""
        return self._rate

    def expects_drafts(self) -> bool:
        """Whether drafts by the model promise to pay, as far as is known now and whatever may be risked."""
        table, _ = self._solve(self._limit)
        return table.worth(0, 1.0, _START) > 0

    def begin_reply(self) -> None:
        """Start a reply: it may lose as much as the first one, whatever those before it lost."""
        self._purse = max(self._purse, _PURSE)

    def begin(self, limit: int, backlog: int = 0) -> None:
        """Start a round.

        Args:
            limit: how many tokens its draft may have.
            backlog: how many tokens the draft model must catch up with before it can draft.
        """
        self._bins, self._reach, self._match = [], 1.0, None
        if self._age >= (_TABLE_AGE if self._drafting else _IDLE_TABLE_AGE):
            self._refresh()
        self._age += 1
        self._backlog = backlog
        self._round_limit = self._affordable(min(limit, self._limit))
        self._lookup_round_limit = min(limit, self._lookup_limit)
        if self._round_limit not in self._tables:
            self._tables[self._round_limit] = self._solve(self._round_limit)
        self._table, self._rate = self._tables[self._round_limit]

    def _refresh(self) -> None:
        """Take over what was learned since the tables were made, and forget a little where nothing was tried."""
        if self._idle:
            for average in (*self._acceptance, *self._by_match, *(one for row in self._shares for one in row)):
                average.relax(self._idle)
        most = max(self._limit, self._lookup_limit) + 1
        self._passes = [0.0, *(self._costs.target(rows) for rows in range(1, most + 1))]  # seconds by rows
        self._tables: dict[int, tuple[StoppingTable, float]] = {}  # by the longest draft of the round
        self._age, self._drafting, self._idle = 0, False, 0

    def _solve(self, limit: int) -> tuple[StoppingTable, float]:
        """Return the tables at the rate at which a round is worth nothing: 1 + drafting - rate * plain seconds = 0.

        Args:
            limit: of a draft.
        """
        plain = self._passes[1]
        acceptance = np.array([one.value for one in self._acceptance])
        shares = np.array([[one.value for one in row] for row in self._shares])
        rows = np.diff(self._passes[1 : limit + 2])
        rate = max(self._rate, 1 / plain) if limit else 1 / plain
        table = StoppingTable(acceptance, shares, rate * rows, rate * self._costs.draft)
        for _ in range(_SOLVING):
            surplus = 1 + table.worth(0, 1.0, _START) - rate * plain
            if surplus <= 0 and rate * plain <= 1:
                break  # plain decoding is best
            rate = max(rate + surplus / max(self._seconds.value, plain), 1 / plain)
            table = StoppingTable(acceptance, shares, rate * rows, rate * self._costs.draft)
        return table, rate

    def plan_lookup(self, match: int) -> LookupPlan:
        """Return the best length of a looked up draft.

        Args:
            match: how many tokens before the draft have occurred before in the same order.
        """
        chance = self._by_match[bisect_right(_MATCHES, match)].value
        plain = self._passes[1]
        # A draft model that is in use lags behind by what is accepted.
        lag = CATCH_UP * self._costs.draft if self._table.worth(0, 1.0, _START) > 0 else 0.0
        best, gained, reach = LookupPlan(0, 0.0), 0.0, 1.0
        for length in range(1, self._lookup_round_limit + 1):
            reach *= chance
            gained += reach
            cost = self._passes[length + 1] - plain
            if cost / plain - _BELIEVED * gained > (_RISK if length > 1 else 1.0) * self._purse:
                continue  # a longer one may be cheaper where passes have steps
            value = gained - self._rate * (cost + gained * lag)
            if value > best.value:
                best = LookupPlan(length, value)
        return best

    def use_lookup(self, match: int) -> None:
        """Note that this round's draft is looked up."""
        self._match = bisect_right(_MATCHES, match)

    def model_value(self) -> float:
        """Return what a draft by the model is worth, as `LookupPlan.value`; 0 where none is made."""
        return max(0.0, self._pass_worth())

    def wants_pass(self) -> bool:
        """Whether to find out the next draft distribution, which costs a pass of the draft model."""
        wanted = len(self._bins) < self._round_limit and self._pass_worth() > 0
        self._drafting = self._drafting or wanted
        return wanted

    def _pass_worth(self) -> float:
        if not self._round_limit:
            return 0.0
        before = self._bins[-1] if self._bins else _START
        worth = self._table.worth(len(self._bins), self._reach, before)
        catch_up = 0.0 if self._bins else CATCH_UP * self._costs.draft * self._backlog / _SHARING
        return worth - self._rate * catch_up

    def wants_token(self, confidence: float) -> bool:
        """Whether to draw a token from the distribution, whose largest probability is `confidence`."""
        place = bisect_right(_CONFIDENCES, confidence)
        if self._table.token_worth(len(self._bins), self._reach, place) <= 0:
            return False
        self._bins.append(place)
        self._reach *= self._acceptance[place].value
        return True

    def _affordable(self, limit: int) -> int:
        """Return the longest draft whose complete rejection the purse can bear."""
        plain, draft = self._passes[1], self._costs.draft
        for length in range(limit, 0, -1):
            seconds = (length + CATCH_UP * self._backlog) * draft + self._passes[length + 1]
            if seconds / plain - 1 <= (_RISK if length > 1 else 1.0) * self._purse:
                return length
        return 0

    def observe(self, num_accepted: int, drafted: int, seconds: float, draft_seconds: float) -> None:
        """Learn what became of the draft.

        Args:
            num_accepted: how many of its tokens were accepted.
            drafted: how many it had.
            seconds: what the target pass took.
            draft_seconds: what drafting took, also where it came to nothing.
        """
        if self._match is not None:
            for place in range(min(num_accepted + 1, drafted)):
                self._by_match[self._match].add(float(place < num_accepted))
        tested = self._bins[: num_accepted + 1]
        for place, found in enumerate(tested):
            self._acceptance[found].add(float(place < num_accepted))
            before = tested[place - 1] if place else _START
            for at, share in enumerate(self._shares[before]):
                share.add(float(at == found))
        tokens = num_accepted + 1
        self._seconds.add(seconds + draft_seconds)
        # A pass without a draft is plain decoding, whatever it took. A draft cannot lose more than there was, unless
        # the costs were wrong, as when the machine has become slower: that is no reason to stay away for long.
        plain = self._costs.target(1)
        gained = (tokens - seconds / plain if drafted else 0.0) - draft_seconds / plain
        self._purse = min(max(self._purse + gained, 0.0) + _PURSE_GROWTH * tokens, _PURSE_BOUND)
        self._idle += not drafted
