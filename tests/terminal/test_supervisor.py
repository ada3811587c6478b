"""The process that a shell sees: exit codes, signals at any moment, sudden deaths, and terminals."""

from __future__ import annotations

import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

termios = pytest.importorskip("termios", reason="there are no signals of this kind", exc_type=ImportError)
pty = pytest.importorskip("pty", reason="there are no pseudo-terminals", exc_type=ImportError)

# Runs specli with a target whose tenth pass does what the first argument says.
DYING = """
import ctypes, os, signal, sys
from specli.llama.model import LlamaModel
from specli.terminal.supervisor import main

def die(how):
    if how == "assertion":
        os.write(2, b"ggml.c:7: GGML_ASSERT(rows > 0) failed\\n")
        os.abort()
    if how == "exception":
        os.write(2, b"terminate called after throwing an instance of 'std::out_of_range'\\n  what():  vector\\n")
        os.abort()
    if how == "fault":
        ctypes.string_at(0)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "bus":
        os.kill(os.getpid(), signal.SIGBUS)

how, *sys.argv[1:] = sys.argv[1:]
feed, passes = LlamaModel.feed, []

def counting(model, tokens, rows):
    passes.append(rows)
    if len(passes) == 10:
        die(how)
    return feed(model, tokens, rows)

LlamaModel.feed = counting
main()
"""
REPLY = ["complete", "abc", "-n", "40", "--seed", "1", "--ignore-eos", "--no-draft"]


@pytest.fixture(autouse=True)
def default_signals():
    """What is ignored here, as under nohup, would be ignored by the processes that are started."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def environment(tiny_home):
    return {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("assertion", "llama.cpp ended specli while answering (SIGABRT): ggml.c:7: GGML_ASSERT(rows > 0) failed."),
        (
            "exception",
            "llama.cpp ended specli while answering (SIGABRT): "
            "terminate called after throwing an instance of 'std::out_of_range' what():  vector.",
        ),
        ("fault", "llama.cpp ended specli while answering (SIGSEGV)."),
        ("bus", "llama.cpp ended specli while answering (SIGBUS)."),
        ("killed", "specli was killed while answering (SIGKILL), most likely because memory ran out."),
    ],
)
def test_a_death_becomes_one_line_and_a_hint(environment, how, message):
    done = subprocess.run(
        [sys.executable, "-c", DYING, how, *REPLY], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    error, hint, *more = done.stderr.splitlines()
    assert error == f"Error: {message}"
    assert hint.startswith("Hint: ")
    assert not more
    assert done.stdout  # what was said before


@pytest.mark.parametrize(("arguments", "code"), [(["list"], 0), (["nonsense"], 2), (["show", "lost"], 1)])
def test_exit_codes_are_those_of_the_child(environment, arguments, code):
    done = subprocess.run([sys.executable, "-m", "specli", *arguments], env=environment, capture_output=True)
    assert done.returncode == code


class Terminal:
    """specli on a pseudo-terminal of its own."""

    def __init__(self, *arguments: str, env) -> None:
        self.ours, theirs = pty.openpty()
        self.before = termios.tcgetattr(self.ours)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "specli", *arguments],
            env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self._kept = theirs  # so that its state can be read when all others have closed it
        self.shown = b""

    def show_until(self, text: bytes) -> None:
        while text not in self.shown:
            assert select.select([self.ours], [], [], 30)[0], self.shown
            self.shown += os.read(self.ours, 4096)

    def finish(self) -> str:
        """Wait for the end, reading all the while, and return what was shown."""
        os.set_blocking(self.ours, False)
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline, self.shown
            ended = self.process.poll() is not None
            try:
                while data := os.read(self.ours, 65536):
                    self.shown += data
            except BlockingIOError:
                pass
            if ended:
                return self.shown.decode(errors="replace")
            select.select([self.ours], [], [], 0.05)

    @property
    def restored(self) -> bool:
        return termios.tcgetattr(self.ours) == self.before

    def close(self) -> None:
        for descriptor in (self.ours, self._kept):
            os.close(descriptor)


@pytest.fixture
def terminal(environment):
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        opened.append(Terminal(*arguments, env=environment))
        return opened[-1]

    yield start
    for one in opened:
        one.process.kill()
        one.process.wait()
        one.close()


def children_of(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGKILL, 1)]
)
def test_a_signal_at_the_prompt_gives_the_terminal_back(terminal, number, code):
    chat = terminal("chat", "--no-session", "--no-history")
    chat.show_until(b">>> ")
    (child,) = children_of(chat.process.pid)
    if number == signal.SIGINT:  # pressed, as the editor takes it as a key
        os.write(chat.ours, b"\x03")
        chat.show_until(b"Ctrl-C again leaves")
        os.write(chat.ours, b"\x03")
    else:
        os.kill(child if number == signal.SIGKILL else chat.process.pid, number)
    shown = chat.finish()
    assert chat.process.returncode == code
    assert "Traceback" not in shown
    assert chat.restored
    assert not alive(child)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_in_a_reply_gives_the_terminal_back(terminal, number, code):
    chat = terminal("chat", "--no-session", "--no-history", "--ignore-eos", "-c", "100000")
    chat.show_until(b">>> ")
    os.write(chat.ours, b"abc\r")
    chat.show_until(b"\x1b[?2004l")  # the prompt has ended
    (child,) = children_of(chat.process.pid)
    os.kill(chat.process.pid, number)
    shown = chat.finish()
    assert chat.process.returncode == code
    assert "Traceback" not in shown
    assert chat.restored
    assert not alive(child)


def test_ctrl_c_twice_in_a_reply(terminal):
    complete = terminal("complete", "abc", "--ignore-eos", "-c", "200000", "--no-draft")
    complete.show_until(b"\n")
    os.write(complete.ours, b"\x03\x03")
    shown = complete.finish()
    assert complete.process.returncode == 130
    assert "Traceback" not in shown
    assert complete.restored


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_child_ends_with_the_supervisor(environment):
    with subprocess.Popen(
        [sys.executable, "-m", "specli", *REPLY[:2], "--ignore-eos", "-c", "200000", "--no-draft"],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout.read(1)
        process.kill()
        process.stdout.read()  # ends when nobody can write to it any more


def wait_for_supervision(process):
    """Wait until the signals of a process are in the hands of the supervisor, which blocks them and then asks."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        time.sleep(0.1)
        return
    blocked = 0
    while not blocked >> (signal.SIGTERM - 1) & 1:
        assert process.poll() is None
        time.sleep(0.001)
        blocked = int(re.search(r"^SigBlk:\s*(\w+)", status.read_text(), re.MULTILINE)[1], 16)


INTERRUPTS = int(os.environ.get("SPECLI_FUZZ", 12))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_at_random_moments(environment, number):
    """Not in the first milliseconds: the interpreter ends with a traceback of its own, or by the signal itself."""
    rng = random.Random(number)
    for _ in range(INTERRUPTS):
        process = subprocess.Popen(
            [sys.executable, "-m", "specli", *REPLY], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_for_supervision(process)
        time.sleep(rng.uniform(0, 1.5))
        process.send_signal(number)
        _, shown = process.communicate(timeout=30)
        assert process.returncode in (128 + number, 0)
        assert "Traceback" not in shown
