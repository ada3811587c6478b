"""Options on the command line: how each field of an option class is spelled as a flag, and how flags become objects.

Help and bounds stand beside the fields (`specli.options`); here are only names, and words for what a shell cannot say.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from specli.decoding.options import SamplingOptions
from specli.engine.options import ReplyOptions
from specli.errors import OptionError
from specli.llama.options import LoadOptions
from specli.options import Option, declared

MODELS, SAMPLING, SPECULATION, OUTPUT = "Models and machine", "Sampling", "Speculation", "Output"


def _draft_length(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        message = f"`draft_length` is {text!r}, but must be 'auto', or a whole number."
        raise OptionError(message, "auto is the default.") from None


def _bias(text: str) -> tuple[int, float]:
    token, _, value = text.partition("=")
    try:
        number = float("-inf") if value == "false" else float(value)
        if int(token) < 0 or number != number or number == float("inf"):
            raise ValueError
        return int(token), number
    except ValueError:
        message = f"`logit_bias` is {text!r}, but must be a token id, '=', and a number or 'false'."
        raise OptionError(message, "For instance 1234=-2.5; 'specli complete --json' shows token ids.") from None


def _adapter(text: str) -> tuple[str, float]:
    """Return a file and its scale; a file's name may have an equals sign, too."""
    path, _, scale = text.rpartition("=")
    try:
        return (path, float(scale)) if path else (text, 1.0)
    except ValueError:
        return text, 1.0


