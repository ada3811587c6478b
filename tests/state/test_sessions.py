"""Sessions on disk: private, appended to, and readable after a crash."""

from __future__ import annotations

import json
import os
import stat

import pytest

from specli.errors import SessionError
from specli.state.sessions import list_sessions, new_session, read_events, session_path, sessions_directory

START = {"model": "tiny"}


def test_a_session_begins_with_its_first_event(home):
    session = new_session(START)
    assert not session.path.exists()
    session.add({"type": "user", "content": "é"})
    session.add({"type": "assistant", "content": "ok"})
    events, damaged = read_events(session.path)
    assert [event["type"] for event in events] == ["start", "user", "assistant"]
    assert (events[0]["model"], events[1]["content"], damaged) == ("tiny", "é", 0)
    assert stat.S_IMODE(session.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(sessions_directory().stat().st_mode) == 0o700
    other = new_session(START)
    other.add({"type": "user", "content": "é"})
    assert other.path != session.path


def test_a_line_that_was_cut_short_is_skipped_and_replaced_by_the_next_one(home):
    session = new_session(START)
    session.add({"type": "user", "content": "one"})
    whole = session.path.read_bytes()
    line = json.dumps({"type": "assistant", "content": "ok"}).encode()
    for length in (1, 10, len(line) - 1):
        session.path.write_bytes(whole + line[:length])
        events, damaged = read_events(session.path)
        assert (len(events), damaged) == (2, 1)
        session.add({"type": "user", "content": "two"})
        events, damaged = read_events(session.path)
        assert ([event.get("content") for event in events], damaged) == ([None, "one", "two"], 0)
        assert session.path.read_bytes().startswith(whole)


def test_the_list_and_finding_by_name(home):
    first, second = new_session(START), new_session({"model": "other"})
    first.add({"type": "user", "content": "hello\nworld"})
    second.path = second.path.with_name("later.jsonl")
    second.add({"type": "user", "content": "x" * 100})
    os.utime(first.path, (1, 1))
    (sessions_directory() / "broken.jsonl").write_text("no session\n")
    found = list_sessions()
    assert [one.name for one in found] == ["later", first.path.stem]
    assert (found[1].first_words, found[1].model, len(found[0].first_words)) == ("hello world", "tiny", 60)
    assert session_path(first.path.stem) == first.path
    assert session_path(str(first.path)) == first.path
    with pytest.raises(SessionError, match="no session 'nobody'"):
        session_path("nobody")


def test_there_may_be_none(home):
    assert list_sessions() == []
    with pytest.raises(SessionError, match="no session yet"):
        session_path(None)


@pytest.mark.parametrize("content", [b"", b"x\n", b"[]\n", b'{"type": "start", "version": 99}\n', b"\xff\n"])
def test_files_that_are_no_session(tmp_path, content):
    path = tmp_path / "other.jsonl"
    path.write_bytes(content)
    with pytest.raises(SessionError, match="no session of this version"):
        read_events(path)
    with pytest.raises(SessionError, match="cannot read"):
        read_events(tmp_path / "lost.jsonl")


def test_a_folder_that_cannot_be_written(home, monkeypatch):
    (home / "state").write_text("a file")
    with pytest.raises(SessionError, match="cannot write the session"):
        new_session(START).add({"type": "user", "content": "x"})
