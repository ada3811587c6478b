"""Ctrl-C while a model works: the first one asks it to end, the second ends the program.

Knows signals. Must not know what is being interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any


class Interrupts:
    """Says, while it is entered, whether Ctrl-C was pressed; call it to ask. It may be entered again and again.

    An exception could arrive in the middle of a call into llama.cpp and be lost there, or leave a cache half
    changed; a flag that is asked for at safe places cannot.
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
