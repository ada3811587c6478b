"""What must not be left behind when the program ends at once: half-written files, helper processes."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_actions: list[Callable[[], object]] = []


@contextmanager
def cleaning_up(action: Callable[[], object]) -> Iterator[None]:
    """Have an action done if the program ends at once inside the block."""
    _actions.append(action)
    try:
        yield
    finally:
        _actions.remove(action)


def at_the_end(action: Callable[[], object]) -> None:
    """Have an action done when the program ends, at once or not."""
    _actions.append(action)
    atexit.register(action)


def clean_up() -> None:
    """Do all actions, the newest first; for a process that is about to end."""
    for action in reversed(_actions):
        with suppress(Exception):
            action()
