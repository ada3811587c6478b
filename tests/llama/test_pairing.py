"""The pair check says why, with the first token that differs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny import LETTERS, write_tiny_model

from specli.errors import PairError
from specli.llama.model import load_vocabulary
from specli.llama.pairing import check_pair, require_pair


@pytest.fixture
def vocabulary(tmp_path):
    made = iter(range(100))

    def make(**changes):
        return load_vocabulary(write_tiny_model(tmp_path / f"{next(made)}.gguf", seed=1, **changes))

    return make


def test_equal_vocabularies(vocabulary):
    report = check_pair(vocabulary(), vocabulary())
    assert report.compatible
    assert report.shared_tokens == 40


def test_padding_makes_no_difference(vocabulary):
    big, small = vocabulary(n_vocab=80), vocabulary(n_vocab=len(LETTERS) + 5)
    for target, draft in ((big, small), (small, big)):
        assert check_pair(target, draft).compatible


def test_the_first_differing_token_is_named(vocabulary):
    other = [*"abcdeXghijklmnopqrstuvwYyz .,\n<|>/!"]
    target = SimpleNamespace(vocabulary=vocabulary(), path=Path("big"))
    draft = SimpleNamespace(vocabulary=vocabulary(letters=other), path=Path("small"))
    with pytest.raises(PairError) as caught:
        require_pair(target, draft)
    assert "small cannot draft for big: token 10 is 'f' for the target and 'X' for the draft" in caught.value.message


def test_real_pairs(model_file):
    names = ("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m", "gemma3-270m")
    target, draft, smol, gemma = (load_vocabulary(model_file(name)) for name in names)
    assert check_pair(target, draft).compatible
    assert "token 0 is '!' for the target and '<|endoftext|>' for the draft" in check_pair(target, smol).problems[0]
    assert "vocabulary types differ (BPE and SPM)" in check_pair(target, gemma).problems[0]
