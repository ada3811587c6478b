"""What exact mode costs: the same replies with and without it, taking turns, plainly and with drafts.

    python benchmarks/exact_cost.py [--target MODEL] [--draft MODEL] [--tokens 96] [--turns 3]

Both are loaded at once and take turns on three prompts. Prints ratios of tokens per second: medians, 95 % intervals.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from specli.decoding.options import SamplingOptions
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.evaluation.prompts import load_prompts
from specli.evaluation.summary import bootstrap_median
from specli.llama.options import LoadOptions
from specli.models.files import Silent, ensure_file
from specli.models.registry import load_registry


def speed(engine: Engine, prompt: list[int], options: ReplyOptions) -> float:
    *_, reply = engine.reply(prompt, options)
    return reply.metrics.tokens_per_second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    registry = load_registry()
    parser.add_argument("--target", default=registry.default_target)
    parser.add_argument("--draft", default=registry[registry.default_target].draft)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    files = [ensure_file(registry.find(name), Silent()) for name in (arguments.target, arguments.draft)]
    load = LoadOptions(context=2048)
    ratios: dict[int, list[float]] = {0: [], 4: []}
    # Exact mode first: a switch of llama.cpp is read once in the life of a process, and it changes passes of eight rows
    # and more, which are not measured here.
    with Engine.load(*files, replace(load, exact=True)) as exact, Engine.load(*files, load) as fast:
        for prompt in load_prompts("builtin:code,explanation,story")[::4]:
            tokens = fast.conversation(prompt.messages)
            for turn in range(arguments.turns + 1):
                for length in ratios:
                    options = ReplyOptions(
                        SamplingOptions(temperature=0.0),
                        draft_length=length,
                        max_tokens=arguments.tokens,
                        ignore_eos=True,
                    )
                    engines = (exact, fast) if turn % 2 else (fast, exact)
                    found = {engine: speed(engine, tokens, options) for engine in engines}
                    if turn:  # the first warms up
                        ratios[length].append(found[exact] / found[fast])
    for length, values in ratios.items():
        interval = bootstrap_median(values)
        print(f"draft length {length}: exact / fast {interval.estimate:.2f} ({interval.low:.2f}-{interval.high:.2f})")


if __name__ == "__main__":
    main()
