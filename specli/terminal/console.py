"""Everything that is drawn on a terminal; the only place that imports rich.

Knows styles, tables and progress. Must not know models or how to decode. What was asked for (text, tables, JSON)
goes to standard output; progress, figures and warnings go to standard error.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich import box
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from specli.decoding.metrics import Metrics
from specli.errors import SpecliError

# A pipe has no width that a table should be folded to.
_output = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 1000)
_errors = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())
_quiet = False

# Each kind differs by more than its colour.
ORIGIN_STYLES = {
    "accepted": ("green", "accepted draft token"),
    "recovered": ("bold yellow", "recovered after a rejection"),
    "bonus": ("underline cyan", "bonus after a whole draft"),
    "target": ("", ""),  # no draft in this round
}


_END = "\x1b[0m"  # of any style


def set_quiet(quiet: bool) -> None:
    """Keep progress, figures and notes to ourselves; warnings and errors are always shown."""
    global _quiet
    _quiet = quiet


def output_is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return _output.is_terminal


def write(text: str) -> None:
    """Write generated text at once; on a terminal without commands to it."""
    sys.stdout.write(visible(text) if _output.is_terminal else text)
    sys.stdout.flush()


class ReplyWriter(Protocol):
    """Shows a reply as it comes; entered before the first piece."""

    def __enter__(self) -> ReplyWriter:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""

    def add(self, text: str, origin: str) -> None:
        """Show a piece."""

    def end(self, tail: str) -> None:
        """Show the end of the text, and begin a new line."""


class PlainReply:
    """Shows a reply as it is; on a terminal with colours by origin if wanted, and with thoughts dimmed."""

    def __init__(self, *, show_draft: bool = False, dim_thoughts: bool = False) -> None:
        self._show_draft = show_draft
        self._wrap = _WordWrap(_output.width)
        self._draws = _output.is_terminal and not _output.is_dumb_terminal
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
            sys.stdout.write(self._wrap.add(visible(text), _begin(style)))
            sys.stdout.flush()
        else:
            write(text)

    def _style(self, dim: bool) -> None:
        self._thinking = dim
        if not _output.no_color:
            sys.stdout.write("\x1b[2m" if dim else "\x1b[0m")

    def end(self, tail: str) -> None:
        """Show the end of the text, and begin a new line."""
        self._write(tail)
        last = tail or self._newest
        if last and not last.endswith("\n"):
            write("\n")


def _begin(style: str) -> str:
    """Return what switches the terminal to a style; '' for none, and where there are no colours."""
    if not style or _output.no_color:
        return ""
    return _output.get_style(style).render("|", color_system=ColorSystem.STANDARD).partition("|")[0]


class _WordWrap:
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
    """Shows a reply as Markdown: each block is rendered again while it grows, and printed for good when it is whole."""

    def __init__(self) -> None:
        self._block = ""
        self._live = Live(console=_output, auto_refresh=False, transient=True, vertical_overflow="crop")

    def __enter__(self) -> MarkdownReply:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def add(self, text: str, origin: str) -> None:
        """Show a piece."""
        self._block += visible(text)
        whole, self._block = split_blocks(self._block)
        if whole:
            self._live.update("", refresh=True)
            _output.print(Markdown(whole), soft_wrap=False)
            _output.print()
        height = max(1, _output.height - 2)
        self._live.update(Text("\n".join(self._block.splitlines()[-height:])), refresh=True)

    def end(self, tail: str) -> None:
        """Print what is left."""
        rest = self._block + visible(tail)
        self._live.update("", refresh=True)
        self._live.stop()
        if rest.strip():
            _output.print(Markdown(rest), soft_wrap=False)


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


def visible(text: str) -> str:
    """Make control characters visible, so that a model's text cannot command the terminal."""
    return "".join(_visible(character) for character in text) if not text.isprintable() else text


