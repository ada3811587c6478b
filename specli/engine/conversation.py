"""A conversation with a model: its messages, and everything that can happen to them.

What happens is an event, a dictionary that can be written to a file; a conversation is what its events make of it. A
conversation that is read back from its events is the same as the one that was left, token for token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specli.llama.text import Message

Event = Mapping[str, Any]


class Conversation:
    """The messages so far, and the tokens that the last prompt and its reply were made of."""

    def __init__(self) -> None:
        self.system: str | None = None
        self.turns: list[Message] = []
        self.tokens: list[int] = []  # known to the caches; see `chat_prompt`

    @property
    def messages(self) -> list[Message]:
        """The conversation as the chat template takes it."""
        return [*([Message("system", self.system)] if self.system else []), *self.turns]

    @property
    def awaits_reply(self) -> bool:
        """Whether the last message is the user's."""
        return bool(self.turns) and self.turns[-1].role == "user"

    @property
    def last_user_text(self) -> str | None:
        """What the user said last."""
        return next((turn.content for turn in reversed(self.turns) if turn.role == "user"), None)

    @property
    def last_reply(self) -> str | None:
        """What the model said last."""
        return next((turn.content for turn in reversed(self.turns) if turn.role == "assistant"), None)

    def apply(
        self, event: Event, prompt: Callable[[Sequence[Message], Sequence[int]], list[int]] | None = None
    ) -> None:
        """Let an event happen.

        Its `type` says what: system, user, assistant, retract (the last reply), undo (the last message of the user and
        its reply), drop (so many of the oldest turns), clear. Others are for people to read. `prompt` returns the
        tokens of messages, given known ones; replies whose own tokens are to be known afterwards need it.

        Raises:
            KeyError, TypeError: the event is not complete.
        """
        match event["type"]:
            case "system":
                self.system = event["content"] or None
            case "user":
                if self.awaits_reply:  # it was never answered
                    self.turns.pop()
                self.turns.append(Message("user", str(event["content"])))
            case "assistant":
                if prompt is not None and event.get("tokens"):
                    self.tokens = [*prompt(self.messages, self.tokens), *event["tokens"]]
                self.turns.append(Message("assistant", str(event["content"])))
            case "retract":
                if self.turns and not self.awaits_reply:
                    self.turns.pop()
            case "undo":
                while self.turns and self.turns.pop().role != "user":
                    pass
            case "drop":
                del self.turns[: int(event["count"])]
            case "clear":
                self.turns.clear()

    def oldest_exchange(self) -> list[Message]:
        """Return the oldest message of the user with its reply, if a later one exists."""
        later = [at for at, turn in enumerate(self.turns) if turn.role == "user" and at > 0]
        return self.turns[: later[0]] if later else []
