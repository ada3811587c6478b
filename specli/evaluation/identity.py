"""Identity: whether, at temperature 0, the text with a draft is token for token the text without one.

Texts can diverge where the target's two best logits are nearly equal, because a device rounds a row a little
differently when it is one of several. How differently shows at every position where the two texts still agree, so a
difference is either explained by that or a fault. In exact mode nothing could explain one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from specli.decoding.sampling import Floats, top_ids
from specli.decoding.sequences import shared_prefix
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.engine.reply import ReplyStream
from specli.evaluation.prompts import Prompt

# A swap is explained when it needs no more than this many times the largest change seen elsewhere: the positions where
# texts diverge are the extremes of the same noise.
_LARGEST_FACTOR = 2.0


@dataclass
class GreedyRun:
    """A reply at temperature 0, and how far apart the two best logits behind each of its tokens were."""

    tokens: tuple[int, ...] = ()
    gaps: dict[int, float] = field(default_factory=dict)  # by position in the reply, from 0

    def observe(self, position: int, rows: Floats) -> None:
        """Record the rows [n, n_vocab] that decide the tokens of the reply from `position` on."""
        for number, row in enumerate(rows):
            first, second = top_ids(row, 2)
            self.gaps[position + number] = float(row[first]) - float(row[second])


@dataclass(frozen=True, slots=True)
class Difference:
    """The first position at which two texts differ; after it they are different texts anyway."""

    position: int  # in the reply, from 0
    baseline_token: int | None  # None: the text had ended
    drafted_token: int | None
    baseline_gap: float  # between the two best logits, without a draft
    drafted_gap: float  # and with one

    @property
    def change(self) -> float:
        """By how much the two logits moved relative to each other from one run to the other."""
        return self.baseline_gap + self.drafted_gap


@dataclass(frozen=True, slots=True)
class PromptIdentity:
    """The outcome for one prompt."""

    prompt: str
    tokens: int  # of the reply without a draft
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class IdentityReport:
    """The outcome for all prompts."""

    prompts: tuple[PromptIdentity, ...]
    noise: float  # the largest change of a gap between the two runs where their tokens agree
    exact: bool

    @property
    def differences(self) -> int:
        """How many texts differ."""
        return sum(one.difference is not None for one in self.prompts)

    @property
    def unexplained(self) -> int:
        """How many of them rounding cannot explain."""
        bound = 0.0 if self.exact else _LARGEST_FACTOR * self.noise
        return sum(one.difference is not None and one.difference.change > bound for one in self.prompts)

    @property
    def found(self) -> bool:
        """Whether drafts change the text."""
        return self.unexplained > 0


def compare_runs(baseline: GreedyRun, drafted: GreedyRun) -> Difference | None:
    """Return where the two replies first differ."""
    if baseline.tokens == drafted.tokens:
        return None
    position = shared_prefix(baseline.tokens, drafted.tokens)
    return Difference(
        position,
        baseline.tokens[position] if position < len(baseline.tokens) else None,
        drafted.tokens[position] if position < len(drafted.tokens) else None,
        baseline.gaps.get(position, 0.0),
        drafted.gaps.get(position, 0.0),
    )


def largest_noise(baseline: GreedyRun, drafted: GreedyRun) -> float:
    """Return the largest change of a gap over the positions at which the two replies agree."""
    agreed = range(shared_prefix(baseline.tokens, drafted.tokens))
    return max((abs(baseline.gaps[at] - drafted.gaps[at]) for at in agreed), default=0.0)


def greedy_run(
    engine: Engine, prompt: Sequence[int], options: ReplyOptions, interrupted: Callable[[], bool] = lambda: False
) -> GreedyRun:
    """Answer a prompt at temperature 0, recording the two best logits behind each token."""
    run = GreedyRun()
    engine.target.observer = lambda position, rows: run.observe(position + 1 - len(prompt), rows)
    try:
        greedy = replace(options, sampling=replace(options.sampling, temperature=0.0), draft_temperature=None)
        run.tokens = ReplyStream(engine.reply(prompt, greedy, interrupted=interrupted)).finish().tokens
    finally:
        engine.target.observer = None
    return run


def identity_audit(
    engine: Engine,
    prompts: Sequence[Prompt],
    options: ReplyOptions,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> IdentityReport:
    """Compare replies with and without drafts at temperature 0, whatever the options say of it.

    `progress` is called with how many prompts are done, and how many there are; `interrupted` is asked between tokens,
    and True ends after the prompts that are done.
    """
    outcomes: list[PromptIdentity] = []
    noise = 0.0
    for number, prompt in enumerate(prompts):
        progress(number, len(prompts))
        tokens = engine.conversation(prompt.messages)
        baseline = greedy_run(engine, tokens, replace(options, draft_length=0), interrupted)
        drafted = greedy_run(engine, tokens, options, interrupted)
        if interrupted():
            break
        outcomes.append(PromptIdentity(prompt.name, len(baseline.tokens), compare_runs(baseline, drafted)))
        noise = max(noise, largest_noise(baseline, drafted))
    return IdentityReport(tuple(outcomes), noise, engine.target.options.exact)


def identity_lines(report: IdentityReport, text: Callable[[int], str]) -> list[str]:
    """Say which texts differ; `text` gives that of a token."""
    tokens = sum(prompt.tokens for prompt in report.prompts)
    differences, unexplained = report.differences, report.unexplained
    lines = [f"Texts at temperature 0: {len(report.prompts)} prompts, {tokens} tokens"]
    lines += [f"  {one.prompt}: {_difference_text(one.difference, text)}" for one in report.prompts if one.difference]
    if not differences:
        lines.append("No difference: with and without the draft, the texts are identical token for token.")
    elif report.exact:
        lines.append(f"Fault: {unexplained} texts differ, which must not happen in exact mode.")
    elif unexplained:
        lines.append(f"Fault: {unexplained} of {differences} differences are larger than rounding can explain.")
    else:
        lines.append(
            f"{differences} texts differ where two logits are nearly equal: rounding, which changed the gap between "
            f"the two best logits by up to {report.noise:.3f} elsewhere. '--exact' prevents this on a CPU."
        )
    return lines


def _difference_text(difference: Difference, text: Callable[[int], str]) -> str:
    tokens = difference.baseline_token, difference.drafted_token
    baseline, drafted = ("the end" if token is None else repr(text(token)) for token in tokens)
    return (
        f"token {difference.position + 1} is {baseline} without and {drafted} with the draft; "
        f"the two best logits are {difference.baseline_gap:.4f} and {difference.drafted_gap:.4f} apart"
    )
