"""Conversations on disk: one JSON Lines file each, to which every event is appended as it happens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from specli.errors import SessionError
from specli.state import jsonl
from specli.state.data import Struct, checked
from specli.state.paths import sessions_directory

VERSION = 1


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """What a list of sessions shows."""

    name: str
    changed: datetime
    model: str
    first_words: str


class Session:
    """A file that events are appended to. The first event creates it, and it is locked until it is closed."""

    def __init__(self, path: Path, start: Mapping[str, Any]) -> None:
        self.path = path
        self._start = dict(start)
        self._lock: FileLock | None = None

    def lock(self) -> None:
        """Keep others from adding to the file.

        Raises:
            SessionError: somebody else has it, or there is no file.
        """
        try:
            if not self._acquire():
                message = f"the session {self.path.stem} is open in another chat."
                raise SessionError(message, "Leave that one first, or begin a new one.")
        except OSError as error:
            raise SessionError(f"cannot lock {self.path}: {error.strerror}.", "`no_session` goes without.") from None

    def _acquire(self) -> bool:
        lock = FileLock(self.path.with_name(f".{self.path.name}.lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        self._lock = lock
        return True

    def close(self) -> None:
        """Let others add to the file; safe to call twice."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def add(self, event: Mapping[str, Any]) -> None:
        """Append an event; it is on disk when this returns.

        Raises:
            SessionError: the file cannot be written.
        """
        lines = [event] if self._lock else [{"type": "start", "version": VERSION, **self._start}, event]
        try:
            if self._lock is None:
                self._create()
            jsonl.append(self.path, *lines, private=True)
        except OSError as error:
            message = f"cannot write the session {self.path}: {error.strerror}."
            raise SessionError(message, "`no_session` goes without.") from None

    def _create(self) -> None:
        """Take a name that nobody has taken, also not at this moment."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in _numbered(self.path.stem):
            self.path = self.path.with_name(f"{name}.jsonl")
            if self._acquire():
                with suppress(FileExistsError):
                    self.path.touch(mode=0o600, exist_ok=False)
                    return
                self.close()


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    yield from (f"{stem}-{number}" for number in count(2))


def new_session(start: Mapping[str, Any]) -> Session:
    """Return a session named after the present time; its file is created with its first event."""
    return Session(sessions_directory() / f"{datetime.now():%Y-%m-%d-%H%M%S}.jsonl", start)


def session_path(name: str | None) -> Path:
    """Return the file of a session: by name, by file name, or the one that was changed last.

    Raises:
        SessionError: there is none.
    """
    if name is not None and (Path(name).is_file() or Path(name).name != name):
        if not Path(name).is_file():
            raise SessionError(f"there is no session file {name}.", "/sessions lists what there is.")
        return Path(name)
    found = [path for path in sessions_directory().glob("*.jsonl") if name in (None, path.stem)]
    if not found:
        raise SessionError(f"there is no session {'yet' if name is None else repr(name)}.", "/sessions lists them.")
    return max(found, key=lambda path: path.stat().st_mtime)


def read_events(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the events of a session and how many damaged lines were skipped.

    Raises:
        SessionError: the file cannot be read, or is not a session.
    """
    try:
        found, damaged = jsonl.read(path)
    except OSError as error:
        raise SessionError(f"cannot read {path}: {error.strerror}.", "/sessions lists what there is.") from None
    events = [event for event in found if _is_whole(event)]
    damaged += len(found) - len(events)
    starts = [event for event in events if event["type"] == "start"]
    lost = damaged and any(event["type"] in _NEEDED for event in events)  # the first line, but not those after it
    if (not starts and not lost) or any(start.get("version") != VERSION for start in starts):
        raise SessionError(f"{path} is no session of this version of specli.", "/sessions lists what there is.")
    return events, damaged


class _Event(Struct):
    type: str
    content: str | None = None
    tokens: tuple[int, ...] = ()
    count: int | None = None
    model: str | None = None
    lora: tuple[str, ...] = ()


_NEEDED = {"system": "content", "user": "content", "assistant": "content", "drop": "count"}


def _is_whole(event: dict[str, Any]) -> bool:
    """Whether an event has what its type needs, of the right kinds."""
    try:
        found = checked(event, _Event)
        (found.content or "").encode()
    except ValueError:
        return False
    needed = _NEEDED.get(found.type)
    return (found.count or 0) >= 0 and (needed is None or getattr(found, needed) is not None)


def list_sessions() -> list[SessionSummary]:
    """Return all sessions, the latest first; other files are left out."""
    found = []
    for path in sessions_directory().glob("*.jsonl"):
        try:
            events, _ = read_events(path)
        except SessionError:
            continue
        words = next((str(event.get("content", "")) for event in events if event["type"] == "user"), "")
        changed = datetime.fromtimestamp(path.stat().st_mtime)
        short = re.sub(r"\s+", " ", words)[:60]
        found.append(SessionSummary(path.stem, changed, str(events[0].get("model", "")), short))
    return sorted(found, key=lambda summary: summary.changed, reverse=True)
