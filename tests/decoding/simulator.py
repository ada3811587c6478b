"""A simulator of rounds: cost curves and acceptance processes in, seconds out. No models; nothing is timed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specli.decoding.costs import CATCH_UP, PassCosts
from specli.decoding.lookup import LookupIndex
from specli.decoding.schedule import LONGEST_DRAFT, LONGEST_LOOKUP, Schedule


class Position(NamedTuple):
    """What the two drafters would do at one position of a text."""

    accepted: int  # whether the draft model's token would be accepted
    confidence: float  # the largest probability of the draft model
    match: int = 0  # how many tokens before this position the lookup index finds again; 0 without a match
    copied: int = 0  # how many tokens of a looked up draft would be accepted, LONGEST_LOOKUP at most


Trace = Sequence[Position]


@dataclass(frozen=True)
class Curve:
    """Milliseconds of target passes by number of rows, and of one draft token."""

    name: str
    target: Callable[[int], float]
    draft: float


def table(name: str, rows: dict[int, float], draft: float) -> Curve:
    sizes = sorted(rows)
    return Curve(
        name, lambda n: float(np.interp(n, sizes, [rows[size] for size in sizes])) * max(1.0, n / sizes[-1]), draft
    )


# Measured on two cores (milliseconds), and a line like a GPU's.
CURVES = {
    "bf16": table("bf16", {1: 80, 2: 100, 3: 112, 4: 128, 5: 137, 8: 172, 16: 247, 32: 420}, 22),
    "gpu": Curve("gpu", lambda n: 10 + 0.15 * n, 1.6),
    "q4_k_m": table("q4_k_m", {1: 32, 2: 60, 3: 84, 4: 102, 5: 124, 8: 229, 16: 272, 32: 520}, 22),
    "q8_0": table("q8_0", {1: 62, 2: 97, 3: 108, 4: 118, 5: 184, 8: 180, 16: 307, 32: 560}, 22),
}


def recorded_traces() -> dict[str, Trace]:
    """Traces of a 1.5B target with a 0.5B draft model at temperature 0."""
    content = json.loads((Path(__file__).parent / "data" / "acceptance-traces.json").read_text())
    return {name: [Position(int(row[0]), float(row[1])) for row in rows] for name, rows in content.items()}


def recorded_probabilities() -> dict[str, list[tuple[float, float]]]:
    """Probability of acceptance, sum(min(target, draft)), and confidence along texts of that pair at temperature 1."""
    content = json.loads((Path(__file__).parent / "data" / "acceptance-chances.json").read_text())
    return {name: [(row[0], row[1]) for row in rows] for name, rows in content.items()}


def realized(probabilities: list[tuple[float, float]], seed: int) -> Trace:
    """Return a trace with acceptance drawn from its probabilities."""
    uniforms = np.random.default_rng(seed).random(len(probabilities))
    return [
        Position(int(uniform < probability), confidence)
        for uniform, (probability, confidence) in zip(uniforms, probabilities, strict=True)
    ]


@cache
def repetitive_traces() -> dict[str, Trace]:
    """Synthetic replies to a prompt that they repeat: all over with small changes, now and then, or never; two each."""
    kinds = {"edit": (0.2, 50), "quotes": (0.03, 25), "new text": (0.0, 1)}
    return {f"{name}-{seed}": _repetitive(seed, *kind) for name, kind in kinds.items() for seed in (1, 2)}


def _repetitive(seed: int, begins: float, length: float, prompt: int = 300, reply: int = 400) -> Trace:
    """Return a trace over a text with repeated stretches, looked up by the real index.

    New text is a chain of words with four likely successors each, so that short matches also come about by chance.

    Args:
        seed: of the text.
        begins: probability that a stretch of the text so far is repeated from here on.
        length: tokens such a stretch has in the mean; one in 25 of its tokens is changed.
        prompt: tokens before the trace begins.
        reply: tokens of the trace.
    """
    rng = np.random.default_rng(seed)
    successors = rng.integers(0, 300, size=(300, 4))
    tokens, model, source = [0], [Position(1, 0.9)], -1
    while len(tokens) < prompt + reply:
        if source < 0 and len(tokens) >= prompt and rng.random() < begins:
            source = int(rng.integers(0, prompt))
        if source >= 0 and rng.random() > 0.04:
            tokens.append(tokens[source])
            model.append(Position(int(rng.random() < 0.93), float(rng.beta(12, 1))))
        else:
            tokens.append(int(successors[tokens[-1], rng.integers(0, 4)]))
            confidence = float(rng.beta(1.5, 0.8))
            model.append(Position(int(rng.random() < 0.2 + 0.7 * confidence), confidence))
        source = source + 1 if source >= 0 and rng.random() > 1 / length else -1
    index, trace = LookupIndex(), []
    for at in range(prompt, len(tokens)):
        index.extend(tokens[:at])
        match = index.find()
        found = index.continuation(match, LONGEST_LOOKUP) if match is not None else []
        copied = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(found, tokens[at:], strict=False))))
        trace.append(model[at]._replace(match=match.length if match is not None else 0, copied=copied))
    return trace


def class_speedups(curve: Curve, seeds: int) -> dict[str, tuple[float, float, float]]:
    """Return speedups over plain decoding at temperature 1 by class of prompts: geometric means over prompts and seeds.

    The best fixed length for the class, the schedule from a cold start, and a second time.
    """
    found: dict[str, list[list[float]]] = {}
    for name, probabilities in recorded_probabilities().items():
        for seed in range(seeds):
            trace, again = realized(probabilities, seed), realized(probabilities, seeds + seed)
            plain = fixed(trace, curve, 0, len(trace))
            schedule = new_schedule(curve)
            seconds = [fixed(trace, curve, length, len(trace)) for length in range(17)]
            seconds += [scheduled(trace, curve, len(trace), schedule), scheduled(again, curve, len(again), schedule)]
            found.setdefault(name.partition("-")[0], []).append([plain / one for one in seconds])
    means = {kind: np.exp(np.log(rows).mean(axis=0)) for kind, rows in found.items()}
    return {kind: (float(row[:17].max()), float(row[17]), float(row[18])) for kind, row in means.items()}


def accepted_from(trace: Trace, start: int, length: int) -> int:
    count = 0
    while count < length and trace[(start + count) % len(trace)][0]:
        count += 1
    return count


def fixed(trace: Trace, curve: Curve, length: int, tokens: int) -> float:
    """Return the seconds for so many tokens with drafts of a fixed length."""
    at, seconds = 0, 0.0
    while at < tokens:
        at += 1 + accepted_from(trace, at, length)
        seconds += length * curve.draft + curve.target(length + 1)
    return seconds * tokens / at / 1000


def fixed_lookup(trace: Trace, curve: Curve, length: int, tokens: int) -> float:
    """Return the seconds for so many tokens with looked up drafts of a fixed length wherever there is a match."""
    at, seconds = 0, 0.0
    while at < tokens:
        position = trace[at % len(trace)]
        drafted = length if position.match else 0
        at += 1 + min(drafted, position.copied)
        seconds += curve.target(drafted + 1)
    return seconds * tokens / at / 1000


def best_fixed(trace: Trace, curve: Curve, tokens: int) -> float:
    return min(fixed(trace, curve, length, tokens) for length in range(17))


def best_fixed_lookup(trace: Trace, curve: Curve, tokens: int) -> float:
    return min(fixed_lookup(trace, curve, length, tokens) for length in (*range(17), 24, 32, 48))


def all_knowing(trace: Trace, curve: Curve, tokens: int) -> float:
    """Return the seconds when each draft has the best length, knowing what will be accepted (dynamic programming)."""
    best = [0.0] * (tokens + 1)
    for at in range(tokens - 1, -1, -1):
        options = []
        for length in range(17):
            accepted = accepted_from(trace, at, length)
            cost = length * curve.draft + curve.target(length + 1)
            options.append(cost + best[min(at + accepted + 1, tokens)])
        best[at] = min(options)
    return best[0] / 1000


def scheduled(
    trace: Trace, curve: Curve, tokens: int, schedule: Schedule | None = None, *, catches_up: bool = False
) -> float:
    """Return the seconds with the schedule deciding.

    Args:
        trace: what would be accepted at each position; begins anew when it is over.
        curve: what passes cost.
        tokens: how many to decode.
        schedule: what decides; a new one by default.
        catches_up: whether the draft model must read, at a cost, what was decoded without it.
    """
    if schedule is None:
        schedule = new_schedule(curve)
    schedule.begin_reply()
    at, total, backlog = 0, 0.0, 0
    while at < tokens:
        position = trace[at % len(trace)]
        plan = schedule.plan(LONGEST_LOOKUP, backlog, position.match)
        passes = 0
        if plan.lookup_length:
            accepted = min(plan.lookup_length, position.copied)
        else:
            while plan.wants_pass():
                passes += 1
                if not plan.wants_token(trace[(at + len(plan.kinds)) % len(trace)].confidence):
                    break
            accepted = accepted_from(trace, at, len(plan.kinds))
        drafting = curve.draft * (passes + CATCH_UP * backlog * (passes > 0))
        milliseconds = curve.target(len(plan.kinds) + 1)
        schedule.observe(plan, accepted, milliseconds / 1000, drafting / 1000)
        at += accepted + 1
        total += milliseconds + drafting
        if catches_up:
            backlog = 0 if passes else backlog + accepted + 1
    return total * tokens / at / 1000


def new_schedule(curve: Curve, limit: int = LONGEST_DRAFT) -> Schedule:
    rows = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
    return Schedule(PassCosts(0, {n: curve.target(n) / 1000 for n in rows}, curve.draft / 1000), limit)


def geometric_mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return [float(one) for one in np.exp(np.log(rows).mean(axis=0))]


def print_row(*cells: object) -> None:
    print("| " + " | ".join(f"{one:.2f}" if isinstance(one, float) else str(one) for one in cells) + " |", flush=True)


def main() -> None:
    """Print speedups over plain decoding: `python tests/decoding/simulator.py`."""
    print_row("curve", "prompt", "best fixed length", "schedule", "schedule, second time", "knowing the future")
    print_row(*["---"] * 6)
    for curve in CURVES.values():
        against: list[list[float]] = []
        for name, trace in recorded_traces().items():
            tokens = len(trace)
            plain = fixed(trace, curve, 0, tokens)
            schedule = new_schedule(curve)
            found = [
                plain / best_fixed(trace, curve, tokens),
                plain / scheduled(trace, curve, tokens, schedule),
                plain / scheduled(trace, curve, tokens, schedule),
                plain / all_knowing(trace, curve, tokens),
            ]
            against.append([one / found[0] for one in found])
            print_row(curve.name, name, *found)
        print_row(curve.name, "all, over the best fixed length", *geometric_mean(against))

    print()
    print_row("temperature 1", "prompts", "best fixed length", "schedule", "schedule, second time")
    print_row(*["---"] * 5)
    for curve in CURVES.values():
        speedups = class_speedups(curve, seeds=20)
        for kind, figures in speedups.items():
            print_row(curve.name, kind, *figures)
        print_row(curve.name, "all, over plain decoding", *geometric_mean(list(speedups.values())))

    print()
    columns = ("draft model", "lookup", "schedule with both", "second time", "lookup alone", "second time")
    print_row("repetition", "text", *columns)
    print_row(*["---"] * 8)
    for curve in CURVES.values():
        rows = []
        for name, trace in repetitive_traces().items():
            tokens = len(trace)
            plain = fixed(trace, curve, 0, tokens)
            found = [plain / best_fixed(trace, curve, tokens), plain / best_fixed_lookup(trace, curve, tokens)]
            for limit in (LONGEST_DRAFT, 0):
                schedule = new_schedule(curve, limit)
                found += [plain / scheduled(trace, curve, tokens, schedule, catches_up=True) for _ in range(2)]
            rows.append(found)
            print_row(curve.name, name, *found)
        print_row(curve.name, "all, over plain decoding", *geometric_mean(rows))


if __name__ == "__main__":
    main()
