"""`specli compare`: find out whether a draft model makes the target faster here, and for what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from specli.engine.options import ReplyOptions
from specli.errors import OptionError
from specli.llama.options import LoadOptions
from specli.terminal import options
from specli.terminal.command import command
from specli.terminal.options import ModelOptions, OutputOptions, seeded
from specli.terminal.ready import warn_about_gpu


@dataclass(frozen=True, slots=True)
class Grid:
    """What is compared: every combination."""

    draft_models: Annotated[
        list[str] | None,
        typer.Option(
            "-md",
            "--draft-model",
            help="Draft model, named like the target; may be repeated. With 'none' drafts are only looked up in the "
            "text.",
            metavar="MODEL",
        ),
    ] = None
    draft_lengths: Annotated[
        str,
        typer.Option("--draft-length", help="Draft lengths or auto; 0 is the baseline once more.", metavar="N,N,..."),
    ] = "auto,4"
    verifications: Annotated[str, typer.Option("--verification", help="Accept rules.", metavar="RULE,RULE,...")] = (
        "block"
    )
    temperatures: Annotated[str, typer.Option("--temp", help="Temperatures.", metavar="T,T,...")] = "0,0.8"


@dataclass(frozen=True, slots=True)
class Effort:
    """How long it is measured."""

    repeats: Annotated[
        int, typer.Option("-r", "--repeats", help="Timed replies to each prompt in each setting.", metavar="N")
    ] = 2
    tokens: Annotated[int, typer.Option("-n", "--max-tokens", help="Tokens of each timed reply.", metavar="N")] = 96
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", help="Start no prompt after so many minutes; 0 is no limit.", metavar="MINUTES"),
    ] = 10.0


@dataclass(frozen=True, slots=True)
class Requirements:
    """What makes the command fail."""

    require_speedup: Annotated[
        float | None,
        typer.Option("--require-speedup", help="Exit 3 unless the best setting is this much faster.", metavar="X"),
    ] = None
    require_identical: Annotated[
        bool, typer.Option("--require-identical", help="Exit 3 if a text at temperature 0 differs from the baseline's.")
    ] = False


@command(
    without={"temperature", "logit_bias", "draft_length", "verification", "max_tokens", "stop", "ignore_eos"}
    | {"draft_model"}
)
def compare(
    prompts: options.Prompts = "builtin",
    file: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write each measurement to a file as it is made.", metavar="FILE"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue what is in the file of -o; its settings hold.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the speedups into a .png or .svg file.", metavar="FILE")
    ] = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="Instead: what passes of 1 to 32 rows and draft tokens cost.")
    ] = False,
    grid: Grid = Grid(),
    effort: Effort = Effort(),
    requirements: Requirements = Requirements(),
    models: ModelOptions = ModelOptions(),
    load: LoadOptions = LoadOptions(),
    reply: ReplyOptions = ReplyOptions(seed=0),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Measure whether a draft model makes the target faster here, by kind of prompt.

    Decoding without drafts and each setting take turns on the same prompts in one process, on an otherwise idle
    machine.

    Examples:
        specli compare

        specli compare --draft-length 2,4,8 --temp 0 --prompts builtin:code,edit

        specli compare -m big.gguf -md small.gguf -md smaller.gguf -o results.jsonl --plot results.png
    """
    from specli.evaluation.prompts import load_prompts
    from specli.terminal import plots
    from specli.terminal.commands import comparing

    if plot is not None:
        plots.check(plot)
    if not resume:
        warn_about_gpu(load)
        settings = comparing.settings_of(models.model, grid, effort, load, seeded(reply), load_prompts(prompts))
        task = comparing.Task(settings, file)
    elif file is not None:
        task = comparing.resumed(file)
    else:
        raise OptionError("--resume continues a comparison, but no file is named.", "-o FILE names it.")
    if curve:
        comparing.show_curves(task, as_json=output.as_json)
    else:
        comparing.run(task, requirements, plot, as_json=output.as_json)
