"""Which file of a repository is meant, of the many quantizations that it has."""

from __future__ import annotations

import re
from collections.abc import Iterable

from specli.errors import DownloadError
from specli.llama.shards import MOST_SHARDS, shard_names, shard_of
from specli.models.checks import check_relative, short


def choose_file(quant: str, names: Iterable[str]) -> str:
    """Choose a file of a repository: of the quantization asked for, else Q4_K_M, Q8_0 or the first.

    Of a model that is cut into several files it is the first one; one file is preferred.

    Raises:
        DownloadError: none fits, or only one of which files are missing.
    """
    models = sorted(name for name in names if name.lower().endswith(".gguf") and "mmproj" not in name.lower())
    models = [name for name in models if _is_safe(name)]
    if not models:
        raise DownloadError("has no GGUF files", "specli runs GGUF models; many are published beside the originals.")
    there = set(models)
    first = [name for name in models if shard_of(name)[0] == 1]
    complete = [name for name in first if shard_of(name)[1] <= MOST_SHARDS and there.issuperset(shard_names(name))]
    for asked in [quant] if quant else ["Q4_K_M", "Q8_0", ""]:
        best = max(complete, key=lambda name: (_fit(asked, name), shard_of(name) == (1, 1)), default="")
        if best and _fit(asked, best):
            return best
    for name in first:
        if _fit(quant, name):
            number, missing = shard_of(name)[1], "too many"
            if number <= MOST_SHARDS:
                missing = f"{number - len(there.intersection(shard_names(name)))} missing"
            raise DownloadError(f"{short(name)} has {number} parts, {missing}", "Choose another quantization.")
    some = ", ".join(short(name) for name in models[:5])
    raise DownloadError(f"has no file for {quant!r}; it has {some}", "Ask for one that is there.")


def _is_safe(name: str) -> bool:
    try:
        check_relative("the file", name)
    except ValueError:
        return False
    return True


def _fit(quant: str, name: str) -> int:
    """Return 2 if a file name has this quantization, 1 if it has one that begins so, else 0; BF16 does not fit F16."""
    words = rf"(?<![a-z0-9]){re.escape(quant.lower())}"
    if re.search(rf"{words}(?![a-z0-9_])", name.lower()):
        return 2
    return 1 if re.search(words, name.lower()) else 0
