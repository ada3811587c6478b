"""`specli chat` in a real terminal: keys, history, Ctrl-C, a full context, and a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import sys

import pytest

pexpect = pytest.importorskip("pexpect")
if not hasattr(pexpect, "spawn"):
    pytest.skip("there are no pseudo-terminals on this system", allow_module_level=True)

# The editor asks for marked pastes when it begins to read keys, and shows its prompt at once after that.
PROMPT = r"\x1b\[\?2004h(?:(?!\x1b\[\?2004l)[\s\S])*?>>> "
REPLY = r"(?:[a-z ,.!?<>|/]+\r\n){5}"  # five lines, each of a few tokens
STATS_END = r"rest(?:\s|\x1b\[[0-9;]*m)+\d+(?:\s|\x1b\[[0-9;]*m)+%"  # wherever the line is folded
# Letters only: no token ends the reply, and none is a control token, which has no text.
ENDLESS = ["-c", "200000", *(word for token in range(5) for word in ("--logit-bias", f"{token}=false"))]


@pytest.fixture
def start(tiny_home):
    running = []

    def call(*arguments: str):
        # pexpect is no terminal that answers where its cursor is.
        environment = {**os.environ, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"}
        environment |= {"SPECLI_HOME": str(tiny_home), "EDITOR": "true"}
        command = ["-m", "specli", "chat", "-t", "1", "--temp", "0", *arguments]
        child = pexpect.spawn(
            sys.executable, command, env=environment, encoding="utf-8", timeout=60, dimensions=(30, 100)
        )
        child.delaybeforesend = None
        child.expect(PROMPT)
        running.append(child)
        return child

    yield call
    for child in running:
        child.close(force=True)


def events(home) -> list[dict]:
    paths = sorted((home / "state" / "sessions").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    return [json.loads(line) for line in paths[-1].read_text().splitlines()]


def said(home, kind: str = "user") -> list[str]:
    return [event["content"] for event in events(home) if event["type"] == kind]


def send(child, text: str) -> None:
    child.send(text + "\r")
    child.expect(STATS_END)
    child.expect(PROMPT)


def test_a_day_in_the_chat(start, tiny_home):
    child = start("-n", "12")
    child.send("ab\x1b\rcd\r")  # Alt-Enter between the lines
    child.expect(STATS_END)
    child.expect(PROMPT)
    child.send("\x1b[200~one\ntwo\x1b[201~\r")  # a paste is one message
    child.expect(STATS_END)
    child.expect(PROMPT)
    child.send('"""x\ry\r"""\r')
    child.expect(STATS_END)
    child.expect(PROMPT)
    assert said(tiny_home) == ["ab\ncd", "one\ntwo", "x\ny"]
    child.send("/set temp 9\r")
    child.expect("--temp is 9.0, but must be between 0 and 5")
    child.expect(PROMPT)
    child.send("/regen\r")
    child.expect(STATS_END)
    child.expect(PROMPT)
    child.send("/undo\r")
    child.expect("Taken back: x y")
    child.expect(PROMPT)
    assert [event["type"] for event in events(tiny_home)][-3:] == ["retract", "assistant", "undo"]
    child.send("/sys\t")
    child.expect("/system")
    child.sendcontrol("c")
    child.expect("Ctrl-C again leaves")
    child.expect(PROMPT)
    child.sendcontrol("c")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130


def test_history_across_two_starts(start, tiny_home):
    child = start("-n", "3")
    send(child, "hello")
    child.sendcontrol("d")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    history = tiny_home / "state" / "history"
    assert history.stat().st_mode & 0o777 == 0o600
    child = start("-n", "3")
    send(child, "\x1b[A")  # the key for up
    assert said(tiny_home) == ["hello"]
    child = start("-n", "3", "--no-history")
    child.send("\x1b[A\x1b[A\r/exit\r")
    child.expect(pexpect.EOF)


def test_ctrl_c_in_a_reply_keeps_it_and_the_conversation_goes_on(start, tiny_home):
    child = start(*ENDLESS)
    child.send("abc\r")
    child.expect(REPLY)
    child.sendcontrol("c")
    child.expect("Stopped; what was said so far stays")
    child.expect(PROMPT)
    (reply,) = [event for event in events(tiny_home) if event["type"] == "assistant"]
    assert reply["finish_reason"] == "interrupt"
    assert len(reply["tokens"]) > 10
    child.send("/set max-tokens 5\r")
    child.expect(PROMPT)
    child.send("hello\r")
    child.expect(r"prompt (\d+) tokens[^\(]*\((\d+) cached\)")
    prompt, cached = map(int, child.match.groups())
    assert cached >= len(reply["tokens"])
    assert prompt - cached < 60
    child.expect(PROMPT)
    assert said(tiny_home) == ["abc", "hello"]


def test_a_full_context_asks(start, tiny_home):
    child = start("-n", "8", "-c", "256")
    long = "abc " * 30
    send(child, long)
    child.send(long + "\r")
    child.expect(r"\[d\]rop")
    child.send("x\r")
    child.expect(r"\[d\]rop")
    child.send("d\r")
    child.expect("Dropped the oldest message and its reply: abc")
    child.expect(STATS_END)
    child.expect(PROMPT)
    child.send(long + "\r")
    child.expect(r"\[d\]rop")
    child.send("s\r")
    child.expect(PROMPT)
    assert [event["type"] for event in events(tiny_home)][-2:] == ["user", "undo"]
    child.send(long + "\r")
    child.expect(r"\[d\]rop")
    child.send("c\r")
    child.expect(STATS_END)
    child.expect(PROMPT)
    assert [event["type"] for event in events(tiny_home)][-3:] == ["clear", "user", "assistant"]


def test_a_kill_loses_only_the_reply_in_flight(start, tiny_home):
    child = start("-n", "12")
    send(child, "abc")
    child.sendcontrol("d")
    child.expect(pexpect.EOF)
    kept = said(tiny_home, "assistant")
    child = start("--resume", *ENDLESS)
    child.send("hello\r")
    child.expect(REPLY)
    assert said(tiny_home) == ["abc", "hello"]
    child.kill(signal.SIGKILL)
    child.expect(pexpect.EOF)
    child = start("--resume", "-n", "12")
    assert said(tiny_home) == ["abc", "hello"]
    assert said(tiny_home, "assistant") == kept
    send(child, "/regen")
    assert len(said(tiny_home, "assistant")) == 2


def test_markdown_and_colors(start, tiny_home):
    child = start("-n", "40", "--markdown", "--temp", "2", "--seed", "3", "--top-k", "0")
    send(child, "abc")
    child = start("-n", "40", "--show-draft", "--draft-length", "3")
    child.send("abc\r")
    child.expect(re.escape("\x1b[32m"))  # green: accepted
    child.expect(PROMPT)


def test_a_dumb_terminal_gets_plain_lines(tiny_home):
    environment = {**os.environ, "TERM": "dumb", "SPECLI_HOME": str(tiny_home)}
    command = ["-m", "specli", "chat", "-t", "1", "-n", "5"]
    child = pexpect.spawn(sys.executable, command, env=environment, encoding="utf-8", timeout=60)
    child.delaybeforesend = None
    child.expect("/help lists")
    child.sendline("abc")
    child.expect(STATS_END)
    child.sendline("/exit")
    child.expect(pexpect.EOF)
    assert "\x1b" not in child.before
