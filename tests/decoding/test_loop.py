"""The loop against a recording model: what is fed, what is rewound, and where replies end."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from toys import shared

from specli.decoding.drafting import Draft, DraftModelDrafter
from specli.decoding.loop import Emitted, Finished, LoopOptions, PromptProgress, decode
from specli.decoding.metrics import Metrics
from specli.decoding.options import SamplingOptions
from specli.decoding.verification import CoupledVerifier, SeededVerifier
from specli.errors import Interrupted

GREEDY = SamplingOptions(temperature=0.0)
WARM = SamplingOptions(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


class HashModel:
    """Logits are a hash of the prefix; every call is checked and recorded."""

    def __init__(self, seed=0, n_vocab=50, n_context=4096, batch_size=64, end_tokens=(), max_rows=65):
        self.seed, self.n_vocab, self.n_context, self.batch_size = seed, n_vocab, n_context, batch_size
        self.end_tokens, self.max_rows = frozenset(end_tokens), max_rows
        self.tokens: list[int] = []
        self.feeds: list[tuple[int, int]] = []
        self.text: list[int] | None = None  # what the cache must be a prefix of

    @property
    def n_past(self) -> int:
        return len(self.tokens)

    def feed(self, tokens: Sequence[int], rows: int) -> np.ndarray:
        assert rows <= min(len(tokens), self.max_rows)
        assert len(self.tokens) + len(tokens) <= self.n_context, "fed past the context"
        if self.text is not None:
            assert self.tokens[: len(self.text)] == self.text[: self.n_past], "a rejected token was left in the cache"
        if len(tokens):
            self.feeds.append((len(tokens), rows))
        self.tokens += tokens
        return np.array([self._row(end) for end in range(self.n_past - rows + 1, self.n_past + 1)])

    def _row(self, end: int) -> np.ndarray:
        key = hash(tuple(self.tokens[:end])) % 2**32
        return np.random.default_rng([self.seed, key]).normal(0, 3, self.n_vocab)

    def rewind(self, length: int) -> None:
        assert length >= 0
        del self.tokens[length:]


class Forgetful(HashModel):
    """Cannot go back: a rewind drops everything, as with a sliding window that is gone."""

    def rewind(self, length: int) -> None:
        if length < self.n_past:
            self.tokens.clear()


def run(target, draft=None, *, prompt=(1, 2, 3), draft_length=4, max_tokens=None, sampling=GREEDY, seed=7, rule="block",
        drafter=None, take=None, stop_after=(), **hooks):  # fmt: skip
    verifier = SeededVerifier(rule, seed)
    if draft is not None:
        drafter = DraftModelDrafter(draft, sampling, verifier.draw_draft, shared(target, draft))
    tokens, metrics = list(prompt), Metrics()
    events = decode(
        target, drafter, verifier, tokens, LoopOptions(sampling, draft_length, max_tokens), metrics, **hooks
    )
    read = events if take is None else itertools.islice((e for e in events if isinstance(e, Emitted)), take)
    seen = []
    for event in read:
        seen.append(event)
        if isinstance(event, Emitted) and event.token in stop_after:  # as whoever finds a stop string does
            events.close()
            seen.append(Finished("stop"))
            break
    events.close()
    emitted = [event.token for event in seen if isinstance(event, Emitted)]
    reason = seen[-1].reason if seen and isinstance(seen[-1], Finished) else None
    assert tokens == [*prompt, *emitted]
    assert metrics.generated == len(emitted)
    assert metrics.accepted <= metrics.tested <= metrics.drafted
    return emitted, reason, metrics, tokens


@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_a_model_that_drafts_for_itself_is_always_accepted(sampling):
    target, draft = HashModel(), HashModel()
    emitted, reason, metrics, _ = run(target, draft, max_tokens=500, sampling=sampling)
    assert (len(emitted), reason) == (500, "length")
    assert metrics.acceptance_rate == 1.0
    assert metrics.rounds == 100
    assert metrics.mean_accepted_length == 5.0
    # The draft model is fed each token once: one token a pass, two after a whole draft was accepted.
    assert {count for count, _ in draft.feeds[1:]} <= {1, 2}


@pytest.mark.parametrize("rule", ["token", "block", "match"])
@pytest.mark.parametrize("draft_length", [1, 2, 4, 8])
def test_greedy_text_does_not_depend_on_the_draft(rule, draft_length):
    plain, *_ = run(HashModel(), max_tokens=60)
    drafted, _, metrics, _ = run(HashModel(), Sometimes(), draft_length=draft_length, max_tokens=60, rule=rule)
    assert drafted == plain
    assert 0 < metrics.accepted < metrics.tested


class Sometimes(HashModel):
    """Agrees with the target after two of three prefixes."""

    def _row(self, end: int) -> np.ndarray:
        row = super()._row(end)
        return -row if hash(tuple(self.tokens[:end])) % 3 == 0 else row


@pytest.mark.parametrize("model", [HashModel, Forgetful])
@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_caches_hold_the_text_after_every_round(model, sampling):
    target, draft = model(), model(seed=3)
    tokens = [1, 2, 3]
    target.text = draft.text = tokens
    verifier = SeededVerifier("block", 1)
    drafter = DraftModelDrafter(draft, sampling, verifier.draw_draft, shared(target, draft))
    list(decode(target, drafter, verifier, tokens, LoopOptions(sampling, 3, 80), Metrics()))
    for cache in (target.tokens, draft.tokens):
        assert cache == tokens[: len(cache)]


def test_rows_are_asked_for_only_where_they_are_needed():
    target, draft = HashModel(), HashModel(seed=3)
    run(target, draft, prompt=range(40), max_tokens=30)
    assert target.feeds[0] == (39, 0)
    assert all(count == rows for count, rows in target.feeds[1:])
    assert draft.feeds[0] == (39, 0)
    assert all(rows == 1 for _, rows in draft.feeds[1:])


def test_a_long_prompt_is_read_in_batches_and_told_about():
    target = HashModel(batch_size=16)
    verifier = SeededVerifier("block", 0)
    events = list(decode(target, None, verifier, list(range(40)), LoopOptions(GREEDY, 0, 2), Metrics()))
    assert [event for event in events if isinstance(event, PromptProgress)] == [
        PromptProgress(16, 40),
        PromptProgress(32, 40),
        PromptProgress(39, 40),
    ]


@pytest.mark.parametrize("count", range(1, 11))
@pytest.mark.parametrize("draft_length", [0, 1, 4, 8])
def test_exactly_as_many_tokens_as_asked_for(count, draft_length):
    for draft in (HashModel(), HashModel(seed=3)):
        emitted, reason, metrics, _ = run(HashModel(), draft, draft_length=draft_length, max_tokens=count)
        assert (len(emitted), reason) == (count, "length")
        assert metrics.generated == metrics.accepted + metrics.rounds
        assert metrics.drafted <= metrics.rounds * min(draft_length, count - 1)


@pytest.mark.parametrize("slot", range(1, 14))
@pytest.mark.parametrize("ending", ["end token", "stop"])
def test_a_reply_ends_at_any_position_of_a_draft(slot, ending):
    plain, *_ = run(HashModel(), max_tokens=20)
    at = next(at for at in range(slot, 20) if plain[at - 1] not in plain[: at - 1])  # its first appearance
    for draft_length in (0, 3, 5):
        for draft in (HashModel(), Sometimes()):
            ends = frozenset({plain[at - 1]})
            target = HashModel(end_tokens=ends if ending == "end token" else ())
            draft.end_tokens = target.end_tokens
            draft.tokens.clear()
            emitted, reason, metrics, tokens = run(
                target, draft, draft_length=draft_length, max_tokens=20, stop_after=ends
            )
            assert emitted == plain[:at]
            assert reason == "stop"
            assert metrics.accepted + metrics.rounds - metrics.generated in (0, 1)
            for model in (target, draft):
                assert model.tokens == tokens[: model.n_past]
                assert model.n_past <= len(tokens)


def test_nothing_is_drafted_after_an_end_token():
    class Ends(HashModel):
        def _row(self, end):
            row = np.zeros(self.n_vocab)
            row[9] = 5
            return row

    draft = Ends(end_tokens={9})
    verifier = SeededVerifier("block", 0)
    drafter = DraftModelDrafter(draft, GREEDY, verifier.draw_draft, shared(draft, draft))
    assert drafter.propose([1, 2], 6).tokens == [9]


@pytest.mark.parametrize("draft_context", [16, 20, 24, 64])
@pytest.mark.parametrize("draft_length", [0, 3, 16])
def test_the_context_ends_a_reply_and_is_never_overrun(draft_context, draft_length):
    target, draft = HashModel(n_context=24), HashModel(n_context=draft_context)
    emitted, reason, _, tokens = run(target, draft, prompt=range(10), draft_length=draft_length)
    assert reason == "context"
    assert len(tokens) == 25  # the last token needs no cell of its own
    assert emitted == run(HashModel(), prompt=range(10), max_tokens=15)[0]


def test_a_prompt_that_does_not_fit():
    target = HashModel(n_context=8)
    emitted, reason, metrics, _ = run(target, prompt=range(9))
    assert (emitted, reason, metrics.prompt) == ([], "context", 9)
    assert target.feeds == []
    assert run(HashModel(n_context=9), prompt=range(9))[1] == "context"


def test_one_row_at_most_leaves_no_room_for_a_draft():
    emitted, _, metrics, _ = run(HashModel(max_rows=1), HashModel(), max_tokens=5)
    assert (len(emitted), metrics.drafted) == (5, 0)


@pytest.mark.parametrize("take", range(1, 12))
def test_a_caller_may_stop_iterating_at_any_token(take):
    target, draft = HashModel(), HashModel(seed=3)
    emitted, _, _, tokens = run(target, draft, max_tokens=40, take=take)
    assert len(emitted) == take
    for model in (target, draft):
        assert model.tokens == tokens[: model.n_past]


@pytest.mark.parametrize("after", [0, 1, 5])
def test_an_interrupt_keeps_what_was_emitted(after):
    calls = itertools.count()
    target, draft = HashModel(), HashModel(seed=3)
    emitted, reason, _, tokens = run(target, draft, interrupted=lambda: next(calls) >= after)
    assert reason == "interrupt"
    assert len(emitted) == after
    for model in (target, draft):
        assert model.tokens == tokens[: model.n_past]


def test_a_pass_that_is_broken_off():
    class Breaks(HashModel):
        def feed(self, tokens, rows):
            if len(self.feeds) == 4:
                raise Interrupted
            return super().feed(tokens, rows)

    target, draft = Breaks(), HashModel(seed=3)
    emitted, reason, _, tokens = run(target, draft)
    assert reason == "interrupt"
    assert emitted
    for model in (target, draft):
        assert model.tokens == tokens[: model.n_past]


def test_a_second_reply_reads_only_what_is_new():
    target, draft = HashModel(), HashModel(seed=3)
    first, *_ = run(target, draft, prompt=range(20), max_tokens=10)
    target.feeds.clear()
    prompt = [*range(20), *first, 7, 8, 9]
    _, _, metrics, _ = run(target, draft, prompt=prompt, max_tokens=1)
    assert metrics.cached >= 29
    assert sum(count for count, _ in target.feeds) <= 4


@pytest.mark.parametrize("sampling", [WARM, SamplingOptions()])
def test_the_same_seed_gives_the_same_text(sampling):
    texts = [run(HashModel(), HashModel(seed=3), max_tokens=60, sampling=sampling, seed=seed)[0] for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


def test_penalties_see_the_tokens_of_the_round():
    sampling = SamplingOptions(temperature=0.0, repeat_penalty=1.8, repeat_last_n=-1)
    plain, *_ = run(HashModel(n_vocab=12), max_tokens=60, sampling=sampling)
    without, *_ = run(HashModel(n_vocab=12), max_tokens=60)
    for draft in (HashModel(n_vocab=12), HashModel(seed=3, n_vocab=12)):
        assert run(HashModel(n_vocab=12), draft, max_tokens=60, sampling=sampling)[0] == plain
    assert plain != without
    _, _, metrics, _ = run(HashModel(n_vocab=12), HashModel(n_vocab=12), max_tokens=60, sampling=sampling)
    assert metrics.acceptance_rate == 1.0  # the draft is penalized alike


def test_a_drafter_with_nothing_to_say():
    class Silent:
        def prefill(self, tokens): ...
        def propose(self, tokens, limit):
            return Draft()

        def observe(self, outcome): ...

    emitted, _, metrics, _ = run(HashModel(), drafter=Silent(), max_tokens=7)
    assert emitted == run(HashModel(), max_tokens=7)[0]
    assert (metrics.rounds, metrics.drafted, metrics.acceptance_rate) == (7, 0, None)


def test_metrics_count_positions_and_shares():
    _, _, metrics, _ = run(HashModel(), Sometimes(), max_tokens=100)
    assert sum(metrics.tested_at.values()) == metrics.tested
    assert sum(metrics.accepted_at.values()) == metrics.accepted
    assert metrics.tested_at[0] >= metrics.tested_at[1] >= metrics.accepted_at[1]
    assert metrics.draft_seconds + metrics.verify_seconds + metrics.other_seconds == pytest.approx(
        metrics.decode_seconds
    )


@pytest.mark.parametrize("sampling", [WARM, SamplingOptions()])
def test_coupled_text_does_not_depend_on_draft_or_draft_length(sampling):
    def text(draft, draft_length):
        tokens, target = [1, 2, 3], HashModel()
        verifier = CoupledVerifier(5)
        drafter = draft and DraftModelDrafter(draft, sampling, verifier.draw_draft, shared(target, draft))
        list(decode(target, drafter, verifier, tokens, LoopOptions(sampling, draft_length, 120), Metrics()))
        return tokens

    plain = text(None, 0)
    for draft_length in (1, 3, 8):
        assert text(HashModel(), draft_length) == plain
        assert text(Sometimes(), draft_length) == plain
        assert text(HashModel(seed=3), draft_length) == plain
