"""What only a real process shows: a terminal, Ctrl-C, a broken pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals on this system", exc_type=ImportError)

LONG = ["complete", "abc", "-c", "200000", "--ignore-eos", "--seed", "1", "--draft-length", "4"]


@pytest.fixture
def environment(tiny_home):
    return {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "PYTHONUNBUFFERED": "1"}


# Runs specli, and writes a byte to a pipe once the target has computed the tenth token of a reply.
ANNOUNCING = """
import os, sys
from specli.llama.model import LlamaModel
from specli.terminal.app import main

class Announcing:
    feed, passes = LlamaModel.feed, 0

def feed(model, tokens, rows):
    Announcing.passes += rows > 0
    if Announcing.passes == 10:
        os.write(int(sys.argv[1]), b".")
    return Announcing.feed(model, tokens, rows)

LlamaModel.feed = feed
main(sys.argv[2:])
"""


def start(*arguments: str, env, program=("-m", "specli"), **streams) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, *program, *arguments], env=env, stdin=subprocess.DEVNULL, **streams)


def start_and_wait_for_tokens(*arguments: str, env, **streams) -> subprocess.Popen:
    """Start specli and return while it is in the middle of a reply."""
    ours, theirs = os.pipe()
    process = start(*arguments, env=env, program=("-c", ANNOUNCING, str(theirs)), pass_fds=[theirs], **streams)
    os.close(theirs)
    assert os.read(ours, 1) == b"."  # nothing if the process has ended
    os.close(ours)
    return process


def in_terminal(*arguments: str, env) -> str:
    """Run with standard output and error on a pseudo-terminal and return what it showed."""
    ours, theirs = pty.openpty()
    process = start(*arguments, env=env, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(ours)
    assert process.wait() == 0
    return shown.decode()


def test_show_draft_has_colors_and_a_legend(environment):
    shown = in_terminal("complete", "abc", "-n", "40", "--seed", "3", "--show-draft", env=environment)
    assert "accepted draft token" in shown
    assert "\x1b[32m" in shown  # green: an accepted token
    plain = in_terminal(
        "complete", "abc", "-n", "40", "--seed", "3", "--show-draft", env={**environment, "NO_COLOR": "1"}
    )
    assert "\x1b[32m" not in plain
    assert "accepted draft token" in plain


def test_a_dumb_terminal_gets_no_control_codes(environment):
    arguments = ("complete", "abc", "-n", "60", "--ignore-eos", "--seed", "3", "--draft-length", "3", "--show-draft")
    narrow = {**environment, "COLUMNS": "20"}
    assert "\x1b" in in_terminal(*arguments, env=narrow)
    shown = in_terminal(*arguments, env={**narrow, "TERM": "dumb"})
    assert "accepted" in shown
    assert not {"\x1b", "\b"} & set(shown)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
def test_a_full_disk_is_an_error_with_a_hint(environment):
    with open("/dev/full", "w") as full:
        process = start("complete", "abc", "-n", "5", "-q", env=environment, stdout=full, stderr=-1)
        _, err = process.communicate()
    assert process.returncode == 1
    assert err.decode().startswith("Error: cannot write the result: No space left on device.\nHint: ")


def test_a_pipe_gets_no_colors(environment):
    process = start("complete", "abc", "-n", "40", "--seed", "3", "--show-draft", env=environment, stdout=-1, stderr=-1)
    out, err = process.communicate()
    assert b"\x1b" not in out + err


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_keeps_the_reply(environment, as_json):
    process = start_and_wait_for_tokens(*LONG, *["--json"] * as_json, env=environment, stdout=-1, stderr=-1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err
    if as_json:
        found = json.loads(out)
        assert found["finish_reason"] == "interrupt"
        assert found["tokens"]["generated"] == len(found["tokens"]["ids"]) > 0
    else:
        assert len(out) > 1
        assert out.endswith(b"\n")
        assert b"Interrupted" in err
        assert b"tokens per target pass" in err


def test_a_closed_pipe_ends_quietly(environment):
    process = start(*LONG, env=environment, stdout=-1, stderr=-1)
    process.stdout.read1(1)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 1
    assert b"Traceback" not in err
    assert b"Error" not in err
    assert b"Exception" not in err
