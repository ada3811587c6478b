"""What the measurements of a comparison say: figures for each class of prompts and arm, and a verdict in words.

Knows measurements. Must not know models or the terminal. docs/compare.md defines every figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from specli.evaluation.comparison import FIRST, Arm, Measurement

OVERALL = "overall"
_RESAMPLES = 4000
_LEAST_VALUES = 3


@dataclass(frozen=True, slots=True)
class Interval:
    """A middle value with its 95 % bootstrap interval, which too few values do not have."""

    middle: float
    low: float | None
    high: float | None

    @property
    def gain(self) -> bool:
        """Whether all of it is above 1."""
        return self.low is not None and self.low > 1

    @property
    def loss(self) -> bool:
        """Whether all of it is below 1."""
        return self.high is not None and self.high < 1


def bootstrap_median(values: Sequence[float]) -> Interval:
    """Return the median of [n] values, n at least 1, and the interval of 95 % of the medians of its resamples."""
    array = np.asarray(values, dtype=np.float64)
    if len(array) < _LEAST_VALUES:
        return Interval(float(np.median(array)), None, None)
    rng = np.random.default_rng(0)
    resamples = np.median(rng.choice(array, size=(_RESAMPLES, len(array))), axis=1)
    low, high = np.quantile(resamples, (0.025, 0.975))
    return Interval(float(np.median(array)), float(low), float(high))


def bootstrap_mean_of_classes(classes: Iterable[Sequence[float]]) -> Interval:
    """Return the geometric mean over classes of the geometric means of their values, with a 95 % bootstrap interval.

    Classes are resampled: how much they differ by nature is what limits a statement about prompts at large, far more
    than the noise of single turns. A median over classes would say little: it jumps from one class to its neighbour.

    Args:
        classes: [n] values of each class, at least one; with fewer than three classes there is no interval.
    """
    logs = np.array([np.log(np.asarray(values, dtype=np.float64)).mean() for values in classes])
    middle = float(np.exp(logs.mean()))
    if len(logs) < _LEAST_VALUES:
        return Interval(middle, None, None)
    rng = np.random.default_rng(0)
    means = rng.choice(logs, size=(_RESAMPLES, len(logs))).mean(axis=1)
    low, high = np.exp(np.quantile(means, (0.025, 0.975)))
    return Interval(middle, float(low), float(high))


Identity = Literal["identical", "different", "unknown"]


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where a text with a draft parts from the one without, at temperature 0."""

    prompt: str
    place: int  # in the reply, from 0


@dataclass(frozen=True, slots=True)
class Figures:
    """What one arm did on one class of prompts, or overall."""

    kind: str
    arm: int
    prompts: int
    plain_tokens_per_second: float  # median over timed replies
    tokens_per_second: float
    speedup: Interval  # of the ratios of paired turns: their median; overall, the geometric mean over the classes
    ratios: tuple[float, ...]
    acceptance_rate: float | None  # accepted / tested
    acceptance_by_place: tuple[float, ...]  # the same by place in the draft, from 0
    tokens_per_pass: float  # generated tokens by target passes
    draft_share: float  # of the decoding time
    verify_share: float
    prefill_seconds: float  # median, both models
    first_token_seconds: float
    compared: int  # prompts whose texts were compared, which makes sense at temperature 0 only
    differences: tuple[FirstDifference, ...]
    draft_token_cost: float | None  # time for one draft token, in times for one plain token
    pass_cost: float  # time for one verification pass, in times for one plain token
    round_cost: float  # time for a whole round, in times for one plain token


def summarise(arms: Sequence[Arm], measurements: Iterable[Measurement]) -> list[Figures]:
    """Return the figures of each arm but plain decoding, for each class of prompts and overall.

    Only turns are used that the plain arm of the same temperature has, too.
    """
    everything = list(measurements)
    kinds = list(dict.fromkeys(measurement.kind for measurement in everything))
    found = []
    for at, arm in enumerate(arms):
        if arm.plain:
            continue
        plain = next(other for other, candidate in enumerate(arms) if candidate.plain and _same(candidate, arm))
        for kind in (*kinds, OVERALL):
            chosen = [one for one in everything if kind in (one.kind, OVERALL)]
            figures = _figures(kind, at, chosen, plain, arm.temperature == 0)
            if figures is not None:
                found.append(figures)
    return found


def _same(one: Arm, other: Arm) -> bool:
    return one.temperature == other.temperature


