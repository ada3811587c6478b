"""The audit of distributions: whether the emitted tokens follow the target model's own probabilities.

Knows a loaded pair and its replies. Must not know the terminal.

Ordinary replies are generated. Then, with no speculation code, each reply is fed to the target once more, and the
exact distribution of each of its tokens is computed again, with the same filters ("teacher forcing"). Where did the
emitted token lie in that distribution? Put all candidates in a row, each as wide as its probability, ordered by
draft probability over target probability; the emitted token covers an interval of [0, 1]. Whatever the distributions
were, a uniform point within the interval is uniform on [0, 1] exactly when every token followed the target's
probabilities (the probability integral transform). The middle of the interval has the mean 0.5 and a variance that is
known from the target's probabilities alone; it carries no noise of its own, so its mean is the sharper test.

The order is what makes the test strong. Verification can go wrong in favour of the draft or against it, and either
moves mass along this order, always in the same direction, so that thousands of small errors add up instead of
cancelling out. A bias that moves mass only along the order, of total variation d, shifts the mean by d / 2 or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from specli.decoding.drafting import LanguageModel
from specli.decoding.options import SamplingOptions
from specli.decoding.sampling import Distribution, Floats, distribution
from specli.decoding.verification import Distributions, SeededVerifier, Verdict, Verifier
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.engine.reply import Piece, Reply
from specli.errors import PromptError
from specli.evaluation.prompts import Prompt
from specli.evaluation.statistics import (
    TestResult,
    detectable_shift,
    detectable_variation,
    g_test,
    histogram,
    mean_test,
    uniformity_test,
)

SIGNIFICANCE = 0.001  # of an audit as a whole: one in a thousand raises a false alarm
BINS = 20
_LEAST_TOKENS = 100  # a place in the round with fewer has no test of its own


class ControlVerifier(SeededVerifier):
    """A rule that is wrong on purpose: after a rejection it draws from the target instead of the residual.

    That is the mistake people make most often. The draft's favourites come too often, by a total variation of
    sum(min(draft, target)) * (1 - sum(min(draft, target))) or less.
    """

    def __init__(self, seed: int) -> None:
        super().__init__("token", seed)

    def verify(
        self,
        draft_tokens: Sequence[int],
        draft_probs: Sequence[Distribution],
        target_probs: Distributions,
        position: int,
    ) -> Verdict:
        """Test as the token rule does, and then forget that the rejected token has had its chance."""
        for place, token in enumerate(draft_tokens):
            target = target_probs[place]
            if not self._verifying.random() < target.probability(token) / draft_probs[place].probability(token):
                return Verdict(place, target.draw(self._verifying))
        return Verdict(len(draft_tokens), target_probs[len(draft_tokens)].draw(self._verifying))


@dataclass
class TokenValues:
    """Where the emitted tokens lay in the target's distributions; one entry a token in each list."""

    values: list[float] = field(default_factory=list)  # a uniform point of the token's interval
    middles: list[float] = field(default_factory=list)  # the middle of the interval
    variances: list[float] = field(default_factory=list)  # of the middle, under the target's distribution
    places: list[int] = field(default_factory=list)  # of the token in its round, from 0
    borderline: int = 0  # tokens that a filter keeps or not depending on rounding; left out
    impossible: int = 0  # tokens that the target's filters exclude
    replies: int = 0
    tested: int = 0  # draft tokens
    accepted: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def add(self, interval: tuple[float, float], variance: float, place: int, uniform: float) -> None:
        """Add a token that covers the interval."""
        low, high = interval
        self.values.append(min(low + uniform * (high - low), np.nextafter(1.0, 0.0)))
        self.middles.append((low + high) / 2)
        self.variances.append(variance)
        self.places.append(place)


