"""What a round costs outside llama.cpp: distributions, drawing, the accept rule.

    python benchmarks/step.py [--vocabulary 32000,151936,262144] [--draft-length 1,4,16] [--repeats 30]

Random logits shaped like a model's (a few tokens far above the rest), a draft that agrees with the target most of the
time, one process. Prints medians in microseconds a round: drafting (distributions and draws for the draft tokens),
verification (the target's distributions, as far as the rule looks, and the rule), and both.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter

import numpy as np

from specli.decoding.loop import _TargetRows
from specli.decoding.options import SamplingOptions
from specli.decoding.sampling import confidence, distribution
from specli.decoding.verification import Draft, make_verifier

SAMPLINGS = {
    "temperature 0": SamplingOptions(temperature=0.0),
    "top-k 40": SamplingOptions(temperature=0.8),
    "dense": SamplingOptions(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
}


def logits(rng: np.random.Generator, rows: int, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """Return logits of a target [rows, vocabulary] and of a draft that says nearly the same."""
    target = rng.normal(0, 2.0, (rows, vocabulary)).astype(np.float32)
    for row in target:
        row[rng.integers(0, vocabulary, 5)] += np.array([16, 14, 12, 11, 10], dtype=np.float32)
    return target, target + rng.normal(0, 0.5, target.shape).astype(np.float32)


def one_round(target, draft, length: int, sampling: SamplingOptions, verifier, position: int) -> tuple[float, float]:
    started = perf_counter()
    tokens, probs = [], []
    for row in draft[:length]:
        found = distribution(row, sampling)
        confidence(row, found)
        probs.append(found)
        tokens.append(verifier.draw_draft(found, position))
    drafted = perf_counter()
    verifier.verify(Draft(tokens, probs), _TargetRows(target, sampling, [], tokens), position)
    return drafted - started, perf_counter() - drafted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabulary", default="32000,151936,262144")
    parser.add_argument("--draft-length", default="1,4,16")
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    print("| vocabulary | sampling | rule | draft length | drafting | verification | round |")
    print("|---" * 7 + "|")
    for vocabulary in (int(size) for size in arguments.vocabulary.split(",")):
        lengths = [int(length) for length in arguments.draft_length.split(",")]
        target, draft = logits(rng, max(lengths) + 1, vocabulary)
        for name, sampling in SAMPLINGS.items():
            for rule in ("block", "token"):
                for length in lengths:
                    verifier = make_verifier(rule, 0)
                    times = [
                        one_round(target, draft, length, sampling, verifier, at) for at in range(arguments.repeats + 3)
                    ]
                    parts = [1e6 * median(part) for part in zip(*times[3:], strict=True)]
                    cells = " | ".join(f"{part:,.0f}" for part in (*parts, sum(parts)))
                    print(f"| {vocabulary:,} | {name} | {rule} | {length} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
