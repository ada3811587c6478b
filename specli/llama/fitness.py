"""Which GGUF files can be run, by what they say of themselves.

Wrong kinds of files are named, and numbers with which llama.cpp would end the process are found before it sees them.
"""

from __future__ import annotations

from specli.errors import ModelFileError, ModelUnsupportedError
from specli.llama.gguf import ArrayLength, GgufFile

_EMBEDDING = {
    "bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert", "neo-bert", "eurobert",
    "gemma-embedding", "t5encoder",
}  # fmt: skip
_MOST = 512  # layers, and experts, that llama.cpp takes
NOT_WEIGHTS = {"kind 9", "kind 15", "I8", "I16", "I32", "I64", "F64"}  # 9 and 15 are Q8_1 and Q8_K
_REPLACE = "Fetch the file again, or convert the model again."
_ANOTHER = "Choose another model."


def require_runnable(file: GgufFile, *, weights: bool = True) -> None:
    """Refuse files that are no language models, or would end the process; without `weights` a vocabulary is enough.

    Raises:
        ModelUnsupportedError: it is another kind of file or model.
        ModelFileError: it says something impossible.
    """
    kind, hint = _other_kind(file, weights)
    if kind:
        raise ModelUnsupportedError(f"{file.path.name} {kind}.", hint)
    if impossible := _impossible(file):
        raise ModelFileError(f"{file.path} is damaged: {impossible}.", _REPLACE)


def _other_kind(file: GgufFile, weights: bool) -> tuple[str, str]:
    said = str(file.metadata.get("general.type", "model"))
    if said == "adapter" or "adapter.type" in file.metadata:
        return "is a LoRA adapter, not a model", "Merge it into its model with llama.cpp's llama-export-lora."
    if said == "mmproj" or file.architecture == "clip":
        return "is the vision or audio part of a model (mmproj)", "Name the model's main file, which lies beside it."
    if said == "imatrix":
        return "is an importance matrix for quantizing, not a model", _ANOTHER
    if weights and not file.parameters:
        return "has no weights, only a vocabulary", "Fetch the whole model."
    if file.metadata.get("tokenizer.ggml.model") in ("no_vocab", "none"):
        return "has no vocabulary", "Convert the model again, with its tokenizer."
    pooled = file.value("pooling_type", 0) not in (0, -1, 2**32 - 1)
    if weights and (file.architecture in _EMBEDDING or pooled or file.value("attention.causal") is False):
        return f"({file.architecture}) is an embedding model and does not continue text", _ANOTHER
    return "", ""


def _impossible(file: GgufFile) -> str:
    """Return what llama.cpp would not survive, '' if nothing."""
    for key in ("block_count", "context_length", "embedding_length"):
        value = file.value(key)
        if value is not None and not (isinstance(value, int) and value > 0):
            return f"its {key} is {value}"
    if file.value("block_count", 1) > _MOST:
        return f"its block_count is {file.value('block_count')}, but must be at most {_MOST}"
    experts, used = (file.value(key, 0) for key in ("expert_count", "expert_used_count"))
    if not isinstance(experts, int) or not 0 <= experts <= _MOST:
        return f"its expert_count is {experts}, but must be at most {_MOST}"
    if not isinstance(used, int) or (not isinstance(used, ArrayLength) and not min(1, experts) <= used <= experts):
        return f"{used} of its {experts} experts are used"
    for key in ("layer_norm_rms_epsilon", "layer_norm_epsilon"):
        value = file.value(f"attention.{key}", 0.0)
        if not isinstance(value, (int, float)) or value < 0:
            return f"its {key} is {value}"
    heads, width = file.value("attention.head_count"), file.value("embedding_length", 0)
    one_number = isinstance(heads, int) and not isinstance(heads, ArrayLength)
    # Recurrent models have no heads.
    if one_number and heads > 0 and width % heads and file.value("attention.key_length") is None:
        return f"its embedding_length {width} is no multiple of its head_count {heads}"
    if file.value("rope.scaling.type", "none") not in ("none", "linear", "yarn", "longrope"):
        return f"its rope.scaling.type is {file.value('rope.scaling.type')!r}"
    if wrong := file.matrix_kinds & NOT_WEIGHTS:
        return f"it has matrices of type {min(wrong)}"
    return ""
