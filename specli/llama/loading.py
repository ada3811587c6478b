"""Models that are to be in memory together: all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from specli.llama.gguf import read_gguf
from specli.llama.memory import require_memory
from specli.llama.model import LlamaModel, on_gpu, planned_context, require_backend
from specli.llama.options import LoadOptions


def load_models(
    chosen: Sequence[tuple[Path, LoadOptions | None]],
    *,
    progress: Callable[[str, float], None] = lambda name, share: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> list[LlamaModel]:
    """Load models that are to be in memory together: all of them or none.

    Args:
        chosen: each one's GGUF file, and how it is put into memory.
        progress: called with a file's name and its loaded share, 0 to 1.
        interrupted: asked during loading and long passes; True breaks off with `Interrupted`.

    Raises:
        OptionError, ModelFileError, ModelUnsupportedError, ModelLoadError, Interrupted.
    """
    for _, options in chosen:
        require_backend(options)
    files = [read_gguf(path) for path, _ in chosen]
    require_memory(
        [
            (file, planned_context(file, options))
            for file, (_, options) in zip(files, chosen, strict=True)
            if not on_gpu(options)
        ]
    )
    models: list[LlamaModel] = []
    try:
        for file, (path, options) in zip(files, chosen, strict=True):

            def share_of(share: float, name: str = path.name) -> None:
                progress(name, share)

            models.append(LlamaModel(path, options, file=file, progress=share_of, interrupted=interrupted))
    except BaseException:
        for model in models:
            model.close()
        raise
    return models
