"""Ctrl-C and other signals that end a program, and the keyboard while a model works.

No exception is raised from a signal, except while a line is read: one could arrive in the middle of a call into
llama.cpp and be lost there, in an import, or in what cleans up. Either a flag is set, which is checked at safe points,
or the process ends at once, after helper processes and half-written files are cleaned up.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from specli.state.unfinished import clean_up

_listeners: list[Interrupts] = []  # those that are entered; the last one is told
_reading = False


def install() -> None:
    """Take over the signals that end a program, except those that whoever started it wants ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def _on_signal(number: int, _frame: object) -> None:
    if number == signal.SIGINT and _reading:
        raise KeyboardInterrupt
    if number == signal.SIGINT and _listeners and not _listeners[-1].pressed:
        _listeners[-1].pressed = True
        return
    clean_up()
    with suppress(Exception):  # a stream may be closed, or in the middle of a write
        sys.stdout.flush()
        if number == signal.SIGINT:
            sys.stderr.write("\nInterrupted.\n")
            sys.stderr.flush()
    os._exit(128 + number)


class Interrupts:
    """Says, while it is entered, whether Ctrl-C was pressed; call it to ask. It may be entered again and again.

    The first Ctrl-C sets a flag, the second ends the program.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def __call__(self) -> bool:
        """Whether Ctrl-C was pressed since it was entered."""
        return self.pressed

    def __enter__(self) -> Interrupts:
        self.pressed = False
        _listeners.append(self)
        self._before = signal.signal(signal.SIGINT, _on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        _listeners.remove(self)


@contextmanager
def reading() -> Iterator[None]:
    """Let Ctrl-C interrupt the reading of a line: it raises KeyboardInterrupt there."""
    global _reading
    _reading = True
    try:
        yield
    finally:
        _reading = False


@contextmanager
def quiet_keys() -> Iterator[None]:
    """Keep what is typed from appearing in the middle of a reply; it is read afterwards. Not on Windows."""
    if sys.platform == "win32":
        yield
        return
    import termios

    try:
        before = termios.tcgetattr(sys.stdin)
        silent = [*before]
        silent[3] &= ~termios.ECHO
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, silent)
    except (OSError, ValueError, termios.error):  # not a terminal
        yield
        return
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
