"""A pair of models by name: found, fetched if need be, loaded, and ready to answer."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from os import PathLike
from typing import Any

from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.engine.reply import ReplyEvent
from specli.llama.options import LoadOptions
from specli.models.files import Silent
from specli.models.pair import NO_DRAFT, choose_pair


def load(
    model: str | PathLike[str] | None = None,
    draft: str | PathLike[str] | None = None,
    *,
    options: LoadOptions | None = None,
    **changes: Any,
) -> Engine:
    """Load a target model and its draft model; files that are not on this disk are fetched first.

    Args:
        model: a name of `specli list`, a .gguf file or `user/repository[:quant]`; the default target if None.
        draft: the same for the draft model; "none" loads none; the one that belongs to the target if None.
        options: context, threads, offload.
        **changes: single options, such as `context=8192`; see `LoadOptions`.

    Raises:
        SpecliError: a model is unknown, cannot be fetched or loaded, or the draft model cannot serve the target.
        TypeError: there is no such option.
    """
    chosen = replace(options or LoadOptions(), **changes)
    pair = choose_pair(None if model is None else str(model), None if draft is None else str(draft), Silent())
    return Engine.load(pair.target, pair.draft, chosen)


def generate(
    prompt: str,
    *,
    model: str | None = None,
    draft_model: str | None = None,
    use_draft: bool = True,
    system: str | None = None,
    raw: bool = False,
    load: LoadOptions | None = None,
    options: ReplyOptions | None = None,
) -> Generator[ReplyEvent]:
    """Load a pair, answer one prompt, and free the pair: `load` and `Engine.reply` in one call.

    `use_draft=False` loads no draft model; the other arguments are those of `load` and `Engine.complete`.

    Raises:
        SpecliError: any of its kinds, before the first event.
    """
    pair = choose_pair(model, draft_model if use_draft else NO_DRAFT, Silent())
    with Engine.load(pair.target, pair.draft, load) as engine:
        yield from engine.reply(engine.prompt(prompt, system=system, raw=raw), options)
