"""Choosing a pair: a target model, the draft model that goes with it, and the files of both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specli.models.files import ensure_file
from specli.models.registry import load_registry
from specli.models.storage import Report

NO_DRAFT = "none"  # as the name of a draft model


@dataclass(frozen=True, slots=True)
class Pair:
    """The files of a pair, and the names to show for them."""

    target: Path
    draft: Path | None
    target_name: str
    draft_name: str | None
    draft_unknown: bool = False  # no draft model was named, and none is known for the target


def choose_pair(model: str | None, draft_model: str | None, report: Report) -> Pair:
    """Find the target and its draft model, and fetch what is not on this disk.

    Args:
        model: a registry name, a .gguf file or `user/repository[:quant]`; the default target if None.
        draft_model: the same for the draft model, or "none"; the one that the registry pairs with the target if None.
        report: is told how fetching goes.

    Raises:
        RegistryError: a models.toml cannot be read.
        ModelNotFoundError: there is no such model.
        ModelFileError, DownloadError: its file is missing, and cannot be fetched.
    """
    registry = load_registry()
    target = registry.find(model or registry.default_target)
    name = draft_model or target.draft
    draft = registry.find(name) if name not in (None, NO_DRAFT) else None
    draft_path = ensure_file(draft, report) if draft else None
    target_path = ensure_file(target, report)
    return Pair(target_path, draft_path, target.name, draft.name if draft else None, draft_unknown=name is None)
