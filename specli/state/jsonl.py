"""JSON Lines: a file of objects, one a line, that survives a crash in the middle of a write."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from specli.state.reading import read_file


def append(path: Path, *objects: Mapping[str, Any], private: bool = False) -> None:
    """Append objects; they are on disk when this returns. A last line that a crash has cut short is removed first.

    A `private` file, and the folder it lies in, are created so that only their owner can read them.

    Raises:
        OSError: the file cannot be written.
    """
    if private:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lines = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects).encode()
    mode = 0o600 if private else 0o666
    with open(path, "a+b", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        _finish_last_line(file)
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def _finish_last_line(file: BinaryIO) -> None:
    if file.seek(0, os.SEEK_END) == 0:
        return
    file.seek(-1, os.SEEK_END)
    if file.read() == b"\n":
        return
    file.seek(0)
    content = file.read()
    start = content.rfind(b"\n") + 1
    if _parsed(content[start:]) is None:
        file.truncate(start)
    else:
        file.write(b"\n")


def read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return all objects of a file, and how many lines are damaged: no JSON, or no objects.

    Raises:
        OSError: the file cannot be read.
    """
    lines = read_file(path).splitlines()
    objects = [content for line in lines if (content := _parsed(line)) is not None]
    return objects, len(lines) - len(objects)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
