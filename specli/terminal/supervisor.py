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

import sys

NOTES_TEXT = 1024  # bytes of the notes that say what is being done; what native code writes comes after them
notes: int | None = None  # in the child: the file that the supervisor reads when the child has died


def main() -> None:
    """Run specli and end the process with its exit code."""
    _open_closed_descriptors()
    if sys.platform == "win32":
        from specli.terminal import interrupts

        interrupts.install()
        _run()
    else:
        from specli.terminal.processes import supervise

        supervise(_run)


def doing(what: str) -> None:
    """Say what is being done, for the message that appears if this process dies in the middle of it."""
    if sys.platform != "win32" and notes is not None:
        text = what[:1].lower() + what[1:]
        os.pwrite(notes, text.encode(errors="replace")[:NOTES_TEXT].ljust(NOTES_TEXT, b"\0"), 0)


def _run() -> None:
    from specli.terminal import streams

    streams.prepare()  # before the first look at them
    from specli.state.unfinished import clean_up
    from specli.terminal.app import run

    code = run(sys.argv[1:])
    clean_up()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # while Python cleans up, a signal is no longer in our hands


def _open_closed_descriptors() -> None:
    """Keep files that are opened later from taking the place of a standard stream that was closed."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
