"""The prompts that audit, compare and tune run: the built-in ones, by class, or the user's own from a file."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from specli.errors import OptionError, PromptError
from specli.llama.text import Message

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

    Args:
        source: `builtin`, `builtin:CLASS,CLASS`, or a file: one prompt per line, or JSON Lines with `prompt` (or
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
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PromptError(
            f"cannot read the prompts in {source}: {error.strerror}.",
            "`prompts` takes a file, 'builtin', or classes of the built-in ones, such as 'builtin:code,story'.",
        ) from None
    except UnicodeDecodeError as error:
        raise PromptError(f"{source} is not UTF-8 text: {error.reason} at byte {error.start}.") from None
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


def _parse_line(line: str, where: str) -> tuple[str, tuple[Message, ...]]:
    if not line.lstrip().startswith("{"):
        return _OWN_CLASS, (Message("user", line.strip()),)
    hint = 'A line is text or an object such as {"prompt": "...", "class": "code", "system": "..."}.'
    try:
        content = json.loads(line)
    except ValueError as error:
        raise PromptError(f"{where} is not a JSON object: {error}.", hint) from None
    turns = _turns(content)
    if turns is None or not _all_text(content.get("class"), content.get("system")):
        raise PromptError(f'{where} has no text under "prompt", or a value that should be text and is not.', hint)
    system = [Message("system", content["system"])] if content.get("system") else []
    return content.get("class") or _OWN_CLASS, (*system, *turns)


def _turns(content: dict[str, Any]) -> list[Message] | None:
    """Return the conversation of a line; None unless it is one that ends with the user's turn."""
    prompt, messages = content.get("prompt"), content.get("messages")
    if messages is None:
        return [Message("user", prompt)] if isinstance(prompt, str) and prompt.strip() else None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return None
    if not all(isinstance(message.get(key), str) for message in messages for key in ("role", "content")):
        return None
    turns = [Message(message["role"], message["content"]) for message in messages]
    return turns if turns and turns[-1].role == "user" else None


def _all_text(*values: object) -> bool:
    return all(value is None or isinstance(value, str) for value in values)


def _of_classes(prompts: list[Prompt], classes: str) -> list[Prompt]:
    known = list(dict.fromkeys(prompt.kind for prompt in prompts))
    wanted: Collection[str] = [name.strip() for name in classes.split(",") if name.strip()] or known
    for name in wanted:
        if name not in known:
            raise OptionError(
                f"there is no class {name!r} of built-in prompts.", f"The classes are: {', '.join(known)}."
            )
    return [prompt for prompt in prompts if prompt.kind in wanted]
