"""Where a person types: an editor with history and completion on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from specli.errors import OptionError
from specli.terminal import console
from specli.terminal.interrupts import Interrupts, reading

PROMPT, MORE = ">>> ", "... "
QUOTES = '"""'


class LineReader(Protocol):
    """Reads one message after the other."""

    def read(self) -> str:
        """Return the next message.

        Raises:
            EOFError: there is none.
            KeyboardInterrupt: Ctrl-C was pressed.
        """


def make_reader(commands: Sequence[str], history: Path | None) -> LineReader:
    """Return the editor, or a reader of plain lines unless input and output are a terminal that can do more.

    The commands are completed. The file of what was typed earlier is for its owner only; None keeps nothing.
    """
    terminal = os.environ.get("TERM", "" if os.name == "nt" else "dumb")  # Windows sets no such variable
    if sys.stdin.isatty() and sys.stdout.isatty() and terminal != "dumb":
        return _Editor(commands, history)
    return _Lines()


def read_line() -> str:
    """Return a line of standard input; Ctrl-C raises KeyboardInterrupt meanwhile."""
    with reading():
        return sys.stdin.readline()


def ask(question: str) -> str:
    """Return what is typed after a question; raises as `LineReader.read` does."""
    sys.stderr.write(question)
    sys.stderr.flush()
    line = read_line()
    if not line:
        raise EOFError
    return line.strip()


class _Lines:
    """Each line is a message, and so are the lines between triple quotes."""

    def read(self) -> str:
        if sys.stdin.isatty():
            sys.stderr.write(PROMPT)
            sys.stderr.flush()
        line = read_line()
        if not line:
            raise EOFError
        text = line.rstrip("\r\n")
        while text.startswith(QUOTES) and not _closed(text):
            line = read_line()
            if not line:
                console.warn(f"the input ended before the closing {QUOTES}.", "The message is sent as far as it goes.")
                break
            text += "\n" + line.rstrip("\r\n")
        return unquoted(text)


def _closed(text: str) -> bool:
    return len(text.rstrip()) >= 2 * len(QUOTES) and text.rstrip().endswith(QUOTES)


def unquoted(text: str) -> str:
    """Return a message without the triple quotes around it."""
    if not text.startswith(QUOTES):
        return text
    return text.removeprefix(QUOTES).rstrip().removesuffix(QUOTES).strip("\n")


class _Editor:
    """prompt_toolkit: Enter sends, Alt-Enter begins a new line, a paste is one message."""

    def __init__(self, commands: Sequence[str], history: Path | None) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion, PathCompleter
        from prompt_toolkit.document import Document
        from prompt_toolkit.formatted_text import FormattedText
        from prompt_toolkit.history import FileHistory, History, InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

        class Commands(Completer):
            """Completes commands, and file names after commands that take one."""

            def __init__(self) -> None:
                self._paths = PathCompleter(expanduser=True)

            def get_completions(self, document: Document, complete_event: object) -> Iterable[Completion]:
                text = document.text_before_cursor
                name, space, rest = text.partition(" ")
                if not name.startswith("/") or "\n" in text:
                    return
                if not space:
                    yield from (Completion(one, -len(text)) for one in commands if one.startswith(text))
                elif name in ("/read", "/save", "/load"):
                    yield from self._paths.get_completions(Document(rest), complete_event)  # type: ignore[arg-type]

        keys = KeyBindings()

        @keys.add("enter")
        def send(event: KeyPressEvent) -> None:
            text = event.current_buffer.text
            if text.startswith(QUOTES) and not _closed(text):
                event.current_buffer.insert_text("\n")
            else:
                event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        @keys.add("escape", "c-j")
        def new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        kept: History = InMemoryHistory()
        if history is not None and history.exists() and not history.is_file():
            console.warn(f"{history} is not a file, so what is typed is not remembered.", "Move it away.")
        elif history is not None:
            history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            history.touch(mode=0o600)
            kept = FileHistory(str(history))
        self._prompt = FormattedText([("bold ansicyan", PROMPT)])
        self._more = FormattedText([("ansibrightblack", MORE)])
        self._session: PromptSession[str] = PromptSession(
            history=kept,
            multiline=True,
            key_bindings=keys,
            completer=Commands(),
            complete_while_typing=False,
            prompt_continuation=lambda width, line, wrapped: "" if wrapped else self._more,
            enable_open_in_editor=False,
        )

    def read(self) -> str:
        return unquoted(self._session.prompt(self._prompt))


def edit(text: str) -> str:
    """Open a text in $VISUAL or $EDITOR, and return the edited text.

    Raises:
        OptionError: there is no editor, or it failed.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ("notepad" if os.name == "nt" else "vi")
    handle, name = tempfile.mkstemp(suffix=".md", prefix="specli-")
    path = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        with Interrupts():  # Ctrl-C is for the editor
            done = subprocess.run([*shlex.split(editor, posix=os.name != "nt"), name], check=False, stderr=sys.stderr)
        if done.returncode != 0:
            raise OptionError(f"the editor {editor!r} ended with {done.returncode}.", "Your text was not changed.")
        return path.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"cannot use the editor {editor!r}: {reason}.", "Set EDITOR to another.") from None
    finally:
        path.unlink(missing_ok=True)
