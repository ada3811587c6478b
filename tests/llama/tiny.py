"""Tiny GGUF models with random weights, written by the tests: real llama.cpp, in milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

# The first tokens of every tiny vocabulary; after them come letters.
SPECIAL = ["<unk>", "<s>", "</s>", "<|user|>", "<|end|>"]
LETTERS = list("abcdefghijklmnopqrstuvwxyz .,\n<|>/!?0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")

TEMPLATE = (
    "{% for message in messages %}<|user|>{{ message['role'] }}\n{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|user|>assistant\n{% endif %}"
)


def add_vocabulary(
    writer: gguf.GGUFWriter,
    n_vocab: int,
    letters: list[str],
    template: str | None,
    special: list[str] | None = None,
    end_token: int = 2,
    space_prefix: bool = False,
    adds_begin: bool = True,
) -> None:
    """Add a byte-less SPM vocabulary: the special tokens, the letters, and padding."""
    texts = ((special or SPECIAL) + letters)[:n_vocab]
    texts += [f"<pad{number}>" for number in range(n_vocab - len(texts))]
    kinds = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 4
    kinds += [gguf.TokenType.NORMAL] * (n_vocab - len(kinds))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text.replace(" ", "▁").encode() for text in texts])
    writer.add_token_scores([0.0] * n_vocab)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(end_token)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(adds_begin)
    writer.add_add_space_prefix(space_prefix)
    if template is not None:
        writer.add_chat_template(template)


def write_tiny_adapter(
    path: Path,
    base: Path,
    *,
    seed: int = 0,
    rank: int = 4,
    strength: float = 0.5,
    alpha: float | None = 8.0,
    names: tuple[str, ...] = ("blk.0.attn_q.weight", "blk.0.ffn_down.weight", "output.weight"),
    kind: str = "F32",
    architecture: str = "llama",
) -> Path:
    """Write a LoRA adapter with random weights for tensors of a model; `kind` is F32, F16 or BF16."""
    rng = np.random.default_rng(seed)
    shapes = {tensor.name: tensor.shape.tolist() for tensor in gguf.GGUFReader(base).tensors}
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    if alpha is not None:
        writer.add_float32("adapter.lora.alpha", alpha)
    for name in names:
        columns, rows, *experts = shapes[name]
        sizes = (rank, columns), (rows, rank)
        if name == "token_embd.weight":
            sizes = (rows, rank), (columns, rank)
        for part, size in zip("ab", sizes, strict=True):
            values = rng.standard_normal((*experts, *size)).astype(np.float32) * strength
            if kind == "BF16":
                raw = gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16)
                writer.add_tensor(f"{name}.lora_{part}", raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
            else:
                writer.add_tensor(f"{name}.lora_{part}", values.astype(np.float16) if kind == "F16" else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_tiny_model(
    path: Path,
    *,
    seed: int,
    n_vocab: int = 40,
    n_layers: int = 1,
    width: int = 32,
    sharpness: float = 6.0,
    template: str | None = TEMPLATE,
    letters: list[str] | None = None,
    n_context: int = 2048,
    tensor_scale: float = 1.0,
    tensors_per_file: int = 0,
    **vocabulary: Any,
) -> Path:
    """Write a llama-architecture model of one byte-less SPM vocabulary.

    Args:
        path: where to.
        seed: of the random weights; equal seeds give equal models.
        n_vocab: tokens, the special ones included.
        sharpness: scale of the output weights; larger makes the distributions more uneven.
        letters: texts of the tokens after the special ones.
        tensors_per_file: the model is cut into files of so many tensors; the first one is returned. 0 for one file.
        **vocabulary: more about it, see `add_vocabulary`.
    """
    rng = np.random.default_rng(seed)
    heads, feed_forward = 2, 2 * width
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=tensors_per_file)
    writer.add_name("tiny")
    writer.add_context_length(n_context)
    writer.add_embedding_length(width)
    writer.add_block_count(n_layers)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_file_type(0)

    add_vocabulary(writer, n_vocab, letters or LETTERS, template, **vocabulary)

    def tensor(name: str, *shape: int, scale: float = 1.0) -> None:
        writer.add_tensor(name, (rng.standard_normal(shape) * scale).astype(np.float32))

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(width, dtype=np.float32))

    spread = tensor_scale / np.sqrt(width)
    tensor("token_embd.weight", n_vocab, width)
    for layer in range(n_layers):
        ones(f"blk.{layer}.attn_norm.weight")
        ones(f"blk.{layer}.ffn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensor(f"blk.{layer}.{part}.weight", width, width, scale=spread)
        tensor(f"blk.{layer}.ffn_gate.weight", feed_forward, width, scale=spread)
        tensor(f"blk.{layer}.ffn_up.weight", feed_forward, width, scale=spread)
        tensor(f"blk.{layer}.ffn_down.weight", width, feed_forward, scale=spread)
    ones("output_norm.weight")
    tensor("output.weight", n_vocab, width, scale=sharpness / np.sqrt(width))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return next(iter(sorted(path.parent.glob(f"{path.stem}-00001-of-*.gguf")))) if tensors_per_file else path
