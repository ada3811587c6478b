"""`specli compare`: find out whether a draft model makes the target faster here, and for what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from specli.engine.options import ReplyOptions
from specli.errors import OptionError
from specli.llama.options import LoadOptions
from specli.options import Option
from specli.terminal import options
from specli.terminal.command import command
from specli.terminal.options import Effort, Grid, ModelOptions, OutputOptions, Requirements, seeded
from specli.terminal.ready import warn_about_gpu


@command(
    without={"temperature", "logit_bias", "draft_length", "verification", "max_tokens", "stop", "ignore_eos"}
    | {"draft_model"}
)
def compare(
    prompts: options.Prompts = "builtin",
    file: Annotated[Path | None, Option("Write each measurement to a file as it is made.")] = None,
    resume: Annotated[bool, Option("Continue what is in the file of -o; its settings hold.")] = False,
    plot: options.Plot = None,
    curve: Annotated[bool, Option("Instead: what passes of 1 to 32 rows and draft tokens cost.")] = False,
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
