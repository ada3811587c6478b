"""`specli pairs` and `specli list --all`, and the models of other tools as arguments."""

from __future__ import annotations

import pytest
from layouts import add_all, add_file, everything_below

from specli.models.families import FAMILIES


@pytest.fixture
def elsewhere(tiny_home, tmp_path, monkeypatch, tiny_draft_file):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("SPECLI_MODELS", str(tmp_path / "user" / "own"))
    return add_all(tmp_path / "user", tmp_path / "hub", tiny_draft_file)


def test_models_of_other_tools_are_listed_and_run_in_place(specli, elsewhere, tmp_path):
    before = everything_below(tmp_path / "user"), everything_below(tmp_path / "hub")
    listed = specli("list", "--all")
    assert listed.code == 0
    rows = {entry["name"]: entry for entry in specli("list", "--all", "--json").json}
    plain = specli("complete", "abc", "-n", "8", "--temp", "0", "-m", "tiny-draft", "--no-draft").out
    for name, path in elsewhere.items():
        assert rows[name]["path"] == str(path)
        assert name in listed.out
        result = specli("complete", "abc", "-n", "8", "--temp", "0", "-m", name, "--no-draft")
        assert (result.code, result.out) == (0, plain)
        assert specli("check", "tiny", name).code == 0
    assert (everything_below(tmp_path / "user"), everything_below(tmp_path / "hub")) == before
    assert "ollama:small:latest" not in specli("list").out


def test_pairs(specli, tmp_path, monkeypatch):
    from tiny import write_tiny_model

    folder = tmp_path / "user" / "own"
    folder.mkdir(parents=True)
    monkeypatch.setenv("SPECLI_MODELS", str(folder))
    large = write_tiny_model(folder / "large.gguf", seed=1, width=64, n_layers=4)
    found = {(pair["target"], pair["draft"]): pair for pair in specli("pairs", "--json").json}
    assert ("large", "tiny") in found
    assert found["large", "tiny"]["predicted_speedup"] > 1
    assert found["large", "tiny"]["measure"] == "specli compare -m large -md tiny"
    shown = specli("pairs", "large")
    assert (shown.code, shown.out.splitlines()[1].split()[:2]) == (0, ["large", "tiny"])
    assert "70% of draft tokens accepted" in shown.err
    assert "specli compare -m large -md tiny" in shown.err
    assert "No model here is predicted" in specli("pairs", "tiny").err
    warned = specli("complete", "abc", "-n", "2", "-m", str(large)).err
    assert "no draft model is known for" in warned
    assert "'-md tiny' may do" in warned


def test_a_reported_draft_is_named_on_an_empty_disk(specli, tmp_path, monkeypatch, tiny_file):
    alone = add_file(tmp_path, "alone.gguf", tiny_file)
    monkeypatch.setattr("specli.models.candidates.quick_draft", lambda *_: None)
    monkeypatch.setattr("specli.models.families.reported_draft", lambda _: FAMILIES[0])
    result = specli("complete", "abc", "-n", "2", "-m", str(alone))
    assert f"{FAMILIES[0].draft} is said to fit ({FAMILIES[0].source})" in result.err.replace("\n", " ")
