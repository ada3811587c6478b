"""Choosing a pair: which target and which draft model are meant, and where their files are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specli.models.files import Silent, ensure_file
from specli.models.registry import ModelEntry, load_registry

NO_DRAFT = "none"  # where the name of a draft model is expected


@dataclass(frozen=True, slots=True)
class Pair:
    """The files of a pair, and the names to show for them."""

    target: Path
    draft: Path | None
    target_name: str
    draft_name: str | None
    draft_unknown: bool = False  # nobody named a draft model, and none is known for the target


def find_pair(
    model: str | None,
    draft: str | None,
    file_of: Callable[[ModelEntry], Path] = lambda entry: ensure_file(entry, Silent()),
) -> Pair:
    """Find a target and its draft model.

    Args:
        model: a registry name, a .gguf file or `user/repository[:quant]`; the default target if None.
        draft: the same; `NO_DRAFT` for none; the one that belongs to the target if None.
        file_of: returns a model's file, and fetches it if it is not on this disk.

    Raises:
        SpecliError: a model is unknown or cannot be fetched.
    """
    registry = load_registry()
    target = registry.find(model or registry.default_target)
    name = draft or target.draft
    entry = registry.find(name) if name not in (None, NO_DRAFT) else None
    draft_path = file_of(entry) if entry else None
    return Pair(file_of(target), draft_path, target.name, entry.name if entry else None, draft_unknown=name is None)
