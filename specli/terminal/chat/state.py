"""A conversation on the terminal: what is said and answered, shown and kept."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from specli.engine.conversation import Conversation, Event
from specli.engine.engine import Engine, require_text
from specli.engine.options import ReplyOptions
from specli.engine.reply import Reply
from specli.errors import ContextFullError, SpecliError
from specli.llama.loading import load_models
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions, adapter_text
from specli.llama.text import Message
from specli.models.registry import load_registry
from specli.state import sessions
from specli.state.sessions import Session
from specli.terminal import console
from specli.terminal.chat import editor
from specli.terminal.commands.models import model_path
from specli.terminal.interrupts import Interrupts, quiet_keys
from specli.terminal.options import OnFull
from specli.terminal.reply_view import MarkdownReply, PlainReply, stream_reply

_WARN_SHARE = 0.8  # of the context
_LEAST_REPLY = 256  # tokens that must be free for a reply


@dataclass
class Chat:
    """A conversation with a loaded pair: what is said and answered, shown and kept."""

    engine: Engine
    options: ReplyOptions
    interrupts: Interrupts
    target_name: str
    draft_name: str | None
    load: LoadOptions
    session: Session | None
    on_full: OnFull
    show_draft: bool = False
    markdown: bool = False
    conversation: Conversation = field(default_factory=Conversation)
    attached: list[str] = field(default_factory=list)  # files to put before the next message
    show_stats: bool = True
    replies: int = 0

    def happen(self, event: Event) -> None:
        """Let an event happen, and keep it on disk."""
        require_text(event.get("content", ""))
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
        self.replies += 1
        if reply.finish_reason == "interrupt" and not reply.tokens:
            console.note("Stopped before the first token. /regen answers your message.")
            return
        ended = [token for token in reply.tokens if token not in self.engine.target.end_tokens]
        self.conversation.tokens = [*tokens, *ended]
        event = {"type": "assistant", "content": reply.text, "tokens": ended}
        self.happen(event | {"finish_reason": reply.finish_reason, "seed": reply.seed})
        if self.show_stats:
            console.print_stats(reply)
        if reply.finish_reason == "interrupt":
            console.note("Stopped; what was said so far stays in the conversation. /regen tries again.")
        elif reply.finish_reason == "context":
            console.warn(
                f"the reply ended because the context of {self.engine.target.n_context} tokens is full.",
                "/clear begins anew; a larger context, -c N, holds more.",
            )
        else:
            if reply.finish_reason == "length":
                console.note(f"Cut at {len(reply.tokens)} tokens; /set max-tokens N allows more.")
            used, size = len(tokens) + len(reply.tokens), self.engine.target.n_context
            if used > _WARN_SHARE * size:
                console.note(f"{used} of {size} tokens of the context are used; when it is full, the oldest must go.")

    def _generate(self, tokens: list[int]) -> Reply:
        seed = None if self.options.seed is None else self.options.seed + self.replies
        with self.interrupts, quiet_keys():
            events = self.engine.reply(tokens, replace(self.options, seed=seed), interrupted=self.interrupts)
            if self.markdown and console.output.is_terminal:
                return stream_reply(events, MarkdownReply())
            return stream_reply(events, PlainReply(show_draft=self.show_draft, dim_thoughts=True))

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
            else:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drop the oldest exchanges until a third of the context is free: what stays must be read anew each time."""
        room = 0
        while room < self.engine.target.n_context // 3 and (oldest := self.conversation.oldest_exchange()):
            first = " ".join(oldest[0].content.split())[:60]
            console.note(f"Dropped the oldest message and its reply: {first}")
            self.happen({"type": "drop", "count": len(oldest)})
            room = self.engine.target.n_context - len(self.prompt(self.conversation.messages, []))

    def _choose(self, oldest: list[Message]) -> str:
        if not oldest:
            return OnFull.STOP
        if self.on_full != OnFull.ASK or not sys.stdin.isatty():
            return OnFull.DROP if self.on_full == OnFull.DROP else OnFull.STOP
        answers = {"d": OnFull.DROP.value, "c": "clear", "s": OnFull.STOP.value}
        while True:
            try:
                answer = editor.ask("[d]rop the oldest messages and replies, [c]lear all before this one, or [s]top? ")
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
            size = self.engine.target.n_context
            message = (
                f"the message has {count} tokens, and {self._reserve()} for a reply do not fit in a context of {size}."
            )
            raise ContextFullError(message, f"A larger context holds more: -c {2 * count}.")

    def resume(self, path: Path) -> None:
        """Go on with a session from disk.

        Raises:
            SessionError: it cannot be read.
        """
        session = Session(path, {})
        session.lock()
        try:
            events, damaged = sessions.read_events(path)
            conversation = Conversation()
            for event in events:
                conversation.apply(event, self.prompt)
        except BaseException:
            session.close()
            raise
        self.close()
        self.conversation, self.session = conversation, session
        self.replies = sum(event["type"] == "assistant" for event in events)
        if damaged:
            console.warn(f"{damaged} damaged lines of {path.name} were skipped.", "The rest is complete.")
        begun = [events[0].get("model"), *(events[0].get("lora") or [])]
        if begun != [self.target_name, *(adapter_text(*adapter) for adapter in self.load.lora)]:
            console.note(f"The session was begun with {' and '.join(map(str, begun))}.")
        for turn in conversation.turns[-2:]:
            console.print_turn(turn.role, turn.content)
        rest = "; the last one has no reply, /regen makes one." if conversation.awaits_reply else "."
        console.note(f"Resumed {path.stem}: {len(conversation.turns)} messages{rest}")

    def close(self) -> None:
        """Let others use the session."""
        if self.session is not None:
            self.session.close()

    def use_draft(self, name: str) -> None:
        """Draft with another model."""
        draft: LlamaModel | None = None
        draft_name: str | None = None
        if name != "none":
            entry = load_registry().find(name)
            path, draft_name = model_path(entry), entry.name
            with self.interrupts, console.waiting(f"Loading {path.name}"):
                draft = load_models([(path, self.load.for_draft())], interrupted=self.interrupts)[0]
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
