"""`specli list`, `show`, `pull` and `check`; and finding the models that other commands use."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specli.engine.options import ReplyOptions
from specli.errors import OptionError, PairError
from specli.llama.options import LoadOptions
from specli.models import elsewhere, files
from specli.models import pair as pairs
from specli.models.pair import NO_DRAFT, Pair
from specli.models.registry import ModelEntry, Registry, load_registry
from specli.state.paths import user_registry_path
from specli.terminal import console
from specli.terminal.command import command
from specli.terminal.options import ModelOptions, OutputOptions

if TYPE_CHECKING:
    from specli.llama.gguf import GgufFile
    from specli.llama.pairing import PairReport
    from specli.llama.vocabulary import Vocabulary

ModelArgument = Annotated[
    str,
    typer.Argument(
        help="A name of 'specli list --all', a .gguf file, user/repository[:quant], or ollama:name[:tag].",
        metavar="MODEL",
    ),
]


def choose_pair(model: str | None, draft_model: str | None) -> Pair:
    """Find the target and its draft model, and fetch what is not on this disk; see `specli.models.pair`."""
    with console.FetchReport() as report:
        return pairs.choose_pair(model, draft_model, report)


def choose_pair_for(models: ModelOptions, reply: ReplyOptions) -> Pair:
    """Find the pair for replies with these options; without a draft model where they need none."""
    needless = reply.draft_length == 0 or reply.drafter == "lookup"
    pair = choose_pair(models.model, NO_DRAFT if needless else models.draft_model)
    if reply.drafter in ("model", "text") and reply.draft_length != 0 and pair.draft is None:
        message = f"`drafter` is {reply.drafter!r}, but there is no draft model for {pair.target_name}."
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
def list_models(
    everything: Annotated[
        bool, typer.Option("--all", help="Also the models that other tools have put on this disk.")
    ] = False,
    output: OutputOptions = OutputOptions(),
) -> None:
    """List the models that have names, and with --all those of other tools.

    Examples:
        specli list

        specli list --all
    """
    registry = load_registry()
    found = {entry.name: files.find_file(entry) for entry in registry.models.values()}
    others, problems = elsewhere.search_all(found.values()) if everything else ([], [])
    for problem in problems:
        console.warn(f"{problem}.")
    if output.as_json:
        entries = [_entry_json(entry, registry, found[entry.name]) for entry in registry.models.values()]
        console.print_json(entries + [asdict(model) | {"path": str(model.path)} for model in others])
        return
    rows = []
    for entry in registry.models.values():
        path = found[entry.name]
        size = entry.bytes or (path.stat().st_size if path else None)
        name = f"{entry.name} (default)" if entry.name == registry.default_target else entry.name
        where = "here" if path else "missing" if entry.path else "not fetched"
        rows.append((name, console.bytes_text(size), where, entry.draft or "", entry.license))
    console.print_table(["name", "size", "file", "draft model", "license"], rows)
    if others:
        console.print_line("")
        found_rows = [(model.name, console.bytes_text(model.bytes), model.tool, str(model.path)) for model in others]
        console.print_table(["name", "size", "found by", "file"], found_rows)
    elif everything:
        console.note(f"No models of other tools were found ({', '.join(elsewhere.TOOLS)}).")
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
        "files": file.shards,
        "title": file.metadata.get("general.name"),
        "architecture": file.architecture,
        "parameters": file.parameters,
        "quantization": file.quantization,
        "tensor_kinds": list(file.tensor_kinds),
        "context_length": file.value("context_length"),
        "sliding_window": file.value("attention.sliding_window"),
        "embedding_length": file.value("embedding_length"),
        "layers": file.value("block_count"),
        **_rewinding(file),
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
    facts["files"] = file.shards if file.shards > 1 else None
    facts["parameters"] = f"{file.parameters:,}"
    states = facts.pop("states")
    if file.recurrent_layers:
        facts["rewinds_by"] += f", with {states} states in memory"
        facts["state_bytes"] = f"{console.bytes_text(facts['state_bytes'])}, whatever the length of the text"
    else:
        del facts["recurrent_layers"], facts["state_bytes"]
    facts["tensor_kinds"] = ", ".join(file.tensor_kinds)
    facts["template"] = f"yes, {len(template)} characters ('--json' shows it)" if template else "none"
    console.print_facts([(name.replace("_", " "), str(value)) for name, value in facts.items() if value is not None])


def _rewinding(file: GgufFile) -> dict[str, Any]:
    """Return how tokens are taken back from a model's memory, and what its recurrent layers keep there."""
    from specli.llama.cache import cached_states, snapshots, state_bytes

    options = LoadOptions()
    return {
        "rewinds_by": "snapshots" if snapshots(file, options) else "marks" if file.recurrent_layers else "truncation",
        "recurrent_layers": file.recurrent_layers,
        "state_bytes": state_bytes(file),
        "states": cached_states(file, options) if file.recurrent_layers else 0,
    }


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
    vocabularies = [load_vocabulary(model_path(entry)) for entry in entries]
    report = check_pair(*vocabularies)
    names = [entry.name for entry in entries]
    possible = report.compatible or report.as_text
    if output.as_json:
        console.print_json(dict(zip(("target", "draft"), names, strict=True)) | _report_json(report))
        if not possible:
            raise typer.Exit(PairError.exit_code)
        return
    problems = "; ".join(report.problems)
    if not possible:
        message = f"{names[1]} cannot draft for {names[0]}: {problems}."
        raise PairError(message, "A draft model must come from the same family as its target.")
    if not report.compatible:
        console.print_line(f"{names[1]} can draft for {names[0]} as text only: {problems}.")
        console.note("Its text is tokenized again for the target, which costs acceptance; see '--drafter text'.")
        return
    common = report.shared_tokens - len(report.differing)
    console.print_line(f"{names[1]} can draft for {names[0]}: {common} tokens in common.")
    if report.differing:
        _print_differing(report, *vocabularies, listed=output.verbose > 0)


def _report_json(report: PairReport) -> dict[str, Any]:
    way = "tokens" if report.compatible else "text" if report.as_text else None
    found = asdict(report) | {"differing": list(report.differing) if report.compatible else None}
    return {"compatible": report.compatible, "drafts": way, "differing_tokens": len(report.differing)} | found


def _print_differing(report: PairReport, target: Vocabulary, draft: Vocabulary, *, listed: bool) -> None:
    count, special = len(report.differing), sum(not target.piece(token) for token in report.differing)
    console.print_line(
        f"Differing tokens: {count}, of which control tokens: {special}. They are never drafted; where a text "
        "has one, the draft model reads another in its place, which costs acceptance, never exactness."
    )
    if listed:
        rows = [(str(token), repr(target.text(token)), repr(draft.text(token))) for token in report.differing]
        console.print_table(["token", "target", "draft"], rows)
    else:
        console.note("--verbose lists them.")
