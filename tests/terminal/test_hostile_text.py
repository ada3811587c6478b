"""Text from outside on a terminal: everything that prints makes it visible, and nothing prints around that."""

from __future__ import annotations

import ast
import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from rich.console import Console

from specli.errors import SpecliError
from specli.terminal import console, reply_view

# Titles and the clipboard (OSC 0 and 52), C1 controls, bidirectional overrides, markup of rich.
HOSTILE = "a\x1b]0;title\x07b\x1b]52;c;AAAA\x07c\x9b31md\u202ee\u2066f\x00g\x7fh[/b][bold]i\r"
FORBIDDEN = set("\x1b\x07\x9b\u202e\u2066\x00\x7f\r")


class TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch):
    """Return what a terminal gets when a function prints, less the styles and movements that rich itself adds."""
    stream = TerminalStream()
    for name in ("output", "errors"):
        fake = Console(file=stream, force_terminal=True, color_system=None, width=400, highlight=False)
        monkeypatch.setattr(console, name, fake)

    def run(printing) -> str:
        with redirect_stdout(stream), redirect_stderr(stream):
            printing()
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r(?=\n|\x1b)", "", stream.getvalue())

    return run


def progress() -> None:
    with console.counting(HOSTILE) as update:
        update(1, 2, HOSTILE)
    with console.waiting(HOSTILE) as tell:
        tell(HOSTILE)
    with console.FetchReport() as report:
        report.say(HOSTILE)
        report.progress(HOSTILE, 1, 2)


def reply(view) -> None:
    with view:
        view.add(HOSTILE, "accepted")
        view.end()


PRINTING = {
    "write": lambda: console.write(HOSTILE),
    "write_log": lambda: console.write_log(HOSTILE),
    "print_line": lambda: console.print_line(HOSTILE),
    "print_lines": lambda: console.print_lines([HOSTILE]),
    "print_error": lambda: console.print_error(SpecliError(HOSTILE, HOSTILE)),
    "warn": lambda: console.warn(HOSTILE, HOSTILE),
    "note": lambda: console.note(HOSTILE),
    "print_turn": lambda: console.print_turn("user", HOSTILE),
    "print_table": lambda: console.print_table(["title"], [[HOSTILE]]),
    "print_facts": lambda: console.print_facts([("name", HOSTILE)]),
    "print_json": lambda: console.print_json({HOSTILE: HOSTILE}),
    "progress": progress,
    "plain reply": lambda: reply(reply_view.PlainReply(show_draft=True)),
    "Markdown reply": lambda: reply(reply_view.MarkdownReply()),
}


@pytest.mark.parametrize("name", PRINTING)
def test_control_characters_are_made_visible(shown, name):
    text = shown(PRINTING[name])
    assert not FORBIDDEN & set(text)
    assert "title" in text
    assert "[/b][bold]i" in text or name == "Markdown reply"


def test_every_public_function_that_prints_is_tested():
    tree = ast.parse(Path(console.__file__).read_text())
    public = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}
    quiet = {"set_quiet", "visible", "bytes_text", "stats_line", "print_stats", "counting", "waiting"}
    assert public - quiet <= set(PRINTING)


# Where text may be printed: the two modules above, our own questions, and what does not print on the terminal.
PRINTERS = {
    "terminal/console.py", "terminal/reply_view.py", "terminal/chat/editor.py", "terminal/interrupts.py",
    "terminal/processes.py", "terminal/app.py", "llama/rendering.py",
}  # fmt: skip


def test_nothing_prints_around_them():
    package = Path(console.__file__).parents[1]
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name == "print" or name.endswith((".print", "stdout.write", "stderr.write")) or name == "os.write":
                    found.add(path.relative_to(package).as_posix())
    assert found - PRINTERS <= set()


def test_json_of_hostile_text_is_the_same_json(shown):
    assert json.loads(shown(lambda: console.print_json({"text": HOSTILE}))) == {"text": HOSTILE}
