"""`specli pairs`: which models on this disk can draft for which."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import typer

from specli.models import files
from specli.models.candidates import Candidate, PossiblePair, candidates, load_candidate, possible_pairs
from specli.models.families import reported_draft
from specli.models.prediction import ACCEPTANCE, TEXT_ACCEPTANCE
from specli.models.registry import load_registry
from specli.terminal import console
from specli.terminal.command import command
from specli.terminal.options import OutputOptions

_SHOWN = 3  # drafts of each target, when no target is named


@command()
def pairs(
    model: Annotated[str | None, typer.Argument(help="The target. Default: each model here.", metavar="MODEL")] = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Say which models on this disk can draft for which.

    The best come first, with predicted speedups.

    Examples:
        specli pairs

        specli pairs qwen2.5-coder-1.5b
    """
    from specli.llama.model import load_vocabulary

    registry = load_registry()
    with console.waiting("Looking for models"):
        drafts, problems = candidates(registry)
    for problem in problems:
        console.warn(f"{problem.rstrip('.')}.")
    targets = drafts
    if model is not None:
        entry = registry.find(model)
        path = files.find_file(entry)
        if path is None:
            console.note(f"{entry.name} is not on this disk; 'specli pull {entry.name}' fetches it.")
        targets = [load_candidate(entry.name, path)] if path else []
    found: list[PossiblePair] = []
    vocabulary = cache(load_vocabulary)
    with console.waiting("Comparing vocabularies") as show:
        for target in targets:
            show(f"Comparing vocabularies with that of {target.name}")
            found += possible_pairs(target, drafts, vocabulary)[: None if model else _SHOWN]
    if output.as_json:
        console.print_json([_pair_json(pair) for pair in found])
        return
    _print(found, targets)


def _pair_json(pair: PossiblePair) -> dict[str, Any]:
    facts = {"target": pair.target.name, "draft": pair.draft.name, "drafts": "text" if pair.as_text else "tokens"}
    sizes = {"target_bytes": pair.target.file.size, "draft_bytes": pair.draft.file.size}
    predicted = {"predicted_speedup": pair.prediction.speedup, "draft_length": pair.prediction.draft_length}
    return facts | {"differing_tokens": pair.differing_tokens} | sizes | predicted | {"measure": _measure(pair)}


def _measure(pair: PossiblePair) -> str:
    return f"specli compare -m {pair.target.name} -md {pair.draft.name}"


def _print(found: list[PossiblePair], targets: list[Candidate]) -> None:
    if not found:
        console.note("No model here is predicted to make another faster.")
        for target in targets:
            if reported := reported_draft(target.file):
                console.note(f"For {target.name}, {reported}.")
        return
    rows = []
    for pair in found:
        share = f"{pair.draft.file.size / pair.target.file.size:.0%}"
        way = "text" if pair.as_text else "tokens"
        kind = f"{pair.draft.file.quantization}, {console.bytes_text(pair.draft.file.size)}"
        rows.append((pair.target.name, pair.draft.name, kind, share, way, f"{pair.prediction.speedup:.2f}"))
    console.print_table(["target", "draft", "type and size", "of target", "drafts as", "predicted speedup"], rows)
    console.note(
        f"Predicted for passes that take as long as reading the file, and {ACCEPTANCE:.0%} of draft tokens accepted, "
        f"{TEXT_ACCEPTANCE:.0%} as text. Compute-bound machines gain less, or nothing."
    )
    if any(pair.target.experts for pair in found):
        console.note("Mixtures of experts gain less than predicted: they read more for several tokens than for one.")
    best = max(found, key=lambda pair: pair.prediction.speedup)
    console.note(f"This measures it: {_measure(best)}")
