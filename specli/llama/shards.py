"""The names of the files of a model that is cut into several: NAME-00001-of-00003.gguf and so on."""

from __future__ import annotations

import re

MOST_SHARDS = 999  # of a model; larger numbers in names are no model's
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


def shard_of(name: str) -> tuple[int, int]:
    """Return which shard a file name says it is, counted from 1, and of how many; (1, 1) for a whole model."""
    found = _SHARD.fullmatch(name)
    return (int(found[2]), int(found[3])) if found else (1, 1)


def shard_names(name: str) -> list[str]:
    """Return the names of all files of the model of which `name` is one; only `name` for a whole model."""
    found = _SHARD.fullmatch(name)
    if not found:
        return [name]
    return [f"{found[1]}-{number:05}-of-{found[3]}.gguf" for number in range(1, int(found[3]) + 1)]
