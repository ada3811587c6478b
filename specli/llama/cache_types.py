"""In which types keys and values are cached: what they take, and which models they fit."""

from __future__ import annotations

from specli.errors import OptionError
from specli.llama.gguf import TENSOR_KINDS, ArrayLength, GgufFile
from specli.llama.options import QUANTIZED, LoadOptions

# ggml's numbers; they are those of tensors in files.
GGML_TYPES = {"f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2}


def value_bytes(cache_type: str) -> float:
    """Return how many bytes one cached number takes."""
    _, values, size = TENSOR_KINDS[GGML_TYPES[cache_type]]
    return size / values


def require_cache_types(file: GgufFile, options: LoadOptions) -> None:
    """Refuse cache types whose blocks do not fit the attention heads: without flash attention, that ends the process.

    Raises:
        OptionError: the options ask for one.
    """
    for field, part in (("cache_type_k", "key_length"), ("cache_type_v", "value_length")):
        chosen = getattr(options, field)
        if chosen not in QUANTIZED:
            continue
        _, block, _ = TENSOR_KINDS[GGML_TYPES[chosen]]
        widths = _head_widths(file, part)
        hint = "f16 and bf16 fit every model."
        if not widths and file.value("attention.head_count") and options.flash_attention == "off":
            message = f"`{field}` is {chosen!r}, but {file.path.name} does not say how wide its attention heads are."
            raise OptionError(message, hint, field=field)
        if wrong := [width for width in widths if width % block]:
            message = (
                f"`{field}` is {chosen!r}, but the attention heads of {file.path.name} are {wrong[0]} wide, "
                f"no multiple of {block}."
            )
            raise OptionError(message, hint, field=field)


def _head_widths(file: GgufFile, part: str) -> list[int]:
    """Return how wide heads are, in each kind of layer that says so: some models have others in windowed layers."""
    said = [file.value(f"attention.{part}{kind}") for kind in ("", "_swa", "_mla")]
    heads, width = file.value("attention.head_count"), file.value("embedding_length")
    widths = [one for one in said if isinstance(one, int) and not isinstance(one, ArrayLength)]
    one_number = isinstance(heads, int) and not isinstance(heads, ArrayLength) and isinstance(width, int)
    if said[0] is None and one_number and heads:
        widths.append(width // heads)
    return widths
