"""Which models here can draft for which, and the predictions."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import gguf
import pytest
from tiny import write_tiny_model

from specli.llama.gguf import read_gguf
from specli.llama.model import load_vocabulary
from specli.models.candidates import candidates, possible_pairs, quick_draft
from specli.models.families import FAMILIES, reported_draft
from specli.models.prediction import predict
from specli.models.registry import load_registry


@pytest.mark.parametrize("acceptance", [0.3, 0.7])
@pytest.mark.parametrize("share", [0.05, 0.44])
def test_the_prediction_is_what_rounds_yield_and_cost(acceptance, share):
    def speedup(length):
        # Outcomes of a round: the first rejected token is at each position, or none is.
        tokens = sum(acceptance**kept * (1 - acceptance) * (kept + 1) for kept in range(length))
        return (tokens + acceptance**length * (length + 1)) / (1 + length * share)

    found = predict(1000, round(1000 * share), acceptance)
    best = max(range(1, 9), key=speedup)
    assert found.draft_length == best
    assert found.speedup == pytest.approx(speedup(best))


@pytest.fixture
def here(home, tmp_path, monkeypatch):
    """A folder of models: two sizes of a family, a foreign one, and a damaged file."""
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.setenv("SPECLI_MODELS", str(folder))
    write_tiny_model(folder / "large.gguf", seed=1, width=64, n_layers=4)
    write_tiny_model(folder / "small.gguf", seed=2)
    write_tiny_model(folder / "foreign.gguf", seed=3, n_vocab=60, letters=[*"zyxwvutsrqponmlkjihgfedcba ."])
    (folder / "damaged.gguf").write_bytes(b"GGUF and no more")
    return folder


def test_pairs_are_ranked_and_what_is_broken_is_left_out(here):
    models, problems = candidates(load_registry())
    assert [model.name for model in models] == ["small", "foreign", "large"]
    assert len(problems) == 1
    assert "damaged was left out" in problems[0]
    large = models[-1]
    pairs = possible_pairs(large, models, cache(load_vocabulary))
    assert [(pair.draft.name, pair.as_text) for pair in pairs] == [("small", False), ("foreign", True)]
    assert pairs[0].prediction.speedup > pairs[1].prediction.speedup > 1
    assert possible_pairs(models[0], models, cache(load_vocabulary)) == []


def test_the_quick_look_takes_only_the_same_tokenizer(here):
    assert quick_draft(here / "large.gguf", load_registry()) == "small"
    (here / "small.gguf").unlink()
    assert quick_draft(here / "large.gguf", load_registry()) is None


def test_a_target_in_several_files_is_not_its_own_draft(here):
    (here / "small.gguf").unlink()
    (here / "large.gguf").unlink()
    first = write_tiny_model(here / "cut.gguf", seed=1, width=64, n_layers=4, tensors_per_file=3)
    assert quick_draft(first, load_registry()) is None
    write_tiny_model(here / "small.gguf", seed=2)
    assert quick_draft(first, load_registry()) == "small"


def write_header(path, architecture, name, parameters):
    """Write a header without weights; return it as if it had so many parameters."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return replace(read_gguf(path), parameters=parameters)


@pytest.mark.parametrize(
    ("architecture", "name", "draft"),
    [
        ("qwen2", "Qwen2.5 Coder 7B Instruct", "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF"),
        ("qwen2", "Qwen2.5 7B Instruct", "Qwen/Qwen2.5-0.5B-Instruct-GGUF"),
        ("qwen2", "DeepSeek R1 Distill Qwen 14B", "alamios/DeepSeek-R1-DRAFT-Qwen2.5-0.5B"),
        ("qwen3", "Qwen3 32B", "Qwen/Qwen3-0.6B-GGUF"),
        ("qwen35", "Qwen3.5 27B", "Qwen3.5-0.8B"),
        ("qwen35", "Qwen3.6 27B", None),
        ("llama", "Llama 3.1 8B Instruct", "Llama-3.2-1B-Instruct"),
        ("llama", "Meta Llama 2 7B", None),
        ("gemma3", "Gemma 3 27b It", "gemma-3-1b-it"),
        ("granitehybrid", "Granite 4.0 H Small", None),
        ("qwen3", "Qwen2.5 7B", None),
    ],
)
def test_families_are_recognized_by_what_a_file_says(tmp_path, architecture, name, draft):
    file = write_header(tmp_path / "a.gguf", architecture, name, 7_000_000_000)
    found = reported_draft(file)
    assert (found and found.draft) == draft
    assert reported_draft(write_header(tmp_path / "b.gguf", architecture, name, 500_000_000)) is None


def test_every_family_says_where_it_is_known_from():
    assert all("." in family.source and "/" in family.source for family in FAMILIES)
