"""What the measurements of a comparison say: figures for each class of prompts and configuration, and a verdict.

docs/compare.md defines every figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from statistics import median
from typing import Any

import numpy as np

from specli import __version__
from specli.decoding.sampling import Floats
from specli.decoding.sequences import shared_prefix
from specli.evaluation.comparison import FIRST, Configuration, Measurement
from specli.evaluation.journal import KIND, VERSION
from specli.evaluation.machine import Machine, ModelFacts
from specli.evaluation.settings import Settings

OVERALL = "overall"
_RESAMPLES = 4000
_MIN_VALUES = 3


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % bootstrap interval, for which there can be too few values."""

    estimate: float
    low: float | None
    high: float | None

    def outcome(self) -> str:
        """Say what the interval of a speedup means."""
        if self.low is None or self.high is None:
            return "there are too few measurements to tell"
        return "it is faster" if self.low > 1 else "it is slower" if self.high < 1 else "it makes no clear difference"


def bootstrap_median(values: Sequence[float]) -> Interval:
    """Return the median of values, and the interval that holds 95 % of the medians of resamples."""
    return _bootstrap(np.asarray(values, dtype=np.float64), np.median)


def bootstrap_mean_of_classes(classes: Iterable[Sequence[float]]) -> Interval:
    """Return the geometric mean over classes of the geometric means of their values, with a 95 % bootstrap interval.

    Classes are resampled: how much they differ from each other is what limits a statement about prompts in general,
    far more than the noise of single turns. A median over classes would say little: it jumps from one to the next.
    """
    means = np.array([np.exp(np.log(values).mean()) for values in classes])
    return _bootstrap(means, lambda resamples, axis: np.exp(np.log(resamples).mean(axis)))


