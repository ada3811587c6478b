"""What specli adds to llama.cpp: time outside it in a round, and plain decoding against a bare loop.

    python benchmarks/overhead.py [--target MODEL] [--draft MODEL] [--tokens 128] [--repeats 6]

Both comparisons alternate in one process on the same loaded models. Let nothing else run meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
from time import perf_counter

import numpy as np

from specli.decoding.options import SamplingOptions
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.engine.reply import Reply
from specli.llama.binding import llama_cpp
from specli.llama.model import LlamaModel
from specli.models.files import Silent, ensure_file
from specli.models.registry import load_registry

PROMPT = "Write a Python function that reverses a linked list, and explain it."


class Stopwatch:
    """Counts the seconds spent inside llama.cpp's evaluation."""

    def __init__(self) -> None:
        self.seconds = 0.0
        for name in ("llama_decode", "llama_synchronize"):
            setattr(llama_cpp, name, self._timed(getattr(llama_cpp, name)))

    def _timed(self, call):
        def timed(*arguments):
            started = perf_counter()
            result = call(*arguments)
            self.seconds += perf_counter() - started
            return result

        return timed


def bare_loop(model: LlamaModel, prompt: list[int], count: int) -> tuple[list[int], float]:
    """Decode greedily with nothing but llama_decode and argmax; return the tokens and the seconds."""
    model.rewind(0)
    model.feed(prompt[:-1], rows=0)
    batch = llama_cpp.llama_batch_init(1, 0, 1)
    batch.n_tokens, batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 1, 0, 1
    token, position, tokens = prompt[-1], len(prompt) - 1, []
    started = perf_counter()
    for _ in range(count):
        batch.token[0], batch.pos[0] = token, position
        assert llama_cpp.llama_decode(model._context, batch) == 0
        row = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model._context, 0), (model.n_vocab,))
        token, position = int(row.argmax()), position + 1
        tokens.append(token)
    seconds = perf_counter() - started
    llama_cpp.llama_batch_free(batch)
    model.tokens += [prompt[-1], *tokens[:-1]]  # what went past the model
    return tokens, seconds


def specli(engine: Engine, prompt: list[int], count: int, draft_length: int, temperature: float) -> Reply:
    sampling = SamplingOptions(temperature=temperature)
    options = ReplyOptions(sampling, draft_length, max_tokens=count, seed=0, ignore_eos=False)
    engine.target.rewind(0)
    return list(engine.reply(prompt, options))[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    registry = load_registry()
    parser.add_argument("--target", default=registry.default_target)
    parser.add_argument("--draft", default=registry[registry.default_target].draft)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=6)
    arguments = parser.parse_args()
    target, draft = (ensure_file(registry.find(name), Silent()) for name in (arguments.target, arguments.draft))
    with Engine.load(target, draft) as engine:
        prompt = engine.prompt(PROMPT)
        ratios = []
        for repeat in range(arguments.repeats + 1):
            seconds = {}
            for arm in ("bare", "specli") if repeat % 2 else ("specli", "bare"):
                if arm == "bare":
                    bare_tokens, seconds[arm] = bare_loop(engine.target, prompt, arguments.tokens)
                else:
                    reply = specli(engine, prompt, arguments.tokens, 0, 0.0)
                    seconds[arm] = reply.metrics.decode_seconds
            assert list(reply.tokens) == bare_tokens
            if repeat:  # the first warms up
                ratios.append(seconds["bare"] / seconds["specli"])
        print(f"plain decoding, specli / bare loop, tokens per second: median {statistics.median(ratios):.3f}")
        print(f"  each repeat: {' '.join(f'{ratio:.3f}' for ratio in ratios)}")

        stopwatch = Stopwatch()
        for temperature in (0.0, 0.8):
            overheads = []
            for _ in range(arguments.repeats):
                stopwatch.seconds = 0.0
                metrics = specli(engine, prompt, arguments.tokens, 4, temperature).metrics
                # The prompt's passes are in the stopwatch too, so they are in the total as well.
                total = metrics.prefill_seconds + metrics.decode_seconds
                overheads.append(1000 * (total - stopwatch.seconds) / metrics.rounds)
            middle = statistics.median(overheads)
            print(f"outside llama.cpp, temperature {temperature:g}, draft length 4: {middle:.2f} ms a round")


if __name__ == "__main__":
    main()
