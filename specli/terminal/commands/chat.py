"""`specli chat`: a conversation on the terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from specli.engine.options import ReplyOptions
from specli.errors import OptionError
from specli.llama.options import LoadOptions, adapter_text
from specli.options import Option
from specli.state import sessions
from specli.state.paths import history_path
from specli.terminal import console, options
from specli.terminal.command import command
from specli.terminal.commands.models import choose_pair
from specli.terminal.interrupts import Interrupts
from specli.terminal.options import ModelOptions, OnFull, OutputOptions
from specli.terminal.ready import calibrate, load_engine, warn_about_draft, warn_about_gpu, warn_about_lengths


@dataclass(frozen=True, slots=True)
class Looks:
    """How replies look on a terminal."""

    markdown: Annotated[bool, Option("Render Markdown (on a terminal).")] = False
    show_draft: options.ShowDraft = False


@command(without={"as_json"})
def chat(
    system: options.System = None,
    resume: Annotated[bool, Option("Continue the latest session, or the one of --session.")] = False,
    session_name: Annotated[str | None, Option("Continue this session.")] = None,
    no_session: Annotated[bool, Option("Keep nothing on disk.")] = False,
    no_history: Annotated[bool, Option("Do not remember what is typed.")] = False,
    on_full: Annotated[
        OnFull, Option("When the context is full: ask, drop the oldest messages, or stop.")
    ] = OnFull.ASK,
    no_draft: options.NoDraft = False,
    looks: Looks = Looks(),
    models: ModelOptions = ModelOptions(),
    load: LoadOptions = LoadOptions(),
    reply: ReplyOptions = ReplyOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    r"""Chat with a model; every conversation is kept and can be resumed.

    /help lists the commands.

    Examples:
        specli chat

        specli chat --resume

        printf 'Hello\nTell me more.\n' | specli chat -q
    """
    from specli.terminal.chat import commands, editor
    from specli.terminal.chat.repl import hold
    from specli.terminal.chat.state import Chat
    from specli.terminal.reply_view import print_legend

    if no_draft:
        reply = replace(reply, draft_length=0)
    if no_session and (resume or session_name):
        raise OptionError("--no-session keeps nothing, so nothing can be resumed.", "Leave out one of them.")
    if looks.markdown and looks.show_draft:
        raise OptionError("--markdown and --show-draft both color the text.", "Leave out one of them.")
    warn_about_gpu(load)
    resumed = sessions.session_path(session_name) if resume or session_name else None
    pair = choose_pair(models.model, "none" if no_draft or reply.drafter == "lookup" else models.draft_model)
    interrupts = Interrupts()
    with interrupts:
        engine = load_engine(pair, load, interrupts)
    with engine:
        warn_about_draft(pair)
        warn_about_lengths(engine, reply)
        with interrupts:
            calibrate(engine, reply)
        start: dict[str, Any] = {"model": pair.target_name, "draft_model": pair.draft_name}
        if load.lora:
            start["lora"] = [adapter_text(*adapter) for adapter in load.lora]
        session = None if no_session else sessions.new_session(start)
        session_chat = Chat(
            engine, reply, interrupts, pair.target_name, pair.draft_name, load, session, on_full,
            show_draft=looks.show_draft, markdown=looks.markdown,
        )  # fmt: skip
        if resumed is not None:
            session_chat.resume(resumed)
        if system is not None:
            session_chat.happen({"type": "system", "content": system})
        history = None if no_history else history_path()
        reader = editor.make_reader(tuple(commands.COMMANDS), history)
        if sys.stdin.isatty():
            adapted = "".join(f" and {adapter_text(*adapter)}" for adapter in load.lora)
            console.note(
                f"{pair.target_name}{adapted} with {pair.draft_name or 'no draft model'}. /help lists the commands."
            )
            if looks.show_draft:
                print_legend()
        try:
            code = hold(session_chat, reader)
        finally:
            session_chat.close()
    if code:
        raise typer.Exit(code)
