"""Ctrl-C while a model works: the first one asks it to end, the second ends the program.

Knows signals. Must not know what is being interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether Ctrl-C was pressed.

    An exception could arrive in the middle of a call into llama.cpp and be lost there, or leave a cache half
    changed; a flag that is asked for at safe places cannot.
    """
    pressed = False

    def on_signal(_number: int, _frame: object) -> None:
        nonlocal pressed
        if pressed:
            sys.stdout.flush()
            os._exit(130)
        pressed = True

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
