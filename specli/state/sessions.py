"""Conversations on disk: one JSON Lines file each, to which every event is appended as it happens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from specli.errors import SessionError
from specli.state import jsonl
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
    """A file that events are appended to. The first event creates it."""

    def __init__(self, path: Path, start: Mapping[str, Any]) -> None:
        self.path = path
        self._start = dict(start)

    def add(self, event: Mapping[str, Any]) -> None:
        """Append an event; it is on disk when this returns.

        Raises:
            SessionError: the file cannot be written.
        """
        lines = [event] if self.path.exists() else [{"type": "start", "version": VERSION, **self._start}, event]
        try:
            jsonl.append(self.path, *lines, private=True)
        except OSError as error:
            message = f"cannot write the session {self.path}: {error.strerror}."
            raise SessionError(message, "`no_session` goes without.") from None


def new_session(start: Mapping[str, Any]) -> Session:
    """Return a session named after the present time; its file is created with its first event."""
    stem = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    path = sessions_directory() / f"{stem}.jsonl"
    number = 1
    while path.exists():
        number += 1
        path = path.with_name(f"{stem}-{number}.jsonl")
    return Session(path, start)


def session_path(name: str | None) -> Path:
    """Return the file of a session: by name, by file name, or the one that was changed last.

    Raises:
        SessionError: there is none.
    """
    if name is not None and (Path(name).is_file() or Path(name).name != name):
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
    events = [event for event in found if isinstance(event.get("type"), str)]
    damaged += len(found) - len(events)
    if not events or events[0]["type"] != "start" or events[0].get("version") != VERSION:
        raise SessionError(f"{path} is no session of this version of specli.", "/sessions lists what there is.")
    return events, damaged


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
