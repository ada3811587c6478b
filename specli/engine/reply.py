"""What a reply is: the events it arrives as, and the whole of it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from specli.decoding.loop import FinishReason, Origin, PromptProgress
from specli.decoding.metrics import Metrics
from specli.errors import SpecliError


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of the reply, and the text that is certain with it; '' while a character is incomplete.

    The end of the text may come without a token: it was held back because it could have begun a stop string.
    """

    text: str
    token: int | None
    origin: Origin

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Reply:
    """The whole reply; as text it is what the model said."""

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    seed: int  # gives the same reply again, on the same machine and with the same options
    metrics: Metrics
    text_tokens: int = 0  # how many of the tokens, from the first on, spell the text; a stop string takes some away
    pending_bytes: bytes = b""  # of a character that the reply ended within; the text goes without it

    def __str__(self) -> str:
        return self.text


ReplyEvent = PromptProgress | Piece | Reply  # the reply is always the last one


class ReplyStream:
    """The pieces of a reply as they come. Iterate over it; `reply` is there once it is read to its end.

    It may be left at any time: what was not read is not generated. A new reply of the same engine ends it, and so does
    closing the engine.
    """

    def __init__(self, events: Generator[ReplyEvent]) -> None:
        self._events = events
        self._reply: Reply | None = None

    def __iter__(self) -> ReplyStream:
        return self

    def __next__(self) -> Piece:
        for event in self._events:
            if isinstance(event, Piece):
                return event
            if isinstance(event, Reply):
                self._reply = event
        raise StopIteration

    @property
    def reply(self) -> Reply:
        """The whole reply.

        Raises:
            SpecliError: it was not read to its end.
        """
        if self._reply is None:
            raise SpecliError("the reply was not read to its end.", "Iterate over the stream first, or use complete().")
        return self._reply

    def finish(self) -> Reply:
        """Read the reply to its end and return it whole."""
        for _ in self:
            pass
        return self.reply

    def close(self) -> None:
        """End the reply; safe to call at any time."""
        self._events.close()

    def __enter__(self) -> ReplyStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
