"""Which file of a repository is meant, of the many quantizations that it has."""

from __future__ import annotations

import re
from collections.abc import Iterable

from specli.errors import DownloadError
from specli.models.checks import check_relative, short


def choose_file(quant: str, names: Iterable[str]) -> str:
    """Choose a file of a repository: of the quantization asked for, else Q4_K_M, Q8_0 or the first.

    Raises:
        DownloadError: none fits, or only one that is cut into parts.
    """
    models = sorted(name for name in names if name.lower().endswith(".gguf") and "mmproj" not in name.lower())
    models = [name for name in models if _is_safe(name)]
    if not models:
        raise DownloadError("has no GGUF files", "specli runs GGUF models; many are published beside the originals.")
    whole = [name for name in models if not _parts(name)]
    for asked in [quant] if quant else ["Q4_K_M", "Q8_0", ""]:
        best = max(whole, key=lambda name: _fit(asked, name), default="")
        if best and _fit(asked, best):
            return best
    for name in models:
        if _parts(name) and _fit(quant, name):
            hint = "Choose another quantization, or join the parts with 'llama-gguf-split --merge' and name the file."
            raise DownloadError(f"{short(name)} is cut into {_parts(name)} parts, which specli does not join", hint)
    there = ", ".join(short(name) for name in models[:5])
    raise DownloadError(f"has no file for {quant!r}; it has {there}", "Ask for one that is there.")


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


def _parts(name: str) -> int:
    """Return into how many files a model is cut, 0 if it is not."""
    found = re.search(r"-\d{5}-of-(\d{5})\.gguf$", name.lower())
    return int(found[1]) if found and int(found[1]) > 1 else 0
