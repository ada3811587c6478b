"""Models that are to be in memory together: all of them or none, and only if they fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from specli.errors import ModelLoadError
from specli.llama import hardware
from specli.llama.adapters import read_adapters
from specli.llama.cache import cached_states, state_bytes
from specli.llama.cache_types import value_bytes
from specli.llama.fitness import require_runnable
from specli.llama.gguf import GgufFile, read_gguf
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions
from specli.llama.parameters import on_gpu, planned_context, require_backend, require_possible


def load_models(
    chosen: Sequence[tuple[Path, LoadOptions | None]],
    *,
    progress: Callable[[str, float], None] = lambda name, share: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> list[LlamaModel]:
    """Load models, each from its GGUF file with its options: all of them or none.

    `progress` is called with a file's name and its loaded share, 0 to 1; `interrupted` is asked during loading and long
    passes, and True breaks off.

    Raises:
        OptionError, ModelFileError, ModelUnsupportedError, ModelLoadError, Interrupted.
    """
    wanted = [options or LoadOptions() for _, options in chosen]
    for options in wanted:
        require_backend(options)
    planned = [(read_gguf(path), options) for (path, _), options in zip(chosen, wanted, strict=True)]
    for file, options in planned:
        require_runnable(file)
        require_possible(file, options)
    sizes = [_needed_bytes(file, options) for file, options in planned]
    _require_memory([(file, size) for (file, options), size in zip(planned, sizes, strict=True) if not on_gpu(options)])
    models: list[LlamaModel] = []
    try:
        for file, options in planned:
            share_of = partial(progress, file.path.name)
            models.append(LlamaModel(file.path, options, file=file, progress=share_of, interrupted=interrupted))
    except BaseException:
        for model in models:
            model.close()
        raise
    return models


def _require_memory(models: Sequence[tuple[GgufFile, int]]) -> None:
    """Refuse files that, each with its cache, do not fit into this machine's memory together."""
    available = hardware.available_memory()
    if sum(size for _, size in models) > available:
        parts = " + ".join(f"{size / 1e9:.2f} GB for {file.path.name}" for file, size in models)
        hint = (
            "A smaller model or `context` needs less, and so do `cache_type_k` and `cache_type_v` 'q8_0'; "
            "`draft_model` 'none' goes without the second model."
        )
        raise ModelLoadError(f"{parts} do not fit in the {available / 1e9:.2f} GB of memory that are free.", hint)


def _needed_bytes(file: GgufFile, options: LoadOptions) -> int:
    """Return about how many bytes a model takes: its weights, adapters and states, and a full context.

    Raises:
        ModelFileError, ModelUnsupportedError: an adapter cannot be used.
    """

    def number(key: str) -> int:
        value = file.value(key)
        return value if isinstance(value, int) else 0

    heads = number("attention.head_count")
    key_heads = min(number("attention.head_count_kv") or heads, heads)  # a list counts as its length
    width = number("embedding_length") // heads if heads else 0
    key = (number("attention.key_length") or width) * value_bytes(options.cache_type_k)
    value = (number("attention.value_length") or width) * value_bytes(options.cache_type_v)
    layers = number("block_count") - file.recurrent_layers or number("block_count")
    cache = int(layers * key_heads * (key + value) * planned_context(file, options))
    adapters = sum(adapter.file.size for adapter in read_adapters(file, options))
    return file.size + adapters + cache + cached_states(file, options) * state_bytes(file)
