"""Tuning: predict the speedup of each draft length from three numbers, and check the prediction against runs.

The three numbers are what a draft token costs, what a longer target pass costs, and how often draft tokens are
accepted, position by position. They are measured with one reply without drafting and one with long drafts for each
class of prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from statistics import geometric_mean, median

from specli.decoding.costs import PassCosts
from specli.decoding.metrics import Metrics
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.engine.reply import ReplyStream
from specli.evaluation.prompts import Prompt

LENGTHS = (1, 2, 3, 4, 6, 8)
_LONGEST = 8
_FEW = 5  # draft tokens tested at a position; with fewer, the rate over all positions is used


@dataclass(frozen=True, slots=True)
class ClassTuning:
    """The speedup for one class of prompts."""

    kind: str
    baseline_tokens_per_second: float
    acceptance_rate: float
    predicted: Mapping[int, float]  # speedup by draft length
    best_length: int  # by prediction; 0 is no drafting
    measured: float  # speedup with that length
    automatic: float  # speedup with automatic draft length


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was found out about a pair."""

    classes: tuple[ClassTuning, ...]
    draft_cost: float  # time for a draft token; unit: time for a one-row pass of the target
    pass_cost: Mapping[int, float]  # time for a pass of the target in the same unit, by number of rows
    overhead: float  # share of the time of drafted replies that is neither drafting nor a target pass
    predicted: Mapping[int, float]  # speedup by draft length, geometric mean over the classes
    best_length: int
    seed: int  # of each reply

    @property
    def acceptance_rate(self) -> float:
        """Mean over the classes."""
        return sum(one.acceptance_rate for one in self.classes) / len(self.classes)


def acceptance_by_position(metrics: Metrics, length: int) -> list[float]:
    """Return the acceptance rate of the first, second, ... token of a draft, if those before it were accepted."""
    overall = (metrics.accepted + 1) / (metrics.tested + 2)
    return [
        metrics.accepted_at[position] / metrics.tested_at[position] if metrics.tested_at[position] >= _FEW else overall
        for position in range(length)
    ]


def expected_tokens(rates: Sequence[float]) -> float:
    """Return the mean number of tokens per round; rates[i] is how often token i is accepted if those before it are."""
    return sum(accumulate(rates, mul, initial=1.0))


def predict(curve: PassCosts, baseline: Metrics, drafted: Metrics) -> dict[int, float]:
    """Return the speedup of each of `LENGTHS`, from a reply without drafting and one with drafts of `_LONGEST` tokens.

    The curve says how the time of a pass grows with its rows; the replies say what one and nine rows really took.
    """
    rates = acceptance_by_position(drafted, _LONGEST)
    token = baseline.decode_seconds / baseline.generated
    draft = drafted.draft_seconds / max(1, drafted.drafted)
    rest = drafted.other_seconds / drafted.rounds
    short = baseline.verify_seconds / baseline.rounds / curve.target[1]
    long = drafted.verify_seconds / drafted.rounds / curve.seconds(_LONGEST + 1)
    found = {}
    for length in LENGTHS:
        share = length / _LONGEST
        seconds = length * draft + curve.seconds(length + 1) * (short * (1 - share) + long * share) + rest
        found[length] = expected_tokens(rates[:length]) * token / seconds
    return found


def _best(predicted: Mapping[int, float]) -> int:
    best = max(predicted, key=lambda length: predicted[length])
    return best if predicted[best] > 1 else 0


def tune(
    engine: Engine,
    prompts: Sequence[Prompt],
    options: ReplyOptions,
    tokens: int,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Tuning | None:
    """Predict the speedup of drafting for each class of prompts, and measure it in replies of so many tokens.

    `progress` is called with how many replies are done, and how many there are; `interrupted` is asked between tokens,
    and True stops and returns None.
    """
    assert options.seed is not None
    curves: list[PassCosts] = []
    classes: list[ClassTuning] = []
    other = total = 0.0
    done = 0
    for prompt in prompts:
        text = engine.conversation(prompt.messages)

        def run(length: int | None, text: list[int] = text) -> Metrics:
            nonlocal done
            progress(done, 4 * len(prompts))
            done += 1
            timed = replace(options, draft_length=length, max_tokens=tokens, ignore_eos=True, reproducible=False)
            return ReplyStream(engine.reply(text, timed, interrupted=interrupted)).finish().metrics

        # Again for each class: the relative cost of a longer pass changes with what else uses the memory.
        curves.append(engine.calibrate(again=True))
        baseline, drafted = run(0), run(_LONGEST)
        if interrupted() or not drafted.drafted:
            return None
        predicted = predict(curves[-1], baseline, drafted)
        best = _best(predicted)
        speed = baseline.tokens_per_second or 1.0
        measured = run(best).tokens_per_second or 0.0
        automatic = run(None).tokens_per_second or 0.0
        if interrupted():
            return None
        rate = drafted.acceptance_rate or 0.0
        classes.append(ClassTuning(prompt.kind, speed, rate, predicted, best, measured / speed, automatic / speed))
        other, total = other + drafted.other_seconds, total + drafted.decode_seconds
    engine.remember(options)
    together = {length: geometric_mean(one.predicted[length] for one in classes) for length in LENGTHS}
    return Tuning(
        classes=tuple(classes),
        draft_cost=median((curve.draft or 0.0) / curve.target[1] for curve in curves),
        pass_cost={rows: median(curve.target[rows] / curve.target[1] for curve in curves) for rows in curves[0].target},
        overhead=other / total,
        predicted=together,
        best_length=_best(together),
        seed=options.seed,
    )


def explain(tuning: Tuning) -> list[str]:
    """Say why drafting does or does not make the target faster here, and what to do."""
    five = tuning.pass_cost.get(5, 0.0)
    lines = []
    if five:
        meaning = (
            "compute-bound here, so verifying drafts is nearly as slow as normal decoding. Fewer bits per weight make "
            "this worse; a GPU or more cores make it better."
            if five > 3
            else "memory-bound here, so verifying drafts is cheap."
        )
        lines.append(f"A five-row pass takes {five:.1f} times as long as a one-row pass: the target is {meaning}")
    expensive = "expensive" if tuning.draft_cost > 0.35 else "cheap enough"
    lines.append(
        f"A draft token costs {tuning.draft_cost:.2f} one-row passes of the target: the draft model is {expensive}."
    )
    rate = tuning.acceptance_rate
    how = "high" if rate > 0.75 else "fair" if rate > 0.55 else "low"
    lines.append(f"{100 * rate:.0f} % of the tested draft tokens are accepted, which is {how}.")
    if tuning.overhead > 0.1:
        lines.append(f"{100 * tuning.overhead:.0f} % of the time is spent neither drafting nor in target passes.")
    if tuning.best_length:
        gain = tuning.predicted[tuning.best_length]
        lines.append(
            f"The best fixed draft length is {tuning.best_length}, predicted to be {gain:.2f}x as fast as decoding "
            "without drafting; '--draft-length auto', the default, decides token by token."
        )
    else:
        lines.append(
            "No fixed draft length is faster; '--draft-length auto', the default, notices that and does not draft."
        )
    return lines
