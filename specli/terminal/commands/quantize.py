"""`specli quantize`: write a model with another type of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from specli.models.registry import load_registry
from specli.options import Option
from specli.terminal import console
from specli.terminal.command import command
from specli.terminal.commands.models import ModelArgument, model_path
from specli.terminal.interrupts import Interrupts
from specli.terminal.options import OutputOptions


@command(without={"as_json"})
def quantize(
    model: ModelArgument,
    kind: Annotated[str, Option("Type of weights, such as q4_0, q8_0 or bf16.")],
    destination: Annotated[Path | None, Option("The new file. Default: MODEL-TYPE.gguf, here.")] = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Write a model with another type of weights.

    q4_0 makes a faster draft, bf16 a larger target. Quality never improves: what one type has lost, another cannot
    bring back.

    Example:
        specli quantize qwen2.5-coder-0.5b --type q4_0
    """
    from specli.llama import quantizing

    quantizing.check_quantization(kind)
    entry = load_registry().find(model)
    source = model_path(entry)
    destination = destination or Path(f"{entry.name.removesuffix('.gguf')}-{kind.lower()}.gguf")
    with Interrupts() as interrupted, console.counting(f"Writing {destination.name}") as progress:
        quantizing.quantize(source, destination, kind, progress=progress, interrupted=interrupted)
    console.note(
        f"{console.bytes_text(source.stat().st_size)} became {console.bytes_text(destination.stat().st_size)}."
    )
    console.print_line(str(destination))
