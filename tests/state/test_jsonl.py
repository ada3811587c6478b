"""JSON Lines: whole lines survive whatever a crash leaves behind."""

from __future__ import annotations

import json
import os
import stat

import pytest

from specli.state import jsonl

FIRST, SECOND, THIRD = {"a": 1}, {"b": "é\n\u2028"}, {"c": [1, {"d": None}]}


def test_what_is_appended_is_read(tmp_path):
    path = tmp_path / "some.jsonl"
    jsonl.append(path, FIRST)
    jsonl.append(path, SECOND, THIRD)
    assert jsonl.read(path) == ([FIRST, SECOND, THIRD], 0)
    assert path.read_bytes().count(b"\n") == 3


def test_a_file_cut_at_any_byte_keeps_its_whole_lines_and_takes_new_ones(tmp_path):
    path = tmp_path / "some.jsonl"
    jsonl.append(path, FIRST, SECOND)
    whole = path.read_bytes()
    ends = [whole.index(b"\n"), len(whole) - 1]  # where the first and the second object are complete
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        kept = [FIRST, SECOND][: sum(length >= end for end in ends)]
        cut = length > 0 and length not in (ends[0], ends[0] + 1, ends[1])
        assert jsonl.read(path) == (kept, cut)
        assert path.read_bytes() == whole[:length]  # reading changes nothing
        jsonl.append(path, THIRD)
        assert jsonl.read(path) == ([*kept, THIRD], 0)


def test_damaged_lines_are_counted_and_left_alone(tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_bytes(b'{"a": 1}\nx\n[1]\n\xff\n3\n{"a": 2}\n')
    assert jsonl.read(path) == ([FIRST, {"a": 2}], 4)
    jsonl.append(path, THIRD)
    assert jsonl.read(path) == ([FIRST, {"a": 2}, THIRD], 4)


def test_every_append_reaches_the_disk(tmp_path, monkeypatch):
    path, synced = tmp_path / "some.jsonl", []
    real = os.fsync

    def fsync(descriptor):
        real(descriptor)
        synced.append(path.read_bytes())

    monkeypatch.setattr(os, "fsync", fsync)
    jsonl.append(path, FIRST)
    assert synced == [json.dumps(FIRST).encode() + b"\n"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_private_files_are_for_their_owner_only(tmp_path):
    path = tmp_path / "folder" / "some.jsonl"
    jsonl.append(path, FIRST, private=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with pytest.raises(OSError):
        jsonl.append(tmp_path / "nowhere" / "some.jsonl", FIRST)
