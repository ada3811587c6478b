"""How a token is chosen from logits, as options; no numpy, so that a command line can offer them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specli.errors import OptionError
from specli.options import Option, check

_MOST_BIAS = 1000.0
MAX_DRAFT_LENGTH = 64  # it bounds the rows of logits of a pass, and with them llama.cpp's compute buffers


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How a token is chosen from logits. Defaults are llama.cpp's.

    Raises:
        OptionError: a value is out of its bounds.
    """

    temperature: Annotated[float, Option("Temperature; 0 always takes the most probable token.", 0, 5)] = 0.8
    top_k: Annotated[int, Option("Keep the K most probable tokens; 0 keeps all.", 0, 2**31 - 1)] = 40
    top_p: Annotated[float, Option("Keep the fewest tokens that reach this probability; 1 keeps all.", 0, 1)] = 0.95
    min_p: Annotated[float, Option("Drop tokens below this share of the most probable one; 0 keeps all.", 0, 1)] = 0.05
    repeat_penalty: Annotated[
        float, Option("Make repeated tokens less likely; 1 is none.", 0.01, 100, hint="1.1 is a common choice.")
    ] = 1.0
    frequency_penalty: Annotated[
        float, Option("Taken off a token's logit for each repetition.", -1000, 1000, hint="0 means no penalty.")
    ] = 0.0
    presence_penalty: Annotated[
        float, Option("Taken off the logit of a token that was used.", -1000, 1000, hint="0 means no penalty.")
    ] = 0.0
    repeat_last_n: Annotated[int, Option("How many tokens the penalties look back; -1 all, 0 none.", -1, 2**31 - 1)] = (
        64
    )
    logit_bias: Annotated[
        tuple[tuple[int, float], ...], Option("ID=X adds X to a token's logit, ID=false forbids it; may be repeated.")
    ] = ()

    def __post_init__(self) -> None:
        check(self)
        for token, bias in self.logit_bias:
            if token < 0 or not (abs(bias) <= _MOST_BIAS or bias == float("-inf")):
                allowed = f"between {-_MOST_BIAS:g} and {_MOST_BIAS:g}, or 'false'"
                message = f"`logit_bias` is {bias:g} for token {token}, but must be {allowed}."
                raise OptionError(message, "100 makes a token certain.", field="logit_bias")

    @property
    def has_penalties(self) -> bool:
        """Whether the distribution depends on the tokens before it, beyond the logits themselves."""
        changed = self.repeat_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0
        return changed and self.repeat_last_n != 0
