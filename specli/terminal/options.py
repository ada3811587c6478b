"""The options that several commands share, each described once, and what they become.

Knows option names and help texts. Must not know how a command uses them. A flag that two or more known tools agree
on has their name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from specli.decoding.sampling import SamplingOptions
from specli.errors import OptionError

_MODELS, _SAMPLING = "Models and machine", "Sampling"
_SPECULATION, _OUTPUT = "Speculation", "Output"


def _option(panel: str, *names: str, help: str, metavar: str | None = None, show_default: bool = True) -> object:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, show_default=show_default)


Target = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--model",
        help="Target model: a name of 'specli list', a .gguf file, or user/repository[:quant].",
        metavar="MODEL",
        envvar="SPECLI_MODEL",
        rich_help_panel=_MODELS,
    ),
]
DraftModel = Annotated[
    str | None,
    typer.Option(
        "-md",
        "--draft-model",
        help="Draft model, named like the target; 'none' goes without. Default: the one that belongs to the target.",
        metavar="MODEL",
        envvar="SPECLI_DRAFT_MODEL",
        rich_help_panel=_MODELS,
    ),
]
Context = Annotated[
    int | None,
    _option(
        _MODELS, "-c", "--context", help="Tokens that prompt and reply may have together. Default: 4096.", metavar="N"
    ),
]
Batch = Annotated[int, _option(_MODELS, "-b", "--batch", help="Tokens of the prompt read in one pass.", metavar="N")]
Threads = Annotated[
    int | None, _option(_MODELS, "-t", "--threads", help="CPU threads. Default: one for each core.", metavar="N")
]
GpuLayers = Annotated[
    int | None,
    _option(_MODELS, "-ngl", "--gpu-layers", help="Layers of the target on the GPU. Default: all.", metavar="N"),
]
DraftGpuLayers = Annotated[
    int | None,
    _option(
        _MODELS, "-ngld", "--draft-gpu-layers", help="Layers of the draft model on the GPU. Default: all.", metavar="N"
    ),
]

DraftLength = Annotated[
    str,
    _option(
        _SPECULATION,
        "--draft-length",
        help="Tokens in one draft; auto drafts as many as pay here, or none; 0 decodes plainly.",
        metavar="N|auto",
    ),
]
Drafter = Annotated[
    str,
    _option(
        _SPECULATION,
        "--drafter",
        help="Where drafts come from: model is the draft model; lookup continues what occurred before, without a "
        "model; auto takes what pays more.",
        metavar="auto|model|lookup",
    ),
]
Verification = Annotated[
    str,
    _option(
        _SPECULATION,
        "--verification",
        help="Accept rule: block accepts most; token is the textbook's; match is what other tools do; with coupled a "
        "seed gives the same text with any draft. All keep the target's distribution.",
        metavar="block|token|match|coupled",
    ),
]
DraftTemperature = Annotated[
    float | None,
    _option(
        _SPECULATION,
        "--draft-temp",
        help="Temperature that the draft model is sampled with; it changes the speed, never the output. "
        "Default: the target's.",
        metavar="T",
    ),
]
Exact = Annotated[
    bool,
    _option(
        _MODELS,
        "--exact",
        help="Let the target compute the same bits in passes of any size, so that at temperature 0 the text is "
        "identical with and without a draft. CPU only, and slower.",
    ),
]
NoDraft = Annotated[bool, _option(_SPECULATION, "--no-draft", help="Decode plainly, without a draft model.")]

Temperature = Annotated[
    float, _option(_SAMPLING, "--temp", help="Temperature; 0 always takes the most probable token.", metavar="T")
]
TopK = Annotated[int, _option(_SAMPLING, "--top-k", help="Keep the K most probable tokens; 0 keeps all.", metavar="K")]
TopP = Annotated[
    float, _option(_SAMPLING, "--top-p", help="Keep the fewest tokens that reach this probability.", metavar="P")
]
MinP = Annotated[
    float, _option(_SAMPLING, "--min-p", help="Drop tokens below this share of the most probable one.", metavar="P")
]
RepeatPenalty = Annotated[
    float, _option(_SAMPLING, "--repeat-penalty", help="Make repeated tokens less likely; 1 is none.", metavar="X")
]
FrequencyPenalty = Annotated[
    float, _option(_SAMPLING, "--frequency-penalty", help="Taken off a logit for each repetition.", metavar="X")
]
PresencePenalty = Annotated[
    float, _option(_SAMPLING, "--presence-penalty", help="Taken off the logit of a token that was used.", metavar="X")
]
RepeatLastN = Annotated[
    int, _option(_SAMPLING, "--repeat-last-n", help="How many tokens the penalties look back; -1 all.", metavar="N")
]
LogitBias = Annotated[
    list[str] | None,
    _option(
        _SAMPLING,
        "--logit-bias",
        help="ID=X adds X to a token's logit, ID=false forbids it; may be repeated.",
        metavar="ID=X",
    ),
]
Seed = Annotated[
    int, _option(_SAMPLING, "--seed", help="The same seed gives the same text; -1 takes a new one.", metavar="N")
]

MaxTokens = Annotated[
    int, _option(_OUTPUT, "-n", "--max-tokens", help="Tokens of the reply at most; -1 is no limit.", metavar="N")
]
Prompts = Annotated[
    str,
    _option(
        _OUTPUT,
        "--prompts",
        help="What to ask: 'builtin', some of its classes as in 'builtin:code,story', or a file with one prompt a "
        "line, or JSONL with prompt, class and system.",
        metavar="FILE|builtin[:CLASS,...]",
    ),
]
Stop = Annotated[
    list[str] | None,
    _option(_OUTPUT, "--stop", help="End the reply before this text; may be repeated.", metavar="TEXT"),
]
IgnoreEos = Annotated[bool, _option(_OUTPUT, "--ignore-eos", help="Go on where the model would end.")]
ShowDraft = Annotated[
    bool, _option(_OUTPUT, "--show-draft", help="Colour the text by where each token came from (on a terminal).")
]
Json = Annotated[bool, _option(_OUTPUT, "--json", help="Print one JSON document instead.")]
Quiet = Annotated[bool, _option(_OUTPUT, "-q", "--quiet", help="Print nothing but the result, warnings and errors.")]
Verbose = Annotated[
    int,
    typer.Option(
        "-v", "--verbose", count=True, help="Show llama.cpp's log; -vv also tracebacks.", rich_help_panel=_OUTPUT
    ),
]


def draft_length(text: str) -> int | None:
    """Return a draft length as it was typed; None is auto.

    Raises:
        OptionError: it is neither a number nor auto.
    """
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise OptionError(
            f"--draft-length is {text!r}, but must be 'auto', or a whole number.", "auto is the default."
        ) from None


def sampling_options(
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repeat_penalty: float,
    frequency_penalty: float,
    presence_penalty: float,
    repeat_last_n: int,
    logit_bias: list[str] | None,
) -> SamplingOptions:
    """Check the sampling options as they were typed.

    Raises:
        OptionError: a value is out of its bounds.
    """
    return SamplingOptions(
        temperature,
        top_k,
        top_p,
        min_p,
        repeat_penalty,
        frequency_penalty,
        presence_penalty,
        repeat_last_n,
        logit_biases(logit_bias or ()),
    )


def logit_biases(texts: Iterable[str]) -> tuple[tuple[int, float], ...]:
    """Return what is added to the logits of tokens, from texts like 1234=-2.5.

    Raises:
        OptionError: one of them is something else.
    """
    return tuple(_bias(text) for text in texts)


def _bias(text: str) -> tuple[int, float]:
    token, _, value = text.partition("=")
    try:
        number = float("-inf") if value == "false" else float(value)
        if int(token) < 0 or number != number or number == float("inf"):
            raise ValueError
        return int(token), number
    except ValueError:
        raise OptionError(
            f"--logit-bias is {text!r}, but must be a token id, '=', and a number or 'false'.",
            "For instance --logit-bias 1234=-2.5; 'specli complete --json' shows token ids.",
        ) from None
