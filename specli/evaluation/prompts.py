"""The prompts that audit, compare and tune run: the built-in ones, by class, or the user's own from a file."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from specli.errors import OptionError, PromptError
from specli.llama.text import Message
from specli.state.data import Struct, checked, field
from specli.state.reading import decoded, read_file

BUILTIN = "builtin"
_OWN_CLASS = "own"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation that ends with the user's turn."""

    kind: str  # the class of prompts that it belongs to
    name: str  # the class and the number within it
    messages: tuple[Message, ...]


def load_prompts(source: str) -> list[Prompt]:
    """Return the prompts of a source.

    That is `builtin`, `builtin:CLASS,CLASS`, or a file: one prompt per line, or JSON Lines with `prompt` (or
    `messages`) and optionally `class` and `system`.

    Raises:
        OptionError: there is no such class.
        PromptError: the file cannot be read, has a line that is not a prompt, or has no prompts.
    """
    name, _, classes = source.partition(":")
    if name == BUILTIN:
        return _of_classes(builtin_prompts(), classes)
    path = Path(source)
    try:
        text = decoded(read_file(path))
    except OSError as error:
        hint = "`prompts` takes a file, 'builtin', or classes of the built-in ones, such as 'builtin:code,story'."
        raise PromptError(f"cannot read the prompts in {source}: {error.strerror}.", hint) from None
    except ValueError as error:
        raise PromptError(f"{source} is {error}.", "Convert it first, for instance with iconv.") from None
    return parse_prompts(text, source)


def builtin_prompts() -> list[Prompt]:
    """Return the prompts that come with specli: at least three of each class."""
    return parse_prompts(files(__package__).joinpath("builtin-prompts.jsonl").read_text("utf-8"), BUILTIN)


def parse_prompts(text: str, where: str) -> list[Prompt]:
    """Read prompts, each a line of text or a JSON object on one line; empty lines do not count.

    Raises:
        PromptError: a line is not a prompt, or there are none.
    """
    prompts: list[Prompt] = []
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        kind, messages = _parse_line(line, f"{where}, line {number}")
        counts[kind] = counts.get(kind, 0) + 1
        prompts.append(Prompt(kind, f"{kind}-{counts[kind]}", messages))
    if not prompts:
        raise PromptError(f"there is no prompt in {where}.", "Write one prompt per line.")
    return prompts


def one_of_each_kind(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return the first prompt of each class."""
    return list({prompt.kind: prompt for prompt in reversed(prompts)}.values())[::-1]


class _Line(Struct):
    prompt: str = ""
    messages: tuple[Message, ...] = ()
    system: str | None = None
    kind: str | None = field(name="class", default=None)


def _parse_line(line: str, where: str) -> tuple[str, tuple[Message, ...]]:
    if not line.lstrip().startswith("{"):
        return _OWN_CLASS, (Message("user", line.strip()),)
    try:
        content = checked(json.loads(line), _Line)
        turns = content.messages or (Message("user", content.prompt),)
        if turns[-1].role != "user" or not turns[-1].content.strip():
            raise ValueError("there is no 'prompt', and no 'messages' that end with the user's")
    except (ValueError, RecursionError) as error:
        hint = 'A line is text or an object such as {"prompt": "...", "class": "code", "system": "..."}.'
        raise PromptError(f"{where} is not a prompt: {error}.", hint) from None
    system = (Message("system", content.system),) if content.system else ()
    return content.kind or _OWN_CLASS, (*system, *turns)


def _of_classes(prompts: list[Prompt], classes: str) -> list[Prompt]:
    known = list(dict.fromkeys(prompt.kind for prompt in prompts))
    wanted: Collection[str] = [name.strip() for name in classes.split(",") if name.strip()] or known
    for name in set(wanted) - set(known):
        hint = f"The classes are: {', '.join(known)}."
        raise OptionError(f"there is no class {name!r} of built-in prompts.", hint)
    return [prompt for prompt in prompts if prompt.kind in wanted]
