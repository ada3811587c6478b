"""Options on the command line: how each field of an option class is spelled as a flag, and how flags become objects.

Help and bounds stand beside the fields (`specli.options`); here are only names, and words for what a shell cannot say.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, get_args, get_origin

import typer

from specli.engine.options import ReplyOptions
from specli.errors import OptionError
from specli.options import declared

MODELS, SAMPLING, SPECULATION, OUTPUT = "Models and machine", "Sampling", "Speculation", "Output"


def _draft_length(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise OptionError(
            f"`draft_length` is {text!r}, but must be 'auto', or a whole number.", "auto is the default."
        ) from None


def _bias(text: str) -> tuple[int, float]:
    token, _, value = text.partition("=")
    try:
        number = float("-inf") if value == "false" else float(value)
        if int(token) < 0 or number != number or number == float("inf"):
            raise ValueError
        return int(token), number
    except ValueError:
        raise OptionError(
            f"`logit_bias` is {text!r}, but must be a token id, '=', and a number or 'false'.",
            "For instance 1234=-2.5; 'specli complete --json' shows token ids.",
        ) from None


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a field is written on the command line, where that is not `--` and its name."""

    names: tuple[str, ...] = ()
    metavar: str = ""
    none: int | str | None = None  # stands for None
    read: Callable[[str], Any] | None = None  # makes a value of text, or one entry of a tuple
    panel: str = ""


SPELLINGS = {
    "temperature": Spelling(("--temp",), "T"),
    "top_k": Spelling(metavar="K"),
    "top_p": Spelling(metavar="P"),
    "min_p": Spelling(metavar="P"),
    "logit_bias": Spelling(metavar="ID=X", read=_bias),
    "seed": Spelling(none=-1),
    "draft_length": Spelling(metavar="N|auto", none="auto", read=_draft_length, panel=SPECULATION),
    "drafter": Spelling(panel=SPECULATION),
    "verification": Spelling(panel=SPECULATION),
    "draft_temperature": Spelling(("--draft-temp",), "T", panel=SPECULATION),
    "max_tokens": Spelling(("-n", "--max-tokens"), none=-1, panel=OUTPUT),
    "tokens": Spelling(("-n", "--max-tokens")),
    "stop": Spelling(metavar="TEXT", read=str, panel=OUTPUT),
    "ignore_eos": Spelling(panel=OUTPUT),
    "context": Spelling(("-c", "--context"), panel=MODELS),
    "batch": Spelling(("-b", "--batch"), panel=MODELS),
    "threads": Spelling(("-t", "--threads"), panel=MODELS),
    "gpu_layers": Spelling(("-ngl", "--gpu-layers"), panel=MODELS),
    "draft_gpu_layers": Spelling(("-ngld", "--draft-gpu-layers"), panel=MODELS),
    "exact": Spelling(panel=MODELS),
    "kind": Spelling(("--type",)),
    "destination": Spelling(("-o", "--output")),
}


def flag(field: str) -> str:
    """Return the long flag of a field."""
    names = SPELLINGS.get(field, Spelling()).names or (f"--{field.replace('_', '-')}",)
    return next(name for name in names if name.startswith("--"))


def spelled(text: str) -> str:
    """Return a message with flags in place of the fields that it names in backquotes."""
    return re.sub(r"`([a-z_]+)`", lambda found: flag(found[1]), text)


