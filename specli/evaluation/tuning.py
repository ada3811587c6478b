"""Tuning: predict from three numbers what drafts of each length would bring, and hold the prediction against runs.

Knows a loaded pair and its replies. Must not know the terminal.

The three numbers: what a draft token costs, what a longer target pass costs, and how often draft tokens are accepted,
place by place. They are measured with one plain reply and one with long drafts for each class of prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean, median

from specli.decoding.costs import PassCosts
from specli.decoding.metrics import Metrics
from specli.engine.engine import Engine
from specli.engine.reply import Reply, ReplyOptions
from specli.evaluation.prompts import Prompt

LENGTHS = (1, 2, 3, 4, 6, 8)
_LONGEST = 8
_FEW = 5  # draft tokens tested at a place; with fewer, all places together stand for it


@dataclass(frozen=True, slots=True)
class ClassTuning:
    """What one class of prompts would gain."""

    kind: str
    plain_tokens_per_second: float
    acceptance_rate: float
    predicted: Mapping[int, float]  # speedup by draft length
    best_length: int  # by prediction; 0 is plain decoding
    measured: float  # speedup with that length
    automatic: float  # speedup with drafts as long as pay


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was found out about a pair."""

    classes: tuple[ClassTuning, ...]
    draft_cost: float  # of a draft token, in plain passes
    pass_cost: Mapping[int, float]  # of a pass, in plain passes, by number of rows
    overhead: float  # share of the time of drafted replies that is neither drafting nor a target pass
    predicted: Mapping[int, float]  # speedup by draft length, geometric mean over the classes
    best_length: int

    @property
    def acceptance_rate(self) -> float:
        """Mean over the classes."""
        return sum(one.acceptance_rate for one in self.classes) / len(self.classes)


def acceptance_by_place(metrics: Metrics, places: int) -> list[float]:
    """Return the acceptance of the first, second, ... token of a draft, given that those before it were accepted."""
    overall = (metrics.accepted + 1) / (metrics.tested + 2)
    return [
        metrics.accepted_at[place] / metrics.tested_at[place] if metrics.tested_at[place] >= _FEW else overall
        for place in range(places)
    ]


def expected_tokens(chances: Sequence[float]) -> float:
    """Return how many tokens a round yields when token i is accepted with chances[i] if those before it are."""
    total, reach = 1.0, 1.0
    for chance in chances:
        reach *= chance
        total += reach
    return total


def predict(curve: PassCosts, plain: Metrics, drafted: Metrics) -> dict[int, float]:
    """Return the speedup of each of `LENGTHS`, from one plain reply and one with drafts of `_LONGEST` tokens.

    The curve says how a pass grows with its rows; the replies say what one and nine rows really took.
    """
    chances = acceptance_by_place(drafted, _LONGEST)
    token = plain.decode_seconds / plain.generated
    draft = drafted.draft_seconds / max(1, drafted.drafted)
    rest = drafted.other_seconds / drafted.rounds
    short = plain.verify_seconds / plain.rounds / curve.target[1]
    long = drafted.verify_seconds / drafted.rounds / curve.seconds(_LONGEST + 1)
    found = {}
    for length in LENGTHS:
        share = length / _LONGEST
        seconds = length * draft + curve.seconds(length + 1) * (short * (1 - share) + long * share) + rest
        found[length] = expected_tokens(chances[:length]) * token / seconds
    return found


def tune(
    engine: Engine,
    prompts: Sequence[Prompt],
    options: ReplyOptions,
    tokens: int,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Tuning | None:
    """Find out what drafts would bring.

    Args:
        engine: a target with its draft model.
        prompts: one of each class.
        options: sampling and rule.
        tokens: of each reply.
        progress: called with how many replies are done, and how many there are.
        interrupted: asked between tokens; True ends and returns None.
    """
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
            timed = replace(
                options, draft_length=length, max_tokens=tokens, seed=0, ignore_eos=True, reproducible=False
            )
            *_, reply = engine.reply(text, timed, interrupted=interrupted)
            assert isinstance(reply, Reply)
            return reply.metrics

        # Anew for each class: what a longer pass costs beside a plain one changes with what else uses the memory.
        curves.append(engine.calibrate(again=True))
        plain, drafted = run(0), run(_LONGEST)
        if interrupted() or not drafted.drafted:
            return None
        predicted = predict(curves[-1], plain, drafted)
        best = max(LENGTHS, key=lambda length: predicted[length])
        best = best if predicted[best] > 1 else 0
        speed = plain.tokens_per_second or 1.0
        measured = run(best).tokens_per_second or 0.0
        automatic = run(None).tokens_per_second or 0.0
        if interrupted():
            return None
        rate = drafted.acceptance_rate or 0.0
        classes.append(ClassTuning(prompt.kind, speed, rate, predicted, best, measured / speed, automatic / speed))
        other, total = other + drafted.other_seconds, total + drafted.decode_seconds
    engine.remember(options)
    together = {length: geometric_mean(one.predicted[length] for one in classes) for length in LENGTHS}
    best = max(LENGTHS, key=lambda length: together[length])
    return Tuning(
        classes=tuple(classes),
        draft_cost=median((curve.draft or 0.0) / curve.target[1] for curve in curves),
        pass_cost={rows: median(curve.target[rows] / curve.target[1] for curve in curves) for rows in curves[0].target},
        overhead=other / total,
        predicted=together,
        best_length=best if together[best] > 1 else 0,
    )


def explain(tuning: Tuning) -> list[str]:
    """Say in words why drafts pay here or not, and what to do."""
    five = tuning.pass_cost.get(5, 0.0)
    lines = []
    if five > 3:
        lines.append(
            f"A pass of five rows costs {five:.1f} plain passes: the target is limited by computing here, so checking "
            "drafts is nearly as dear as decoding plainly. Fewer bits a weight make this worse; a GPU, or more cores, "
            "better."
        )
    elif five:
        lines.append(
            f"A pass of five rows costs {five:.1f} plain passes: the target is limited by memory here, so checking "
            "drafts is cheap."
        )
    dear = "dear" if tuning.draft_cost > 0.35 else "cheap enough"
    lines.append(f"A draft token costs {tuning.draft_cost:.2f} plain passes: the draft model is {dear}.")
    rate = tuning.acceptance_rate
    how = "high" if rate > 0.75 else "fair" if rate > 0.55 else "low"
    lines.append(f"{100 * rate:.0f} % of the tested draft tokens are accepted, which is {how}.")
    if tuning.overhead > 0.1:
        lines.append(f"{100 * tuning.overhead:.0f} % of the time is neither drafting nor a target pass.")
    if tuning.best_length:
        gain = tuning.predicted[tuning.best_length]
        lines.append(
            f"Drafts of {tuning.best_length} tokens would be best as a fixed length, {gain:.2f}x as fast as plain "
            "decoding; '--draft-length auto', the default, decides token by token."
        )
    else:
        lines.append(
            "No fixed draft length pays; '--draft-length auto', the default, finds that out and does not draft."
        )
    return lines
