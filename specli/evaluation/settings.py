"""What a comparison was asked for, in one object that can be written to a file and read back.

Knows the settings. Must not know how they were typed, or what they make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from specli.decoding.options import SamplingOptions
from specli.engine.options import ReplyOptions
from specli.errors import OptionError
from specli.evaluation.comparison import Arm, Plan, by_turns, make_arms
from specli.evaluation.prompts import Prompt
from specli.llama.options import LoadOptions
from specli.llama.text import Message


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
    repeats: int
    tokens: int
    seed: int
    time_limit: float | None  # minutes
    sampling: SamplingOptions  # its temperature is not used
    draft_temperature: float | None
    target_load: LoadOptions
    draft_load: LoadOptions

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise OptionError(f"--repeats is {self.repeats}, but must be 1 or more.", "2 is the default.")
        if self.tokens < 2:
            raise OptionError(
                f"--max-tokens is {self.tokens}, but must be 2 or more to time anything.", "96 is the default."
            )
        if self.time_limit is not None and not 0 < self.time_limit < float("inf"):
            raise OptionError(
                f"--time-limit is {self.time_limit:g}, but must be 0 or more minutes.",
                "10 is the default; 0 is no limit.",
            )
        for arm in self.arms:  # checks each length, rule and temperature
            replace(
                self.reply,
                draft_length=arm.draft_length,
                verification=arm.verification or "block",
                sampling=replace(self.sampling, temperature=arm.temperature),
            )
        if len(self.arms) == len(set(self.temperatures)):
            raise OptionError(
                "there is nothing to compare plain decoding with.",
                "-md MODEL names a draft model; --draft-length 0 compares plain decoding with itself.",
            )

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The ways to generate that are compared."""
        return tuple(make_arms(self.drafts, self.draft_lengths, self.verifications, self.temperatures))

    @property
    def plan(self) -> Plan:
        """What is to be measured, in order."""
        return Plan(by_turns(self.prompts), self.arms, self.repeats, self.tokens, self.seed)

    @property
    def reply(self) -> ReplyOptions:
        """What all replies have in common."""
        return ReplyOptions(self.sampling, draft_temperature=self.draft_temperature)


def settings_json(settings: Settings) -> dict[str, Any]:
    """Return settings as they are written to files."""
    return asdict(settings)


def settings_from(content: Mapping[str, Any]) -> Settings:
    """Read settings back from what `settings_json` made of them.

    Raises:
        TypeError, KeyError: a field is missing or unknown.
    """
    sampling = dict(content["sampling"])
    sampling["logit_bias"] = tuple((token, bias) for token, bias in sampling["logit_bias"])
    prompts = tuple(
        Prompt(one["kind"], one["name"], tuple(Message(**message) for message in one["messages"]))
        for one in content["prompts"]
    )
    lists = {key: tuple(content[key]) for key in ("drafts", "draft_lengths", "verifications", "temperatures")}
    return Settings(
        **(
            dict(content)
            | lists
            | {
                "prompts": prompts,
                "sampling": SamplingOptions(**sampling),
                "target_load": LoadOptions(**content["target_load"]),
                "draft_load": LoadOptions(**content["draft_load"]),
            }
        )
    )
