"""Models that other tools have put on the disk."""

from __future__ import annotations

import os
import random

import pytest
from layouts import add_all, add_file, add_to_hugging_face, add_to_ollama, everything_below, manifest

from specli.errors import ModelNotFoundError
from specli.models.elsewhere import find_model, search_all
from specli.models.files import find_file
from specli.models.registry import load_registry


@pytest.fixture
def user(home, tmp_path, monkeypatch):
    """A user's home; the Hugging Face cache is beside it."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("SPECLI_MODELS", str(tmp_path / "user" / "own"))
    (tmp_path / "user" / "own").mkdir(parents=True)
    return tmp_path / "user"


def found():
    models, problems = search_all()
    return {model.name: model.path for model in models}, problems


def test_every_layout_is_found_and_nothing_is_written(user, tmp_path, tiny_file):
    models = add_all(user, tmp_path / "hub", tiny_file)
    before = everything_below(tmp_path)
    assert found() == (models, [])
    for name, path in models.items():
        assert find_file(load_registry().find(name)) == path
    assert everything_below(tmp_path) == before


def test_ollama_names(user, tiny_file, tiny_draft_file):
    folder = user / ".ollama" / "models"
    blobs = {
        "ollama:a:1b": add_to_ollama(folder, "registry.ollama.ai/library/a/1b", tiny_file),
        "ollama:me/b:latest": add_to_ollama(folder, "registry.ollama.ai/me/b/latest", tiny_draft_file),
    }
    for argument, name in (("ollama:a:1b", "ollama:a:1b"), ("ollama:me/b", "ollama:me/b:latest")):
        assert find_model(argument).path == blobs[name]
    assert find_model("ollama:a") is None
    with pytest.raises(ModelNotFoundError, match="there is no model named 'ollama:a'"):
        load_registry().find("ollama:a")


def test_other_places_by_their_variables(user, tmp_path, monkeypatch, tiny_file, tiny_draft_file):
    add_to_ollama(tmp_path / "o", "hf.co/some/model/Q4_K_M", tiny_file)
    add_file(tmp_path / "l", "cached.gguf", tiny_draft_file)
    newer = add_to_hugging_face(tmp_path / "l", "some/model", "newer.gguf", tiny_draft_file)
    hub = add_to_hugging_face(tmp_path / "h", "some/model", "older.gguf", tiny_file)
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HUGGINGFACE_HUB_CACHE", str(tmp_path / "h"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "o"))
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "l"))
    assert set(found()[0]) == {"ollama:hf.co/some/model:Q4_K_M", "cached", "newer", "older"}
    assert (find_model("newer").path, find_model("older").path) == (newer, hub)


def test_a_file_name_is_enough(user, tmp_path, monkeypatch, tiny_file):
    path = add_file(user / "own", "deep/plain.gguf", tiny_file)
    assert load_registry().find("plain.gguf").path == load_registry().find("plain").path == path
    monkeypatch.chdir(tmp_path)
    here = add_file(tmp_path, "plain.gguf", tiny_file)
    assert load_registry().find("plain.gguf").path.resolve() == here
    assert load_registry().find("none.gguf").path.name == "none.gguf"


def test_what_is_no_model_or_a_later_part_is_not_listed(user, tiny_file):
    from tiny import write_tiny_model

    own = user / "own"
    for name in ("mmproj-a.gguf", "a.imatrix.gguf", "notes.txt"):
        add_file(own, name, tiny_file)
    first = write_tiny_model(own / "big.gguf", seed=1, tensors_per_file=4)
    ((model,), _) = search_all()
    assert (model.name, model.path) == ("big", first)
    assert model.bytes == sum(path.stat().st_size for path in own.glob("big-*"))
    first.with_name("big-00002-of-00003.gguf").unlink()
    models, problems = found()
    assert not models
    assert problems == [f"{first} was left out: big-00002-of-00003.gguf is missing"]


def test_the_same_name_twice_is_asked_about_but_the_same_file_is_not(user, tmp_path, tiny_file, tiny_draft_file):
    own = add_file(user / "own", "same.gguf", tiny_file)
    (user / ".lmstudio" / "models").mkdir(parents=True)
    (user / ".lmstudio" / "models" / "same.gguf").symlink_to(own)
    assert find_model("same").path == own
    add_file(user / ".cache" / "llama.cpp", "same.gguf", tiny_draft_file)
    with pytest.raises(ModelNotFoundError, match="2 models are named 'same'"):
        load_registry().find("same")


def test_the_newest_commit_of_a_repository_counts(user, tmp_path, tiny_file, tiny_draft_file):
    old = add_to_hugging_face(tmp_path / "hub", "some/model", "m.gguf", tiny_file, "a" * 40)
    new = add_to_hugging_face(tmp_path / "hub", "some/model", "m.gguf", tiny_draft_file, "b" * 40)
    os.utime(old.parent, (1, 1))
    assert find_model("m").path == new


def test_links_in_circles_end(user, tiny_file):
    add_file(user / "own", "a/m.gguf", tiny_file)
    (user / "own" / "a" / "again").symlink_to(user / "own")
    assert found()[0].keys() == {"m"}


GOOD = "sha256:" + "a" * 64
DAMAGED = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 100_000,
    b" " * (1 << 21),
    b'{"layers": 3}',
    b'{"layers": [3]}',
    b'{"layers": [{"mediaType": 1, "digest": 2}]}',
    manifest(GOOD, layers=[]),
    manifest("sha256:../../../../etc/passwd"),
    manifest("../secret"),
    manifest("sha256:" + "A" * 64),
    manifest("sha256:" + "a" * 63),
    manifest(GOOD),  # whose blob is not there
]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_manifest_is_left_out_with_a_reason(user, tiny_file, content):
    folder = user / ".ollama" / "models"
    add_to_ollama(folder, "registry.ollama.ai/library/good/latest", tiny_file)
    bad = folder / "manifests" / "registry.ollama.ai" / "library" / "bad" / "latest"
    bad.parent.mkdir()
    bad.write_bytes(content)
    models, problems = found()
    assert models.keys() == {"ollama:good:latest"}
    (problem,) = problems
    assert "was left out: " in problem
    assert problem.isprintable()


def test_manifests_damaged_at_random_places(user, tiny_file):
    folder = user / ".ollama" / "models"
    add_to_ollama(folder, "registry.ollama.ai/library/good/latest", tiny_file)
    path = folder / "manifests" / "registry.ollama.ai" / "library" / "good" / "latest"
    whole, rng = path.read_bytes(), random.Random(1)
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])
        models, problems = found()
        assert set(models) <= {"ollama:good:latest"}
        assert all(blob.parent == folder / "blobs" for blob in models.values())
        assert len(models) + len(problems) == 1


def test_many_damaged_manifests_are_summed_up(user):
    folder = user / ".ollama" / "models" / "manifests" / "registry.ollama.ai" / "library"
    for number in range(9):
        (folder / f"m{number}").mkdir(parents=True)
        (folder / f"m{number}" / "latest").write_bytes(b"{")
    problems = found()[1]
    assert len(problems) == 6
    assert problems[-1] == "4 more of Ollama were left out"


@pytest.mark.parametrize(
    "name", ["ollama:../../etc", "ollama:a/../../b", "ollama:/etc/passwd", "ollama:", "ollama:a\n"]
)
def test_names_that_lead_elsewhere_are_refused(user, name):
    with pytest.raises(ModelNotFoundError):
        load_registry().find(name)


def test_folders_that_are_not_there_or_no_folders(user, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECLI_MODELS", os.pathsep.join([str(tmp_path / "none"), ""]))
    (user / ".ollama").mkdir(parents=True)
    (user / ".ollama" / "models").write_text("no folder")
    models, problems = found()
    assert not models
    assert problems[0] == f"{tmp_path / 'none'} was left out: SPECLI_MODELS names it, but there is no such folder"