def _bootstrap(values: Floats, statistic: Callable[..., Any]) -> Interval:
    """Return a statistic of [n] values, n at least 1, with its interval if there are enough of them."""
    estimate = float(statistic(values, axis=0))
    if len(values) < _MIN_VALUES:
        return Interval(estimate, None, None)
    resamples = np.random.default_rng(0).choice(values, size=(_RESAMPLES, len(values)))
    low, high = np.quantile(statistic(resamples, axis=1), (0.025, 0.975))
    return Interval(estimate, float(low), float(high))


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where a text with drafts departs from the one without, at temperature 0."""

    prompt: str
    position: int  # in the reply, from 0


@dataclass(frozen=True, slots=True)
class Figures:
    """How one configuration did on one class of prompts, or overall."""

    kind: str
    configuration: int
    prompts: int
    baseline_tokens_per_second: float  # median over timed replies
    tokens_per_second: float
    speedup: Interval  # of the ratios of paired turns: their median; overall, the geometric mean over the classes
    ratios: tuple[float, ...]
    acceptance_rate: float | None  # accepted / tested
    acceptance_by_position: tuple[float, ...]  # the same by position in the draft, from 0
    tokens_per_pass: float  # generated tokens by target passes
    draft_share: float  # of the decoding time
    verify_share: float
    prefill_seconds: float  # median, both models
    first_token_seconds: float
    compared: int  # prompts whose texts were compared, which makes sense only at temperature 0
    differences: tuple[FirstDifference, ...]
    draft_token_cost: float | None  # time for one draft token; unit: time for one token of the baseline
    pass_cost: float  # time for one verification pass, in the same unit
    round_cost: float  # time for a whole round, in the same unit


def summarize(configurations: Sequence[Configuration], measurements: Iterable[Measurement]) -> list[Figures]:
    """Return the figures of each configuration but the baseline, for each class of prompts and overall.

    Only turns count that the baseline of the same temperature has, too.
    """
    everything = list(measurements)
    kinds = list(dict.fromkeys(measurement.kind for measurement in everything))
    baselines = {one.temperature: index for index, one in enumerate(configurations) if one.is_baseline}
    found = []
    for index, configuration in enumerate(configurations):
        if configuration.is_baseline:
            continue
        baseline, greedy = baselines[configuration.temperature], configuration.temperature == 0
        for kind in (*kinds, OVERALL):
            chosen = [one for one in everything if kind in (one.kind, OVERALL)]
            figures = _figures(kind, index, chosen, baseline, greedy)
            if figures is not None:
                found.append(figures)
    return found


def _figures(kind: str, index: int, chosen: list[Measurement], baseline: int, greedy: bool) -> Figures | None:
    by_key = {one.key: one for one in chosen}
    pairs = [
        (by_key[one.prompt, baseline, one.turn], one)
        for one in chosen
        if one.configuration == index and (one.prompt, baseline, one.turn) in by_key
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
    totals = ("tested", "accepted", "drafted", "rounds", "decode_seconds", "draft_seconds", "verify_seconds")
    tested, accepted, drafted, rounds, decode, draft, verify = (
        sum(getattr(one, name) for one in ours) for name in totals
    )
    baseline_token = sum(one.decode_seconds for one, _ in timed) / sum(len(one.tokens) for one, _ in timed)
    return Figures(
        kind=kind,
        configuration=index,
        prompts=len({one.prompt for one in ours}),
        baseline_tokens_per_second=median(one.tokens_per_second for one, _ in timed),
        tokens_per_second=median(one.tokens_per_second for one in ours),
        speedup=bootstrap_median(ratios) if kind != OVERALL else bootstrap_mean_of_classes(by_class.values()),
        ratios=ratios,
        acceptance_rate=accepted / tested if tested else None,
        acceptance_by_position=_by_position(ours),
        tokens_per_pass=sum(len(one.tokens) for one in ours) / rounds,
        draft_share=draft / decode,
        verify_share=verify / decode,
        prefill_seconds=median(one.prefill_seconds for _, one in firsts) if firsts else 0.0,
        first_token_seconds=median(one.first_token_seconds for _, one in firsts) if firsts else 0.0,
        compared=len(firsts) if greedy else 0,
        differences=tuple(
            FirstDifference(one.prompt, shared_prefix(before.tokens, one.tokens))
            for before, one in firsts
            if greedy and before.tokens != one.tokens
        ),
        draft_token_cost=draft / drafted / baseline_token if drafted else None,
        pass_cost=verify / rounds / baseline_token,
        round_cost=decode / rounds / baseline_token,
    )


def _by_position(measurements: Sequence[Measurement]) -> tuple[float, ...]:
    tested, accepted = (
        [sum(counts) for counts in zip_longest(*(getattr(one, name) for one in measurements), fillvalue=0)]
        for name in ("tested_at", "accepted_at")
    )
    return tuple(yes / all_ for yes, all_ in zip(accepted, tested, strict=True))


def verdict(configurations: Sequence[Configuration], figures: Sequence[Figures]) -> list[str]:
    """Say for each temperature which prompts drafting makes faster, and why."""
    lines = []
    drafted = [one for one in figures if configurations[one.configuration].draft is not None]
    for temperature in dict.fromkeys(one.temperature for one in configurations):
        ours = [one for one in drafted if configurations[one.configuration].temperature == temperature]
        overall = [one for one in ours if one.kind == OVERALL]
        if not overall:
            continue
        drafting = [one for one in overall if one.acceptance_rate is not None]
        if not drafting:
            lines.append(f"Temperature {temperature:g}: nothing was drafted, because no draft length looked worth it.")
            continue
        best = max(drafting, key=lambda one: one.speedup.estimate)
        of_best = [one for one in ours if one.configuration == best.configuration and one.kind != OVERALL]
        name = configurations[best.configuration].name
        lines.append(f"Temperature {temperature:g}: {_outcome(name, best, of_best)}")
        lines.append(f"  {_reason(best)}")
        if len(drafting) < len(overall):
            lines.append(
                "  With automatic draft length nothing was drafted, because no draft length looked worth it; "
                "any difference there is noise."
            )
    return lines


def _outcome(name: str, overall: Figures, kinds: Sequence[Figures]) -> str:
    outcomes: dict[str, list[str]] = {}
    for one in sorted(kinds, key=lambda one: -one.speedup.estimate):
        outcomes.setdefault(one.speedup.outcome(), []).append(f"{one.kind} ({one.speedup.estimate:.2f}x)")
    parts = [f"the best of these configurations, {name}, is {overall.speedup.estimate:.2f}x as fast as the baseline"]
    parts += [f"{outcome} for {', '.join(found)}" for outcome, found in outcomes.items()]
    return "; ".join(parts) + "."


def _reason(figures: Figures) -> str:
    drafting = figures.round_cost * figures.draft_share
    rest = figures.round_cost - drafting - figures.pass_cost
    accepted = 100 * (figures.acceptance_rate or 0)
    return (
        f"Why: a round yields {figures.tokens_per_pass:.2f} tokens ({accepted:.0f} % of the tested draft tokens are "
        f"accepted) and takes as long as {figures.round_cost:.2f} tokens of the baseline: {drafting:.2f} for drafting, "
        f"{figures.pass_cost:.2f} for the verification pass, {rest:.2f} for everything else."
    )


@dataclass
class Comparison:
    """A comparison with what has been measured so far."""

    settings: Settings
    machine: Machine
    models: tuple[ModelFacts, ...]  # the target first
    measurements: list[Measurement]

    @property
    def figures(self) -> list[Figures]:
        """What the measurements say."""
        return summarize(self.settings.configurations, self.measurements)

    @property
    def complete(self) -> bool:
        """Whether all that was planned is measured."""
        return len(self.measurements) == self.settings.plan.total


def facts_json(comparison: Comparison) -> dict[str, Any]:
    """Return what a comparison was measured with, and its configurations."""
    return {
        "specli": __version__,
        "machine": asdict(comparison.machine),
        "models": [asdict(model) for model in comparison.models],
        "configurations": [asdict(one) | {"name": one.name} for one in comparison.settings.configurations],
    }


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return what `--json` prints; docs/compare.md describes it."""
    return {
        "kind": KIND,
        "version": VERSION,
        "settings": asdict(comparison.settings),
        **facts_json(comparison),
        "complete": comparison.complete,
        "measurements": [asdict(one) for one in comparison.measurements],
        "figures": [asdict(one) for one in comparison.figures],
        "verdict": verdict(comparison.settings.configurations, comparison.figures),
    }
