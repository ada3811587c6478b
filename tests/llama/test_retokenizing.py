"""Text in the tokens of another model: read piece by piece as if it were read whole, and written back."""

from __future__ import annotations

import pytest
from tiny import LETTERS, write_tiny_model

from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.llama import retokenizing
from specli.llama.model import LlamaModel, load_vocabulary
from specli.llama.retokenizing import Retokenizer

TEXTS = [
    "To check whether a string is a palindrome, compare it with its reverse. The function below ignores case, spaces "
    "and punctuation; it runs in linear time.\n\ndef is_palindrome(s: str) -> bool:\n    cleaned = ''.join(ch.lower() "
    "for ch in s if ch.isalnum())\n\n\treturn cleaned == cleaned[::-1]\n",
    "Überraschung! Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Ça va? Да, всё хорошо; "
    "日本語の文章は空白なしで続きます。漢字かな交じり文、そして絵文字 "
    "🎉👩‍👩‍👧‍👦 もあります. It's 3.14159, isn't it? 1234567890 12 345",
    "  two  spaces   three \n\n\n lines \r\n tabs\t\tend   ",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z. A single letter, and a space, over and over, 100 times. x y",
]
NAMES = ["qwen2.5-coder-0.5b", "smollm2-135m", "gemma3-270m"]


@pytest.fixture(scope="module")
def vocabularies(model_file):
    return {name: load_vocabulary(model_file(name)) for name in NAMES}


def read_whole(target, draft, tokens):
    return Retokenizer(target, draft).read(tokens)


@pytest.mark.parametrize("draft_name", NAMES)
@pytest.mark.parametrize("target_name", NAMES)
def test_reading_token_by_token_is_reading_the_whole(vocabularies, target_name, draft_name, monkeypatch):
    target, draft = vocabularies[target_name], vocabularies[draft_name]
    settled = 0
    for text in [*TEXTS, " ".join(TEXTS)]:
        tokens = target.tokenize(text, add_special=False, parse_special=False)
        growing = Retokenizer(target, draft)
        for end in range(1, len(tokens) + 1):
            read = growing.read(tokens[:end])
            monkeypatch.setattr(retokenizing, "_UNSETTLED", 10**9)  # all of the text is tokenized again
            assert read == read_whole(target, draft, tokens[:end]), text[:end]
            monkeypatch.undo()
        begin = [draft.begin_token] if draft.adds_begin_token else []
        assert read == begin + draft.tokenize(text, add_special=False, parse_special=False)
        settled += len(text.encode()) - len(growing._unsettled)
    assert settled > 800


def test_control_tokens_are_read_by_their_text(vocabularies):
    target, draft, other = (vocabularies[name] for name in NAMES)
    tokens = target.tokenize("<|im_start|>user\nHi<|im_end|>\n", add_special=False, parse_special=True)
    assert read_whole(target, draft, tokens) == draft.tokenize(
        "<|im_start|>user\nHi<|im_end|>\n", add_special=False, parse_special=True
    )
    read = read_whole(target, other, tokens)
    assert read[0] == other.begin_token
    assert b"".join(map(other.piece, read)).decode() == "<|im_start|>user\nHi<|im_end|>\n"


def test_nothing_is_read_in_the_middle_of_a_character(vocabularies):
    target, draft = vocabularies[NAMES[0]], vocabularies[NAMES[1]]
    tokens = target.tokenize("x 🀄", add_special=False, parse_special=False)
    reader = Retokenizer(target, draft)
    assert reader.read(tokens[:-1]) is None
    assert reader.read(tokens) == draft.tokenize("x 🀄", add_special=False, parse_special=False)


@pytest.mark.parametrize("draft_name", NAMES)
@pytest.mark.parametrize("target_name", NAMES)
def test_what_is_written_is_the_text_that_follows(vocabularies, target_name, draft_name):
    target, draft = vocabularies[target_name], vocabularies[draft_name]
    same = count = 0
    for text in TEXTS:
        whole = target.tokenize(text, add_special=False, parse_special=False)
        for end in range(4, len(whole) - 12, 3):
            before = b"".join(map(target.piece, whole[:end]))
            after = text.encode()[len(before) :]
            try:
                drafted = draft.tokenize(after.decode(), add_special=False, parse_special=False)[:8]
            except UnicodeDecodeError:
                continue
            written = Retokenizer(target, draft).write(whole[:end], drafted)
            said = b"".join(map(draft.piece, drafted)).decode(errors="ignore").encode()
            assert b"".join(map(target.piece, written)) == said
            same += written[:-1] == whole[end : end + len(written) - 1]
            count += 1
    assert same / count > 0.75  # a text can be cut at places where its tokenizer would not


@pytest.mark.parametrize("prefixes", [(True, True), (True, False), (False, True)])
def test_tokenizers_that_put_a_space_first(tmp_path, prefixes):
    words = ["ab", "cd", "▁ab", "▁cd", "▁", "a", "b", "c", "d", ".", "\n"]
    target, draft = (
        load_vocabulary(
            write_tiny_model(tmp_path / f"{name}.gguf", seed=1, n_vocab=30, letters=letters, space_prefix=prefix)
        )
        for name, letters, prefix in zip(("a", "b"), (words, words[::-1]), prefixes, strict=True)
    )
    text = "ab cd ab. cd ab ab cd abcd ab cd ab cd ab cd ab cd ab cd ab cd ab cd ab cd ab cd ab"
    tokens = target.tokenize(text, add_special=False, parse_special=False)
    growing = Retokenizer(target, draft)
    for end in range(1, len(tokens)):
        read = growing.read(tokens[:end])
        said = b"".join(map(draft.piece, read)).strip()
        assert said == b"".join(map(target.piece, tokens[:end])).strip()
        following = draft.tokenize("ab cd", add_special=False, parse_special=False)[prefixes[1] :]
        written = b"".join(map(target.piece, growing.write(tokens[:end], following)))
        assert written == b"".join(map(draft.piece, following))


OTHERS = [*reversed(LETTERS[:35])]


def test_a_model_of_another_vocabulary_leaves_the_text_as_it_is(tmp_path):
    paths = [
        write_tiny_model(tmp_path / f"{seed}.gguf", seed=seed, letters=letters, sharpness=12)
        for seed, letters in ((1, LETTERS), (1, OTHERS))
    ]
    drafted = 0
    for seed in range(6):
        options = ReplyOptions(verification="coupled").changed(
            temperature=0 if seed < 2 else 1.0, top_k=0, seed=seed, draft_length=(seed % 3) + 2, max_tokens=60
        )
        with Engine(LlamaModel(paths[0])) as engine:
            plain = engine.complete("hello there, you", options=options, draft_length=0)
        for drafter in ("auto", "model", "text"):
            with Engine(*map(LlamaModel, paths)) as engine:
                reply = engine.complete("hello there, you", options=options, drafter=drafter)
                again = engine.complete("hello there, you", options=options, drafter=drafter)
            assert reply.tokens == again.tokens == plain.tokens
            drafted += reply.metrics.drafted
    assert drafted > 200


def test_one_vocabulary_can_draft_as_text_too(tmp_path):
    """A model that is its own draft: whatever its text is, the tokens are the same, but that one is held back."""
    path = write_tiny_model(tmp_path / "tiny.gguf", seed=3, sharpness=12)
    options = ReplyOptions().changed(temperature=0, draft_length=4, max_tokens=60, drafter="text")
    with Engine(LlamaModel(path), LlamaModel(path)) as engine:
        reply = engine.complete("hello there, you", options=options)
    assert reply.metrics.acceptance_rate == 1
    assert reply.metrics.rounds == 12