def _visible(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf") or character in "\u200d\u200c\ufe0f":
        return character
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"<U+{code:04X}>"


def print_legend() -> None:
    """Say what the colours of `--show-draft` mean."""
    if _quiet:
        return
    _errors.print(Text("  ").join(Text(meaning, style=style) for style, meaning in ORIGIN_STYLES.values() if meaning))


def print_json(content: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


def print_line(text: str) -> None:
    """Print a line of a result."""
    _output.print(text, markup=False)


def print_error(error: SpecliError) -> None:
    """Print an error in one line, and its hint in another."""
    _print_message("Error", "bold red", error.message, error.hint)


def warn(message: str, hint: str | None = None) -> None:
    """Print a warning, also when quiet."""
    _print_message("Warning", "bold yellow", message, hint)


def note(message: str) -> None:
    """Print something that may be good to know."""
    if not _quiet:
        _errors.print(Text(message, style="dim"))


def _print_message(kind: str, style: str, message: str, hint: str | None) -> None:
    _errors.print(Text.assemble((f"{kind}: ", style), visible(message).replace("\n", " ")))
    if hint:
        _errors.print(Text.assemble(("Hint: ", "bold"), visible(hint)))


def print_turn(role: str, content: str) -> None:
    """Print an earlier message of a conversation."""
    style = "bold cyan" if role == "user" else ""
    _errors.print(Text.assemble((">>> " if role == "user" else "", style), (visible(content), style or "dim")))


def print_table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; each column is (title, whether it holds numbers)."""
    table = Table(box=box.SIMPLE_HEAD if _output.is_terminal else None, pad_edge=False, header_style="bold")
    for title, numbers in columns:
        table.add_column(title, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    _output.print(table, soft_wrap=False)


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair a line."""
    if not _output.is_terminal:
        width = max(len(name) for name, _ in facts)
        for name, value in facts:
            print(f"{name:<{width}}  {value}")
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(name), Text(visible(value)))
    _output.print(table, soft_wrap=False)


def print_stats(metrics: Metrics) -> None:
    """Print how a reply went, in one dim line."""
    if not _quiet:
        _errors.print(Text(stats_line(metrics), style="dim"))


def stats_line(metrics: Metrics) -> str:
    """Say how a reply went: tokens and rates, acceptance, time to the first token, shares of the time."""
    parts = [f"prompt {metrics.prompt} tokens{_rate(metrics.prefill_tokens_per_second)}"]
    if metrics.cached:
        parts[0] += f" ({metrics.cached} cached)"
    parts.append(f"reply {metrics.generated} tokens{_rate(metrics.tokens_per_second)}")
    if metrics.tested:
        rate = 100 * metrics.accepted / metrics.tested
        parts.append(f"accepted {metrics.accepted}/{metrics.tested} ({rate:.0f} %)")
        parts.append(f"{metrics.mean_accepted_length:.2f} tokens per target pass")
    if metrics.paused and not metrics.drafted:
        parts.append("no drafts: none promised to pay")
    elif metrics.paused:
        parts.append(f"no draft for {metrics.paused} of {metrics.rounds} passes")
    if metrics.generated:
        parts.append(f"first token {metrics.first_token_seconds:.2f} s")
        total = metrics.decode_seconds or 1.0
        shares = (metrics.draft_seconds, metrics.verify_seconds, metrics.other_seconds)
        percents = (100 * seconds / total for seconds in shares)
        parts.append("time: draft {:.0f} %, verification {:.0f} %, rest {:.0f} %".format(*percents))
    return " · ".join(parts)


def _rate(tokens_per_second: float | None) -> str:
    return f" at {tokens_per_second:.1f}/s" if tokens_per_second is not None else ""


def bytes_text(count: int | None) -> str:
    """Return a number of bytes for people."""
    if count is None:
        return "?"
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count} bytes"


class FetchReport:
    """Shows a fetch: a bar with speed and size on a terminal, single lines elsewhere."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=_errors,
            disable=not _errors.is_terminal or _quiet,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> FetchReport:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, message: str) -> None:
        """Print a line above the bar."""
        if not _quiet:
            self._bar.console.print(Text(visible(message).replace("\n", " "), style="yellow"))

    def progress(self, activity: str, done: int, total: int) -> None:
        """Move the bar of an activity."""
        if activity not in self._tasks:
            self._tasks[activity] = self._bar.add_task(activity, total=total, completed=done)
            if self._bar.disable:
                note(f"{activity} ({bytes_text(total)})")
        self._bar.update(self._tasks[activity], completed=done, total=total)


@contextmanager
def counting(activity: str) -> Iterator[Callable[..., None]]:
    """Show on a terminal how far something is and how long it will take.

    Call what it yields with (done, total), and with what is being done if that changes.
    """
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=_errors,
        transient=True,
        disable=not _errors.is_terminal or _quiet,
    ) as progress:
        task = progress.add_task(activity, total=None)

        def update(done: int, total: int, doing: str = activity) -> None:
            progress.update(task, description=doing, completed=done, total=total)

        yield update


@contextmanager
def waiting(message: str) -> Iterator[Any]:
    """Show on a terminal that something goes on; call what it yields with a new message. Nothing is left behind."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        console=_errors,
        transient=True,
        disable=not _errors.is_terminal or _quiet,
    ) as progress:
        task = progress.add_task(message)

        def update(text: str) -> None:
            progress.update(task, description=text)

        yield update
