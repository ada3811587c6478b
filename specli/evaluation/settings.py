"""What was asked for: a comparison's settings, which can be written to a file and read back; and in one line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from specli.decoding.options import SamplingOptions
from specli.engine.options import ReplyOptions
from specli.errors import OptionError
from specli.evaluation.comparison import LOOKUP, Configuration, Plan, by_turns, make_configurations
from specli.evaluation.prompts import Prompt
from specli.llama.options import LoadOptions
from specli.options import Option, check


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides what a comparison measures.

    Raises:
        OptionError: a value is out of its bounds.
    """

    target: str
    drafts: tuple[str, ...]
    draft_lengths: tuple[int | None, ...]
    verifications: tuple[str, ...]
    temperatures: tuple[float, ...]
    prompts: tuple[Prompt, ...]
    repeats: Annotated[int, Option("Timed replies to each prompt in each setting.", 1, hint="2 is the default.")]
    tokens: Annotated[int, Option("Tokens of each timed reply.", 2, hint="96 is the default.")]
    seed: int
    time_limit: Annotated[
        float | None, Option("Start no prompt after so many minutes.", 0, hint="10 is the default; 0 means no limit.")
    ]
    sampling: SamplingOptions  # its temperature is not used
    draft_temperature: float | None
    target_load: LoadOptions
    draft_load: LoadOptions
    drafter: str = "auto"  # the default is what files of the first edition mean, which do not have it

    def __post_init__(self) -> None:
        check(self)
        for configuration in self.configurations:  # checks each length, rule and temperature
            replace(
                self.reply,
                draft_length=configuration.draft_length,
                verification=configuration.verification or "block",
                sampling=replace(self.sampling, temperature=configuration.temperature),
            )
        if len(self.configurations) == len(set(self.temperatures)):
            hint = "Name a `draft_model`; a `draft_length` of 0 compares the baseline with itself."
            raise OptionError("there is nothing to compare the baseline with.", hint)
        needs_model = self.drafter in ("model", "text")
        unused = [name for name in self.drafts if (needs_model if name == LOOKUP else self.drafter == "lookup")]
        if unused:
            message = (
                f"`drafter` is {self.drafter!r}, so the draft model {unused[0].replace(LOOKUP, 'none')!r} is unused."
            )
            raise OptionError(message, "Leave out one of the two; `draft_model` 'none' only looks drafts up.")

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The ways to generate that are compared."""
        return tuple(make_configurations(self.drafts, self.draft_lengths, self.verifications, self.temperatures))

    @property
    def plan(self) -> Plan:
        """What is to be measured, in order."""
        return Plan(by_turns(self.prompts), self.configurations, self.repeats, self.tokens, self.seed)

    @property
    def reply(self) -> ReplyOptions:
        """What all replies have in common."""
        return ReplyOptions(self.sampling, drafter=self.drafter, draft_temperature=self.draft_temperature)


def filters_text(sampling: SamplingOptions) -> str:
    """Return the filters in words."""
    return f"top-k {sampling.top_k}, top-p {sampling.top_p:g}, min-p {sampling.min_p:g}"


def reply_text(options: ReplyOptions, load: LoadOptions) -> str:
    """Return in one line how replies were made: all that it takes to make them again; `load` is the target's."""
    parts = [
        f"{options.verification} verification",
        f"draft length {'auto' if options.draft_length is None else options.draft_length}",
        f"temperature {options.sampling.temperature:g}",
        filters_text(options.sampling),
        f"seed {options.seed}",
    ]
    if options.drafter != "auto":
        parts.insert(1, f"drafter {options.drafter}")
    if options.draft_temperature is not None:
        parts.append(f"draft temperature {options.draft_temperature:g}")
    if load.exact:
        parts.append("exact mode")
    if load.in_words:
        parts.append(load.in_words)
    return ", ".join(parts)
