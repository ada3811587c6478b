"""The loop of a chat: read a message or a command, answer it, and go on after what failed."""

from __future__ import annotations

import sys

from specli.errors import ContextFullError, Interrupted
from specli.terminal import console
from specli.terminal.app import as_error
from specli.terminal.chat import commands
from specli.terminal.chat.editor import LineReader
from specli.terminal.chat.state import Chat


def hold(chat: Chat, reader: LineReader) -> int:
    """Read and answer until the user leaves; return the exit code."""
    hinted = False
    code = 0  # for scripts: 1 once something failed
    while True:
        try:
            text = reader.read()
        except EOFError:
            return code
        except KeyboardInterrupt:
            if hinted:
                return Interrupted.exit_code
            console.note("Ctrl-C again leaves, and so does Ctrl-D or /exit.")
            hinted = True
            continue
        hinted = False
        try:
            _handle(chat, text)
        except commands.Leave:
            return code
        except ContextFullError as error:
            if not sys.stdin.isatty():
                raise
            console.print_error(error)
        except Interrupted:
            console.note("Stopped.")
        except Exception as error:  # nothing that is typed ends a chat
            console.print_error(as_error(error))
            if not sys.stdin.isatty():
                code = 1


def _handle(chat: Chat, text: str) -> None:
    if text.startswith("//"):
        chat.say(text[1:])
    elif text.startswith("/"):
        commands.run(chat, text)
    elif text.strip():
        chat.say(text)
