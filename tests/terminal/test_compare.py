"""`specli compare` on a tiny pair: reports, files, resuming after a kill, exit codes, mistakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest


@pytest.fixture
def prompts(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"prompt": "abc", "class": "x"}\n{"prompt": "hello", "class": "x"}\n{"prompt": "xyz", "class": "y"}\n'
    )
    return file


@pytest.fixture
def compare(specli, prompts):
    def call(*arguments: str):
        return specli("compare", "--prompts", str(prompts), "-n", "8", "-t", "1", *arguments)

    return call


def test_the_report(compare):
    result = compare("--draft-length", "0,2", "--temp", "0,1")
    assert result.code == 0
    assert "target tiny: " in result.out
    assert "Temperature 0: tiny-draft, length 2, block" in result.out
    assert "Temperature 1: baseline again" in result.out
    assert "overall" in result.out
    assert ", seed 0; " in result.out
    assert "3 of 3" in result.out
    assert "Why: a round yields" in result.out
    assert result.err == ""


def test_json_holds_every_measurement(compare):
    found = compare("--draft-length", "2,3", "--temp", "0", "--json").json
    assert (found["kind"], found["version"], found["complete"]) == ("comparison", 1, True)
    assert len(found["measurements"]) == 3 * 3 * 3
    assert [one["name"] for one in found["configurations"]] == [
        "baseline",
        "tiny-draft, length 2, block",
        "tiny-draft, length 3, block",
    ]
    assert {one["kind"] for one in found["figures"]} == {"x", "y", "overall"}
    timed = [one for one in found["measurements"] if one["turn"] > 0]
    pairs = {(one["prompt"], one["turn"]): one for one in timed if one["configuration"] == 0}
    for figures in found["figures"]:
        ratios = [
            pairs[one["prompt"], one["turn"]]["decode_seconds"] / one["decode_seconds"]
            for one in timed
            if one["configuration"] == figures["configuration"] and figures["kind"] in (one["kind"], "overall")
        ]
        assert figures["ratios"] == pytest.approx(ratios)


def test_several_drafts(compare, tiny_file):
    result = compare("-md", "tiny-draft", "-md", str(tiny_file), "--temp", "0")
    assert result.code == 0
    assert f"Temperature 0: {tiny_file.stem}, length 4, block" in result.out or "target.gguf, length 4" in result.out


def test_looking_up_is_compared_like_a_draft_model(compare):
    found = compare("-md", "none", "-md", "tiny-draft", "--temp", "0", "--draft-length", "auto,3", "--json").json
    assert [one["name"] for one in found["configurations"]] == [
        "baseline",
        "lookup, auto, block",
        "lookup, length 3, block",
        "tiny-draft, auto, block",
        "tiny-draft, length 3, block",
    ]
    assert [model["name"] for model in found["models"]] == ["tiny", "tiny-draft"]
    last = [one for one in found["measurements"] if one["configuration"] == 4]
    assert all(one["drafted"] for one in last if one["turn"])
    texts = {(one["prompt"], tuple(one["tokens"])) for one in found["measurements"] if one["turn"]}
    assert len(texts) == len({one["prompt"] for one in found["measurements"]}) == 3


def test_a_killed_comparison_is_continued(tiny_home, prompts, tmp_path, compare):
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    settings = ("--draft-length", "2,4", "-r", "40", "--temp", "0,1")
    process = subprocess.Popen(
        [sys.executable, "-m", "specli", "compare", "--prompts", str(prompts), "-n", "8", "-t", "1", *settings,
         "-o", str(cut)],
        env=os.environ | {"SPECLI_HOME": str(tiny_home)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not cut.exists() or cut.read_bytes().count(b"\n") < 20):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = cut.read_bytes().count(b"\n")
    assert 20 <= before < 400
    assert compare(*settings, "-o", str(whole)).code == 0
    resumed = compare("-o", str(cut), "--resume", "--json")
    assert resumed.code == 0
    measured = [
        [(one["prompt"], one["configuration"], one["turn"], one["tokens"]) for one in map(json.loads, lines[1:])]
        for lines in (path.read_text().splitlines() for path in (whole, cut))
    ]
    assert len(resumed.json["measurements"]) == len(measured[0]) == 3 * 6 * 41
    assert measured[0] == measured[1]


def test_resuming_with_another_model_is_refused(compare, tmp_path, tiny_home, tiny_file):
    file = tmp_path / "results.jsonl"
    assert compare("--temp", "0", "-o", str(file)).code == 0
    assert compare("--temp", "0", "-o", str(file)).code == 2
    header, *rest = file.read_text().splitlines()
    changed = json.loads(header)
    changed["models"][0]["bytes"] += 1
    file.write_text("\n".join([json.dumps(changed), *rest]) + "\n")
    result = compare("-o", str(file), "--resume")
    assert result.code == 1
    assert "not those that" in result.err


def test_interrupting_keeps_and_prints_what_was_measured(compare, monkeypatch, tmp_path):
    import specli.terminal.commands.comparing as module

    real = module.measure

    def then_press(*arguments, **more):
        for number, one in enumerate(real(*arguments, **more)):
            yield one
            if number == 12:
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(module, "measure", then_press)
    file = tmp_path / "results.jsonl"
    result = compare("--temp", "0", "-o", str(file))
    assert result.code == 130
    assert "overall" in result.out
    assert "interrupted after 13 of 27 measurements" in result.err
    assert f"Continue with -o {file} --resume" in result.err
    assert len(file.read_text().splitlines()) == 14


def test_requirements(compare):
    assert compare("--temp", "0", "--require-speedup", "0.001", "--require-identical").code == 0
    result = compare("--temp", "0", "--require-speedup", "1000")
    assert result.code == 3
    assert "but --require-speedup is 1000" in result.err


def test_curves(compare):
    result = compare("--curve")
    assert result.code == 0
    assert "A draft token of tiny-draft: " in result.out
    assert result.out.count("█") > 13
    found = compare("--curve", "--json").json["curves"]["tiny-draft"]
    assert set(found["target"]) >= {"1", "2", "32"}
    assert set(found["break_even"]) >= {"1", "31"}


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture(compare, tmp_path, ending):
    pytest.importorskip("matplotlib")
    file = tmp_path / f"speed.{ending}"
    assert compare("--draft-length", "0,2,4", "--temp", "0,1", "--plot", str(file)).code == 0
    assert file.stat().st_size > 5000


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--draft-length", "two"], 2, "--draft-length is 'two'"),
        (["--draft-length", "2,,4"], 2, "--draft-length is ''"),
        (["--temp", "0,x"], 2, "--temp is '0,x'"),
        (["--temp", "-1"], 2, "--temp is -1"),
        (["--verification", "blok"], 2, "--verification is 'blok'"),
        (["-r", "0"], 2, "--repeats is 0"),
        (["-n", "1"], 2, "--max-tokens is 1"),
        (["--time-limit", "-2"], 2, "--time-limit is -2"),
        (["--draft-length", "-3"], 2, "nothing to compare"),
        (["-md", "nobody"], 1, "nobody"),
        (["--plot", "x.pdf"], 2, "must end in .png or .svg"),
        (["-o", "/nowhere.jsonl", "--resume"], 1, "cannot read /nowhere.jsonl"),
        (["-o", "/nowhere/x.jsonl"], 1, "cannot write /nowhere/x.jsonl"),
        (["-c", "8", "-n", "300"], 1, "do not fit in a context"),
    ],
)
def test_mistakes(compare, arguments, code, message):
    result = compare(*arguments)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert "Hint: " in result.err
