"""The examples of docs/python.md run, one after the other, as a reader would run them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def examples(name: str) -> list[tuple[int, str]]:
    """The Python blocks of a document, each with its line."""
    text = (DOCS / name).read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
    return [(text[: block.start()].count("\n") + 2, block[1]) for block in found]


EXAMPLES = examples("python.md")


@pytest.mark.parametrize(("line", "code"), EXAMPLES, ids=[f"line {line}" for line, _ in EXAMPLES])
def test_an_example_runs(line, code, model_file, monkeypatch, tmp_path, capsys):
    for name in ("smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"):
        model_file(name)
    monkeypatch.chdir(tmp_path)
    exec(compile("\n" * (line - 1) + code, "docs/python.md", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    expected = re.findall(r"# prints: (.*)$", code, flags=re.M)
    for text in expected:
        assert text in printed, f"{text!r} is not in {printed!r}"


def test_there_are_examples():
    assert len(EXAMPLES) >= 6
