"""What is printed on a terminal, other than replies: lines, messages, tables and progress.

What was asked for (text, tables, JSON) goes to standard output; progress, figures and warnings go to standard error.
Text that comes from outside (models, files, hosts, people) is made visible before a terminal gets it, here and in
`reply_view`: nothing else prints.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box, progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specli.decoding.metrics import Metrics
from specli.errors import SpecliError
from specli.models.storage import Report
from specli.terminal import streams
from specli.terminal.options import spelled
from specli.terminal.supervisor import doing

if TYPE_CHECKING:
    from specli.engine.reply import Reply

# A pipe has no width that a table should be folded to.
output = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 1000)
errors = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())
_quiet = False


def set_quiet(quiet: bool) -> None:
    """Keep progress, figures and notes to ourselves; warnings and errors are always shown."""
    global _quiet
    _quiet = quiet


def write(text: str) -> None:
    """Write generated text at once; on a terminal without commands to it."""
    sys.stdout.write(visible(text) if output.is_terminal else text)
    sys.stdout.flush()


def visible(text: str) -> str:
    """Make control characters visible, so that text from outside cannot command the terminal."""
    return "".join(_visible(character) for character in text) if not text.isprintable() else text


def _visible(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf") or character in "\u200d\u200c\ufe0f":
        return character
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"<U+{code:04X}>"


def write_log(text: str) -> None:
    """Write a piece of llama.cpp's log."""
    sys.stderr.write(visible(text))


def print_json(content: Any) -> None:
    """Print one JSON document, with escapes for what a terminal would obey or standard output cannot take."""
    text = json.dumps(content, indent=2, ensure_ascii=not streams.takes_everything(), allow_nan=False)
    unsafe = {ord(one): json.dumps(one)[1:-1] for one in set(text) if one != "\n" and _visible(one) != one}
    print(text.translate(unsafe))


def print_line(text: str) -> None:
    """Print a line of a result."""
    output.print(visible(text) if output.is_terminal else text, markup=False)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of a result."""
    for line in lines:
        print_line(line)


def print_error(error: SpecliError) -> None:
    """Print an error in one line, and its hint in another."""
    _print_message("Error", "bold red", error.message, error.hint)


def warn(message: str, hint: str | None = None) -> None:
    """Print a warning, also when quiet."""
    _print_message("Warning", "bold yellow", message, hint)


def note(message: str | Text) -> None:
    """Print something that may be good to know."""
    if not _quiet:
        errors.print(Text(visible(message), style="dim") if isinstance(message, str) else message)


def _print_message(kind: str, style: str, message: str, hint: str | None) -> None:
    errors.print(Text.assemble((f"{kind}: ", style), visible(spelled(message)).replace("\n", " ")))
    if hint:
        errors.print(Text.assemble(("Hint: ", "bold"), visible(spelled(hint))))


def print_turn(role: str, content: str) -> None:
    """Print an earlier message of a conversation."""
    style = "bold cyan" if role == "user" else ""
    errors.print(Text.assemble((">>> " if role == "user" else "", style), (visible(content), style or "dim")))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; columns of numbers are aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD if output.is_terminal else None, pad_edge=False, header_style="bold")
    for title, *cells in zip(titles, *rows, strict=True):
        numbers = all(re.fullmatch(r"([-+]?\d\S*( %| ms| s| [kMG]?B| bytes)?)?", cell) for cell in cells)
        table.add_column(title, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    output.print(table, soft_wrap=False)


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair a line."""
    if not output.is_terminal:
        width = max(len(name) for name, _ in facts)
        for name, value in facts:
            print(f"{name:<{width}}  {visible(value)}")
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(name), Text(visible(value)))
    output.print(table, soft_wrap=False)


def print_stats(reply: Reply) -> None:
    """Print how a reply went, in one dim line."""
    note(f"{stats_line(reply.metrics)} · seed {reply.seed}")


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
    if metrics.undrafted_rounds and not metrics.drafted:
        parts.append("no drafts: none was worth it")
    elif metrics.undrafted_rounds:
        parts.append(f"no draft for {metrics.undrafted_rounds} of {metrics.rounds} passes")
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


class FetchReport(Report):
    """Shows a fetch: a bar with speed and size on a terminal, single lines elsewhere."""

    def __init__(self) -> None:
        columns = progress.DownloadColumn(), progress.TransferSpeedColumn(), progress.TimeRemainingColumn()
        self._bar = _progress(progress.BarColumn(), *columns)
        self._tasks: dict[str, progress.TaskID] = {}

    def __enter__(self) -> FetchReport:
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
            self._bar.start()
            doing(activity)
            self._tasks[activity] = self._bar.add_task(visible(activity), total=total, completed=done)
            if self._bar.disable:
                note(f"{activity} ({bytes_text(total)})")
        self._bar.update(self._tasks[activity], completed=done, total=total)


def _progress(*columns: progress.ProgressColumn, transient: bool = False) -> progress.Progress:
    text = progress.TextColumn("{task.description}", markup=False)
    return progress.Progress(
        text, *columns, console=errors, transient=transient, disable=not errors.is_terminal or _quiet
    )


@contextmanager
def counting(activity: str) -> Iterator[Callable[..., None]]:
    """Show on a terminal how far something is and how long it will take.

    Call what it yields with (done, total), and with what is being done if that changes.
    """
    columns = progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeRemainingColumn()
    with _progress(*columns, transient=True) as bars:
        task = bars.add_task(visible(activity), total=None)

        def update(done: int, total: int, now: str = activity) -> None:
            doing(now)
            bars.update(task, description=visible(now), completed=done, total=total)

        yield update


@contextmanager
def waiting(message: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal that something goes on; call what it yields with a new message. Nothing is left behind."""
    with _progress(progress.SpinnerColumn(), transient=True) as bars:
        task = bars.add_task(visible(message))

        def update(text: str) -> None:
            doing(text)
            bars.update(task, description=visible(text))

        update(message)
        yield update
        doing("")