def _overrides(text: str) -> list[tuple[str, str]]:
    """Return patterns with their buffers; commas separate them, and patterns may have commas, too."""
    found = re.findall(r"(.+?)=([^=,]+)(?:,|$)", text)
    if not found or ",".join("=".join(pair) for pair in found) != text:
        message = f"`override_tensor` is {text!r}, but must be a pattern, '=', and a buffer."
        raise OptionError(message, r"For instance 'blk\.0\.ffn_.*=CPU'.")
    return found


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a field is written on the command line, where that is not `--` and its name."""

    names: tuple[str, ...] = ()
    metavar: str = ""
    panel: str = ""  # where help shows it, if not with the others of its class
    none: int | str | None = None  # stands for None
    read: Callable[[str], Any] | None = None  # makes a value of text, or one entry of a tuple
    read_all: Callable[[str], Sequence[Any]] | None = None  # makes several entries of a tuple of one text
    more: Mapping[str, Any] = field(default_factory=dict)  # for typer


SPELLINGS = {
    "temperature": Spelling(("--temp",), "T"),
    "top_k": Spelling(metavar="K"),
    "top_p": Spelling(metavar="P"),
    "min_p": Spelling(metavar="P"),
    "logit_bias": Spelling(metavar="ID=X", read=_bias),
    "seed": Spelling(panel=SAMPLING, none=-1),
    "draft_length": Spelling(metavar="N|auto", none="auto", read=_draft_length),
    "draft_temperature": Spelling(("--draft-temp",), "T"),
    "no_draft": Spelling(panel=SPECULATION),
    "max_tokens": Spelling(("-n", "--max-tokens"), panel=OUTPUT, none=-1),
    "stop": Spelling(metavar="TEXT", panel=OUTPUT, read=str),
    "ignore_eos": Spelling(panel=OUTPUT),
    "show_draft": Spelling(panel=OUTPUT),
    "as_json": Spelling(("--json",)),
    "quiet": Spelling(("-q", "--quiet")),
    "verbose": Spelling(("-v", "--verbose"), more={"count": True}),
    "prompts": Spelling(metavar="FILE|builtin[:CLASS,...]", panel=OUTPUT),
    "model": Spelling(("-m", "--model"), "MODEL", more={"envvar": "SPECLI_MODEL"}),
    "draft_model": Spelling(("-md", "--draft-model"), "MODEL", more={"envvar": "SPECLI_DRAFT_MODEL"}),
    "context": Spelling(("-c", "--context")),
    "batch": Spelling(("-b", "--batch")),
    "threads": Spelling(("-t", "--threads")),
    "gpu_layers": Spelling(("-ngl", "--gpu-layers")),
    "draft_gpu_layers": Spelling(("-ngld", "--draft-gpu-layers")),
    "lora": Spelling(metavar="FILE[=SCALE]", read=_adapter),
    "cache_type_k": Spelling(("-ctk", "--cache-type-k")),
    "cache_type_v": Spelling(("-ctv", "--cache-type-v")),
    "flash_attention": Spelling(("-fa", "--flash-attn")),
    "devices": Spelling(("-dev", "--devices", "--device"), "NAME,...", read_all=lambda text: text.split(",")),
    "override_tensor": Spelling(("-ot", "--override-tensor"), "PATTERN=BUFFER", read_all=_overrides),
    "cpu_moe": Spelling(("-cmoe", "--cpu-moe")),
    "system": Spelling(("-s", "--system")),
    "prompt_file": Spelling(("-f", "--file")),
    "session_name": Spelling(("--session",), "NAME"),
    "file": Spelling(("-o", "--output")),
    "destination": Spelling(("-o", "--output")),
    "kind": Spelling(("--type",), "TYPE"),
    "draft_models": Spelling(("-md", "--draft-model"), "MODEL"),
    "draft_lengths": Spelling(("--draft-length",), "N,N,..."),
    "verifications": Spelling(("--verification",), "RULE,RULE,..."),
    "temperatures": Spelling(("--temp",), "T,T,..."),
    "repeats": Spelling(("-r", "--repeats")),
    "tokens": Spelling(("-n", "--max-tokens")),
    "time_limit": Spelling(metavar="MINUTES"),
}


def flag(name: str) -> str:
    """Return the long flag of a field."""
    names = SPELLINGS.get(name, Spelling()).names or (f"--{name.replace('_', '-')}",)
    return next(one for one in names if one.startswith("--"))


def spelled(text: str) -> str:
    """Return a message with flags in place of the fields that it names in backquotes."""
    return re.sub(r"`([a-z_]+)`", lambda found: flag(found[1]), text)


# --- Option classes of the terminal itself --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which models."""

    model: Annotated[
        str | None, Option("Target model: a name of 'specli list', a .gguf file, or user/repository[:quant].")
    ] = None
    draft_model: Annotated[
        str | None,
        Option(
            "Draft model, named like the target; with 'none' drafts are only looked up in the text. Default: the one "
            "that belongs to the target."
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What is printed beside the result."""

    as_json: Annotated[bool, Option("Print one JSON document instead.")] = False
    quiet: Annotated[bool, Option("Print nothing but the result, warnings and errors.")] = False
    verbose: Annotated[int, Option("Show llama.cpp's log; -vv also tracebacks.")] = 0


@dataclass(frozen=True, slots=True)
class Grid:
    """What `specli compare` compares: every combination."""

    draft_models: Annotated[
        list[str] | None, Option("Draft model, named like the target, or 'none' as elsewhere; may be repeated.")
    ] = None
    draft_lengths: Annotated[str, Option("Draft lengths or auto; 0 is the baseline once more.")] = "auto,4"
    verifications: Annotated[str, Option("Accept rules.")] = "block"
    temperatures: Annotated[str, Option("Temperatures.")] = "0,0.8"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much `specli compare` measures."""

    repeats: Annotated[int, Option("Timed replies to each prompt in each setting.")] = 2
    tokens: Annotated[int, Option("Tokens of each timed reply.")] = 96
    time_limit: Annotated[float, Option("Start no prompt after so many minutes; 0 is no limit.")] = 10.0


@dataclass(frozen=True, slots=True)
class Requirements:
    """What makes `specli compare` fail."""

    require_speedup: Annotated[float | None, Option("Exit 3 unless the best setting is this much faster.")] = None
    require_identical: Annotated[bool, Option("Exit 3 if a text at temperature 0 differs from the baseline's.")] = False


PANELS: dict[type, str] = {SamplingOptions: SAMPLING, ReplyOptions: SPECULATION, LoadOptions: MODELS}
PANELS |= {ModelOptions: MODELS, OutputOptions: OUTPUT}


class OnFull(StrEnum):
    """What happens when the context is full."""

    ASK = "ask"
    DROP = "drop"
    STOP = "stop"


Prompts = Annotated[
    str,
    Option(
        "What to ask: 'builtin', some of its classes as in 'builtin:code,story', or a file with one prompt a line, or "
        "JSONL with prompt, class and system."
    ),
]
ShowDraft = Annotated[bool, Option("Color the text by where each token came from (on a terminal).")]
NoDraft = Annotated[bool, Option("Disable drafting, like --draft-length 0.")]
System = Annotated[str | None, Option("System prompt.")]
Plot = Annotated[Path | None, Option("Draw the result into a .png or .svg file.")]


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
    if spelling.read_all is not None:
        return tuple(entry for text in value or () for entry in spelling.read_all(text))
    if spelling.read is None:
        return value
    return tuple(map(spelling.read, value or ())) if not isinstance(value, str) else spelling.read(value)


def settable() -> dict[str, str]:
    """Return what can be set while a chat goes on: fields of replies by the names of their flags."""
    names = [*declared(SamplingOptions), *declared(ReplyOptions)]
    return {flag(name).removeprefix("--"): name for name in names}


def with_setting(reply: ReplyOptions, field: str, text: str) -> ReplyOptions:
    """Return reply options with one field changed to what was typed, read and checked like its flag.

    Raises:
        OptionError: the value cannot be used.
    """
    kind, _ = (declared(ReplyOptions) | declared(SamplingOptions))[field]
    spelling = SPELLINGS.get(field, Spelling())
    if get_origin(kind) is tuple:
        try:
            parts = [] if text == "none" else shlex.split(text)
        except ValueError as error:
            raise OptionError(f"`{field}` is {text!r}: {error}.", "Quote as in a shell.", field=field) from None
        return reply.changed(**{field: read_value(field, parts)})
    plain = next((one for one in (kind, *get_args(kind)) if one in (bool, int, float)), str)
    if plain is bool:
        if text not in ("on", "off"):
            raise OptionError(f"`{field}` is {text!r}, but must be on or off.", field=field)
        return reply.changed(**{field: text == "on"})
    try:
        value = text if spelling.read else plain(text)
    except ValueError:
        message = f"`{field}` is {text!r}, but must be {'a number' if plain is float else 'a whole number'}."
        raise OptionError(message, "/params shows the present values.", field=field) from None
    return reply.changed(**{field: read_value(field, value)})


def setting_text(reply: ReplyOptions, field: str) -> str:
    """Return the value of a field as it would be typed."""
    value = getattr(reply if hasattr(reply, field) else reply.sampling, field)
    if field == "logit_bias":
        biases = (f"{token}={'false' if bias == float('-inf') else f'{bias:g}'}" for token, bias in value)
        return " ".join(biases) or "none"
    if isinstance(value, tuple):
        return " ".join(map(repr, value)) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(SPELLINGS.get(field, Spelling()).none or "auto") if value is None else str(value)
