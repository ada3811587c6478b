"""`specli list`, `show`, `pull` and `check`; and finding the models that other commands use."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from specli.engine.options import ReplyOptions
from specli.errors import OptionError, PairError
from specli.models import files
from specli.models import pair as pairs
from specli.models.pair import NO_DRAFT, Pair
from specli.models.registry import ModelEntry, Registry, load_registry
from specli.state.paths import user_registry_path
from specli.terminal import console
from specli.terminal.command import command
from specli.terminal.options import ModelOptions, OutputOptions

ModelArgument = Annotated[
    str, typer.Argument(help="A name of 'specli list', a .gguf file, or user/repository[:quant].", metavar="MODEL")
]


def choose_pair(model: str | None, draft_model: str | None) -> Pair:
    """Find the target and its draft model, and fetch what is not on this disk; see `specli.models.pair`."""
    with console.FetchReport() as report:
        return pairs.choose_pair(model, draft_model, report)


def choose_pair_for(models: ModelOptions, reply: ReplyOptions) -> Pair:
    """Find the pair for replies with these options; without a draft model where they need none."""
    needless = reply.draft_length == 0 or reply.drafter == "lookup"
    pair = choose_pair(models.model, NO_DRAFT if needless else models.draft_model)
    if reply.drafter == "model" and reply.draft_length != 0 and pair.draft is None:
        message = f"`drafter` is 'model', but there is no draft model for {pair.target_name}."
        raise OptionError(message, "-md MODEL names one.")
    return pair


def model_path(entry: ModelEntry) -> Path:
    """Return the file of a model, which is fetched if it is not on this disk."""
    with console.FetchReport() as report:
        return files.ensure_file(entry, report)


@command(without={"as_json"})
def pull(model: ModelArgument, output: OutputOptions = OutputOptions()) -> None:
    """Fetch a model, verified and whole, or say where it is.

    Example:
        specli pull smollm2-135m
    """
    entry = load_registry().find(model)
    found = files.find_file(entry)
    if found is not None:
        console.note(f"{entry.name} is here already.")
    console.print_line(str(found or model_path(entry)))


@command()
def list_models(output: OutputOptions = OutputOptions()) -> None:
    """List the models that have names, and which of them are on this disk."""
    registry = load_registry()
    found = {entry.name: files.find_file(entry) for entry in registry.models.values()}
    if output.as_json:
        console.print_json([_entry_json(entry, registry, found[entry.name]) for entry in registry.models.values()])
        return
    rows = []
    for entry in registry.models.values():
        path = found[entry.name]
        size = entry.bytes or (path.stat().st_size if path else None)
        name = f"{entry.name} (default)" if entry.name == registry.default_target else entry.name
        where = "here" if path else "missing" if entry.path else "not fetched"
        rows.append((name, console.bytes_text(size), where, entry.draft or "", entry.license))
    console.print_table(["name", "size", "file", "draft model", "license"], rows)
    console.note(f"Models of your own: {user_registry_path()}")


def _entry_json(entry: ModelEntry, registry: Registry, path: Path | None) -> dict[str, Any]:
    facts = {name: getattr(entry, name) for name in ("name", "description", "license", "bytes", "sha256")}
    more = {"draft_model": entry.draft, "default": entry.name == registry.default_target}
    return facts | more | {"path": str(path) if path else None}


@command()
def show(model: ModelArgument, output: OutputOptions = OutputOptions()) -> None:
    """Show what a model file says about itself.

    Example:
        specli show qwen2.5-coder-1.5b
    """
    from specli.llama.gguf import read_gguf

    entry = load_registry().find(model)
    file = read_gguf(model_path(entry))
    template = file.metadata.get("tokenizer.chat_template")
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    facts: dict[str, Any] = {
        "name": entry.name,
        "path": str(file.path),
        "bytes": file.size,
        "title": file.metadata.get("general.name"),
        "architecture": file.architecture,
        "parameters": file.parameters,
        "quantization": file.quantization,
        "tensor_kinds": list(file.tensor_kinds),
        "context_length": file.value("context_length"),
        "sliding_window": file.value("attention.sliding_window"),
        "embedding_length": file.value("embedding_length"),
        "layers": file.value("block_count"),
        "vocabulary": tokens,
        "vocabulary_type": file.metadata.get("tokenizer.ggml.model"),
        "template": template,
        "license": entry.license or file.metadata.get("general.license"),
        "draft_model": entry.draft,
    }
    if output.as_json:
        console.print_json(facts)
        return
    facts["bytes"] = console.bytes_text(file.size)
    facts["parameters"] = f"{file.parameters:,}"
    facts["tensor_kinds"] = ", ".join(file.tensor_kinds)
    facts["template"] = f"yes, {len(template)} characters ('--json' shows it)" if template else "none"
    console.print_facts([(name.replace("_", " "), str(value)) for name, value in facts.items() if value is not None])


@command()
def check(
    target: Annotated[str, typer.Argument(help="Target model.", metavar="TARGET")],
    draft: Annotated[str, typer.Argument(help="Draft model.", metavar="DRAFT")],
    output: OutputOptions = OutputOptions(),
) -> None:
    """Check whether a draft model can serve a target model; exit 1 when it cannot.

    Example:
        specli check qwen2.5-coder-1.5b qwen2.5-coder-0.5b
    """
    from specli.llama.model import load_vocabulary
    from specli.llama.pairing import check_pair

    registry = load_registry()
    entries = registry.find(target), registry.find(draft)
    report = check_pair(*(load_vocabulary(model_path(entry)) for entry in entries))
    if output.as_json:
        names = {"target": entries[0].name, "draft": entries[1].name}
        console.print_json(names | {"compatible": report.compatible} | asdict(report))
        if not report.compatible:
            raise typer.Exit(PairError.exit_code)
        return
    if not report.compatible:
        message = f"{entries[1].name} cannot draft for {entries[0].name}: {'; '.join(report.problems)}."
        raise PairError(message, "A draft model must come from the same family as its target.")
    console.print_line(f"{entries[1].name} can draft for {entries[0].name}: {report.shared_tokens} tokens in common.")
