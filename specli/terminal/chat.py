"""`specli chat`: a conversation on the terminal.

Knows options, what a person types, and what is shown. Must not know how a reply is made.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from specli.conversation import Conversation, Event
from specli.engine import Engine, Reply, ReplyOptions, load_models
from specli.errors import ContextFullError, Interrupted, OptionError, SpecliError
from specli.library import sessions
from specli.library.registry import load_registry
from specli.library.sessions import Session
from specli.llama.model import LlamaModel, LoadOptions
from specli.llama.text import Message
from specli.terminal import console, line_editor, options, slash
from specli.terminal.complete import stream_reply
from specli.terminal.interrupts import Interrupts
from specli.terminal.models import choose_pair, load_options, model_path

_WARN_SHARE = 0.8  # of the context
_LEAST_REPLY = 256  # tokens that must be free for a reply


class OnFull(StrEnum):
    """What happens when the context is full."""

    ASK = "ask"
    DROP = "drop"
    STOP = "stop"


class Chat:
    """A conversation with a loaded pair: what is said and answered, shown and kept."""

    def __init__(
        self,
        engine: Engine,
        reply_options: ReplyOptions,
        interrupts: Interrupts,
        *,
        target_name: str,
        draft_name: str | None,
        draft_load: LoadOptions,
        session: Session | None,
        on_full: OnFull,
        show_draft: bool = False,
        markdown: bool = False,
    ) -> None:
        self.engine = engine
        self.options = reply_options
        self.conversation = Conversation()
        self.session = session
        self.target_name, self.draft_name = target_name, draft_name
        self.attached: list[str] = []  # files to put before the next message
        self.show_stats = True
        self._interrupts = interrupts
        self._draft_load = draft_load
        self._on_full = on_full
        self._show_draft, self._markdown = show_draft, markdown
        self._replies = 0

    def happen(self, event: Event) -> None:
        """Let an event happen, and keep it on disk."""
        if self.session is not None:
            self.session.add(event)
        self.conversation.apply(event)

    def say(self, text: str) -> None:
        """Send a message and answer it."""
        content = "\n\n".join([*self.attached, text])
        self._require_fit([Message("user", content)])
        self.attached.clear()
        self.happen({"type": "user", "content": content})
        self.answer()

    def answer(self) -> None:
        """Answer the last message."""
        tokens = self._fitting_prompt()
        if tokens is None:
            return
        reply = self._generate(tokens)
        self._replies += 1
        ended = [token for token in reply.tokens if token not in self.engine.target.end_tokens]
        self.conversation.tokens = [*tokens, *ended]
        event = {
            "type": "assistant",
            "content": reply.text,
            "tokens": ended,
            "finish_reason": reply.finish_reason,
            "seed": reply.seed,
        }
        self.happen(event)
        if self.show_stats:
            console.print_stats(reply.metrics)
        if reply.finish_reason == "interrupt":
            console.note("Stopped; what was said so far stays in the conversation. /regen tries again.")
        elif reply.finish_reason == "context":
            console.warn(
                f"the reply ended because the context of {self.engine.target.n_context} tokens is full.",
                "/clear begins anew; a larger context, -c N, holds more.",
            )
        else:
            self._warn_when_nearly_full(len(tokens) + len(reply.tokens))

    def _generate(self, tokens: list[int]) -> Reply:
        seed = None if self.options.seed is None else self.options.seed + self._replies
        with self._interrupts:
            events = self.engine.reply(tokens, replace(self.options, seed=seed), interrupted=self._interrupts)
            if self._markdown and console.output_is_terminal():
                return stream_reply(events, console.MarkdownReply())
            return stream_reply(events, console.PlainReply(show_draft=self._show_draft, dim_thoughts=True))

    def prompt(self, messages: Sequence[Message], known: Sequence[int]) -> list[int]:
        """Return the tokens of messages, keeping known ones."""
        return self.engine.conversation(messages, known=known)

    def _fitting_prompt(self) -> list[int] | None:
        """Return the prompt, after making room for a reply if there is none; None when the user would rather stop."""
        while True:
            tokens = self.prompt(self.conversation.messages, self.conversation.tokens)
            room = self.engine.target.n_context - len(tokens)
            if room >= self._reserve():
                return tokens
            oldest = self.conversation.oldest_exchange()
            console.warn(
                f"the conversation has {len(tokens)} tokens, and {self._reserve()} for a reply do not fit in a context "
                f"of {self.engine.target.n_context}.",
                "A larger context, -c N, holds more.",
            )
            choice = self._choose(oldest)
            if choice == OnFull.STOP:
                if not sys.stdin.isatty():
                    raise ContextFullError("the context is full.", "--on-full drop forgets the oldest messages.")
                self.happen({"type": "undo"})
                return None
            if choice == "clear":
                last = self.conversation.turns[-1].content
                self.happen({"type": "clear"})
                self.happen({"type": "user", "content": last})
                continue
            first = " ".join(oldest[0].content.split())[:60]
            console.note(f"Dropped the oldest message and its reply: {first}")
            self.happen({"type": "drop", "count": len(oldest)})

    def _choose(self, oldest: list[Message]) -> str:
        if not oldest:
            return OnFull.STOP
        if self._on_full != OnFull.ASK or not sys.stdin.isatty():
            return OnFull.DROP if self._on_full == OnFull.DROP else OnFull.STOP
        answers = {"d": OnFull.DROP.value, "c": "clear", "s": OnFull.STOP.value}
        while True:
            try:
                answer = input("[d]rop the oldest message and its reply, [c]lear all before this one, or [s]top? ")
            except (EOFError, KeyboardInterrupt):
                return OnFull.STOP
            if answer[:1].lower() in answers:
                return answers[answer[:1].lower()]

    def _reserve(self) -> int:
        most = min(_LEAST_REPLY, self.engine.target.n_context // 4)
        return min(most, self.options.max_tokens or most)

    def _require_fit(self, messages: list[Message]) -> None:
        system = [Message("system", self.conversation.system)] if self.conversation.system else []
        count = len(self.prompt([*system, *messages], []))
        if count + self._reserve() > self.engine.target.n_context:
            raise ContextFullError(
                f"the message has {count} tokens, and {self._reserve()} for a reply do not fit in a context of "
                f"{self.engine.target.n_context}.",
                f"A larger context holds more: -c {2 * count}.",
            )

    def _warn_when_nearly_full(self, used: int) -> None:
        if used > _WARN_SHARE * self.engine.target.n_context:
            console.note(
                f"{used} of {self.engine.target.n_context} tokens of the context are used; when it is full, the oldest "
                "messages must go."
            )

    def resume(self, path: Path) -> None:
        """Go on with a session from disk.

        Raises:
            SessionError: it cannot be read.
        """
        events, damaged = sessions.read_events(path)
        conversation = Conversation()
        for event in events:
            conversation.apply(event, self.prompt)
        self.conversation = conversation
        self._replies = sum(event["type"] == "assistant" for event in events)
        self.session = Session(path, {})
        if damaged:
            console.warn(f"{damaged} damaged lines of {path.name} were skipped.", "The rest is complete.")
        if events[0].get("model") != self.target_name:
            console.note(f"The session was begun with {events[0].get('model')}.")
        for turn in conversation.turns[-2:]:
            console.print_turn(turn.role, turn.content)
        count = len(conversation.turns)
        console.note(f"Resumed {path.stem}: {count} messages" + (
            "; the last one has no reply, /regen makes one." if conversation.awaits_reply else "."
        ))  # fmt: skip

    def use_draft(self, name: str) -> None:
        """Draft with another model.

        Raises:
            SpecliError: it cannot be found or loaded, or cannot serve the target.
        """
        draft: LlamaModel | None = None
        draft_name: str | None = None
        if name != "none":
            entry = load_registry().find(name)
            path, draft_name = model_path(entry), entry.name
            with self._interrupts, console.waiting(f"Loading {path.name}"):
                draft = load_models([(path, self._draft_load)], interrupted=self._interrupts)[0]
        before = self.engine.draft
        try:
            self.engine.use_draft(draft)
        except SpecliError:
            if draft is not None:
                draft.close()
            raise
        if before is not None:
            before.close()
        self.draft_name = draft_name
        if self.options.draft_length == 0:
            self.options = replace(self.options, draft_length=None)

    def run(self, reader: line_editor.LineReader) -> int:
        """Read and answer until the user leaves; return the exit code."""
        hinted = False
        while True:
            try:
                text = reader.read()
            except EOFError:
                return 0
            except KeyboardInterrupt:
                if hinted:
                    return Interrupted.exit_code
                console.note("Ctrl-C again leaves, and so does Ctrl-D or /exit.")
                hinted = True
                continue
            hinted = False
            try:
                self._handle(text)
            except slash.Leave:
                return 0
            except ContextFullError as error:
                if not sys.stdin.isatty():
                    raise
                console.print_error(error)
            except Interrupted:
                console.note("Stopped.")
            except SpecliError as error:
                console.print_error(error)

    def _handle(self, text: str) -> None:
        if text.startswith("//"):
            self.say(text[1:])
        elif text.startswith("/"):
            slash.run(self, text)
        elif text.strip():
            self.say(text)


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
        talk = Chat(
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
            talk.resume(resumed)
        if system is not None:
            talk.happen({"type": "system", "content": system})
        history = None if no_history else sessions.state_directory() / "history"
        reader = line_editor.make_reader(tuple(slash.COMMANDS), history)
        if sys.stdin.isatty():
            console.note(f"{pair.target_name} with {pair.draft_name or 'no draft model'}. /help lists the commands.")
            if show_draft:
                console.print_legend()
        code = talk.run(reader)
    if code:
        raise typer.Exit(code)
