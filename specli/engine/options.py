"""How a reply is generated, as options; neither numpy nor llama.cpp, so that a command line can offer them at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

from specli.decoding.options import MAX_DRAFT_LENGTH, SamplingOptions
from specli.errors import OptionError
from specli.options import Option, check

DRAFTERS = ("auto", "model", "text", "lookup")
VERIFICATIONS = ("block", "token", "match", "coupled")


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How one reply is generated.

    Raises:
        OptionError: a value is out of its bounds.
    """

    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    draft_length: Annotated[
        int | None,
        Option(
            "Tokens in one draft; auto picks a length that is worth it, or none; 0 disables drafting.",
            0,
            MAX_DRAFT_LENGTH,
            hint="Leave it out for automatic drafts; 0 disables drafting.",
        ),
    ] = None
    drafter: Annotated[
        str,
        Option(
            "Where drafts come from: model is the draft model; text takes the draft model's text, tokenized again, as "
            "always where its vocabulary differs; lookup continues what occurred before in the text, without a model; "
            "auto takes what is worth more.",
            choices=DRAFTERS,
        ),
    ] = "auto"
    verification: Annotated[
        str,
        Option(
            "Accept rule: block accepts most; token is the textbook's; match is what other tools do; with coupled a "
            "seed gives the same text with any draft. All keep the target's distribution.",
            choices=VERIFICATIONS,
            hint="block is the default and accepts the most.",
        ),
    ] = "block"
    draft_temperature: Annotated[
        float | None,
        Option(
            "Temperature of the draft model; it changes the speed, never the output. Default: the target's.",
            0,
            5,
            hint="Leave it out to draft at the target's temperature.",
        ),
    ] = None
    max_tokens: Annotated[
        int | None, Option("Tokens of the reply at most; -1 is no limit.", 1, hint="Leave it out for no limit.")
    ] = None
    seed: Annotated[
        int | None,
        Option("The same seed gives the same text; -1 takes a new one.", 0, hint="Leave it out for a new seed."),
    ] = None
    stop: Annotated[tuple[str, ...], Option("End the reply before this text; may be repeated.")] = ()
    ignore_eos: Annotated[bool, Option("Go on where the model would end.")] = False
    reproducible: bool | None = None  # decide about drafts without the clock; None: when a seed is given

    def __post_init__(self) -> None:
        check(self)
        if "" in self.stop:
            raise OptionError(
                "`stop` is empty, but must be some text.", "Leave it out to stop where the model does.", field="stop"
            )

    def changed(self, **changes: Any) -> ReplyOptions:
        """Return options with some of them changed; those of `sampling` are named like all others.

        Raises:
            OptionError: a value is out of its bounds.
            TypeError: there is no such option.
        """
        names = {one.name for one in fields(SamplingOptions)}
        sampling = {name: changes.pop(name) for name in names & changes.keys()}
        if isinstance(sampling.get("logit_bias"), Mapping):
            sampling["logit_bias"] = tuple(sampling["logit_bias"].items())
        if sampling:
            changes["sampling"] = replace(changes.get("sampling", self.sampling), **sampling)
        if isinstance(changes.get("stop"), str):
            changes["stop"] = (changes["stop"],)
        return replace(self, **changes)
