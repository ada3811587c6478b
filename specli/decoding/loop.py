"""The rounds of speculative decoding: draft, verify in one target pass, keep, rewind.

Models, drafter and verifier are known by their protocols alone. The loop yields events, and whoever reads them may
stop reading at any time: caches and tokens are consistent after each event.

The text so far is x_1..x_n. A model's cache holds a prefix of it, and a model is always fed "all that it has not
seen": that one rule also covers the draft model's missing last token after a full acceptance. In a round the target
is fed x_n and the draft d_1..d_k at once, which gives the k + 1 rows of logits that verification needs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from specli.decoding.drafting import Drafter, Outcome
from specli.decoding.metrics import Metrics
from specli.decoding.model import LanguageModel
from specli.decoding.options import SamplingOptions
from specli.decoding.sampling import Distribution, Floats, distribution
from specli.decoding.verification import Draft, Verifier
from specli.errors import Interrupted

FinishReason = Literal["stop", "length", "context", "interrupt"]
Origin = Literal["accepted", "recovered", "bonus", "target"]  # "target": there was no draft in this round


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """So many of the prompt's tokens have been read by the target."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Emitted:
    """One token of the reply."""

    token: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class Finished:
    """The reply has ended; always the last event."""

    reason: FinishReason


Event = PromptProgress | Emitted | Finished


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """What the loop needs to know beyond its models."""

    sampling: SamplingOptions
    draft_length: int  # 0 disables drafting
    max_tokens: int | None = None  # None: until the model stops or the context is full


def decode(
    target: LanguageModel,
    drafter: Drafter | None,
    verifier: Verifier,
    tokens: list[int],
    options: LoopOptions,
    metrics: Metrics,
    *,
    interrupted: Callable[[], bool] = lambda: False,
) -> Generator[Event]:
    """Continue `tokens` until something ends the reply.

    Emitted tokens are appended to `tokens`, and both caches end where `tokens` ends, also when the caller stops
    iterating: that is how a reply ends at a stop string, which only whoever knows the text can see.

    The target is the model whose distribution is kept; its cache holds a prefix of `tokens`, of which there is at least
    one. Without a drafter nothing is drafted. `metrics` is counted into; `interrupted` is asked between tokens, and
    True ends the reply.
    """
    metrics.prompt = len(tokens)
    if len(tokens) > target.n_context:
        yield Finished("context")
        return
    try:
        yield from _decode(target, drafter, verifier, tokens, options, metrics, interrupted)
    except Interrupted:  # a pass was broken off; it left the target's cache as it was
        if drafter is not None:
            drafter.observe(Outcome(0, len(tokens)))
        yield Finished("interrupt")


def _decode(
    target: LanguageModel,
    drafter: Drafter | None,
    verifier: Verifier,
    tokens: list[int],
    options: LoopOptions,
    metrics: Metrics,
    interrupted: Callable[[], bool],
) -> Generator[Event]:
    started = perf_counter()
    reason: FinishReason | None = None

    # 1. Read the prompt, all but its last token, which the first round feeds.
    target.rewind(len(tokens) - 1)
    metrics.cached = target.n_past
    for done in _read(target, tokens[:-1]):
        metrics.prefill_seconds = perf_counter() - started
        yield PromptProgress(done, len(tokens))
        if interrupted():
            raise Interrupted
    if drafter is not None and options.draft_length > 0:
        drafter.observe(Outcome(0, len(tokens) - 1))
        drafter.prefill(tokens[:-1])
    decode_started = perf_counter()
    metrics.prefill_seconds = decode_started - started

    while reason is None:
        # 2. Draft. No more than can still be used: the round emits one token more than it accepts.
        limit = min(options.draft_length, target.n_context - len(tokens), target.max_rows - 1)
        if options.max_tokens is not None:
            limit = min(limit, options.max_tokens - metrics.generated - 1)
        draft, draft_seconds = Draft(), 0.0
        if drafter is not None and limit > 0:
            draft_started = perf_counter()
            draft = drafter.propose(tokens, limit)
            draft_seconds = perf_counter() - draft_started
            metrics.draft_seconds += draft_seconds
            metrics.undrafted_rounds += not draft.tokens

        # 3. Verify: one target pass, then the accept rule.
        verify_started = perf_counter()
        logits = target.feed([*tokens[target.n_past :], *draft.tokens], rows=len(draft.tokens) + 1)
        pass_seconds = perf_counter() - verify_started
        metrics.verify_seconds += pass_seconds
        metrics.rounds += 1
        metrics.drafted += len(draft.tokens)
        rows = _TargetRows(logits, options.sampling, tokens, draft.tokens)
        verdict = verifier.verify(draft, rows, len(tokens))

        # 4. Emit, one token at a time, and stop where the reply stops.
        start = valid = len(tokens)  # the caches may keep `valid` tokens
        try:
            for index, (token, origin) in enumerate(_emissions(draft, verdict.num_accepted, verdict.next_token)):
                tokens.append(token)
                metrics.generated += 1
                if index < len(draft.tokens):
                    metrics.count_draft_token(index, accepted=origin == "accepted")
                if origin == "accepted":
                    valid += 1
                now = perf_counter()
                if metrics.generated == 1:
                    metrics.first_token_seconds = now - started
                metrics.decode_seconds = now - decode_started
                if token in target.end_tokens:
                    reason = "stop"
                elif metrics.generated == options.max_tokens:
                    reason = "length"
                elif len(tokens) > target.n_context:
                    reason = "context"
                elif interrupted():
                    reason = "interrupt"
                yield Emitted(token, origin)
                if reason is not None:
                    break
        finally:
            # 5. Rewind both caches to the emitted text; also reached when the caller stops iterating.
            target.rewind(valid)
            if drafter is not None:
                count = len(draft.tokens) + 1 if limit > 0 else 0
                drafter.observe(Outcome(valid - start, valid, count, pass_seconds, draft_seconds))
    yield Finished(reason)


def _read(model: LanguageModel, tokens: Sequence[int]) -> Iterator[int]:
    """Feed what the model has not seen of `tokens`, a batch at a time; yield how many it has read."""
    while model.n_past < len(tokens):
        model.feed(tokens[model.n_past : model.n_past + model.batch_size], rows=0)
        yield model.n_past


def _emissions(draft: Draft, num_accepted: int, next_token: int) -> Iterator[tuple[int, Origin]]:
    for token in draft.tokens[:num_accepted]:
        yield token, "accepted"
    if not draft.tokens:
        yield next_token, "target"
    else:
        yield next_token, "bonus" if num_accepted == len(draft.tokens) else "recovered"


class _TargetRows:
    """The target's distributions of a round, each made when it is first looked at: a rule may stop early."""

    def __init__(self, logits: Floats, sampling: SamplingOptions, tokens: list[int], draft: Sequence[int]) -> None:
        self._logits = logits  # [k + 1, n_vocab]
        self._sampling = sampling
        self._history = [*tokens, *draft] if sampling.has_penalties else []
        self._start = len(tokens)
        self._made: dict[int, Distribution] = {}

    def __getitem__(self, row: int) -> Distribution:
        if row not in self._made:
            history = self._history[: self._start + row]
            self._made[row] = distribution(self._logits[row], self._sampling, history)
        return self._made[row]
