"""Files that are replaced as a whole: a reader finds the old content or the new, never half of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specli.state.unfinished import cleaning_up


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give an empty file in the same folder, with the same suffix, that becomes `path` when the block ends.

    After an exception it is deleted instead, and `path` is as it was.

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    unfinished = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        with cleaning_up(unfinished.unlink):
            unfinished.touch(exist_ok=False)
            yield unfinished
            with unfinished.open("r+b") as file:
                os.fsync(file.fileno())
            os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace the content of a file; raises as `replacing` does."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
