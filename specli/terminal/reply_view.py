"""A reply on the terminal while it comes: colors by origin, whole words, dimmed thoughts, Markdown."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import closing, nullcontext

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from specli.decoding.loop import PromptProgress
from specli.engine.reply import Piece, Reply, ReplyEvent
from specli.terminal import console
from specli.terminal.supervisor import doing

# Each kind differs by more than its color.
ORIGIN_STYLES = {
    "accepted": ("green", "accepted draft token"),
    "recovered": ("bold yellow", "recovered after a rejection"),
    "bonus": ("underline cyan", "bonus after a whole draft"),
    "target": ("", ""),  # no draft in this round
}
_END = "\x1b[0m"  # of any style


def stream_reply(events: Generator[ReplyEvent], shown: PlainReply | MarkdownReply | None) -> Reply:
    """Show a reply as it comes, and return it whole."""
    with closing(events):  # before its models are, whatever happens here
        with console.waiting("Reading the prompt") as show:
            event = next(events)
            while isinstance(event, PromptProgress):
                show(f"Reading the prompt: {event.done} of {event.total} tokens")
                event = next(events)
        doing("answering")
        with shown or nullcontext():
            while not isinstance(event, Reply):
                if isinstance(event, Piece) and shown is not None:
                    shown.add(event.text, event.origin)
                event = next(events)
            if shown is not None:
                shown.end()
    return event


class PlainReply:
    """Shows a reply as it is; on a terminal with colors by origin if wanted, and with thoughts dimmed."""

    def __init__(self, *, show_draft: bool = False, dim_thoughts: bool = False) -> None:
        self._show_draft = show_draft
        self._wrap = WordWrap(console.output.width)
        self._draws = console.output.is_terminal and not console.output.is_dumb_terminal
        self._dim = dim_thoughts and self._draws
        self._thinking = False
        self._newest = ""

    def __enter__(self) -> PlainReply:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thinking:
            self._style(False)

    def add(self, text: str, origin: str) -> None:
        """Show a piece."""
        self._newest = text or self._newest
        if self._dim and text.lstrip().startswith("<think>"):
            self._style(True)
        self._write(text, ORIGIN_STYLES[origin][0] if self._show_draft and not self._thinking else "")
        if self._thinking and "</think>" in text:
            self._style(False)

    def _write(self, text: str, style: str = "") -> None:
        if self._draws:
            sys.stdout.write(self._wrap.add(console.visible(text), _begin(style)))
            sys.stdout.flush()
        else:
            console.write(text)

    def _style(self, dim: bool) -> None:
        self._thinking = dim
        if not console.output.no_color:
            sys.stdout.write("\x1b[2m" if dim else "\x1b[0m")

    def end(self) -> None:
        """Begin a new line after the last piece."""
        if self._newest and not self._newest.endswith("\n"):
            console.write("\n")


def _begin(style: str) -> str:
    """Return what switches the terminal to a style; '' for none, and where there are no colors."""
    if not style or console.output.no_color:
        return ""
    return console.output.get_style(style).render("|", color_system=ColorSystem.STANDARD).partition("|")[0]


class WordWrap:
    """Moves a word that reaches the right edge to the next line, also when its beginning is on the screen already."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._column = 0
        self._word: list[tuple[str, str]] = []  # what is on the screen of the present word: characters and styles

    def add(self, text: str, style: str = "") -> str:
        """Return what to write for the next piece of text; a style is what switches the terminal to it."""
        written = "".join(self._add(character, style) for character in text)
        return f"{style}{written}{_END}" if style else written

    def _add(self, character: str, style: str) -> str:
        if character in "\n\t ":
            self._word = []
            self._column = (
                0 if character == "\n" else (self._column // 8 + 1) * 8 if character == "\t" else self._column + 1
            )
            if character == " " and self._column > self._width:
                self._column = 0
                return "\n"
            return character
        size = cell_len(character)
        moved, length = "", sum(cell_len(one) for one, _ in self._word)
        if self._column + size > self._width:
            if 0 < length < self._width // 2:
                again = "".join(f"{before}{one}{_END}" if before else one for one, before in self._word)
                moved = "\b" * length + (_END if style else "") + "\x1b[K\n" + again + style
                self._column = length
            else:  # a long word is cut, wherever it reaches the edge
                moved, self._column, self._word = "\n", 0, []
        self._word.append((character, style))
        self._column += size
        return moved + character


class MarkdownReply:
    """Shows a reply as Markdown: each block is rendered again while it grows, and finalized once complete."""

    def __init__(self) -> None:
        self._block = ""
        self._live = Live(console=console.output, auto_refresh=False, transient=True, vertical_overflow="crop")

    def __enter__(self) -> MarkdownReply:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def add(self, text: str, origin: str) -> None:
        """Show a piece."""
        self._block += console.visible(text)
        whole, self._block = split_blocks(self._block)
        if whole:
            self._live.update("", refresh=True)
            console.output.print(Markdown(whole), soft_wrap=False)
            console.output.print()
        height = max(1, console.output.height - 2)
        self._live.update(Text("\n".join(self._block.splitlines()[-height:])), refresh=True)

    def end(self) -> None:
        """Print the last block."""
        self._live.update("", refresh=True)
        self._live.stop()
        if self._block.strip():
            console.output.print(Markdown(self._block), soft_wrap=False)


def split_blocks(text: str) -> tuple[str, str]:
    """Cut Markdown after its last empty line that is not inside a block of code: what is whole, and the rest."""
    whole = at = 0
    fenced = False
    for line in text.splitlines(keepends=True):
        at += len(line)
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and not line.strip() and line.endswith("\n"):
            whole = at
    return text[:whole], text[whole:]


def print_legend() -> None:
    """Say what the colors of `--show-draft` mean."""
    console.note(Text("  ").join(Text(meaning, style=style) for style, meaning in ORIGIN_STYLES.values() if meaning))
