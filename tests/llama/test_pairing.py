"""The pair check says how a draft model can serve, and why not; nearly equal vocabularies serve as they are."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from tiny import LETTERS, SPECIAL, write_tiny_model

from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.errors import PairError
from specli.llama.model import LlamaModel, load_vocabulary
from specli.llama.pairing import check_pair, share_vocabulary

MANY = [chr(0x4E00 + number) for number in range(200)]  # letters


@pytest.fixture
def write(tmp_path):
    made = iter(range(100))
    return lambda seed=1, **changes: write_tiny_model(tmp_path / f"{next(made)}.gguf", seed=seed, **changes)


@pytest.fixture
def vocabulary(write):
    return lambda **changes: load_vocabulary(write(**changes))


def test_equal_vocabularies(vocabulary):
    report = check_pair(vocabulary(), vocabulary())
    assert report.compatible
    assert (report.shared_tokens, report.differing) == (40, ())


def test_padding_makes_no_difference(vocabulary):
    big, small = vocabulary(n_vocab=80), vocabulary(n_vocab=len(LETTERS) + 5)
    for target, draft in ((big, small), (small, big)):
        report = check_pair(target, draft)
        assert report.compatible
        assert not report.differing


def test_the_first_differing_token_is_named(vocabulary):
    other = [*"abcdeXghijklmnopqrstuvwYyZ .,\n<|>/!"]
    report = check_pair(vocabulary(), vocabulary(letters=other))
    assert not report.compatible
    assert report.as_text
    assert report.problems == ("token 10 is 'f' for the target and 'X' for the draft, and so on for 3 of 40",)


def test_some_tokens_may_differ(vocabulary):
    for count, compatible in ((10, True), (11, False)):  # of 200
        report = check_pair(
            vocabulary(n_vocab=200, letters=MANY), vocabulary(n_vocab=200, letters=[*LETTERS[:count], *MANY[count:]])
        )
        assert report.compatible == compatible
        assert report.differing == tuple(range(5, 5 + count))


def test_a_model_without_a_vocabulary_cannot_serve(vocabulary, monkeypatch):
    target, draft = (SimpleNamespace(vocabulary=vocabulary(), path=SimpleNamespace(name=name)) for name in "ab")
    draft.vocabulary.type_name = "none"
    with pytest.raises(PairError) as caught:
        share_vocabulary(target, draft)
    assert caught.value.message == "b cannot draft for a: the vocabulary types differ (SPM and none)."


OTHER_CONTROL = [*SPECIAL[:3], "<|turn|>", "<|over|>"]
SHIFTED = [*SPECIAL[:3], "<|end|>", "<|user|>"]  # the same texts under other ids
PAIRS = {  # what the target and the draft model differ in
    "padding": ({"n_vocab": 300}, {"n_vocab": 210}),
    "a larger draft": ({"n_vocab": 210}, {"n_vocab": 300}),
    "control tokens": ({}, {"special": OTHER_CONTROL}),
    "control tokens with other ids": ({}, {"special": SHIFTED}),
    "end tokens": ({"end_token": 4}, {"end_token": 2}),
    "end tokens, control tokens, padding": ({"end_token": 4, "n_vocab": 280}, {"special": OTHER_CONTROL}),
    "beginning tokens": ({"adds_begin": False}, {}),
    "a draft with fewer tokens than are used": ({"n_vocab": 210}, {"n_vocab": 196}),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_pairs_that_differ_a_little(write, pair):
    """The text stays, drafts are accepted, and what differs is never drafted."""
    target, draft = (LlamaModel(write(seed=1, **({"n_vocab": 210, "letters": MANY} | changes))) for changes in pair)
    prompt = [1, 3, 5, 9, 210 - 1, 4, 3, 8]
    with Engine(target) as plain_engine:
        plain = [texts(plain_engine, prompt, options) for options in settings(0)]
    target = LlamaModel(target.path)
    with Engine(target, draft) as engine:
        replies = [texts(engine, prompt, options) for options in settings(4)]
        report = check_pair(target.vocabulary, draft.vocabulary)
    assert replies == plain
    drafted = {token for draft in DRAFTED for token in draft}
    DRAFTED.clear()
    assert len(drafted) > 20
    assert not drafted & set(report.differing)
    assert max(drafted) < report.shared_tokens


DRAFTED: list[list[int]] = []


@pytest.fixture(autouse=True)
def watched(monkeypatch):
    """Keep what is drafted."""
    from specli.decoding.drafting import DraftModelDrafter

    propose = DraftModelDrafter.propose

    def watch(self, *arguments):
        draft = propose(self, *arguments)
        DRAFTED.append(list(draft.tokens))
        return draft

    monkeypatch.setattr(DraftModelDrafter, "propose", watch)


def settings(draft_length):
    for seed in range(4):
        yield ReplyOptions(verification="coupled").changed(
            temperature=0 if seed == 0 else 1.0, top_k=0, seed=seed, draft_length=draft_length, max_tokens=40
        )


def texts(engine, prompt, options):
    *_, reply = engine.reply(prompt, options)
    return reply.tokens


def test_nothing_is_drafted_after_an_end_of_the_target(write):
    """Its end is an ordinary token for the draft model, which would go on."""
    target, draft = LlamaModel(write(end_token=4)), LlamaModel(write(end_token=2))
    bias = tuple((token, -math.inf) for token in range(40) if token != 4)
    with Engine(target, draft) as engine:
        texts(engine, [1, 7, 8], ReplyOptions().changed(logit_bias=bias, temperature=0, draft_length=6))
    assert DRAFTED == [[4]]
    DRAFTED.clear()


def test_changed_control_tokens_of_a_real_model(model_file, tmp_path):
    """A model drafts for itself under other names of its control tokens: all but what differs is accepted."""
    path = model_file("smollm2-135m")
    renamed = tmp_path / "renamed.gguf"
    data = path.read_bytes()
    for name in (b"<|im_start|>", b"<|im_end|>", b"<repo_name>", b"<file_sep>"):
        start = data.index(name)  # the list of tokens comes first
        data = data[:start] + name[::-1] + data[start + len(name) :]
    renamed.write_bytes(data)
    del data
    options = ReplyOptions().changed(temperature=0, draft_length=4, max_tokens=48)
    with Engine.load(path, renamed) as engine:
        report = check_pair(engine.target.vocabulary, engine.draft.vocabulary)
        assert report.compatible
        assert len(report.differing) == 4
        reply = engine.complete("Name three colors.", options=options)
        assert reply.text == engine.complete("Name three colors.", options=options, draft_length=0).text
    assert reply.metrics.tested - reply.metrics.accepted == 1  # the end is never drafted
    assert reply.metrics.accepted > 8


def test_real_pairs(model_file):
    names = ("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m", "gemma3-270m")
    target, draft, smol, gemma = (load_vocabulary(model_file(name)) for name in names)
    assert check_pair(target, draft).compatible
    assert "token 0 is '!' for the target and '<|endoftext|>' for the draft" in check_pair(target, smol).problems[0]
    assert "vocabulary types differ (BPE and SPM)" in check_pair(target, gemma).problems[0]
