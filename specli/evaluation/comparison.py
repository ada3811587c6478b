"""Comparing speed: the same prompts with and without drafts, alternating, every reply measured.

One process, one loaded target, the same threads and context for every configuration. For each prompt and temperature
the configurations take turns: A B C, then C B A, and so on, so that a machine that slows down over time slows all of
them down. The first turn of each configuration is not timed: it warms up, reads the prompt, and ends where the model
ends the reply, so that the texts can be compared. The timed turns generate a fixed number of tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from time import perf_counter

from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.engine.reply import Reply, ReplyStream
from specli.errors import PromptError
from specli.evaluation.prompts import Prompt
from specli.llama.model import LlamaModel

FIRST = 0  # the turn that is not timed
LOOKUP = "lookup"  # stands in for a draft model when drafts are only looked up in the text


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to generate at one temperature: without drafting, or with a draft model and its settings."""

    draft: str | None  # name of the draft model, or `LOOKUP`; None is no drafting
    draft_length: int | None  # None is automatic
    verification: str
    temperature: float
    again: bool = False  # no drafting, a second time: an A/A control for the noise of the machine

    @property
    def is_baseline(self) -> bool:
        """Whether the others are compared with this one."""
        return self.draft is None and not self.again

    @property
    def name(self) -> str:
        """The name used in reports, without the temperature."""
        if self.draft is None:
            return "baseline again" if self.again else "baseline"
        length = "auto" if self.draft_length is None else f"length {self.draft_length}"
        return f"{self.draft}, {length}, {self.verification}"


def make_configurations(
    drafts: Sequence[str], lengths: Sequence[int | None], verifications: Sequence[str], temperatures: Sequence[float]
) -> list[Configuration]:
    """Return the baseline and every combination asked for, temperature by temperature.

    A draft length of 0 measures the baseline a second time.
    """
    configurations: list[Configuration] = []
    for temperature in temperatures:
        configurations.append(Configuration(None, 0, "", temperature))
        if 0 in lengths:
            configurations.append(Configuration(None, 0, "", temperature, again=True))
        configurations += [
            Configuration(draft, length, verification, temperature)
            for draft in drafts
            for verification in verifications
            for length in lengths
            if length is None or length > 0
        ]
    return configurations


@dataclass(frozen=True, slots=True)
class Measurement:
    """One reply, with everything that was counted and timed; seconds are wall-clock time."""

    prompt: str  # name
    kind: str
    configuration: int  # index into the plan's configurations
    turn: int  # 0 is the first one, which is not timed
    tokens: list[int]
    finish_reason: str
    prompt_tokens: int
    rounds: int
    drafted: int
    tested: int
    accepted: int
    tested_at: list[int]  # by position in the draft, from 0
    accepted_at: list[int]
    prefill_seconds: float
    first_token_seconds: float
    decode_seconds: float
    draft_seconds: float
    verify_seconds: float

    def __post_init__(self) -> None:
        possible = self.rounds > 0 and 0 < self.decode_seconds < float("inf") and 0 not in self.tested_at
        if not possible or len(self.tested_at) != len(self.accepted_at):
            raise ValueError("no reply has such figures")

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells measurements apart."""
        return self.prompt, self.configuration, self.turn

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens over decoding time."""
        return len(self.tokens) / self.decode_seconds


