"""`specli tune` on a tiny pair."""

from __future__ import annotations

import pytest


@pytest.fixture
def tune(specli, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("abc\n")
    return lambda *arguments: specli("tune", "--prompts", str(prompts), "-t", "1", "-n", "16", *arguments)


def test_the_report(tune):
    result = tune()
    assert result.code == 0
    assert "seed 0: predicted speedup by draft length" in result.out
    assert "A draft token costs" in result.out
    assert "With llama.cpp: llama-server -m " in result.out
    assert result.err == ""


def test_json(tune):
    found = tune("--json").json
    assert (found["kind"], found["version"], found["model"]) == ("tuning", 1, "tiny")
    assert set(found["predicted"]) == {"1", "2", "3", "4", "6", "8"}
    assert found["seed"] == 0
    assert found["classes"][0]["kind"] == "own"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["-md", "none"], "no draft model"), (["-n", "3"], "--max-tokens is 3"), (["--temp", "9"], "--temp is 9")],
)
def test_mistakes(tune, arguments, message):
    result = tune(*arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
