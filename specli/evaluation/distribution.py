"""The audit of single tokens: whether they follow the target model's own probabilities.

Ordinary replies are generated. Then, without any speculation code, each reply is fed to the target once more, and the
exact distribution of each of its tokens is computed again with the same filters ("teacher forcing"). Where did the
emitted token fall in that distribution? Line up all candidates, each as wide as its probability, ordered by draft
probability over target probability; the emitted token covers an interval of [0, 1]. Whatever the distributions were, a
uniform point within the interval is uniform on [0, 1] exactly when every token followed the target's probabilities
(the probability integral transform). The midpoint of the interval has mean 0.5 and a variance that is known from the
target's probabilities alone; it carries no added noise, so its mean is the sharper test.

The order is what makes the test strong. Verification can err in favor of the draft or against it, and either error
moves probability along this order, always in the same direction, so that thousands of small errors add up instead of
canceling out. A bias that moves probability only along the order, of total variation d, shifts the mean by at least
d / 2. Any order is valid that depends on nothing but the text before the token. Without a draft model, the token that
a lookup at that point would propose comes last: almost always the one that was drafted, so the test stays strong.
The others, and all where a lookup finds nothing, are in order of token id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle

import numpy as np

from specli.decoding.lookup import LookupIndex
from specli.decoding.model import LanguageModel
from specli.decoding.options import SamplingOptions
from specli.decoding.sampling import Distribution, Floats, distribution
from specli.decoding.verification import Distributions, Draft, SeededVerifier, Verdict, Verifier, count_accepted
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.engine.reply import Piece, Reply
from specli.errors import ContextFullError, PromptError
from specli.evaluation.prompts import Prompt
from specli.evaluation.statistics import TestResult, detectable_shift, histogram, mean_test, uniformity_test

SIGNIFICANCE = 0.001  # of an audit as a whole: one in a thousand raises a false alarm
BINS = 20
_MIN_TOKENS = 100  # a position in the round with fewer is not tested on its own


class ControlVerifier(SeededVerifier):
    """The negative control, a wrong rule: after a rejection it draws from the target instead of the residual.

    This is the most common mistake. The draft's favorites come up too often, by a total variation of at most
    sum(min(draft, target)) * (1 - sum(min(draft, target))).
    """

    def __init__(self, seed: int) -> None:
        super().__init__("token", seed)

    def verify(self, draft: Draft, target_probs: Distributions, position: int) -> Verdict:
        """Accept as the token rule does, then forget that the rejected token had its turn already."""
        number = count_accepted(draft.tokens, draft.probs, target_probs, self._verifying)
        return Verdict(number, target_probs[number].draw(self._verifying))


@dataclass
class TokenValues:
    """Where the emitted tokens fell in the target's distributions; each list has one entry per token."""

    uniforms: np.random.Generator
    values: list[float] = field(default_factory=list)  # a uniform point of the token's interval
    midpoints: list[float] = field(default_factory=list)  # of the interval
    variances: list[float] = field(default_factory=list)  # of the midpoint, under the target's distribution
    positions: list[int] = field(default_factory=list)  # of the token in its round, from 0
    borderline: int = 0  # tokens that a filter keeps or drops depending on rounding; left out
    impossible: int = 0  # tokens that the target's filters exclude
    replies: int = 0
    tested: int = 0  # draft tokens
    accepted: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def add(self, interval: tuple[float, float], variance: float, position: int) -> None:
        """Add a token that covers the interval."""
        low, high = interval
        self.values.append(min(self.uniforms.uniform(low, high), np.nextafter(1.0, 0.0)))
        self.midpoints.append((low + high) / 2)
        self.variances.append(variance)
        self.positions.append(position)


def teacher_forced(model: LanguageModel, tokens: Sequence[int], start: int) -> Iterator[Floats]:
    """Yield the rows of logits [n_vocab] that predict tokens[start:], by feeding the text as it is.

    What the model has cached must be a prefix of these tokens; it is reused up to tokens[:start - 1]. A row is valid
    until the next one.
    """
    model.rewind(start - 1)
    if model.n_past < start - 1:
        model.feed(tokens[model.n_past : start - 1], rows=0)
    for at in range(start - 1, len(tokens) - 1, model.max_rows):
        part = tokens[at : min(at + model.max_rows, len(tokens) - 1)]
        yield from model.feed(part, rows=len(part))


