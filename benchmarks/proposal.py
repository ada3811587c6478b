"""What the draft model should be sampled with: how much would be accepted of each proposal.

    python benchmarks/proposal.py [--target MODEL] [--draft MODEL] [--temp 0.3,0.7,1,1.5] [--tokens 96] [--limit 9]
        [--traces FILE]

Any proposal keeps the target's distribution, so the choice is only about speed. Along texts that the target writes, the
acceptance of one token at each position, sum(min(target, draft)), is computed for several draft temperatures and for
the draft's single best token. Whole vocabulary. Prints the mean for each target temperature. `--traces` writes, for
each prompt and position, the acceptance at the target's own temperature and the largest draft probability; the tests
have such traces in tests/decoding/data/acceptance-chances.json (--temp 1 --tokens 128 --limit 18, draft in Q4_0).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from specli.engine.engine import Engine
from specli.evaluation.comparison import by_turns
from specli.evaluation.prompts import load_prompts
from specli.llama.options import LoadOptions
from specli.models.files import Silent, ensure_file
from specli.models.registry import load_registry

FACTORS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5)
OWN = FACTORS.index(1.0)


def probabilities(logits: np.ndarray, temperature: float) -> np.ndarray:
    scaled = logits / temperature
    scaled -= scaled.max()
    np.exp(scaled, out=scaled)
    return scaled / scaled.sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    registry = load_registry()
    parser.add_argument("--target", default=registry.default_target)
    parser.add_argument("--draft", default=registry[registry.default_target].draft)
    parser.add_argument("--temp", default="0.3,0.7,1,1.5")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--limit", type=int, default=9, help="how many prompts, the classes taking turns")
    parser.add_argument("--traces", type=Path)
    arguments = parser.parse_args()
    traces: dict[str, list[tuple[float, float]]] = {}
    target_path, draft_path = (
        ensure_file(registry.find(name), Silent()) for name in (arguments.target, arguments.draft)
    )
    prompts = by_turns(load_prompts("builtin"))[: arguments.limit]
    rng = np.random.default_rng(0)
    print(f"| target temperature | {' | '.join(f'x {factor:g}' for factor in FACTORS)} | single best | positions |")
    print("|---" * (len(FACTORS) + 3) + "|")
    with Engine.load(target_path, draft_path, LoadOptions(context=2048)) as engine:
        target, draft = engine.target, engine.draft
        assert draft is not None
        shared = min(target.n_vocab, draft.n_vocab)
        for temperature in (float(number) for number in arguments.temp.split(",")):
            accepted: list[list[float]] = []
            for prompt in prompts:
                engine.forget()
                trace = traces.setdefault(prompt.name, [])
                tokens = engine.conversation(prompt.messages)
                target.feed(tokens[:-1], rows=0)
                draft.feed(tokens[:-1], rows=0)
                for _ in range(arguments.tokens):
                    wanted = probabilities(target.feed(tokens[-1:], rows=1)[0, :shared], temperature)
                    logits = draft.feed(tokens[-1:], rows=1)[0, :shared]
                    proposals = [probabilities(logits, temperature * factor) for factor in FACTORS]
                    overlaps = [float(np.minimum(wanted, proposal).sum()) for proposal in proposals]
                    accepted.append([*overlaps, float(wanted[logits.argmax()])])
                    trace.append((round(overlaps[OWN], 3), round(float(proposals[OWN].max()), 3)))
                    exact = wanted.astype(np.float64)
                    tokens.append(int(rng.choice(shared, p=exact / exact.sum())))
                    if tokens[-1] in target.end_tokens:
                        break
                print(f"{temperature:g} {prompt.name}", file=sys.stderr)
            means = np.mean(accepted, axis=0)
            print(f"| {temperature:g} | {' | '.join(f'{mean:.3f}' for mean in means)} | {len(accepted)} |", flush=True)
    if arguments.traces is not None:
        arguments.traces.write_text(json.dumps(traces))


if __name__ == "__main__":
    main()
