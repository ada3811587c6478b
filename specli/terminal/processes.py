"""The two processes of specli where a system has signals: the one that works, and the one that waits for it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from time import monotonic

from specli.terminal import supervisor

assert sys.platform != "win32"

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE = 3  # seconds for a child to end after it was told to
_CHILD = "SPECLI_SUPERVISED"  # tells a child that was spawned, not forked, its file descriptors
_RESTORED = b"\x1b[0m\x1b[?25h\x1b[?2004l"  # no style, a cursor, no bracketed paste


def supervise(run: Callable[[], None]) -> None:
    """Have a child run something that ends it, and end with its exit code; in the child, only that is done."""
    if told := os.environ.pop(_CHILD, None):
        _become_child(*map(int, told.split(",")))
        run()
    terminal = _terminal_state()
    waited = {one for one in _ENDING if signal.getsignal(one) is not signal.SIG_IGN}  # nohup and '&' have their way
    signal.pthread_sigmask(signal.SIG_BLOCK, waited | {signal.SIGCHLD, signal.SIGALRM})
    signal.signal(signal.SIGCHLD, lambda *_: None)  # some systems drop what has no handler even while it is blocked
    notes = _new_file()
    alive, ours = os.pipe()  # the child ends when this process does: it then reads the end of the pipe
    # A fork is fast, but Apple's frameworks do not survive one.
    child = os.fork() if sys.platform == "linux" else _spawn(notes, alive)
    if child == 0:
        os.close(ours)
        _become_child(notes, alive)
        run()
    os.close(alive)
    status, told_to_end = _wait(child, waited)
    _restore(terminal, abnormal=not 0 <= status < 128)
    if -status in _ENDING:
        status = 128 - status
    if status < 0 and not told_to_end:
        os.write(2, _explanation(-status, os.pread(notes, 1 << 16, 0)).encode())
    os._exit(status if status >= 0 else 128 + told_to_end if told_to_end else 1)


def _new_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("specli")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _spawn(notes: int, alive: int) -> int:
    for descriptor in (notes, alive):
        os.set_inheritable(descriptor, True)
    environment = {**os.environ, _CHILD: f"{notes},{alive}"}
    return os.posix_spawn(sys.executable, sys.orig_argv, environment, setsigmask=[])


def _become_child(notes: int, alive: int) -> None:
    """Get ready to be supervised: catch what native code writes, and end when the supervisor does."""
    from threading import Thread

    from specli.terminal import interrupts

    supervisor.notes = notes
    if sys.stderr is not None:
        shown = os.dup(2)
        os.lseek(notes, supervisor.NOTES_TEXT, os.SEEK_SET)
        os.dup2(notes, 2)
        encoding, errors = sys.stderr.encoding, sys.stderr.errors
        sys.stderr = open(shown, "w", encoding=encoding, errors=errors, buffering=1)  # noqa: SIM115 - kept until the end

    def end_with_the_supervisor() -> None:
        os.read(alive, 1)
        os._exit(1)

    Thread(target=end_with_the_supervisor, daemon=True).start()
    interrupts.install()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_ENDING, signal.SIGCHLD, signal.SIGALRM})


def _wait(child: int, waited: set[signal.Signals]) -> tuple[int, int]:
    """Wait for the child, and pass on what is sent to this process alone.

    Returns:
        Its exit code, negative for a signal; and the signal that it was told to end with, 0 for none.
    """
    told, pressed = 0, [0.0] * 3
    while True:
        number, for_all = _next_signal({*waited, signal.SIGCHLD, signal.SIGALRM})
        if number == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status), told
        elif number == signal.SIGALRM:
            os.kill(child, signal.SIGKILL)
        else:
            if not for_all:
                os.kill(child, number)
            if number == signal.SIGINT:  # the child knows best what one or two of them mean, unless it does not answer
                pressed = [*pressed[1:], monotonic()]
            if number != signal.SIGINT or pressed[-1] - pressed[0] < _GRACE:
                told = number
                signal.alarm(_GRACE)


def _next_signal(waited: set[signal.Signals]) -> tuple[int, bool]:
    """Return the next signal, and whether the terminal sent it to all processes in the foreground."""
    if sys.platform == "linux":
        found = signal.sigwaitinfo(waited)
        return found.si_signo, found.si_code > 0
    return signal.sigwait(waited), sys.stdin is not None and sys.stdin.isatty()


def _terminal_state() -> list[object] | None:
    if not os.isatty(0):
        return None
    import termios

    return termios.tcgetattr(0)


def _restore(terminal: list[object] | None, *, abnormal: bool) -> None:
    """Give the terminal back as it was, whatever the child did to it."""
    if terminal is not None and os.tcgetpgrp(0) == os.getpgrp():
        import termios

        if termios.tcgetattr(0) != terminal:
            termios.tcsetattr(0, termios.TCSADRAIN, terminal)  # type: ignore[arg-type]
    if abnormal and os.isatty(2) and os.environ.get("TERM", "dumb") != "dumb":
        os.write(2, _RESTORED)


def _explanation(number: int, notes: bytes) -> str:
    """Return the message about a child that a signal has ended."""
    doing = notes[: supervisor.NOTES_TEXT].rstrip(b"\0").decode(errors="replace")
    lines = [
        line.strip() for line in notes[supervisor.NOTES_TEXT :].decode(errors="replace").splitlines() if line.strip()
    ]
    words = "".join(one if one.isprintable() else "?" for one in " ".join(lines[-3:]))[-300:]
    name = signal.Signals(number).name
    while_ = f" while {doing}" if doing else ""
    if number == signal.SIGKILL:
        message = f"specli was killed{while_} ({name}), most likely because memory ran out."
        hint = "A smaller model or context (-c) needs less memory; '-md none' goes without the draft model."
    else:
        message = f"llama.cpp ended specli{while_} ({name}){': ' + words.rstrip('.') if words else ''}."
        hint = "The model file or a driver may be the cause: -v shows llama.cpp's log, and '-ngl 0' goes without a GPU."
    return f"Error: {message}\nHint: {hint}\n"