def teacher_forced(model: LanguageModel, tokens: Sequence[int], start: int) -> Iterator[Floats]:
    """Yield the rows of logits [n_vocab] behind tokens[start:], by feeding the text as it is.

    What the model has cached must be the beginning of these tokens; it is used as far as tokens[:start - 1]. A row is
    valid until the next one.
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


def middle_variance(target: Distribution) -> float:
    """Return the variance of the middle of the interval of a token drawn from the distribution."""
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
    """Generate replies until there are enough tokens, and find where each token lay.

    Args:
        engine: a target with its draft model.
        prompts: asked in turn, each time with a new seed.
        options: how replies are generated; the seed is that of the whole audit.
        samples: how many tokens.
        control: use the wrong rule.
        progress: called with how many tokens are done, and how many there will be.
        interrupted: asked between tokens; True ends with what there is.
    """
    found = TokenValues()
    seeds = np.random.SeedSequence(options.seed or 0)
    uniforms = np.random.default_rng(seeds.spawn(1)[0])
    number = 0
    while len(found) < samples and not interrupted():
        prompt = prompts[number % len(prompts)]
        seed = int(seeds.spawn(1)[0].generate_state(1)[0])
        verifier: Verifier | None = ControlVerifier(seed) if control else None
        tokens = engine.conversation(prompt.messages)
        places: list[int] = []
        start_of_round = True
        for event in engine.reply(tokens, replace(options, seed=seed), verifier=verifier, interrupted=interrupted):
            if isinstance(event, Piece):
                places.append(0 if start_of_round else places[-1] + 1)
                start_of_round = event.origin != "accepted"
                progress(min(len(found) + len(places), samples), samples)
            elif isinstance(event, Reply):
                if event.finish_reason == "context" and not event.tokens:
                    raise PromptError(
                        f"the prompt {prompt.name} has {len(tokens)} tokens and does not fit in a context of "
                        f"{engine.target.n_context}.",
                        "A larger context holds more: -c N.",
                    )
                found.replies += 1
                found.tested += event.metrics.tested
                found.accepted += event.metrics.accepted
                _add_reply(found, engine, options, [*tokens, *event.tokens], len(tokens), places, uniforms)
        number += 1
    return found


def _add_reply(
    found: TokenValues,
    engine: Engine,
    options: ReplyOptions,
    tokens: list[int],
    start: int,
    places: Sequence[int],
    uniforms: np.random.Generator,
) -> None:
    sampling, draft_sampling = engine.sampling(options), engine.draft_sampling(options)
    assert engine.draft is not None
    rows = zip(teacher_forced(engine.target, tokens, start), teacher_forced(engine.draft, tokens, start), strict=True)
    for at, (row, draft_row) in enumerate(rows, start=start):
        token, history = tokens[at], tokens[:at]
        target = distribution(row, sampling, history)
        if target.probability(token) == 0:
            rounding = not engine.target.options.exact
            if rounding and distribution(row, _loosened(sampling), history).probability(token) > 0:
                found.borderline += 1
            else:
                found.impossible += 1
            continue
        draft = distribution(draft_row[: len(row)], draft_sampling, history)
        interval = interval_of(target, draft, token)
        found.add(interval, middle_variance(target), places[at - start], uniforms.random())


def _loosened(sampling: SamplingOptions) -> SamplingOptions:
    """Return filters that let through what the given ones would if probabilities were off by a factor of two.

    Passes of different sizes round differently; for 4-bit weights, two logits move against each other by some tenths.
    """
    return replace(
        sampling,
        top_k=2 * sampling.top_k,
        top_p=1 - (1 - sampling.top_p) / 2,
        min_p=sampling.min_p / 2,
    )


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The two tests of a group of tokens."""

    place: int | None  # in the round, from 0; None for all tokens
    tokens: int
    mean: TestResult  # of the middles
    bins: TestResult  # of the values
    counts: tuple[int, ...]  # of the values, in `BINS` equal bins


