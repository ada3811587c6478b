"""The keyboard while a model works: Ctrl-C asks it to end, other keys wait. The differences of systems are here."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupts:
    """Says, while it is entered, whether Ctrl-C was pressed; call it to ask. It may be entered again and again.

    The first Ctrl-C sets a flag, the second ends the program. An exception could arrive in the middle of a call into
    llama.cpp and be lost there, or leave a cache half changed; a flag that is checked at safe points cannot.
    """

    def __init__(self) -> None:
        self._pressed = False
        self._before: Any = None

    def __call__(self) -> bool:
        """Whether Ctrl-C was pressed since it was entered."""
        return self._pressed

    def __enter__(self) -> Interrupts:
        self._pressed = False
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self._pressed:
            sys.stdout.flush()
            os._exit(130)
        self._pressed = True


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
