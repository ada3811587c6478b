"""The process that a shell sees. It runs specli proper in a child, waits, and explains a death that Python could not.

llama.cpp ends its process when an assertion fails, and drivers and damaged files can end it, too. The child does all
the work, this process nothing: it costs a millisecond, and no speed. Both are in the terminal's process group, so that
Ctrl-C, Ctrl-Z and pipes work as with a single process. What native code writes to standard error is caught in a file:
the last words of a child that died.

This module imports next to nothing: from its first line on, Ctrl-C ends the program without a traceback. Windows has no
signals of this kind; there specli runs without a supervisor.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` is made of; loading that takes five milliseconds
import os

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, lambda number, _frame: os._exit(128 + number))

import signal
import sys

_ENDING = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
_GRACE = 3  # seconds for a child to end after it was told to
_TEXT = 1024  # bytes of the notes that say what is being done; what native code writes comes after them
_CHILD = "SPECLI_SUPERVISED"  # tells a child that was spawned, not forked, its file descriptors
_RESTORED = b"\x1b[0m\x1b[?25h\x1b[?2004l"  # no style, a cursor, no bracketed paste

_notes: int | None = None  # in the child: the file that the supervisor reads when the child has died


def main() -> None:
    """Run specli and end the process with its exit code."""
    _open_closed_descriptors()
    if not hasattr(os, "fork"):
        from specli.terminal import interrupts

        interrupts.install()
        _run()
    if told := os.environ.pop(_CHILD, None):
        _become_child(*map(int, told.split(",")))
        _run()
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
        _run()
    os.close(alive)
    status, told_to_end = _wait(child, waited)
    _restore(terminal, abnormal=not 0 <= status < 128)
    if -status in _ENDING:
        status = 128 - status
    if status < 0 and not told_to_end:
        os.write(2, _explanation(-status, os.pread(notes, 1 << 16, 0)).encode())
    os._exit(status if status >= 0 else 128 + told_to_end if told_to_end else 1)


def doing(what: str) -> None:
    """Say what is being done, for the message that appears if this process dies in the middle of it."""
    if _notes is not None:
        text = what[:1].lower() + what[1:]
        os.pwrite(_notes, text.encode(errors="replace")[:_TEXT].ljust(_TEXT, b"\0"), 0)


def _run() -> None:
    from specli.terminal import streams

    streams.prepare()  # before the first look at them
    from specli.terminal.app import run

    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # while Python cleans up, a signal is no longer in our hands, and there is nothing to clean up


def _open_closed_descriptors() -> None:
    """Keep files that are opened later from taking the place of a standard stream that was closed."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _new_file() -> int:
    if hasattr(os, "memfd_create"):
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
    global _notes
    from threading import Thread

    from specli.terminal import interrupts

    _notes = notes
    if sys.stderr is not None:
        shown = os.dup(2)
        os.lseek(notes, _TEXT, os.SEEK_SET)
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
    told, interrupts = 0, 0
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
            interrupts += number == signal.SIGINT
            if number != signal.SIGINT or interrupts > 1:  # the first Ctrl-C may only end a reply
                told = number
                signal.alarm(_GRACE)


def _next_signal(waited: set[signal.Signals]) -> tuple[int, bool]:
    """Return the next signal, and whether the terminal sent it to all processes in the foreground."""
    if hasattr(signal, "sigwaitinfo"):
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
    doing = notes[:_TEXT].rstrip(b"\0").decode(errors="replace")
    lines = [line.strip() for line in notes[_TEXT:].decode(errors="replace").splitlines() if line.strip()]
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
