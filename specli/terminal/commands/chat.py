"""`specli chat`: a conversation on the terminal.

Knows options, and reads what a person types. Must not know how a message is answered.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from specli.engine.engine import Engine
from specli.engine.reply import ReplyOptions
from specli.errors import OptionError
from specli.state import sessions
from specli.state.paths import history_path
from specli.terminal import console, options
from specli.terminal.chat import commands, editor
from specli.terminal.chat.repl import hold
from specli.terminal.chat.state import Chat, OnFull
from specli.terminal.commands.models import choose_pair, load_options
from specli.terminal.interrupts import Interrupts
from specli.terminal.reply_view import print_legend


def chat(
    model: options.Target = None,
    draft_model: options.DraftModel = None,
    system: Annotated[str | None, typer.Option("-s", "--system", help="System prompt.", metavar="TEXT")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the latest session, or with the one of --session.")
    ] = False,
    session_name: Annotated[
        str | None, typer.Option("--session", help="Go on with this session.", metavar="NAME")
    ] = None,
    no_session: Annotated[bool, typer.Option("--no-session", help="Keep nothing on disk.")] = False,
    no_history: Annotated[bool, typer.Option("--no-history", help="Do not remember what is typed.")] = False,
    on_full: Annotated[
        OnFull, typer.Option("--on-full", help="When the context is full: ask, drop the oldest messages, or stop.")
    ] = OnFull.ASK,
    markdown: Annotated[bool, typer.Option("--markdown", help="Render Markdown (on a terminal).")] = False,
    max_tokens: options.MaxTokens = -1,
    context: options.Context = None,
    batch: options.Batch = 512,
    threads: options.Threads = None,
    gpu_layers: options.GpuLayers = None,
    draft_gpu_layers: options.DraftGpuLayers = None,
    exact: options.Exact = False,
    draft_length: options.DraftLength = "auto",
    drafter: options.Drafter = "auto",
    verification: options.Verification = "block",
    draft_temperature: options.DraftTemperature = None,
    no_draft: options.NoDraft = False,
    temperature: options.Temperature = 0.8,
    top_k: options.TopK = 40,
    top_p: options.TopP = 0.95,
    min_p: options.MinP = 0.05,
    repeat_penalty: options.RepeatPenalty = 1.0,
    frequency_penalty: options.FrequencyPenalty = 0.0,
    presence_penalty: options.PresencePenalty = 0.0,
    repeat_last_n: options.RepeatLastN = 64,
    logit_bias: options.LogitBias = None,
    seed: options.Seed = -1,
    show_draft: options.ShowDraft = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    r"""Talk with a model. /help lists the commands; everything is kept in a session that can be resumed.

    Examples:
        specli chat

        specli chat --resume

        printf 'Hello\nTell me more.\n' | specli chat -q
    """
    sampling = options.sampling_options(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repeat_penalty=repeat_penalty,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        repeat_last_n=repeat_last_n,
        logit_bias=logit_bias,
    )
    reply_options = ReplyOptions(
        sampling=sampling,
        draft_length=0 if no_draft else options.draft_length(draft_length),
        drafter=drafter,
        verification=verification,
        draft_temperature=draft_temperature,
        max_tokens=None if max_tokens == -1 else max_tokens,
        seed=None if seed == -1 else seed,
    )
    if no_session and (resume or session_name):
        raise OptionError("--no-session keeps nothing, so nothing can be resumed.", "Leave out one of them.")
    if markdown and show_draft:
        raise OptionError("--markdown and --show-draft both colour the text.", "Leave out one of them.")
    target_load, draft_load = load_options(context, batch, threads, gpu_layers, draft_gpu_layers, exact=exact)
    resumed = sessions.session_path(session_name) if resume or session_name else None
    pair = choose_pair(model, "none" if no_draft or drafter == "lookup" else draft_model)
    interrupts = Interrupts()
    with interrupts, console.waiting("Loading") as show:
        engine = Engine.load(
            pair.target,
            pair.draft,
            target_load,
            draft_load,
            progress=lambda name, share: show(f"Loading {name} {share:.0%}"),
            interrupted=interrupts,
        )
    with engine:
        if reply_options.draft_length is None:
            with interrupts, console.waiting("Measuring what passes cost, once for these models"):
                engine.calibrate()
        start: dict[str, Any] = {"model": pair.target_name, "draft_model": pair.draft_name}
        session_chat = Chat(
            engine,
            reply_options,
            interrupts,
            target_name=pair.target_name,
            draft_name=pair.draft_name,
            draft_load=draft_load,
            session=None if no_session else sessions.new_session(start),
            on_full=on_full,
            show_draft=show_draft,
            markdown=markdown,
        )
        if resumed is not None:
            session_chat.resume(resumed)
        if system is not None:
            session_chat.happen({"type": "system", "content": system})
        history = None if no_history else history_path()
        reader = editor.make_reader(tuple(commands.COMMANDS), history)
        if sys.stdin.isatty():
            console.note(f"{pair.target_name} with {pair.draft_name or 'no draft model'}. /help lists the commands.")
            if show_draft:
                print_legend()
        code = hold(session_chat, reader)
    if code:
        raise typer.Exit(code)
