"""`specli audit` on a tiny pair: reports, exit codes, pictures, and mistakes."""

from __future__ import annotations

import sys

import pytest
from hybrids import WRITERS, Shape

from specli.terminal import plots

FULL = ("--temp", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0")


@pytest.fixture
def audit(specli, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("abc\nhello\n")
    return lambda *arguments: specli("audit", "--prompts", str(prompts), "-t", "1", "--samples", "800", *arguments)


def test_nothing_is_found(audit):
    result = audit(*FULL)
    assert result.code == 0
    assert ", seed 0" in result.out
    assert "No bias found: p = " in result.out
    assert "Minimum detectable effect (90 % power): " in result.out
    assert "No difference: with and without the draft, " in result.out
    assert result.err == ""


@pytest.mark.parametrize("architecture", ["qwen35", "granitehybrid"])
def test_a_hybrid_pair(audit, tmp_path, architecture):
    shape = Shape(sharpness=2.0, state_groups=2 if architecture == "qwen35" else 1)  # models that often agree by chance
    files = [WRITERS[architecture](tmp_path / f"{seed}.gguf", shape, seed=seed) for seed in (3, 4)]
    pair = ("-m", str(files[0]), "-md", str(files[1]), *FULL)
    result = audit(*pair)
    assert result.code == 0
    assert "No bias found: p = " in result.out
    assert "No difference: with and without the draft, " in result.out
    assert audit(*pair, "--samples", "4000", "--control").code == 3


def test_json(audit):
    result = audit(*FULL, "--verification", "coupled", "--json")
    assert result.code == 0
    found = result.json
    assert (found["kind"], found["version"], found["found"], found["control"]) == ("audit", 1, False, False)
    assert found["settings"]["verification"] == "coupled"
    assert found["distribution"]["tokens"] >= 800
    assert found["distribution"]["groups"][0]["position"] is None
    assert found["identity"]["differences"] == 0
    assert found["joint"] is None


def test_the_control_is_found(audit):
    result = audit(*FULL, "--samples", "4000", "--control")
    assert result.code == 3
    assert "Bias found: p = " in result.out
    assert audit(*FULL, "--samples", "4000", "--control", "--json").json["found"] is True


def test_joint(audit):
    result = audit(*FULL, "--test", "joint", "--samples", "600")
    assert result.code == 0
    assert "the first 3 tokens of 600 replies to own-1" in result.out
    assert "exact mode" in result.out
    assert audit(*FULL, "--test", "joint", "--samples", "3000", "--control").code == 3


def test_parts(audit):
    assert "Texts at temperature 0" not in audit("--test", "distribution").out
    assert "Probabilities" not in audit("--test", "identity").out
    assert "Probabilities" not in audit("--temp", "0").out


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture(audit, tmp_path, ending):
    pytest.importorskip("matplotlib")
    file = tmp_path / f"audit.{ending}"
    assert audit("--test", "distribution", "--plot", str(file)).code == 0
    assert file.stat().st_size > 5000
    assert [path.name for path in tmp_path.glob("*audit*")] == [file.name]


def test_a_picture_without_matplotlib(audit, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(plots.importlib.util, "find_spec", lambda name: None)
    result = audit("--plot", str(tmp_path / "audit.png"))
    assert result.code == 1
    assert "Install it with: python -m pip install 'specli[plot]'" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--samples", "0"], "--samples is 0"),
        (["-md", "none", "--drafter", "model"], "there is no draft model for tiny"),
        (["--draft-length", "0"], "without drafts"),
        (["--temp", "0", "--control"], "--temp is 0"),
        (["--temp", "0", "--test", "joint"], "--temp is 0"),
        (["--control", "--verification", "match"], "--control has a rule of its own"),
        (["--control", "--test", "identity"], "--control is about probabilities"),
        (["--plot", "x.pdf"], "must end in .png or .svg"),
        (["--plot", "/nowhere/x.png"], "folder cannot be written to"),
        (["--plot", "x.png", "--test", "joint"], "left out here"),
        (["--test", "half"], "half"),
        (["--prompts", "builtin:poem"], "no class 'poem'"),
        (["--draft-temp", "-1"], "--draft-temp is -1"),
    ],
)
def test_mistakes(audit, arguments, message):
    result = audit(*arguments)
    assert result.code == 2
    assert message in result.err
    assert "Hint: " in result.err
    assert result.out == ""