def interval_of(target: Distribution, draft: Distribution, token: int) -> tuple[float, float]:
    """Return which part of [0, 1] a token covers when candidates are ordered by draft over target probability.

    Candidates of equal ratio are ordered by id. The interval is as wide as the token's target probability.
    """
    ids = np.arange(len(target.probs)) if target.ids is None else target.ids
    target_probs = target.probs.astype(np.float64)
    possible = target_probs > 0
    ratios = np.zeros(len(ids))
    np.divide(draft.probabilities(ids), target_probs, out=ratios, where=possible)
    ratio = ratios[np.searchsorted(ids, token)]
    before = (ratios < ratio) | ((ratios == ratio) & (ids < token))
    low = float(target_probs[before & possible].sum() / target_probs.sum())
    return min(low, 1.0), min(low + target.probability(token), 1.0)


def midpoint_variance(target: Distribution) -> float:
    """Return the variance of the midpoint of the interval of a token drawn from the distribution."""
    return max(0.0, (1 - float((target.probs.astype(np.float64) ** 3).sum())) / 12)


def sample_tokens(
    engine: Engine,
    prompts: Sequence[Prompt],
    options: ReplyOptions,
    samples: int,
    *,
    control: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> TokenValues:
    """Generate replies until there are enough tokens, and find where each token fell.

    The prompts are asked in turn, with seeds derived from that of the options; `control` takes the wrong rule.
    `progress` is called with how many tokens are done, and how many there will be; `interrupted` is asked between
    tokens, and True stops with the tokens so far.
    """
    found = TokenValues(uniforms=np.random.default_rng(options.seed))
    for prompt, seed in zip(cycle(prompts), reply_seeds(options), strict=False):
        if len(found) >= samples or interrupted():
            break
        verifier: Verifier | None = ControlVerifier(seed) if control else None
        tokens = engine.conversation(prompt.messages)
        positions: list[int] = []
        start_of_round = True
        try:
            events = engine.reply(tokens, replace(options, seed=seed), verifier=verifier, interrupted=interrupted)
        except ContextFullError as error:
            raise PromptError(error.message.replace("the prompt", f"the prompt {prompt.name}"), error.hint) from None
        for event in events:
            if isinstance(event, Piece) and event.token is not None:
                positions.append(0 if start_of_round else positions[-1] + 1)
                start_of_round = event.origin != "accepted"
                progress(min(len(found) + len(positions), samples), samples)
            elif isinstance(event, Reply):
                found.replies += 1
                found.tested += event.metrics.tested
                found.accepted += event.metrics.accepted
                _add_reply(found, engine, options, [*tokens, *event.tokens], positions)
    return found


def reply_seeds(options: ReplyOptions) -> Iterator[int]:
    """Yield the seeds of the replies of an audit, which has one itself."""
    assert options.seed is not None
    seeds = np.random.SeedSequence(options.seed)
    while True:
        yield int(seeds.spawn(1)[0].generate_state(1)[0])


def _add_reply(
    found: TokenValues, engine: Engine, options: ReplyOptions, tokens: list[int], positions: Sequence[int]
) -> None:
    start = len(tokens) - len(positions)
    sampling = engine.sampling(options)
    proposals = _proposals(engine, options, tokens, start)
    for at, row in enumerate(teacher_forced(engine.target, tokens, start), start=start):
        token, history = tokens[at], tokens[:at]
        target, draft = distribution(row, sampling, history), next(proposals)
        if target.probability(token) == 0:
            rounding = not engine.target.options.exact
            if rounding and distribution(row, _loosened(sampling), history).probability(token) > 0:
                found.borderline += 1
            else:
                found.impossible += 1
            continue
        found.add(interval_of(target, draft or target, token), midpoint_variance(target), positions[at - start])


def _proposals(
    engine: Engine, options: ReplyOptions, tokens: Sequence[int], start: int
) -> Iterator[Distribution | None]:
    """Yield what a draft would propose for each of tokens[start:], from nothing but the tokens before it."""
    if engine.draft is not None:
        sampling = engine.draft_sampling(options)
        for at, row in enumerate(teacher_forced(engine.draft, tokens, start), start=start):
            yield distribution(row[: engine.target.n_vocab], sampling, tokens[:at])
    else:
        index = LookupIndex()
        for at in range(start, len(tokens)):
            index.extend(tokens[:at])
            match = index.find()
            yield Distribution.one_hot(index.continuation(match, 1)[0]) if match is not None else None


def _loosened(sampling: SamplingOptions) -> SamplingOptions:
    """Return filters that keep what the given ones would keep if probabilities were off by a factor of two.

    Passes of different sizes round differently; with 4-bit weights, the gap between two logits changes by some tenths.
    """
    return replace(sampling, top_k=2 * sampling.top_k, top_p=1 - (1 - sampling.top_p) / 2, min_p=sampling.min_p / 2)


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The two tests of a group of tokens."""

    position: int | None  # in the round, from 0; None for all tokens
    tokens: int
    mean: TestResult  # of the midpoints
    bins: TestResult  # of the values
    counts: tuple[int, ...]  # of the values, in `BINS` equal bins

    @property
    def name(self) -> str:
        """The name used in reports."""
        return "all" if self.position is None else f"position {self.position + 1} in the round"


@dataclass(frozen=True, slots=True)
class DistributionReport:
    """The outcome of the audit of single tokens."""

    groups: tuple[GroupResult, ...]  # all tokens, and each position in the round that has enough of them
    p_value: float  # of all tests together, see `judge`
    detectable: float  # the minimum detectable total variation per token (90 % power)
    estimate: float  # total variation per token, as far as it shows in the mean: 2 * |mean - 0.5|
    borderline: int
    impossible: int
    tokens: int
    replies: int
    tested: int
    accepted: int

    @property
    def found(self) -> bool:
        """Whether the tokens do not follow the target's distribution."""
        return self.p_value < SIGNIFICANCE or self.impossible > 0


def judge(found: TokenValues) -> DistributionReport:
    """Test whether the tokens followed the target's distributions; at least one token is needed.

    Several tests would raise more false alarms than one, which Bonferroni's correction prevents: the mean over all
    tokens, where a bias shows first, gets half of the significance, and the other tests share the other half.
    """
    values, midpoints, variances = (np.array(part) for part in (found.values, found.midpoints, found.variances))
    positions = np.array(found.positions)
    groups = []
    for position in (None, *sorted(set(found.positions))):
        chosen = slice(None) if position is None else positions == position
        if position is None or len(values[chosen]) >= _MIN_TOKENS:
            groups.append(
                GroupResult(
                    position,
                    len(values[chosen]),
                    mean_test(midpoints[chosen], variances[chosen]),
                    uniformity_test(values[chosen], BINS),
                    tuple(histogram(values[chosen], BINS).tolist()),
                )
            )
    first, *others = [test.p_value for group in groups for test in (group.mean, group.bins)]
    return DistributionReport(
        groups=tuple(groups),
        p_value=min(1.0, 2 * first, 2 * len(others) * min(others)),
        detectable=2 * detectable_shift(variances, SIGNIFICANCE / 2),
        estimate=2 * abs(float(midpoints.mean()) - 0.5),
        borderline=found.borderline,
        impossible=found.impossible,
        tokens=len(found),
        replies=found.replies,
        tested=found.tested,
        accepted=found.accepted,
    )


def distribution_lines(report: DistributionReport) -> list[str]:
    """Say what the audit of single tokens found."""
    lines = []
    if report.impossible:
        lines.append(f"Fault: {report.impossible} tokens that the target's filters exclude.")
    if report.borderline:
        lines.append(f"{report.borderline} tokens were left out: rounding decides whether a filter keeps them.")
    if report.p_value < SIGNIFICANCE:
        lines.append(
            f"Bias found: p = {report.p_value:.2g}. The tokens do not follow the target's distribution; "
            f"about {100 * report.estimate:.1f} in 100 tokens would have been different."
        )
    else:
        lines.append(
            f"No bias found: p = {report.p_value:.2g}. Minimum detectable effect (90 % power): a draft that changes "
            f"{100 * report.detectable:.1f} in 100 tokens (total variation {report.detectable:.3f})."
        )
    return lines
