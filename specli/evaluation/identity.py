"""Identity: whether, at temperature 0, the text with a draft is token for token the text without one.

Knows a loaded pair and its replies. Must not know the terminal.

Texts can part where the target's two best logits are nearly equal: a device computes a row a little differently when
it is one of several. How differently is seen at all the places where both texts still agree, so a difference is
either explained by that, or it is a fault. In exact mode there is nothing that could explain one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from specli.decoding.sampling import Floats, top_ids
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.engine.reply import Reply
from specli.evaluation.prompts import Prompt

# A swap is explained when it needs no more than this many times the largest change seen elsewhere: the places where
# texts part are the extremes of the same noise.
_LARGEST_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class TopTwo:
    """The two largest logits of a row: the token of the first, and how far the second is below it."""

    token: int
    gap: float


@dataclass
class GreedyRun:
    """A reply at temperature 0, and the two best logits behind each of its tokens."""

    tokens: tuple[int, ...] = ()
    tops: dict[int, TopTwo] = field(default_factory=dict)  # by place in the reply, from 0

    def observe(self, place: int, rows: Floats) -> None:
        """Note the rows [n, n_vocab] that decide about the tokens of the reply from `place` on."""
        for number, row in enumerate(rows):
            first, second = top_ids(row, 2)
            self.tops[place + number] = TopTwo(int(first), float(row[first]) - float(row[second]))


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two texts part; what follows are different texts anyway."""

    place: int  # in the reply, from 0
    plain_token: int | None  # None: the text had ended
    drafted_token: int | None
    plain_gap: float  # between the two best logits, without a draft
    drafted_gap: float  # and with one

    @property
    def change(self) -> float:
        """By how much the two logits moved against each other from one run to the other."""
        return self.plain_gap + self.drafted_gap


@dataclass(frozen=True, slots=True)
class PromptIdentity:
    """The outcome for one prompt."""

    prompt: str
    tokens: int  # of the plain reply
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class IdentityReport:
    """The outcome for all prompts."""

    prompts: tuple[PromptIdentity, ...]
    noise: float  # the largest change of a gap between the two runs where their tokens agree
    exact: bool

    @property
    def differences(self) -> tuple[PromptIdentity, ...]:
        """The prompts whose texts part."""
        return tuple(prompt for prompt in self.prompts if prompt.difference is not None)

    @property
    def unexplained(self) -> tuple[PromptIdentity, ...]:
        """Those of them that rounding cannot explain."""
        bound = 0.0 if self.exact else _LARGEST_FACTOR * self.noise
        return tuple(prompt for prompt in self.differences if prompt.difference and prompt.difference.change > bound)


def compare_runs(plain: GreedyRun, drafted: GreedyRun) -> Difference | None:
    """Return the first place where the two replies part."""
    length = min(len(plain.tokens), len(drafted.tokens))
    place = next((at for at in range(length) if plain.tokens[at] != drafted.tokens[at]), length)
    if place == length and len(plain.tokens) == len(drafted.tokens):
        return None
    return Difference(
        place,
        plain.tokens[place] if place < len(plain.tokens) else None,
        drafted.tokens[place] if place < len(drafted.tokens) else None,
        plain.tops[place].gap if place in plain.tops else 0.0,
        drafted.tops[place].gap if place in drafted.tops else 0.0,
    )


def largest_noise(plain: GreedyRun, drafted: GreedyRun) -> float:
    """Return the largest change of a gap over the places before the two replies part."""
    difference = compare_runs(plain, drafted)
    end = len(plain.tokens) if difference is None else difference.place
    return max((abs(plain.tops[at].gap - drafted.tops[at].gap) for at in range(end)), default=0.0)


def greedy_run(
    engine: Engine, prompt: Sequence[int], options: ReplyOptions, interrupted: Callable[[], bool] = lambda: False
) -> GreedyRun:
    """Answer a prompt at temperature 0, noting the two best logits behind each token."""
    run = GreedyRun()
    engine.target.observer = lambda position, rows: run.observe(position + 1 - len(prompt), rows)
    try:
        greedy = replace(options, sampling=replace(options.sampling, temperature=0.0), draft_temperature=None)
        *_, reply = engine.reply(prompt, greedy, interrupted=interrupted)
    finally:
        engine.target.observer = None
    assert isinstance(reply, Reply)
    run.tokens = reply.tokens
    return run


def identity_audit(
    engine: Engine,
    prompts: Sequence[Prompt],
    options: ReplyOptions,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> IdentityReport:
    """Compare greedy replies with and without the draft.

    Args:
        engine: a target with its draft model.
        prompts: what is asked.
        options: the draft length, rule and token limit; the temperature is taken as 0.
        progress: called with how many prompts are done, and how many there are.
        interrupted: asked between tokens; True ends after the prompts that are done.
    """
    outcomes: list[PromptIdentity] = []
    noise = 0.0
    for number, prompt in enumerate(prompts):
        progress(number, len(prompts))
        tokens = engine.conversation(prompt.messages)
        plain = greedy_run(engine, tokens, replace(options, draft_length=0), interrupted)
        drafted = greedy_run(engine, tokens, options, interrupted)
        if interrupted():
            break
        outcomes.append(PromptIdentity(prompt.name, len(plain.tokens), compare_runs(plain, drafted)))
        noise = max(noise, largest_noise(plain, drafted))
    return IdentityReport(tuple(outcomes), noise, engine.target.options.exact)
