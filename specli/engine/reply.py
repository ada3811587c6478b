"""What a reply is: the options it is generated with, and the events it arrives as.

Knows the decoding room's options and events. Must not know models or how a reply is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from specli.decoding.loop import FinishReason, Origin
from specli.decoding.metrics import Metrics
from specli.decoding.sampling import SamplingOptions
from specli.decoding.verification import VERIFICATIONS
from specli.errors import OptionError
from specli.llama.model import MAX_ROWS

DRAFTERS = ("auto", "model", "lookup")


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How one reply is generated.

    Raises:
        OptionError: a value is out of its bounds.
    """

    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    draft_length: int | None = None  # tokens in one draft; None: as many as pay; 0 is plain decoding
    drafter: str = "auto"  # where drafts come from, one of `DRAFTERS`
    verification: str = "block"
    draft_temperature: float | None = None  # what the draft model is sampled with; None: as the target
    max_tokens: int | None = None  # None: until the model stops or the context is full
    seed: int | None = None  # None: a new one each time
    stops: tuple[str, ...] = ()
    ignore_eos: bool = False
    reproducible: bool | None = None  # decide about drafts without the clock; None: when a seed is given

    def __post_init__(self) -> None:
        if self.draft_length is not None and not 0 <= self.draft_length < MAX_ROWS:
            raise OptionError(
                f"--draft-length is {self.draft_length}, but must be 'auto', or between 0 and {MAX_ROWS - 1}.",
                "auto is the default; 0 decodes without a draft.",
            )
        if self.drafter not in DRAFTERS:
            raise OptionError(
                f"--drafter is {self.drafter!r}, but must be one of: {', '.join(DRAFTERS)}.",
                "auto is the default and takes what pays.",
            )
        if self.verification not in VERIFICATIONS:
            raise OptionError(
                f"--verification is {self.verification!r}, but must be one of: {', '.join(VERIFICATIONS)}.",
                "block is the default and accepts the most.",
            )
        if self.draft_temperature is not None and not 0 <= self.draft_temperature < math.inf:
            raise OptionError(
                f"--draft-temp is {self.draft_temperature}, but must be a finite number, 0 or more.",
                "Leave it out to draft at the target's temperature.",
            )
        if self.max_tokens is not None and self.max_tokens < 1:
            raise OptionError(
                f"--max-tokens is {self.max_tokens}, but must be 1 or more, or -1.", "-1 goes on until the model stops."
            )
        if self.seed is not None and self.seed < 0:
            raise OptionError(f"--seed is {self.seed}, but must be 0 or more, or -1.", "-1 takes a new seed each time.")
        if "" in self.stops:
            raise OptionError("--stop is empty, but must be some text.", "Leave it out to stop where the model does.")


@dataclass(frozen=True, slots=True)
class Reading:
    """So many of the prompt's tokens have been read."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of the reply, and the text that is certain with it; '' while a character is incomplete."""

    text: str
    token: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class Reply:
    """The whole reply; always the last event."""

    text: str
    tail: str  # the end of the text that no piece had: it could have been the beginning of a stop string
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    seed: int
    metrics: Metrics


ReplyEvent = Reading | Piece | Reply
