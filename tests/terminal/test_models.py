"""`specli list`, `show`, `pull`, `check`, and the command line as a whole."""

from __future__ import annotations

import pytest


def test_list(specli):
    result = specli("list")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].split() == ["name", "size", "file", "draft", "model", "license"]
    assert any(line.startswith("tiny (default)") and "here" in line for line in lines)
    assert any(line.startswith("lost") and "missing" in line for line in lines)
    assert any(line.startswith("smollm2-135m") and "not fetched" in line and "Apache-2.0" in line for line in lines)
    found = {entry["name"]: entry for entry in specli("list", "--json").json}
    assert found["tiny"]["default"]
    assert found["tiny"]["draft_model"] == "tiny-draft"
    assert found["lost"]["path"] is None


def test_show(specli):
    result = specli("show", "tiny")
    assert result.code == 0
    for fact in ("architecture      llama", "quantization      F32", "context length    2048", "license           MIT"):
        assert fact in result.out
    found = specli("show", "tiny", "--json").json
    assert found["vocabulary"] == 40
    assert found["parameters"] > 1000
    assert "{% for" in found["template"]


def test_pull_of_what_is_here_says_where(specli, tiny_file):
    result = specli("pull", "tiny")
    assert (result.code, result.out) == (0, f"{tiny_file}\n")
    assert "tiny is here already" in result.err
    assert specli("pull", "tiny", "-q").err == ""


def test_check(specli, tmp_path):
    from tiny import write_tiny_model

    assert specli("check", "tiny", "tiny-draft").out == "tiny-draft can draft for tiny: 40 tokens in common.\n"
    other = write_tiny_model(tmp_path / "other.gguf", seed=1, letters=[*"zyxwvutsrqponmlkjihgfedcba ."])
    result = specli("check", "tiny", str(other))
    said = "token 5 is 'a' for the target and 'z' for the draft, and so on for 33 of 40"
    assert (result.code, result.out) == (0, f"{other} can draft for tiny as text only: {said}.\n")
    assert "'--drafter text'" in result.err
    found = specli("check", "tiny", str(other), "--json").json
    assert (found["compatible"], found["drafts"], found["problems"]) == (False, "text", [said])
    assert specli("check", "tiny", "tiny-draft", "--json").json["drafts"] == "tokens"


def test_check_lists_differing_tokens(specli, tmp_path):
    from tiny import SPECIAL, write_tiny_model

    renamed = write_tiny_model(tmp_path / "renamed.gguf", seed=1, special=[*SPECIAL[:3], "<|person|>", SPECIAL[4]])
    result = specli("check", "tiny", str(renamed))
    assert (result.code, result.err) == (0, "--verbose lists them.\n")
    assert result.out.startswith(f"{renamed} can draft for tiny: 39 tokens in common.\nDiffering tokens: 1, of which")
    listed = specli("check", "tiny", str(renamed), "--verbose").out.splitlines()[-1].split()
    assert listed == ["3", "'<|user|>'", "'<|person|>'"]
    assert specli("check", "tiny", str(renamed), "--json").json["differing"] == [3]


def test_show_says_how_a_model_rewinds(specli, tmp_path):
    from hybrids import write_lfm2, write_mamba

    shown = specli("show", "tiny").out
    assert "rewinds by        truncation" in shown
    assert "state" not in shown
    for write, way in ((write_lfm2, "snapshots"), (write_mamba, "marks")):
        path = write(tmp_path / f"{way}.gguf")
        found = specli("show", str(path), "--json").json
        assert found["rewinds_by"] == way
        assert min(found["recurrent_layers"], found["state_bytes"], found["states"]) > 0
        assert f"rewinds by        {way}, with {found['states']} states in memory" in specli("show", str(path)).out
    assert specli("show", "tiny", "--json").json["rewinds_by"] == "truncation"


def test_a_model_in_several_files(specli, tmp_path, tiny_file):
    from tiny import write_tiny_model

    first = write_tiny_model(tmp_path / "parts.gguf", seed=1, tensors_per_file=4)
    assert "files             3" in specli("show", str(first)).out
    ask = ("abc", "-n", "20", "--temp", "0", "--no-draft")
    assert specli("complete", *ask, "-m", str(first)).out == specli("complete", *ask, "-m", str(tiny_file)).out
    assert f"tiny can draft for {first}: 40 tokens" in specli("check", str(first), "tiny").out
    small = tmp_path / "small.gguf"
    assert specli("quantize", str(first), "--type", "q8_0", "-o", str(small)).code == 0
    assert specli("show", str(small), "--json").json["quantization"] == "Q8_0"
    assert specli("show", str(small), "--json").json["files"] == 1
    second = first.with_name("parts-00002-of-00003.gguf")
    result = specli("complete", *ask, "-m", str(second))
    assert (result.code, result.out) == (1, "")
    assert "is file 2 of the 3 of a model" in result.err
    second.unlink()
    for command in (("complete", *ask, "-m"), ("show",), ("check", "tiny"), ("quantize", "--type", "q8_0", "-o", "x")):
        result = specli(*command, str(first))
        assert result.code == 1
        assert f"file 2 of the 3 of a model is missing: {second}." in result.err.replace("\n", " ")


@pytest.mark.parametrize("command", ["show", "pull"])
def test_unknown_names(specli, command):
    result = specli(command, "smollm")
    assert (result.code, result.out) == (1, "")
    assert "there is no model named 'smollm'" in result.err
    assert "Did you mean smollm2-135m" in result.err


def test_a_broken_registry(specli, tiny_home):
    (tiny_home / "models.toml").write_text("[models.x\n")
    result = specli("list")
    assert result.code == 1
    assert "models.toml is not valid TOML" in result.err


def test_help_and_version(specli):
    for arguments in (["--help"], ["complete", "-h"], ["list", "--help"]):
        result = specli(*arguments)
        assert result.code == 0
        assert "Usage: " in result.out
    assert specli("--version").out.startswith("specli ")
    assert "Usage: " in specli().out


def test_wrong_commands(specli):
    result = specli("complte")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Error: No such command 'complte'.")
    assert specli("show").code == 2


def test_a_fault_of_ours_is_one_line_that_says_where(specli, monkeypatch):
    monkeypatch.setattr("specli.terminal.commands.models.load_registry", lambda: 1 / 0)
    result = specli("list")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("Error: specli has a fault: ZeroDivisionError in test_models.py, line ")
    assert "Traceback" not in result.err
    assert "Traceback" in specli("list", "-vv").err


def test_quantize(specli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = specli("quantize", "tiny", "--type", "q8_0")
    assert (result.code, result.out) == (0, "tiny-q8_0.gguf\n")
    assert "became" in result.err
    assert specli("show", "tiny-q8_0.gguf", "--json").json["quantization"] == "Q8_0"
    assert specli("quantize", "tiny", "--type", "q8_0").code == 2
    assert specli("quantize", "tiny", "--type", "q9").code == 2
