"""Whether models and their caches fit into this machine's memory, checked before they are loaded."""

from __future__ import annotations

from collections.abc import Sequence

from specli.errors import ModelLoadError
from specli.llama import hardware
from specli.llama.gguf import GgufFile


def needed_bytes(file: GgufFile, context: int) -> int:
    """Return about how many bytes a model takes: its weights, and keys and values of a full context in 16 bits."""
    layers = _number(file, "block_count")
    heads = _number(file, "attention.head_count")
    key_heads = min(_number(file, "attention.head_count_kv") or heads, heads)  # a list counts as its length
    width = _number(file, "embedding_length") // heads if heads else 0
    key_width = _number(file, "attention.key_length") or width
    value_width = _number(file, "attention.value_length") or width
    return file.size + 2 * layers * key_heads * (key_width + value_width) * context


def _number(file: GgufFile, key: str) -> int:
    value = file.value(key)
    return value if isinstance(value, int) else 0


def require_memory(models: Sequence[tuple[GgufFile, int]]) -> None:
    """Refuse models that do not fit into memory together.

    Args:
        models: each file, and its context in tokens.

    Raises:
        ModelLoadError: they need more memory than there is; the message has the numbers.
    """
    available = hardware.available_memory()
    needed = [needed_bytes(file, context) for file, context in models]
    if sum(needed) <= available:
        return
    parts = " + ".join(
        f"{need / 1e9:.2f} GB for {file.path.name}" for (file, _), need in zip(models, needed, strict=True)
    )
    raise ModelLoadError(
        f"{parts} do not fit in the {available / 1e9:.2f} GB of memory that are free.",
        "A smaller model or --context needs less; '--no-draft' goes without the second model.",
    )