def _measured(prompt: Prompt, configuration: int, turn: int, reply: Reply) -> Measurement:
    metrics = reply.metrics
    positions = range(max(metrics.tested_at, default=-1) + 1)
    values = {each.name: getattr(metrics, each.name) for each in fields(Measurement) if hasattr(metrics, each.name)}
    values |= {
        "prompt": prompt.name,
        "kind": prompt.kind,
        "configuration": configuration,
        "turn": turn,
        "tokens": list(reply.tokens),
        "finish_reason": reply.finish_reason,
        "prompt_tokens": metrics.prompt,
        "tested_at": [metrics.tested_at[position] for position in positions],
        "accepted_at": [metrics.accepted_at[position] for position in positions],
    }
    return Measurement(**values)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured."""

    prompts: tuple[Prompt, ...]  # in the order they are run
    configurations: tuple[Configuration, ...]
    repeats: int  # timed turns of each configuration for each prompt
    tokens: int  # in a timed reply
    seed: int

    def turns(self) -> Iterator[tuple[Prompt, int, int]]:
        """Yield (prompt, configuration, turn) in the order they are measured."""
        temperatures = list(dict.fromkeys(one.temperature for one in self.configurations))
        for prompt in self.prompts:
            for temperature in temperatures:
                same = [index for index, one in enumerate(self.configurations) if one.temperature == temperature]
                for turn in range(self.repeats + 1):
                    for index in same if turn % 2 else reversed(same) if turn else same:
                        yield prompt, index, turn

    def holds(self, one: Measurement) -> bool:
        """Whether a measurement is one of those that are planned."""
        known = any(one.prompt == prompt.name for prompt in self.prompts)
        return known and 0 <= one.configuration < len(self.configurations) and 0 <= one.turn <= self.repeats

    @property
    def total(self) -> int:
        """How many measurements there will be."""
        return len(self.prompts) * len(self.configurations) * (self.repeats + 1)


def by_turns(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """Return the prompts with their classes interleaved: a comparison that is cut short has seen each class."""
    seen: Counter[str] = Counter()
    order = []
    for prompt in prompts:
        order.append((seen[prompt.kind], prompt))
        seen[prompt.kind] += 1
    return tuple(prompt for _, prompt in sorted(order, key=lambda entry: entry[0]))


def measure(
    engine: Engine,
    drafts: Mapping[str, LlamaModel],
    plan: Plan,
    options: ReplyOptions,
    done: Sequence[Measurement] = (),
    *,
    seconds: float | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, doing: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[Measurement]:
    """Measure what the plan asks for, one reply at a time.

    Args:
        engine: the target.
        drafts: each draft model by its name in the configurations; `LOOKUP` needs none.
        plan: what is measured; it decides about draft length, rule, temperature, seed and length of each reply.
        options: everything else about replies.
        done: measurements that exist already; they are not made again.
        seconds: start no prompt later than this.
        progress: called with how many measurements are done and planned, and what is measured next.
        interrupted: asked between tokens; True stops and drops the reply in flight.

    Raises:
        PromptError: a prompt does not fit in the context.
    """
    have = {measurement.key for measurement in done}
    started = perf_counter()
    current: Prompt | None = None
    for number, (prompt, index, turn) in enumerate(plan.turns()):
        if prompt is not current:
            if seconds is not None and perf_counter() - started > seconds:
                return
            current, tokens = prompt, engine.conversation(prompt.messages)
            if len(tokens) + plan.tokens > engine.target.n_context:
                needed = f"the prompt {prompt.name} has {len(tokens)} tokens, and {plan.tokens} more do not fit"
                hint = f"Use a larger `context`, at least {len(tokens) + plan.tokens}."
                raise PromptError(f"{needed} in a context of {engine.target.n_context}.", hint)
        if (prompt.name, index, turn) in have:
            continue
        configuration = plan.configurations[index]
        progress(number, plan.total, f"{prompt.name}, {configuration.name}, temperature {configuration.temperature:g}")
        if configuration.draft is not None:
            engine.use_draft(None if configuration.draft == LOOKUP else drafts[configuration.draft])
        if turn == FIRST:
            engine.forget()
        asked = _options_of(options, configuration, plan, turn)
        reply = ReplyStream(engine.reply(tokens, asked, interrupted=interrupted)).finish()
        if interrupted():
            return
        yield _measured(prompt, index, turn, reply)


def _options_of(options: ReplyOptions, configuration: Configuration, plan: Plan, turn: int) -> ReplyOptions:
    return replace(
        options,
        sampling=replace(options.sampling, temperature=configuration.temperature),
        draft_length=configuration.draft_length,
        verification=configuration.verification or options.verification,
        max_tokens=plan.tokens,
        seed=plan.seed + turn,
        reproducible=False,
        ignore_eos=turn != FIRST,
    )
