from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass

import pytest

from specli.llama.binding import show_log
from specli.terminal import console
from specli.terminal.app import run

REGISTRY = """
[defaults]
target = "tiny"

[models.tiny]
path = "{target}"
license = "MIT"
draft = "tiny-draft"

[models.tiny-draft]
path = "{draft}"

[models.lost]
path = "lost.gguf"
"""


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def tiny_home(home, tiny_file, tiny_draft_file):
    """A home whose registry knows the tiny pair as the default."""
    (home / "models.toml").write_text(REGISTRY.format(target=tiny_file, draft=tiny_draft_file))
    return home


@pytest.fixture
def specli(tiny_home, monkeypatch, capfd):
    """Run specli in this process; the result has the exit code and what was printed on each stream."""

    def call(*arguments: str, stdin: bytes | None = None) -> Result:
        source = io.TextIOWrapper(io.BytesIO(stdin or b""), encoding="utf-8", errors="surrogateescape")
        if stdin is None:
            monkeypatch.setattr(source, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stdin", source)
        try:
            code = run(list(arguments))
        finally:
            console.set_quiet(False)
            show_log(None)
        return Result(code, *capfd.readouterr())

    return call