@dataclass(frozen=True, slots=True)
class DistributionReport:
    """The outcome of the audit of distributions."""

    groups: tuple[GroupResult, ...]  # all tokens, and each place in the round that has enough of them
    p_value: float  # of all tests together, see `judge`
    detectable: float  # the total variation a token that would have been found with probability 0.9
    estimate: float  # total variation a token, as far as it shows in the mean: 2 * |mean - 0.5|
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

    Several tests give several chances of a false alarm, which is made up for by Bonferroni's rule: half of the
    significance belongs to the mean over all tokens, where a bias shows first, and the others share the other half.
    """
    values, middles, variances = (np.array(part) for part in (found.values, found.middles, found.variances))
    places = np.array(found.places)
    groups = []
    for place in (None, *sorted(set(found.places))):
        chosen = slice(None) if place is None else places == place
        if place is None or len(values[chosen]) >= _LEAST_TOKENS:
            groups.append(
                GroupResult(
                    place,
                    len(values[chosen]),
                    mean_test(middles[chosen], variances[chosen]),
                    uniformity_test(values[chosen], BINS),
                    tuple(histogram(values[chosen], BINS).tolist()),
                )
            )
    first, *others = [test.p_value for group in groups for test in (group.mean, group.bins)]
    return DistributionReport(
        groups=tuple(groups),
        p_value=min(1.0, 2 * first, 2 * len(others) * min(others)),
        detectable=2 * detectable_shift(variances, SIGNIFICANCE / 2),
        estimate=2 * abs(float(middles.mean()) - 0.5),
        borderline=found.borderline,
        impossible=found.impossible,
        tokens=len(found),
        replies=found.replies,
        tested=found.tested,
        accepted=found.accepted,
    )


REST: tuple[int, ...] = ()  # the cell of all texts that are too rare for a cell of their own


def joint_probabilities(
    model: LanguageModel, sampling: SamplingOptions, prompt: Sequence[int], depth: int, least: float
) -> dict[tuple[int, ...], float]:
    """Return the exact probability of each beginning of a reply that is at least as probable as `least`.

    Args:
        model: the target.
        sampling: its filters.
        prompt: [n] token ids.
        depth: how many tokens a beginning has; fewer where the reply ends.
        least: less probable ones are together under `REST`.
    """
    cells: dict[tuple[int, ...], float] = {}

    def visit(text: tuple[int, ...], chance: float) -> None:
        tokens = [*prompt, *text]
        row = next(teacher_forced(model, [*tokens, 0], len(tokens)))
        probs = distribution(row, sampling, tokens)
        ids = np.arange(len(probs.probs)) if probs.ids is None else probs.ids
        for place in np.flatnonzero(probs.probs * chance >= least):
            token, joint = int(ids[place]), float(probs.probs[place]) * chance
            if len(text) + 1 == depth or token in model.end_tokens:
                cells[(*text, token)] = joint
            else:
                visit((*text, token), joint)

    visit((), 1.0)
    cells[REST] = max(0.0, 1 - sum(cells.values()))
    return cells


@dataclass(frozen=True, slots=True)
class JointReport:
    """The outcome of comparing the beginnings of many replies with their exact probabilities."""

    prompt: str
    depth: int  # tokens of a beginning
    samples: int
    cells: int
    test: TestResult
    detectable: float  # the total variation, however it is spread, that would have been found with probability 0.9

    @property
    def found(self) -> bool:
        """Whether the beginnings do not follow the target's distribution."""
        return self.test.p_value < SIGNIFICANCE


def joint_audit(
    engine: Engine,
    prompt: Prompt,
    options: ReplyOptions,
    samples: int,
    *,
    depth: int = 3,
    control: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> JointReport | None:
    """Compare the first tokens of replies from many seeds with their exact joint probabilities.

    Returns:
        The outcome; None when it was interrupted.
    """
    tokens = engine.conversation(prompt.messages)
    counts: dict[tuple[int, ...], int] = {}
    seeds = np.random.SeedSequence(options.seed or 0)
    for number in range(samples):
        seed = int(seeds.spawn(1)[0].generate_state(1)[0])
        verifier = ControlVerifier(seed) if control else None
        *_, reply = engine.reply(
            tokens, replace(options, seed=seed, max_tokens=depth), verifier=verifier, interrupted=interrupted
        )
        if interrupted():
            return None
        assert isinstance(reply, Reply)
        counts[reply.tokens] = counts.get(reply.tokens, 0) + 1
        progress(number + 1, samples)
    exact = joint_probabilities(engine.target, engine.sampling(options), tokens, depth, 5 / samples)
    seen: dict[tuple[int, ...], int] = {}
    for text, count in counts.items():
        cell = text if text in exact else REST
        seen[cell] = seen.get(cell, 0) + count
    test = g_test(seen, exact)
    return JointReport(
        prompt.name,
        depth,
        samples,
        test.degrees + 1,
        test,
        detectable_variation(samples, test.degrees, SIGNIFICANCE),
    )
