"""Files that are replaced as a whole, or not at all."""

from __future__ import annotations

import os

import pytest

from specli.state import atomic


def test_the_content_is_replaced(tmp_path):
    path = tmp_path / "some.json"
    atomic.write_text(path, "old")
    atomic.write_text(path, "é")
    assert path.read_text(encoding="utf-8") == "é"
    assert list(tmp_path.iterdir()) == [path]


def test_an_exception_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "some.json"
    atomic.write_text(path, "old")
    with pytest.raises(KeyboardInterrupt), atomic.replacing(path) as unfinished:
        assert (unfinished.parent, unfinished.suffix) == (tmp_path, ".json")
        unfinished.write_text("half of the n")
        assert path.read_text() == "old"
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_refuses(tmp_path, monkeypatch, step):
    path = tmp_path / "some.json"
    atomic.write_text(path, "old")

    def refuse(*_):
        raise OSError("refused")

    monkeypatch.setattr(os, step, refuse)
    with pytest.raises(OSError, match="refused"):
        atomic.write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError):
        atomic.write_text(tmp_path / "nowhere" / "some.json", "new")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_the_usual_permissions(tmp_path):
    (tmp_path / "plain").touch()
    atomic.write_text(tmp_path / "some.json", "new")
    assert (tmp_path / "some.json").stat().st_mode == (tmp_path / "plain").stat().st_mode
