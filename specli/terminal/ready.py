"""Getting a pair ready to answer, with progress on the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from specli.engine.options import ReplyOptions
from specli.llama.options import LoadOptions
from specli.models.pair import Pair
from specli.terminal import console

if TYPE_CHECKING:
    from specli.engine.engine import Engine


def load_engine(pair: Pair, options: LoadOptions, interrupted: Callable[[], bool]) -> Engine:
    """Load a pair."""
    from specli.engine.engine import Engine

    with console.waiting("Loading") as show:
        engine = Engine.load(
            pair.target,
            pair.draft,
            options,
            progress=lambda name, share: show(f"Loading {name} {share:.0%}"),
            interrupted=interrupted,
        )
    if any(model.swappable for model in (engine.target, engine.draft) if model is not None):
        console.warn("`mlock` has no effect: the system refused to lock the memory.", "'ulimit -l' shows its limit.")
    return engine


def calibrate(engine: Engine, reply: ReplyOptions) -> None:
    """Measure what passes cost, if replies with these options depend on it and it is not known yet."""
    if reply.draft_length is None:
        with console.waiting("Benchmarking these models, once"):
            engine.calibrate()


def warn_about_draft(pair: Pair) -> None:
    """Warn when no draft model was named and none is known, and name one that may do."""
    if not pair.draft_unknown:
        return
    from specli.llama.gguf import read_gguf
    from specli.models.candidates import quick_draft
    from specli.models.families import reported_draft
    from specli.models.registry import load_registry

    hint = "-md MODEL names one; '-md none' says that none is wanted."
    if here := quick_draft(pair.target, load_registry()):
        hint = f"'-md {here}' may do, which is on this disk; '-md none' says that none is wanted."
    elif reported := reported_draft(read_gguf(pair.target)):
        hint = f"{reported}. {hint}"
    console.warn(f"no draft model is known for {pair.target_name}, so drafts are only looked up in the text.", hint)


def warn_about_gpu(options: LoadOptions) -> None:
    """Warn when layers are asked onto a GPU that cannot be used."""
    for field in ("gpu_layers", "draft_gpu_layers"):
        value = getattr(options, field)
        if not value:
            continue
        from specli.llama.parameters import GPU_REBUILD_HINT, has_gpu_backend

        if not has_gpu_backend():
            console.warn(f"`{field}` is {value}, but this llama.cpp was built without a GPU backend.", GPU_REBUILD_HINT)
            return


def warn_about_lengths(engine: Engine, reply: ReplyOptions) -> None:
    """Warn about options that will not have the effect that they name."""
    if (reply.draft_length or 0) > engine.target.max_rows - 1:
        console.warn(
            f"`draft_length` is {reply.draft_length}, but drafts get {engine.target.max_rows - 1} tokens at most here.",
            "`batch` and `exact` bound the rows of a pass.",
        )
    if engine.draft is not None and engine.draft.n_context < engine.target.n_context:
        console.warn(
            f"the draft model's context has {engine.draft.n_context} tokens, the target's {engine.target.n_context}; "
            "what is longer gets no drafts from it.",
            "A smaller `context` makes them equal.",
        )
    for stop in reply.stop:
        if re.search(r"\\[nrt]", stop):
            console.note(f"The stop string {stop!r} has a backslash and a letter in it; the shell writes $'\\n'.")
