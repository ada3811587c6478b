"""The joint audit: whether the first tokens of many replies to one prompt follow their exact joint probabilities.

It assumes nothing about the kind of bias, and needs many more replies than the audit of single tokens to see one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specli.decoding.model import LanguageModel
from specli.decoding.options import SamplingOptions
from specli.decoding.sampling import distribution
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.engine.reply import ReplyStream
from specli.evaluation.distribution import SIGNIFICANCE, ControlVerifier, reply_seeds, teacher_forced
from specli.evaluation.prompts import Prompt
from specli.evaluation.statistics import TestResult, detectable_variation, g_test

REST: tuple[int, ...] = ()  # the cell of all texts that are too rare for a cell of their own


def joint_probabilities(
    model: LanguageModel, sampling: SamplingOptions, prompt: Sequence[int], depth: int, minimum: float
) -> dict[tuple[int, ...], float]:
    """Return the exact probability of each beginning of a reply to a prompt, which is [n] token ids.

    A beginning has `depth` tokens, fewer where the reply ends. Those below a `minimum` are pooled under `REST`.
    """
    cells: dict[tuple[int, ...], float] = {}

    def visit(text: tuple[int, ...], probability: float) -> None:
        tokens = [*prompt, *text]
        row = next(teacher_forced(model, [*tokens, 0], len(tokens)))
        probs = distribution(row, sampling, tokens)
        ids = np.arange(len(probs.probs)) if probs.ids is None else probs.ids
        for index in np.flatnonzero(probs.probs * probability >= minimum):
            token, joint = int(ids[index]), float(probs.probs[index]) * probability
            if len(text) + 1 == depth or token in model.end_tokens:
                cells[(*text, token)] = joint
            else:
                visit((*text, token), joint)

    visit((), 1.0)
    cells[REST] = max(0.0, 1 - sum(cells.values()))
    return cells


@dataclass(frozen=True, slots=True)
class JointReport:
    """The outcome of comparing the beginnings of many replies with their exact probabilities."""

    prompt: str
    depth: int  # tokens of a beginning
    samples: int
    cells: int
    test: TestResult
    detectable: float  # the minimum detectable total variation (90 % power), however it is spread over the cells

    @property
    def found(self) -> bool:
        """Whether the beginnings do not follow the target's distribution."""
        return self.test.p_value < SIGNIFICANCE


def joint_audit(
    engine: Engine,
    prompt: Prompt,
    options: ReplyOptions,
    samples: int,
    *,
    depth: int = 3,
    control: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> JointReport | None:
    """Compare the first tokens of replies from many seeds with their exact joint probabilities; None: interrupted.

    The arguments are those of `sample_tokens`, but `samples` counts replies; `depth` is how many tokens of each count.
    """
    tokens = engine.conversation(prompt.messages)
    texts: list[tuple[int, ...]] = []
    for number, seed in zip(range(samples), reply_seeds(options), strict=False):
        verifier = ControlVerifier(seed) if control else None
        short = replace(options, seed=seed, max_tokens=depth)
        reply = ReplyStream(engine.reply(tokens, short, verifier=verifier, interrupted=interrupted)).finish()
        if interrupted():
            return None
        texts.append(reply.tokens)
        progress(number + 1, samples)
    exact = joint_probabilities(engine.target, engine.sampling(options), tokens, depth, 5 / samples)
    test = g_test(Counter(text if text in exact else REST for text in texts), exact)
    return JointReport(
        prompt.name, depth, samples, test.degrees + 1, test, detectable_variation(samples, test.degrees, SIGNIFICANCE)
    )


def joint_lines(report: JointReport) -> list[str]:
    """Say what the joint audit found."""
    first = (
        f"Joint probabilities: the first {report.depth} tokens of {report.samples} replies to {report.prompt}, "
        f"{report.cells} cells: G = {report.test.statistic:.1f}, {report.test.degrees} degrees of freedom"
    )
    if report.found:
        return [first, f"Bias found: p = {report.test.p_value:.2g}."]
    return [
        first,
        f"No bias found: p = {report.test.p_value:.2g}. Minimum detectable effect (90 % power): "
        f"total variation {report.detectable:.3f}, however it is spread over the cells.",
    ]
