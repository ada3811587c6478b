"""`specli quantize`: write a model again with weights of another kind.

Knows options. Must not know how weights are converted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specli.llama import quantizing
from specli.llama.quantizing import QUANTIZATIONS, check_quantization
from specli.models.registry import load_registry
from specli.terminal import console, options
from specli.terminal.commands.models import ModelArgument, model_path
from specli.terminal.interrupts import Interrupts


def quantize(
    model: ModelArgument,
    kind: Annotated[str, typer.Option("--type", help=f"Kind of weights: {', '.join(QUANTIZATIONS)}.", metavar="TYPE")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The new file. Default: MODEL-TYPE.gguf, here.", metavar="FILE"),
    ] = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Write a model again with weights of another kind: q4_0 for a faster draft, bf16 for a larger target.

    Nothing gets better by it: what one kind has lost, another cannot bring back.

    Example:
        specli quantize qwen2.5-coder-0.5b --type q4_0
    """
    check_quantization(kind)
    entry = load_registry().find(model)
    source = model_path(entry)
    destination = output or Path(f"{entry.name.removesuffix('.gguf')}-{kind.lower()}.gguf")
    with Interrupts() as interrupted, console.counting(f"Writing {destination.name}") as progress:
        quantizing.quantize(source, destination, kind, progress=progress, interrupted=interrupted)
    console.note(
        f"{console.bytes_text(source.stat().st_size)} became {console.bytes_text(destination.stat().st_size)}."
    )
    console.print_line(str(destination))
