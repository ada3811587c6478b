"""Nothing that a chat has acknowledged is lost or mixed: kill -9 at random moments, many chats at the same instant.

SPECLI_FUZZ=N kills N chats instead of a few.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

KILLS = int(os.environ.get("SPECLI_FUZZ", 6))
CHAT = [sys.executable, "-m", "specli", "chat", "-q", "-n", "4", "--seed", "1", "--no-draft", "--no-history"]
CHAT += ["--on-full", "drop"]


@pytest.fixture
def environment(tiny_home):
    return {**os.environ, "SPECLI_HOME": str(tiny_home), "PYTHONUNBUFFERED": "1"}


def events(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def user_texts(path):
    return [event["content"] for event in events(path) if event["type"] == "user"]


@pytest.mark.skipif(os.name == "nt", reason="there is no kill -9")
def test_kills_lose_nothing(tiny_home, environment):
    rng = random.Random(1)
    folder = tiny_home / "state" / "sessions"
    acknowledged: list[str] = []
    for number in range(KILLS):
        before = set(folder.glob("*.jsonl"))
        resume = ["--resume"] if number else []
        process = subprocess.Popen(
            [*CHAT, *resume], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + rng.uniform(0.5, 1.5)
        try:
            for turn in range(1000):
                text = "".join(rng.choices("abcdefgh", k=5)) + "xyz"[turn % 3]
                process.stdin.write(f"{text}\n/params\n".encode())
                process.stdin.flush()
                while not (line := process.stdout.readline()).startswith(b"temp "):
                    assert line
                acknowledged.append(text)  # its reply was shown, and then the options
                if time.monotonic() > deadline:
                    break
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.stdin.close()
            process.stdout.read()  # until the child has ended, too
            process.stdout.close()
            process.wait()
        assert len(set(folder.glob("*.jsonl")) - before) == (number == 0)
    (path,) = folder.glob("*.jsonl")
    said = iter(user_texts(path))
    assert acknowledged
    assert all(text in said for text in acknowledged)  # in this order


def test_chats_that_start_at_the_same_instant_do_not_mix(tiny_home, environment):
    texts = [f"{letter * 3}" for letter in "abcdefgh"]
    chats = [
        subprocess.Popen(
            CHAT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        for _ in texts
    ]
    for chat, text in zip(chats, texts, strict=True):
        chat.stdin.write(f"{text}\n{text}x\n".encode())
        chat.stdin.close()
    for chat in chats:
        with chat:
            assert chat.stderr.read() == b""
        assert chat.returncode == 0
    found = sorted(user_texts(path) for path in (tiny_home / "state" / "sessions").glob("*.jsonl"))
    assert found == [[text, f"{text}x"] for text in texts]
    assert all(
        [event["type"] for event in events(path)] == ["start", "user", "assistant", "user", "assistant"]
        for path in (tiny_home / "state" / "sessions").glob("*.jsonl")
    )


def test_a_session_that_is_open_is_not_resumed(tiny_home, environment):
    first = subprocess.Popen(
        CHAT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with first:
        first.stdin.write(b"abc\n")
        first.stdin.flush()
        assert first.stdout.readline()
        second = subprocess.run([*CHAT, "--resume"], env=environment, input=b"xyz\n", capture_output=True)
        assert second.returncode == 1
        assert b"is open in another chat." in second.stderr
        first.stdin.close()
        first.stdout.read()
    third = subprocess.run([*CHAT, "--resume"], env=environment, input=b"xyz\n", capture_output=True)
    assert third.returncode == 0