def _figures(kind: str, at: int, chosen: list[Measurement], plain: int, greedy: bool) -> Figures | None:
    by_key = {one.key: one for one in chosen}
    pairs = [
        (by_key[one.prompt, plain, one.turn], one)
        for one in chosen
        if one.arm == at and (one.prompt, plain, one.turn) in by_key
    ]
    timed = [(before, one) for before, one in pairs if one.turn != FIRST]
    if not timed:
        return None
    firsts = [(before, one) for before, one in pairs if one.turn == FIRST]
    ratios = tuple(one.tokens_per_second / before.tokens_per_second for before, one in timed)
    by_class: dict[str, list[float]] = {}
    for ratio, (_, one) in zip(ratios, timed, strict=True):
        by_class.setdefault(one.kind, []).append(ratio)
    ours = [one for _, one in timed]
    tested, accepted = sum(one.tested for one in ours), sum(one.accepted for one in ours)
    drafted, rounds = sum(one.drafted for one in ours), sum(one.rounds for one in ours)
    decode = sum(one.decode_seconds for one in ours)
    draft, verify = sum(one.draft_seconds for one in ours), sum(one.verify_seconds for one in ours)
    plain_token = sum(one.decode_seconds for one, _ in timed) / sum(len(one.tokens) for one, _ in timed)
    return Figures(
        kind=kind,
        arm=at,
        prompts=len({one.prompt for one in ours}),
        plain_tokens_per_second=median(one.tokens_per_second for one, _ in timed),
        tokens_per_second=median(one.tokens_per_second for one in ours),
        speedup=bootstrap_median(ratios) if kind != OVERALL else bootstrap_mean_of_classes(by_class.values()),
        ratios=ratios,
        acceptance_rate=accepted / tested if tested else None,
        acceptance_by_place=_by_place(ours),
        tokens_per_pass=sum(len(one.tokens) for one in ours) / rounds,
        draft_share=draft / decode,
        verify_share=verify / decode,
        prefill_seconds=median(one.prefill_seconds for _, one in firsts) if firsts else 0.0,
        first_token_seconds=median(one.first_token_seconds for _, one in firsts) if firsts else 0.0,
        compared=len(firsts) if greedy else 0,
        differences=tuple(_differences(firsts)) if greedy else (),
        draft_token_cost=draft / drafted / plain_token if drafted else None,
        pass_cost=verify / rounds / plain_token,
        round_cost=decode / rounds / plain_token,
    )


def _by_place(measurements: Sequence[Measurement]) -> tuple[float, ...]:
    longest = max((len(one.tested_at) for one in measurements), default=0)
    rates = []
    for place in range(longest):
        having = [one for one in measurements if len(one.tested_at) > place]
        rates.append(sum(one.accepted_at[place] for one in having) / sum(one.tested_at[place] for one in having))
    return tuple(rates)


def _differences(pairs: Iterable[tuple[Measurement, Measurement]]) -> Iterable[FirstDifference]:
    for plain, one in pairs:
        if plain.tokens != one.tokens:
            same = zip(plain.tokens, one.tokens, strict=False)
            shorter = min(len(plain.tokens), len(one.tokens))
            yield FirstDifference(one.prompt, next((at for at, (a, b) in enumerate(same) if a != b), shorter))


def verdict(arms: Sequence[Arm], figures: Sequence[Figures]) -> list[str]:
    """Say for each temperature what pays for which prompts, and why."""
    lines = []
    for temperature in dict.fromkeys(arm.temperature for arm in arms):
        ours = [one for one in figures if arms[one.arm].temperature == temperature and arms[one.arm].draft is not None]
        overall = [one for one in ours if one.kind == OVERALL]
        if not overall:
            continue
        drafting = [one for one in overall if one.acceptance_rate is not None]
        if not drafting:
            lines.append(f"Temperature {temperature:g}: no drafts were made, because none promised to pay.")
            continue
        best = max(drafting, key=lambda one: one.speedup.middle)
        of_best = [one for one in ours if one.arm == best.arm and one.kind != OVERALL]
        lines.append(f"Temperature {temperature:g}: {_pays(arms[best.arm], best, of_best)}")
        lines.append(f"  {_reason(best)}")
        if len(drafting) < len(overall):
            lines.append(
                "  Automatic drafts were not made, because none promised to pay; what differs there is chance."
            )
    return lines


def _pays(arm: Arm, overall: Figures, kinds: Sequence[Figures]) -> str:
    known = [one for one in kinds if one.speedup.low is not None]
    wins = [one for one in known if one.speedup.gain]
    losses = [one for one in known if one.speedup.loss]
    draws = [one for one in known if one not in wins and one not in losses]
    rest = [one for one in kinds if one not in known]
    parts = []
    if wins:
        parts.append(f"pays for {_listed(wins)}")
    if draws:
        parts.append(f"makes no clear difference for {_listed(draws)}")
    if losses:
        parts.append(f"does not pay for {_listed(losses)}")
    if rest:
        parts.append(f"was measured too few times to tell for {_listed(rest)}")
    best = f"the best of these settings, {arm.name}, is {overall.speedup.middle:.2f}x as fast as plain decoding; it "
    return best + "; it ".join(parts) + "."


def _listed(figures: Sequence[Figures]) -> str:
    ordered = sorted(figures, key=lambda one: -one.speedup.middle)
    return ", ".join(f"{one.kind} ({one.speedup.middle:.2f}x)" for one in ordered)


def _reason(figures: Figures) -> str:
    drafting = figures.round_cost * figures.draft_share
    rest = figures.round_cost - drafting - figures.pass_cost
    accepted = 100 * (figures.acceptance_rate or 0)
    return (
        f"Why: a round yields {figures.tokens_per_pass:.2f} tokens ({accepted:.0f} % of the tested draft tokens are "
        f"accepted) and costs as much as {figures.round_cost:.2f} plain tokens: {drafting:.2f} for drafting, "
        f"{figures.pass_cost:.2f} for the target's longer pass, {rest:.2f} for the rest."
    )
