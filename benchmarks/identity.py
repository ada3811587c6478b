"""Exact mode on real models: is the text with drafts the text without, token for token, at temperature 0?

    python benchmarks/identity.py [--target MODEL] [--draft MODEL] [--threads 1,2] [--prompts 20] [--tokens 256]

Twenty prompts of five kinds: five as they are, and fifteen after a long conversation, so that their contexts cross
512 or 1,024 tokens. Each is answered plainly, with drafts of 2, 4 and 8 tokens by the draft model, and with certain
("one-hot") drafts of up to 12 tokens as a lookup in the text would give them: the plain reply, with every seventh
token wrong. Prints how many replies differ; 0 everywhere is what exact mode promises.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from specli.decoding.drafting import Draft
from specli.decoding.loop import LoopOptions, decode
from specli.decoding.metrics import Metrics
from specli.decoding.options import SamplingOptions
from specli.decoding.sampling import Distribution
from specli.decoding.verification import make_verifier
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.evaluation.identity import GreedyRun, compare_runs, greedy_run
from specli.evaluation.prompts import Prompt, builtin_prompts
from specli.llama.options import LoadOptions
from specli.llama.text import Message
from specli.models.files import Silent, ensure_file
from specli.models.registry import load_registry

KINDS = ("code", "edit", "explanation", "story", "maths")
LENGTHS = (2, 4, 8)
STARTS = (None, 400, 800, 950)  # tokens before the reply: of the prompt alone, and with a conversation before it
GREEDY = SamplingOptions(temperature=0.0)


class RecordedDrafter:
    """Proposes a recorded text, each token as certain, with every seventh one wrong."""

    def __init__(self, text: list[int]) -> None:
        self._text = text

    def prefill(self, tokens) -> None:
        pass

    def propose(self, tokens, limit) -> Draft:
        start = len(tokens)
        drafted = [
            token + 1 if position % 7 == 6 else token
            for position, token in enumerate(self._text[start : start + limit], start)
        ]
        return Draft(drafted, [Distribution.one_hot(token) for token in drafted])

    def observe(self, outcome) -> None:
        pass


def one_hot_run(engine: Engine, prompt: list[int], plain: GreedyRun, reply: ReplyOptions) -> GreedyRun:
    tokens = list(prompt)
    engine.target.rewind(0)
    drafter = RecordedDrafter([*prompt, *plain.tokens])
    options = LoopOptions(engine.sampling(reply), draft_length=12, max_tokens=reply.max_tokens)
    for _ in decode(engine.target, drafter, make_verifier("block", 0), tokens, options, Metrics()):
        pass
    engine.target.rewind(0)
    return GreedyRun(tuple(tokens[len(prompt) :]))


def with_history(engine: Engine, prompt: Prompt, length: int | None) -> list[int]:
    """Return the tokens of a prompt after a conversation that brings it to about `length` tokens."""
    history: list[Message] = []
    tokens = engine.conversation(prompt.messages)
    for other in builtin_prompts():
        if length is None or len(tokens) >= length:
            break
        if other.kind in ("summary", "edit"):
            history += [other.messages[-1], Message("assistant", "Thank you, I have read it.")]
            tokens = engine.conversation([*history, *prompt.messages])
    return tokens


def chosen_prompts(engine: Engine, count: int) -> list[tuple[str, list[int]]]:
    by_kind = {kind: [prompt for prompt in builtin_prompts() if prompt.kind == kind] for kind in KINDS}
    found = [
        (by_kind[kind][at].name, with_history(engine, by_kind[kind][at], start))
        for at, start in enumerate(STARTS)
        for kind in KINDS
    ]
    return found[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    registry = load_registry()
    parser.add_argument("--target", default=registry.default_target)
    parser.add_argument("--draft", default=registry[registry.default_target].draft)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=256)
    arguments = parser.parse_args()
    files = [ensure_file(registry.find(name), Silent()) for name in (arguments.target, arguments.draft)]
    for threads in (int(number) for number in arguments.threads.split(",")):
        load = LoadOptions(context=2048, threads=threads)
        differing: dict[str, int] = {}
        with Engine.load(*files, replace(load, exact=True)) as engine:
            for name, prompt in chosen_prompts(engine, arguments.prompts):
                options = ReplyOptions(GREEDY, max_tokens=arguments.tokens, ignore_eos=True)
                plain = greedy_run(engine, prompt, replace(options, draft_length=0))
                runs = {
                    f"draft {length}": greedy_run(engine, prompt, replace(options, draft_length=length))
                    for length in LENGTHS
                }
                runs["one-hot 12"] = one_hot_run(engine, prompt, plain, options)
                for arm, run in runs.items():
                    difference = compare_runs(plain, run)
                    differing[arm] = differing.get(arm, 0) + (difference is not None)
                    if difference is not None:
                        print(f"  {name}, {arm}: {difference}")
                reached = len(prompt) + len(plain.tokens)
                print(f"  {name}: context {len(prompt)} to {reached}, threads {threads}, done", flush=True)
        print(f"threads {threads}: replies that differ: {differing}", flush=True)


if __name__ == "__main__":
    main()
