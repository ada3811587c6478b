"""Where files lie: exactly where the first edition had them, as people have sessions, settings and caches there."""

from __future__ import annotations

import sys

import pytest

from specli.state import paths


def locations():
    return (
        paths.models_directory(),
        paths.costs_path(),
        paths.user_registry_path(),
        paths.sessions_directory(),
        paths.history_path(),
    )


def test_below_the_home_of_specli(home):
    expected = ("models", "costs.json", "models.toml", "state/sessions", "state/history")
    assert locations() == tuple(home / name for name in expected)


@pytest.mark.skipif(sys.platform != "linux", reason="each system has its own folders")
def test_where_linux_wants_them(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECLI_HOME", "")  # as good as not set
    for kind in ("CACHE", "CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    expected = (
        "CACHE/{}/models",
        "CACHE/{}/costs.json",
        "CONFIG/{}/models.toml",
        "STATE/{}/sessions",
        "STATE/{}/history",
    )
    assert locations() == tuple(tmp_path / name.format("specli") for name in expected)
