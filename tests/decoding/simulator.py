"""A simulator of rounds: cost curves and acceptance processes in, seconds out. No models, no tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specli.decoding.schedule import Costs, Schedule

# Accepted (0 or 1) and confidence (the draft's largest probability) for each position of a text.
Trace = list[tuple[int, float]]


@dataclass(frozen=True)
class Curve:
    """Milliseconds of target passes by number of rows, and of one draft token."""

    name: str
    target: Callable[[int], float]
    draft: float


def table(name: str, rows: dict[int, float], draft: float) -> Curve:
    sizes = sorted(rows)
    return Curve(name, lambda n: float(np.interp(n, sizes, [rows[size] for size in sizes])), draft)


# Measured on two cores (milliseconds), and a GPU-like line.
CURVES = {
    "bf16": table("bf16", {1: 80, 2: 100, 3: 112, 4: 128, 5: 137, 8: 172, 16: 247, 32: 420}, 22),
    "gpu": Curve("gpu", lambda n: 10 + 0.15 * n, 1.6),
    "q4_k_m": table("q4_k_m", {1: 32, 2: 60, 3: 84, 4: 102, 5: 124, 8: 229, 16: 272, 32: 520}, 22),
    "q8_0": table("q8_0", {1: 62, 2: 97, 3: 108, 4: 118, 5: 184, 8: 180, 16: 307, 32: 560}, 22),
}


def recorded_traces() -> dict[str, Trace]:
    """Traces of a 1.5B target with a 0.5B draft model at temperature 0."""
    content = json.loads((Path(__file__).parent / "data" / "acceptance-traces.json").read_text())
    return {name: [(int(row[0]), float(row[1])) for row in rows] for name, rows in content.items()}


def recorded_chances() -> dict[str, list[tuple[float, float]]]:
    """Chance of acceptance, sum(min(target, draft)), and confidence along texts of the same pair at temperature 1."""
    content = json.loads((Path(__file__).parent / "data" / "acceptance-chances.json").read_text())
    return {name: [(row[0], row[1]) for row in rows] for name, rows in content.items()}


def realised(chances: list[tuple[float, float]], seed: int) -> Trace:
    """Return a trace with acceptance drawn from its chances."""
    uniforms = np.random.default_rng(seed).random(len(chances))
    return [
        (int(uniform < chance), confidence) for uniform, (chance, confidence) in zip(uniforms, chances, strict=True)
    ]


def class_speedups(curve: Curve, seeds: int) -> dict[str, tuple[float, float, float]]:
    """Return speedups over plain decoding at temperature 1 by class of prompts: geometric means over prompts and seeds.

    The best fixed length for the class, the schedule from a cold start, and a second time.
    """
    found: dict[str, list[list[float]]] = {}
    for name, chances in recorded_chances().items():
        for seed in range(seeds):
            trace, again = realised(chances, seed), realised(chances, seeds + seed)
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


def best_fixed(trace: Trace, curve: Curve, tokens: int) -> float:
    return min(fixed(trace, curve, length, tokens) for length in range(17))


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


def scheduled(trace: Trace, curve: Curve, tokens: int, schedule: Schedule | None = None) -> float:
    """Return the seconds with the schedule deciding."""
    if schedule is None:
        schedule = new_schedule(curve)
    schedule.begin_reply()
    at, total = 0, 0.0
    while at < tokens:
        schedule.begin(16)
        length, drafting = 0, 0.0
        while schedule.wants_pass():
            drafting += curve.draft
            if not schedule.wants_token(trace[(at + length) % len(trace)][1]):
                break
            length += 1
        milliseconds = curve.target(length + 1)
        accepted = accepted_from(trace, at, length)
        schedule.observe(accepted, length, milliseconds / 1000, drafting / 1000)
        at += accepted + 1
        total += milliseconds + drafting
    return total * tokens / at / 1000


def new_schedule(curve: Curve) -> Schedule:
    rows = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
    return Schedule(Costs({n: curve.target(n) / 1000 for n in rows}, curve.draft / 1000))


def main() -> None:
    """Print speedups over plain decoding: `python tests/decoding/simulator.py`."""
    print("| curve | prompt | best fixed length | schedule | schedule, second time | knowing the future |")
    print("|---" * 6 + "|")
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
            print(f"| {curve.name} | {name} | " + " | ".join(f"{one:.2f}" for one in found) + " |")
        means = np.exp(np.log(against).mean(axis=0))
        print(f"| {curve.name} | all, over the best fixed length | " + " | ".join(f"{one:.2f}" for one in means) + " |")

    print("\n| temperature 1 | prompts | best fixed length | schedule | schedule, second time |")
    print("|---" * 5 + "|")
    for curve in CURVES.values():
        for kind, figures in class_speedups(curve, seeds=20).items():
            print(f"| {curve.name} | {kind} | " + " | ".join(f"{one:.2f}" for one in figures) + " |")


if __name__ == "__main__":
    main()
