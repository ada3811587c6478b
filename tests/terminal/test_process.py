"""What only a real process shows: a terminal, Ctrl-C, a broken pipe."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

LONG = ["complete", "abc", "-c", "200000", "--ignore-eos", "--seed", "1", "--draft-length", "4"]


@pytest.fixture
def environment(tiny_home):
    return {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "PYTHONUNBUFFERED": "1"}


def start(*arguments: str, env, **streams) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "specli", *arguments], env=env, stdin=subprocess.DEVNULL, **streams)


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


def test_show_draft_has_colours_and_a_legend(environment):
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


def test_a_pipe_gets_no_colours(environment):
    process = start("complete", "abc", "-n", "40", "--seed", "3", "--show-draft", env=environment, stdout=-1, stderr=-1)
    out, err = process.communicate()
    assert b"\x1b" not in out + err


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_keeps_the_reply(environment, as_json):
    if as_json:  # llama.cpp's log shows when both models are loaded
        process = start(*LONG, "--json", "-v", env=environment, stdout=-1, stderr=-1)
        contexts = 0
        while contexts < 2:
            contexts += b"compute buffer size" in process.stderr.readline()
        first = b""
    else:
        process = start(*LONG, env=environment, stdout=-1, stderr=-1)
        first = process.stdout.read1(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err
    if as_json:
        found = json.loads(out)
        assert found["finish_reason"] == "interrupt"
        assert found["tokens"]["generated"] == len(found["tokens"]["ids"])
    else:
        assert (first + out).endswith(b"\n")
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
