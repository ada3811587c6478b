"""What is counted and timed in a reply, each figure defined once.

Counted where a token is emitted, so that a draft cut off by a stop is never counted as a success.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Metrics:
    """Counters and seconds of one reply."""

    prompt: int = 0  # tokens
    cached: int = 0  # those of them that were in the target's cache already and were not read again
    generated: int = 0  # tokens emitted, an end-of-generation token included
    rounds: int = 0  # target passes after the prompt was read; each emits at least one token
    undrafted_rounds: int = 0  # those for which the drafter proposed nothing, though it could have
    drafted: int = 0  # tokens proposed
    tested: int = 0  # those of them decided about: none after the first rejected one, or after the end of the reply
    accepted: int = 0  # those of them emitted: generated - rounds, or one more when a stop cut off the last round
    tested_at: Counter[int] = field(default_factory=Counter)  # by position in the draft, from 0
    accepted_at: Counter[int] = field(default_factory=Counter)

    load_seconds: float = 0.0  # making the models ready
    prefill_seconds: float = 0.0  # reading the prompt, by both models
    first_token_seconds: float = 0.0  # from the start of reading to the first emitted token
    decode_seconds: float = 0.0  # from the end of reading to the last emitted token: draft, verify and other
    draft_seconds: float = 0.0  # proposing tokens, the draft model's passes included
    verify_seconds: float = 0.0  # the target's passes

    def count_draft_token(self, position: int, accepted: bool) -> None:
        """Count the decision about the draft token at a position (from 0)."""
        self.tested += 1
        self.tested_at[position] += 1
        if accepted:
            self.accepted += 1
            self.accepted_at[position] += 1

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / tested; None when nothing was tested."""
        return self.accepted / self.tested if self.tested else None

    @property
    def mean_accepted_length(self) -> float | None:
        """Tokens emitted by one target pass, recovered or bonus token included; 1 without drafts."""
        return self.generated / self.rounds if self.rounds else None

    @property
    def other_seconds(self) -> float:
        """Decoding time that is neither drafting nor the target's passes: sampling, the rejection step, output."""
        return max(0.0, self.decode_seconds - self.draft_seconds - self.verify_seconds)

    @property
    def tokens_per_second(self) -> float | None:
        """Generated tokens over decoding time; None when there was none."""
        return self.generated / self.decode_seconds if self.decode_seconds > 0 and self.generated else None

    @property
    def prefill_tokens_per_second(self) -> float | None:
        """Prompt tokens that were read, over the time it took; None when there was nothing to read.

        The last token of a prompt is read with the first round.
        """
        read = self.prompt - 1 - self.cached
        return read / self.prefill_seconds if self.prefill_seconds > 0 and read > 0 else None