# --- Option classes of the terminal itself --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which models."""

    model: Annotated[
        str | None,
        typer.Option(
            "-m",
            "--model",
            help="Target model: a name of 'specli list', a .gguf file, or user/repository[:quant].",
            metavar="MODEL",
            envvar="SPECLI_MODEL",
            rich_help_panel=MODELS,
        ),
    ] = None
    draft_model: Annotated[
        str | None,
        typer.Option(
            "-md",
            "--draft-model",
            help="Draft model, named like the target; with 'none' drafts are only looked up in the text. Default: the "
            "one that belongs to the target.",
            metavar="MODEL",
            envvar="SPECLI_DRAFT_MODEL",
            rich_help_panel=MODELS,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What is printed beside the result."""

    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead.", rich_help_panel=OUTPUT)
    ] = False
    quiet: Annotated[
        bool,
        typer.Option(
            "-q", "--quiet", help="Print nothing but the result, warnings and errors.", rich_help_panel=OUTPUT
        ),
    ] = False
    verbose: Annotated[
        int,
        typer.Option(
            "-v", "--verbose", count=True, help="Show llama.cpp's log; -vv also tracebacks.", rich_help_panel=OUTPUT
        ),
    ] = 0


class OnFull(StrEnum):
    """What happens when the context is full."""

    ASK = "ask"
    DROP = "drop"
    STOP = "stop"


Prompts = Annotated[
    str,
    typer.Option(
        "--prompts",
        help="What to ask: 'builtin', some of its classes as in 'builtin:code,story', or a file with one prompt a "
        "line, or JSONL with prompt, class and system.",
        metavar="FILE|builtin[:CLASS,...]",
        rich_help_panel=OUTPUT,
    ),
]
ShowDraft = Annotated[
    bool,
    typer.Option(
        "--show-draft", help="Color the text by where each token came from (on a terminal).", rich_help_panel=OUTPUT
    ),
]
NoDraft = Annotated[
    bool, typer.Option("--no-draft", help="Disable drafting, like --draft-length 0.", rich_help_panel=SPECULATION)
]
System = Annotated[str | None, typer.Option("-s", "--system", help="System prompt.", metavar="TEXT")]


def seeded(reply: ReplyOptions) -> ReplyOptions:
    """Return options with a seed, a new one if there is none: reports name the seed that gives them again."""
    return reply if reply.seed is not None else reply.changed(seed=secrets.randbits(32))


# --- From flags to values --------------------------------------------------------------------------------------------


def read_value(name: str, value: Any) -> Any:
    """Return the value of a field from that of its flag.

    Raises:
        OptionError: it cannot be read.
    """
    spelling = SPELLINGS.get(name, Spelling())
    if spelling.none is not None and value == spelling.none:
        return None
    if spelling.read is None:
        return value
    return tuple(map(spelling.read, value or ())) if not isinstance(value, str) else spelling.read(value)


def settable() -> dict[str, str]:
    """Return what can be set while a chat goes on: fields of replies by the names of their flags."""
    names = [name for kind in (type(ReplyOptions().sampling), ReplyOptions) for name in declared(kind)]
    return {flag(name).removeprefix("--"): name for name in names}


def with_setting(reply: ReplyOptions, field: str, text: str) -> ReplyOptions:
    """Return reply options with one field changed to what was typed, read and checked like its flag.

    Raises:
        OptionError: the value cannot be used.
    """
    kind, _ = (declared(ReplyOptions) | declared(type(reply.sampling)))[field]
    spelling = SPELLINGS.get(field, Spelling())
    if get_origin(kind) is tuple:
        return reply.changed(**{field: read_value(field, [] if text == "none" else shlex.split(text))})
    plain = next((one for one in (kind, *get_args(kind)) if one in (bool, int, float)), str)
    if plain is bool:
        if text not in ("on", "off"):
            raise OptionError(f"`{field}` is {text!r}, but must be on or off.", field=field)
        return reply.changed(**{field: text == "on"})
    try:
        value = text if spelling.read else plain(text)
    except ValueError:
        number = "a number" if plain is float else "a whole number"
        raise OptionError(
            f"`{field}` is {text!r}, but must be {number}.", "/params shows the present values.", field=field
        ) from None
    return reply.changed(**{field: read_value(field, value)})


def setting_text(reply: ReplyOptions, field: str) -> str:
    """Return the value of a field as it would be typed."""
    value = getattr(reply if hasattr(reply, field) else reply.sampling, field)
    if field == "logit_bias":
        return (
            " ".join(f"{token}={'false' if bias == float('-inf') else f'{bias:g}'}" for token, bias in value) or "none"
        )
    if isinstance(value, tuple):
        return " ".join(map(repr, value)) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(SPELLINGS.get(field, Spelling()).none or "auto") if value is None else str(value)
