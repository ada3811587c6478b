"""How long the next draft is, where it comes from, and whether to draft at all: what pays, in tokens per second.

The policy that is fastest in the long run makes tokens - rate * seconds of each round as large as it can be, where rate
is the tokens per second that it reaches (renewal-reward theory). So one rule decides everything here. With a prefix
probability (that all of the draft so far is accepted) and an acceptance rate of tokens to come, m more are worth

    sum over i = 1..m of prefix * acceptance**i  -  rate * (seconds that m more tokens take)

and the draft goes on while the best m is worth something. Looking at all m crosses the steps that target passes have.
Acceptance is estimated before a token is drawn, from the largest probability of the draft distribution. Looking at the
distribution before drawing keeps the output exact; dropping a drawn token would not.

Estimates can be wrong, so the schedule is a conservative bandit (Wu et al., "Conservative Bandits", ICML 2016): a
budget bounds what drafts may lose against the baseline, plain decoding.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace

import numpy as np

from specli.decoding.costs import CATCH_UP, PassCosts

# Bounds of the bins of confidence (the largest draft probability), finer where drafts are long; and of the bins of how
# many tokens before a looked up draft have occurred before.
_CONFIDENCES, _MATCHES = (0.3, 0.5, 0.65, 0.8, 0.9, 0.97, 0.99, 0.999), (3, 4, 6, 9, 16, 32)
_STAYS = 0.5  # confidence tends to stay: tokens to come are accepted half as the last one, half as all are
_PRIOR_WEIGHT = 12.0  # tested tokens an assumption counts as; below ten, a bad first draft can end drafting
_MEMORY = 0.99  # what an observation still counts one round later: about the last hundred rounds matter
# In plain tokens: what a reply may lose, which allows a first draft of four to six tokens on a CPU; and what each token
# adds, so that long replies go on trying. Together 4.3 % of 128 tokens.
BUDGET, _BUDGET_GROWTH = 4.0, 0.012
_REFRESH = 8  # rounds that follow the same estimates, so that a round without a draft costs almost nothing
_SHARING = 10  # rounds that share what it costs a draft model to catch up: it is seldom left again at once
# The longest draft by a draft model, and the longest looked up: a bound on the arithmetic of a round.
LONGEST_DRAFT, LONGEST_LOOKUP = 24, 48
MOST_REPLAYED = 16  # tokens read again that are told apart
_REPLAY_ROWS = 4  # rows over which the cost of one more is taken


@dataclass(frozen=True, slots=True)
class Experience:
    """How often draft tokens were accepted; what a schedule assumes when it starts."""

    # [confidence bins] A draft model is roughly calibrated; doubtful tokens are accepted more often than it says.
    acceptance: tuple[float, ...] = (0.38, 0.48, 0.58, 0.71, 0.83, 0.92, 0.96, 0.98, 0.99)
    overall: float = 0.85  # of all these tokens; on the high side, as a schedule that never tries never finds out
    # [match bins] Of looked up tokens: a run of three is often chance, a long one is a copy.
    matches: tuple[float, ...] = (0.5, 0.6, 0.68, 0.75, 0.82, 0.87, 0.9)

    def __post_init__(self) -> None:
        fits = (len(self.acceptance), len(self.matches)) == (len(_CONFIDENCES) + 1, len(_MATCHES) + 1)
        if not fits or not all(0 <= rate <= 1 for rate in (*self.acceptance, self.overall, *self.matches)):
            raise ValueError("no drafts are accepted like that")


# Kinds of draft tokens: the confidence bins, all tokens of the draft model together, and the match bins.
_ALL, _FIRST_MATCH = len(_CONFIDENCES) + 1, len(_CONFIDENCES) + 2


@dataclass(frozen=True, slots=True)
class _Estimates:
    """What decisions follow for some rounds."""

    rows: list[float]  # seconds of a target pass by the number of its rows, less one
    rounds: list[float]  # seconds of a round by draft length: of the target pass, which is all that a lookup takes
    model_rounds: list[float]  # the same with a draft by the model
    acceptance: list[float]  # [kinds]
    rate: float  # tokens per second that each decision must be worth

    def after(self, replayed: int) -> _Estimates:
        """Return estimates for a round whose target pass reads so many tokens again."""
        replayed = min(replayed, MOST_REPLAYED)
        more = [self.rows[length + replayed] - seconds for length, seconds in enumerate(self.rows[: len(self.rounds)])]
        rounds, model_rounds = (
            [seconds + again for seconds, again in zip(known, more, strict=True)]
            for known in (self.rounds, self.model_rounds)
        )
        return replace(self, rounds=rounds, model_rounds=model_rounds)

    def best(
        self, rounds: list[float], acceptance: float, limit: int, length: int = 0, prefix: float = 1.0
    ) -> tuple[int, float]:
        """Return how many more tokens are best, and what they are worth in tokens; (0, 0.0) if none are.

        `acceptance` is that of each token to come if those before it are accepted, `limit` that of the whole draft, and
        `prefix` the probability that all of the `length` so far are accepted.
        """
        best, tokens, most = 0, 0.0, 0.0
        for more in range(1, limit - length + 1):
            prefix *= acceptance
            tokens += prefix
            worth = tokens - self.rate * (rounds[length + more] - rounds[length])
            if worth > most:
                best, most = more, worth
        return best, most


@dataclass(slots=True)
class DraftPlan:
    """What one round drafts: a looked up draft of a length, or token by token from the draft model, or nothing."""

    _estimates: _Estimates
    _limit: int  # of a draft by the model; 0 where none may be made
    _catch_up: float  # what reading the draft model's backlog takes, in draft tokens
    replayed: int = 0  # tokens that the target pass reads again
    lookup_length: int = 0  # tokens to look up; 0 where the draft does not come from a lookup
    kinds: list[int] = field(default_factory=list)  # [length] of the draft's tokens
    passes: float = 0.0  # of the draft model, in draft tokens, catching up included
    _prefix: float = 1.0  # probability that the whole draft is accepted

    def worth(self) -> float:
        """Return what going on with the draft model promises to bring beyond its time, in tokens."""
        known = self._estimates
        acceptance = known.acceptance[_ALL]
        if self.kinds:
            acceptance += _STAYS * (known.acceptance[self.kinds[-1]] - acceptance)
        _, worth = known.best(known.model_rounds, acceptance, self._limit, len(self.kinds), self._prefix)
        draft = (
            known.model_rounds[2] - known.model_rounds[1] - (known.rounds[2] - known.rounds[1])
        )  # seconds of a token
        return worth if self.passes else worth - known.rate * draft * self._catch_up / _SHARING

    def wants_pass(self) -> bool:
        """Whether to find out the next draft distribution, which costs a pass of the draft model."""
        if self.lookup_length or self.worth() <= 0:
            return False
        self.passes += 1 if self.passes else 1 + self._catch_up
        return True

    def resize(self, length: int) -> None:
        """Take note that the draft has another length than the model drew: its text was tokenized again."""
        self.kinds = [*self.kinds[:length], *self.kinds[-1:] * (length - len(self.kinds))]

    def wants_token(self, confidence: float) -> bool:
        """Whether to draw a token from the distribution, whose largest probability is `confidence`."""
        known, before, length = self._estimates, self._prefix, len(self.kinds)
        self.kinds.append(bisect_right(_CONFIDENCES, confidence))
        self._prefix *= known.acceptance[self.kinds[-1]]
        row = known.rounds[length + 1] - known.rounds[length]  # what the token's pass took is spent
        if self._prefix - known.rate * row + self.worth() > 0:
            return True
        self.kinds.pop()
        self._prefix = before
        return False


class Schedule:
    """Plans the drafts of a reply, and learns from what becomes of them.

    Acceptance rates are means of Beta posteriors that forget towards their prior, round by round (discounting: Garivier
    and Moulines, "On Upper-Confidence Bound Policies for Switching Bandit Problems", 2011). As time alone makes them
    forget, drafts that did not pay are tried again some time later.

    `limit` is the longest draft by a draft model, 0 where there is none; `budget` is what a reply may lose against
    plain decoding, in plain tokens. With `replays` the target reads what was kept of a draft again. The draft model
    makes `held_back` tokens more than it proposes.
    """

    def __init__(
        self,
        costs: PassCosts,
        limit: int = LONGEST_DRAFT,
        experience: Experience | None = None,
        budget: float = BUDGET,
        replays: bool = False,
        held_back: int = 0,
    ) -> None:
        known = experience or Experience()
        self._costs, self._limit, self._replays, self._held_back = costs, limit, replays, held_back
        self._reply_budget = self._budget = budget
        self._prior = _PRIOR_WEIGHT * np.array([*known.acceptance, known.overall, *known.matches])  # [kinds] accepted
        self._accepted, self._tested = np.zeros((2, len(self._prior)))  # [kinds] tokens
        self._rounds = 0  # since the estimates were made
        self._estimates = self._estimate()

    @property
    def experience(self) -> Experience:
        """What drafts have taught so far."""
        rates = self._rates()
        return Experience(tuple(rates[:_ALL]), rates[_ALL], tuple(rates[_FIRST_MATCH:]))

    @property
    def expects_drafts(self) -> bool:
        """Whether drafts by the model promise to pay, whatever the budget allows."""
        return self._estimates.rate * self._estimates.rounds[0] > 1

    def begin_reply(self) -> None:
        """Start a reply: each has the same budget, whatever those before it gained or lost."""
        self._budget = self._reply_budget

    def plan(self, limit: int, backlog: int = 0, match_length: int = 0, replayed: int = 0) -> DraftPlan:
        """Start a round.

        Its draft may have `limit` tokens. The draft model must read a `backlog` of tokens before it can draft. The last
        `match_length` tokens have occurred before in the same order; 0 rules out a lookup. The target pass reads
        `replayed` tokens again, whatever is drafted.
        """
        if self._rounds >= _REFRESH:
            self._estimates = self._estimate()
        known, catch_up = self._estimates, CATCH_UP * backlog
        if replayed:
            known = known.after(replayed)
        longest = self._affordable(known.model_rounds, min(limit, self._limit), catch_up) if self.expects_drafts else 0
        plan = DraftPlan(known, longest, catch_up, replayed)
        if match_length:
            kind = _FIRST_MATCH + bisect_right(_MATCHES, match_length)
            affordable = self._affordable(known.rounds, min(limit, LONGEST_LOOKUP))
            length, worth = known.best(known.rounds, known.acceptance[kind], affordable)
            if worth > max(0.0, plan.worth()):
                plan.lookup_length, plan.kinds = length, [kind] * length
        return plan

    def observe(self, plan: DraftPlan, num_accepted: int, pass_seconds: float, draft_seconds: float) -> None:
        """Learn how many tokens of a draft were accepted, and what seconds the target pass and drafting took."""
        rows = plan.replayed + len(plan.kinds) + 1
        pass_seconds, draft_seconds = self._costs.observe(rows, pass_seconds, plan.passes, draft_seconds)
        for position, kind in enumerate(plan.kinds[: num_accepted + 1]):
            for counted in (kind,) if plan.lookup_length else (kind, _ALL):
                self._tested[counted] += 1
                self._accepted[counted] += position < num_accepted
        # A pass without a draft is the baseline, whatever it took. A draft cannot lose more than there was, unless the
        # costs were wrong, as when the machine has become slower: that is no reason to stay away for long.
        plain = self._estimates.rounds[0]
        gained = (num_accepted + 1 - pass_seconds / plain if rows > 1 else 0.0) - draft_seconds / plain
        self._budget = max(self._budget + gained, 0.0) + _BUDGET_GROWTH * (num_accepted + 1)
        self._rounds += 1

    def _affordable(self, rounds: list[float], limit: int, catch_up: float = 0.0) -> int:
        """Return the longest draft whose complete rejection the budget can bear."""
        seconds = (self._budget + 1) * rounds[0] - catch_up * self._costs.draft_seconds
        return next((length for length in range(limit, 0, -1) if rounds[length] <= seconds), 0)

    def _rates(self) -> list[float]:
        return [float(rate) for rate in (self._prior + self._accepted) / (_PRIOR_WEIGHT + self._tested)]

    def _estimate(self) -> _Estimates:
        """Take over what was learned since the last time.

        The rate to reach is that of the best fixed length if every token were accepted at the overall rate. Where that
        length is 0, no draft by the model is worth anything.
        """
        self._accepted *= _MEMORY**self._rounds
        self._tested *= _MEMORY**self._rounds
        self._rounds = 0
        lengths = np.arange(max(self._limit, LONGEST_LOOKUP) + 1)
        rows = self._costs.all_seconds(np.arange(len(lengths) + MOST_REPLAYED) + 1)
        acceptance = self._rates()
        rounds = rows[: len(lengths)]
        if self._replays:
            # What is kept of a draft, and the token before it, are read again unless all of it is accepted.
            ends = acceptance[_ALL] ** lengths * (1 - acceptance[_ALL])  # probability that so many are accepted
            read_again = np.cumsum(ends * (lengths + 1)) - ends * (lengths + 1)
            rounds = rounds + read_again * (rows[_REPLAY_ROWS] - rows[0]) / _REPLAY_ROWS
        model_rounds = rounds + self._costs.draft_seconds * (lengths + self._held_back * (lengths > 0))
        tokens = np.cumsum(acceptance[_ALL] ** lengths)  # that a round yields, by draft length
        rate = float(np.max((tokens / model_rounds)[: self._limit + 1]))
        return _Estimates(rows.tolist(), rounds.tolist(), model_rounds.tolist(), acceptance, rate)
