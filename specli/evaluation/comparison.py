"""A comparison of speed: the same prompts with and without drafts, alternating, each reply measured.

Knows a loaded target with its draft models. Must not know what is concluded from the measurements, or the terminal.

One process, one loaded target, the same threads and context for every arm. For each prompt and temperature all arms
take turns: A B C, then C B A, and so on, so that a machine that gets slower with time slows all of them. The first
turn of each arm is not timed: it warms up, reads the prompt, and ends where the model ends, for the comparison of
texts. The timed ones generate a fixed number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.engine.reply import Reply
from specli.errors import PromptError
from specli.evaluation.prompts import Prompt
from specli.llama.model import LlamaModel

FIRST = 0  # the turn that is not timed
LOOKUP = "lookup"  # stands for a draft model where drafts are only looked up


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to generate: plain decoding, or drafts with their settings, at a temperature."""

    draft: str | None  # name of the draft model, or `LOOKUP`; None is plain decoding
    draft_length: int | None  # None is as many as pay
    verification: str
    temperature: float
    again: bool = False  # plain decoding once more, to see what chance can pretend

    @property
    def plain(self) -> bool:
        """Whether this is what the others are compared with."""
        return self.draft is None and not self.again

    @property
    def name(self) -> str:
        """What the arm is called in reports, without the temperature."""
        if self.draft is None:
            return "plain again" if self.again else "plain"
        length = "auto" if self.draft_length is None else f"length {self.draft_length}"
        return f"{self.draft}, {length}, {self.verification}"


def make_arms(
    drafts: Sequence[str], lengths: Sequence[int | None], verifications: Sequence[str], temperatures: Sequence[float]
) -> list[Arm]:
    """Return plain decoding and every combination asked for, temperature by temperature.

    A draft length of 0 is plain decoding once more.
    """
    arms: list[Arm] = []
    for temperature in temperatures:
        arms.append(Arm(None, 0, "", temperature))
        if 0 in lengths:
            arms.append(Arm(None, 0, "", temperature, again=True))
        arms += [
            Arm(draft, length, verification, temperature)
            for draft in drafts
            for verification in verifications
            for length in lengths
            if length is None or length > 0
        ]
    return arms


@dataclass(frozen=True, slots=True)
class Measurement:
    """One reply, with everything that was counted and timed; seconds are wall-clock time."""

    prompt: str  # name
    kind: str
    arm: int
    turn: int  # 0 is the first one, which is not timed
    tokens: list[int]
    finish_reason: str
    prompt_tokens: int
    rounds: int
    drafted: int
    tested: int
    accepted: int
    tested_at: list[int]  # by place in the draft, from 0
    accepted_at: list[int]
    prefill_seconds: float
    first_token_seconds: float
    decode_seconds: float
    draft_seconds: float
    verify_seconds: float

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells measurements apart."""
        return self.prompt, self.arm, self.turn

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens over decoding time."""
        return len(self.tokens) / self.decode_seconds if self.decode_seconds > 0 else 0.0


def measurement_from(content: Mapping[str, Any]) -> Measurement:
    """Read a measurement back from what `asdict` made of it.

    Raises:
        TypeError: a field is missing or unknown.
    """
    return Measurement(**content)


def _measured(prompt: Prompt, arm: int, turn: int, reply: Reply) -> Measurement:
    metrics = reply.metrics
    places = range(max(metrics.tested_at, default=-1) + 1)
    return Measurement(
        prompt.name,
        prompt.kind,
        arm,
        turn,
        list(reply.tokens),
        reply.finish_reason,
        metrics.prompt,
        metrics.rounds,
        metrics.drafted,
        metrics.tested,
        metrics.accepted,
        [metrics.tested_at[place] for place in places],
        [metrics.accepted_at[place] for place in places],
        metrics.prefill_seconds,
        metrics.first_token_seconds,
        metrics.decode_seconds,
        metrics.draft_seconds,
        metrics.verify_seconds,
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured."""

    prompts: tuple[Prompt, ...]  # in the order they are run
    arms: tuple[Arm, ...]
    repeats: int  # timed turns of each arm for each prompt
    tokens: int  # in a timed reply
    seed: int

    def turns(self) -> Iterator[tuple[Prompt, int, int]]:
        """Yield (prompt, arm, turn) in the order of measuring."""
        temperatures = list(dict.fromkeys(arm.temperature for arm in self.arms))
        for prompt in self.prompts:
            for temperature in temperatures:
                arms = [at for at, arm in enumerate(self.arms) if arm.temperature == temperature]
                for turn in range(self.repeats + 1):
                    for arm in arms if turn % 2 else reversed(arms) if turn else arms:
                        yield prompt, arm, turn

    @property
    def total(self) -> int:
        """How many measurements there will be."""
        return len(self.prompts) * len(self.arms) * (self.repeats + 1)


def by_turns(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """Return prompts so that the classes take turns: a comparison that is cut short has seen each of them."""
    seen: dict[str, int] = {}
    order = []
    for prompt in prompts:
        order.append((seen.get(prompt.kind, 0), prompt))
        seen[prompt.kind] = seen.get(prompt.kind, 0) + 1
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
        drafts: each draft model by its name in the arms; `LOOKUP` needs none.
        plan: prompts, arms, how often.
        options: sampling; draft length, rule, temperature, seed and length come from the plan.
        done: measurements that exist already; they are not made again.
        seconds: stop before the first prompt that would start later than this.
        progress: called with how many measurements are done and planned, and what is measured next.
        interrupted: asked between tokens; True ends, and drops the reply in flight.

    Raises:
        PromptError: a prompt does not fit in the context.
    """
    have = {measurement.key for measurement in done}
    started = perf_counter()
    current: Prompt | None = None
    for number, (prompt, at, turn) in enumerate(plan.turns()):
        if prompt is not current:
            if seconds is not None and perf_counter() - started > seconds:
                return
            current, tokens = prompt, engine.conversation(prompt.messages)
            if len(tokens) + plan.tokens > engine.target.n_context:
                raise PromptError(
                    f"the prompt {prompt.name} has {len(tokens)} tokens, and {plan.tokens} more do not fit in a "
                    f"context of {engine.target.n_context}.",
                    f"A larger context holds more: -c {len(tokens) + plan.tokens}.",
                )
        if (prompt.name, at, turn) in have:
            continue
        arm = plan.arms[at]
        progress(number, plan.total, f"{prompt.name}, {arm.name}, temperature {arm.temperature:g}")
        if arm.draft is not None:
            engine.use_draft(None if arm.draft == LOOKUP else drafts[arm.draft])
        if turn == FIRST:
            engine.forget()
        reply = _reply(engine, tokens, _options_of(options, arm, plan, turn), interrupted)
        if interrupted():
            return
        yield _measured(prompt, at, turn, reply)


def _options_of(options: ReplyOptions, arm: Arm, plan: Plan, turn: int) -> ReplyOptions:
    return replace(
        options,
        sampling=replace(options.sampling, temperature=arm.temperature),
        draft_length=arm.draft_length,
        verification=arm.verification or options.verification,
        max_tokens=plan.tokens,
        seed=plan.seed + turn,
        reproducible=False,
        ignore_eos=turn != FIRST,
    )


def _reply(engine: Engine, tokens: list[int], options: ReplyOptions, interrupted: Callable[[], bool]) -> Reply:
    *_, reply = engine.reply(tokens, options, interrupted=interrupted)
    assert isinstance(reply, Reply)
    return reply


def measurement_json(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as it is written to files."""
    return asdict(measurement)
