"""LoRA adapters: files of small matrices that change what a model says.

llama.cpp looks at few of the things that can be wrong with such a file. For most of the others it ends the process,
some at the first pass only, so all of them are found here, in the file's header.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specli.errors import ModelFileError, ModelLoadError, ModelUnsupportedError
from specli.llama.binding import last_complaint, llama_cpp
from specli.llama.fitness import NOT_WEIGHTS
from specli.llama.gguf import Float64, GgufFile, Tensor, read_gguf
from specli.llama.options import LoadOptions

_EMBEDDING = "token_embd.weight"
_SAMPLE = 1 << 16  # bytes at both ends of a file that tell it from others
_ANOTHER = "Choose an adapter that was made for this model."
_CONVERT = "Name an adapter in GGUF format; llama.cpp's convert_lora_to_gguf.py converts others."


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter that fits its model."""

    file: GgufFile
    scale: float

    @property
    def key(self) -> str:
        """What tells it from others, as text: its size, its ends, and its scale."""
        with self.file.path.open("rb") as file:
            digest = hashlib.sha256(file.read(_SAMPLE))
            file.seek(max(0, self.file.size - _SAMPLE))
            digest.update(file.read(_SAMPLE))
        return f"{digest.hexdigest()[:16]}-{self.file.size}-{self.scale:g}"


def read_adapters(base: GgufFile, options: LoadOptions) -> tuple[Adapter, ...]:
    """Return the adapters that a model is to be loaded with, after a look at their headers.

    Raises:
        ModelFileError: a file is missing, damaged or no GGUF file.
        ModelUnsupportedError: it is no LoRA adapter, or does not fit the model.
    """
    return tuple(Adapter(_read(base, Path(path)), float(scale)) for path, scale in options.lora)


def _read(base: GgufFile, path: Path) -> GgufFile:
    try:
        file = read_gguf(path)
    except (ModelFileError, ValueError) as error:  # a zero byte in a path is a ValueError
        message = f"`lora` cannot be read: {error}"
        raise ModelFileError(message.removesuffix(".") + ".", _CONVERT, field="lora") from None
    if problem := _other_kind(file):
        raise ModelUnsupportedError(f"`lora` is {path}, which {problem}.", _CONVERT, field="lora")
    if file.metadata["general.architecture"] != base.architecture:
        message = f"{path} is an adapter for {file.architecture} models, but {base.path.name} is {base.architecture}."
        raise ModelUnsupportedError(message, _ANOTHER, field="lora")
    if problem := _misfit(base.tensors, file.tensors):
        message = f"{path} does not fit {base.path.name}: {problem}."
        raise ModelUnsupportedError(message, _ANOTHER, field="lora")
    return file


def _other_kind(file: GgufFile) -> str:
    """Return why a file is no adapter that can be used, '' if it is one."""
    said = {key: file.metadata.get(key) for key in ("general.type", "adapter.type", "general.architecture")}
    if said["general.type"] != "adapter":
        return "is a model, not an adapter" if file.value("block_count") else "is no adapter"
    if said["adapter.type"] != "lora":
        return f"is an adapter of type {said['adapter.type']}, not a LoRA"
    if not isinstance(said["general.architecture"], str):
        return "does not say for which architecture it is"
    alpha = file.metadata.get("adapter.lora.alpha", 0.0)
    if not isinstance(alpha, float) or isinstance(alpha, Float64):
        return f"has an adapter.lora.alpha of {alpha!r}, no number of 32 bits"
    if "adapter.alora.invocation_tokens" in file.metadata:
        return "is an activated LoRA, which holds only for what follows certain tokens"
    if file.shards > 1:
        return "is cut into several files"
    return "" if file.tensors else "has no tensors"


def _misfit(base: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> str:
    """Return what does not fit, '' if all does. llama.cpp leaves out normalization weights, and so does this."""
    for name, tensor in tensors.items():
        if name.endswith("_norm.weight"):
            continue
        stem, dot, part = name.rpartition(".")
        if not dot or part not in ("lora_a", "lora_b"):
            return f"it has a tensor {name}, neither lora_a nor lora_b"
        if tensor.kind in NOT_WEIGHTS or tensor.kind.startswith("kind "):
            return f"its tensor {name} is of type {tensor.kind}"
        other = f"{stem}.{'lora_b' if part == 'lora_a' else 'lora_a'}"
        if other not in tensors:
            return f"it has {name} without {other}"
        if stem not in base:
            return f"there is no tensor {stem}"
        shapes = [_shape(one) for one in (base[stem], tensors[f"{stem}.lora_a"], tensors[f"{stem}.lora_b"])]
        if not _fits(stem, *shapes):
            texts = ["x".join(map(str, shape)) for shape in shapes]
            return f"{stem} is {texts[0]}, but lora_a is {texts[1]} and lora_b is {texts[2]}"
        if stem == _EMBEDDING and "output.weight" not in base:
            return f"{stem} is its output, too, and llama.cpp cannot adapt such a tensor"
    return ""


def _shape(tensor: Tensor) -> tuple[int, ...]:
    """Return a shape of two dimensions and more, without empty ones at its end."""
    shape = list(tensor.shape)
    while len(shape) > 2 and shape[-1] == 1:
        shape.pop()
    return (*shape, *[1] * (2 - len(shape)))


def _fits(name: str, base: Sequence[int], down: Sequence[int], up: Sequence[int]) -> bool:
    """Whether rows can be multiplied with `down`, lora_a, and that with `up`, lora_b, instead of with `base`."""
    if 0 in (*down, *up) or base[1] == 1 or not base[2:] == down[2:] == up[2:]:
        return False
    if name == _EMBEDDING:  # rows are taken out of lora_a instead
        return (down[1], up[1], down[0]) == (base[1], base[0], up[0])
    return (down[0], up[1], down[1]) == (base[0], base[1], up[0])


def load_adapters(model: Any, adapters: Sequence[Adapter]) -> list[Any]:
    """Load adapters beside a model, before it gets a context: that is made with room for them. They end with it.

    Raises:
        ModelLoadError: llama.cpp refused one.
    """
    loaded = []
    for adapter in adapters:
        last_complaint()
        found = llama_cpp.llama_adapter_lora_init(model, os.fsencode(adapter.file.path))
        if not found:
            message = f"llama.cpp cannot load {adapter.file.path}: {last_complaint() or 'no reason given'}."
            raise ModelLoadError(message, _ANOTHER, field="lora")
        loaded.append(found)
    return loaded


def set_adapters(context: Any, loaded: Sequence[Any], adapters: Sequence[Adapter]) -> None:
    """Have all passes of a context use adapters."""
    if adapters:
        pointers = (llama_cpp.llama_adapter_lora_p_ctypes * len(loaded))(
            *(ctypes.cast(one, llama_cpp.llama_adapter_lora_p_ctypes) for one in loaded)
        )
        scales = (ctypes.c_float * len(loaded))(*(adapter.scale for adapter in adapters))
        llama_cpp.llama_set_adapters_lora(context, pointers, len(loaded), scales)
