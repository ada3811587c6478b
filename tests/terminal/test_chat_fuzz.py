"""Nothing that is typed ends a chat: commands with arguments that nobody meant, from a seed; and damaged sessions.

SPECLI_FUZZ=N tries N chats and sessions instead of a few.
"""

from __future__ import annotations

import json
import os
import random

import pytest

from specli.terminal.chat.commands import COMMANDS

CASES = int(os.environ.get("SPECLI_FUZZ", 12))
PIECES = [
    "--5", "-1", "²", "5", "99999999999999999999", "0x10", "nan", "inf", "-inf", "1e400", "auto", "on", "off", "none",
    "~nouser/x", "~", "/", "..", "/dev/zero", "/dev/null", "/dev/tty", ".", "a" * 300, "a/" * 500, "\0", "x\0y", "é",
    "\udcff", "\ufeff", "\x1b]0;t\x07", "[/b]", "{}", "%s", '"', "'", '"""', "\\", "temp", "--temp", "seed", "stop",
    "logit-bias", "draft-length", "max-tokens", "1=2", "1=false", "99=1e300", "tiny-draft", "lost", "../../etc", "=",
    "user/repository:Q4", "notes.txt", "fifo", "folder", "old", "session.jsonl", " ", "\t", "//", "/x", "hello",
]  # fmt: skip
HARMLESS = [name for name in COMMANDS if name not in ("/exit", "/copy")]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with things that commands can be pointed at, and an editor that changes nothing."""
    (tmp_path / "work" / "folder").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "work" / "notes.txt").write_text("a note")
    (tmp_path / "work" / "session.jsonl").write_text('{"type": "user"}\n')
    if hasattr(os, "mkfifo"):
        os.mkfifo("fifo")
    monkeypatch.delenv("VISUAL", raising=False)
    return tmp_path


def line_of(rng: random.Random) -> str:
    command = rng.choice([*HARMLESS, "/nonsense", "/", ""])
    arguments = rng.choices(PIECES, k=rng.randrange(4))
    return " ".join([command, *arguments]).replace("\n", " ")


@pytest.mark.parametrize("seed", range(CASES))
def test_commands_that_nobody_meant(specli, place, monkeypatch, seed):
    rng = random.Random(seed)
    monkeypatch.setenv("EDITOR", rng.choice(["true", "false", '"', "", "lost-editor", "\udcff"]))
    lines = [line_of(rng) for _ in range(25)]
    typed = "\n".join([*lines, "/clear", "/set max-tokens 3", "/set seed 1", "/system none", "abc"]) + "\n"
    result = specli("chat", "-q", "-n", "3", stdin=typed.encode(errors="surrogateescape"))
    assert result.code in (0, 1)
    assert "has a fault" not in result.err, [line for line in result.err.splitlines() if "fault" in line]
    assert "Traceback" not in result.err
    assert result.out.strip()  # the last message was answered


EVENTS = [
    {"type": "start", "version": 1, "model": "tiny", "draft_model": "tiny-draft"},
    {"type": "system", "content": "be brief"},
    {"type": "user", "content": "hello"},
    {"type": "assistant", "content": "abc", "tokens": [10, 11, 12], "finish_reason": "stop", "seed": 1},
    {"type": "user", "content": "more"},
    {"type": "assistant", "content": "xyz", "tokens": [13, 14], "finish_reason": "stop", "seed": 2},
    {"type": "drop", "count": 2},
]
VALUES = [
    None,
    True,
    -1,
    0,
    3,
    10**30,
    1.5,
    "",
    "x",
    "\x1b[31m",
    [],
    [-1],
    [10**9],
    [10**30],
    ["a"],
    [[1]],
    {},
    {"a": 1},
]


def damaged(rng: random.Random) -> bytes:
    events = [dict(event) for event in EVENTS]
    for _ in range(rng.randrange(1, 4)):
        event = rng.choice(events)
        if rng.random() < 0.7:
            event[rng.choice([*event, "type", "content", "tokens", "count"])] = rng.choice(VALUES)
        else:
            event.pop(rng.choice([*event]) if event else "", None)
    lines = [json.dumps(event).encode() for event in events]
    if rng.random() < 0.3:
        lines[rng.randrange(len(lines))] = rng.choice(
            [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"null", b'"x"', b'{"type": "user", "content": "\\ud800"}']
        )
    if rng.random() < 0.3:
        cut = rng.randrange(len(lines))
        lines[cut] = lines[cut][: rng.randrange(len(lines[cut]) + 1)]
    return b"\n".join(lines) + b"\n" * rng.randrange(2)


@pytest.mark.parametrize("seed", range(CASES))
def test_damaged_sessions(specli, tiny_home, seed):
    folder = tiny_home / "state" / "sessions"
    folder.mkdir(parents=True)
    (folder / "old.jsonl").write_bytes(damaged(random.Random(seed)))
    result = specli("chat", "-q", "-n", "3", "--session", "old", stdin=b"abc\n/undo\n/regen\n")
    assert result.code in (0, 1)
    assert "has a fault" not in result.err, [line for line in result.err.splitlines() if "fault" in line]
    assert "Traceback" not in result.err
    assert result.out.strip() or "is no session" in result.err or "has no token" in result.err
