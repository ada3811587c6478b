"""Streams, encodings, values and files as unlucky people have them: one clear line, or the right answer."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from tiny import write_tiny_model

from specli.state.reading import MOST


@pytest.fixture
def process(tiny_home):
    """Run specli as a shell does, with streams and environment as asked for."""

    def run(*arguments: str, redirect: str = "", stdin: bytes | None = b"", **environment: str):
        command = ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, "-m", "specli", *arguments]
        return subprocess.run(
            command, env={**os.environ, **environment}, input=stdin, capture_output=True, timeout=60, check=False
        )

    return run


COMPLETE = ("complete", "--no-draft", "-n", "8", "--seed", "1")
posix = pytest.mark.skipif(os.name == "nt", reason="there is no sh")


@posix
def test_closed_output(process):
    done = process("list", redirect=">&-")
    assert done.returncode == 1
    assert b"Error: standard output is closed" in done.stderr
    assert process(*COMPLETE, "abc", redirect="2>&-").stdout
    assert process(*COMPLETE, "abc", redirect="2>&-").returncode == 0


@posix
def test_closed_input(process):
    assert process(*COMPLETE, "abc", redirect="<&-").stdout
    done = process("chat", "-q", redirect="<&-")
    assert (done.returncode, done.stdout) == (0, b"")


@posix
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8:strict"])
def test_characters_that_the_output_cannot_take(process, encoding):
    listed = process("show", "lost", PYTHONIOENCODING=encoding)
    assert b"Traceback" not in listed.stderr
    odd = os.fsdecode(b"\xff\xe2\x82\xac.gguf")
    done = process("show", odd, PYTHONIOENCODING=encoding)
    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: there is no file ")
    assert b"Traceback" not in done.stderr


@posix
def test_replaced_characters_come_with_a_warning(process, tiny_home):
    (tiny_home / "models.toml").write_text(
        (tiny_home / "models.toml").read_text() + '\n[models."€"]\npath = "lost"\n', encoding="utf-8"
    )
    done = process("list", PYTHONIOENCODING="ascii")
    assert b"\n?  " in done.stdout
    assert b"Warning: some characters do not exist in ascii; '?' stands for them." in done.stderr
    assert b"\\u20ac" in process("list", "--json", PYTHONIOENCODING="ascii").stdout


def test_a_byte_order_mark_is_no_part_of_the_prompt(specli, tmp_path):
    plain = specli(*COMPLETE, "--json", stdin=b"abc").json
    assert specli(*COMPLETE, "--json", stdin=b"\xef\xbb\xbfabc").json["tokens"] == plain["tokens"]
    (tmp_path / "prompt.txt").write_bytes(b"\xef\xbb\xbfabc\n")
    assert specli(*COMPLETE, "--json", "-f", str(tmp_path / "prompt.txt")).json["tokens"] == plain["tokens"]


def test_standard_input_beside_an_argument_is_noted(specli):
    assert "3 characters of standard input come first" in specli(*COMPLETE, "xyz", stdin=b"abc").err
    assert "standard input" not in specli(*COMPLETE, "xyz", stdin=b"").err
    assert "standard input" not in specli(*COMPLETE, stdin=b"abc").err


@posix
def test_waiting_for_standard_input_is_said(tiny_home):
    command = [sys.executable, "-m", "specli", *COMPLETE, "abc"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        line = process.stderr.readline()
        assert b"Reading the prompt from standard input; </dev/null goes without" in line
        process.communicate(b"")
    assert process.returncode == 0


@posix
@pytest.mark.parametrize(
    "arguments",
    [
        ("complete", "-f", "/dev/zero"),
        ("compare", "--prompts", "/dev/zero"),
        ("compare", "--prompts", "fifo"),
        ("compare", "-o", "/dev/zero", "--resume"),
        ("chat", "-q", "--session", "/dev/zero"),
        ("chat", "-q", "--session", "fifo"),
        ("show", "/dev/zero"),
        ("show", "fifo.gguf"),
    ],
)
def test_devices_and_pipes_in_place_of_files(process, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    os.mkfifo("fifo.gguf")
    started = time.monotonic()
    done = process(*arguments)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith(b"Error: ")
    assert done.stderr.count(b"Error: ") == 1
    assert time.monotonic() - started < 20


def test_a_prompt_without_end(specli, tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(MOST + 1)
    result = specli("complete", "-f", str(tmp_path / "sparse"))
    assert (result.code, result.out) == (1, "")
    assert "it has more than 64 MiB" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--repeat-penalty", "1e-300"), "--repeat-penalty is 1e-300, but must be between 0.01 and 100"),
        (("--frequency-penalty", "1e308"), "--frequency-penalty is 1e+308, but must be between -1000 and 1000"),
        (("--logit-bias", "5=1e308"), "--logit-bias is 1e+308 for token 5"),
        (("--draft-temp", "1e308"), "--draft-temp is 1e+308, but must be between 0 and 5"),
    ],
)
def test_numbers_at_the_edge(specli, arguments, message):
    result = specli("complete", *arguments, "abc")
    assert (result.code, result.out) == (2, "")
    assert message in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--draft-length", "8", "-b", "4"), "--draft-length is 8, but drafts get 3 tokens at most here."),
        (("--draft-length", "64", "--exact"), "--draft-length is 64, but drafts get 62 tokens at most here."),
        (("--stop", r"\n"), "has a backslash and a letter in it"),
    ],
)
def test_what_has_another_effect_than_it_seems_is_said(specli, arguments, message):
    result = specli("complete", "-n", "4", *arguments, "abc")
    assert result.code == 0
    assert message in result.err


def test_a_model_without_a_chat_template_is_noted(specli, tmp_path):
    file = write_tiny_model(tmp_path / "bare.gguf", seed=1, template=None)
    assert "The model has no chat template" in specli("complete", "-m", str(file), "-n", "4", "abc").err
    assert "chat template" not in specli("complete", "--raw", "-m", str(file), "-n", "4", "abc").err


def test_a_prompt_that_begins_with_a_dash(specli):
    for prompt in ("- first item", "-quiet the room"):
        result = specli("complete", prompt)
        assert result.code == 2
        assert "A prompt that begins with '-' comes after '--'." in result.err
        assert "No such option" not in specli(*COMPLETE, "--", prompt).err
