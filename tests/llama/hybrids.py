"""GGUF models of recurrent and hybrid architectures with random weights: tiny, or as large as published ones."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType
from tiny import LETTERS, TEMPLATE, add_vocabulary


@dataclass
class Shape:
    """Sizes of a model; those of another architecture are not used."""

    width: int = 32
    layers: int = 4
    heads: int = 2
    key_heads: int = 1
    head_width: int = 16
    feed_forward: int = 64
    attention: Collection[int] = (2,)  # layers with attention; the others are recurrent
    state: int = 16  # values of a state
    state_heads: int = 2
    state_groups: int = 1
    kernel: int = 4  # of convolutions
    rope: int = 16
    window: int = 0  # tokens; 0 is no sliding window
    n_vocab: int = 40
    n_context: int = 4096
    sharpness: float = 6.0
    tied: bool = False  # the output layer is the embedding


@dataclass
class HybridWriter:
    """Writes one file: `kind` is the type of its matrices, F32, F16 or Q8_0."""

    path: Path
    architecture: str
    shape: Shape
    seed: int = 0
    kind: str = "F32"
    writer: gguf.GGUFWriter = field(init=False)

    def __post_init__(self) -> None:
        shape = self.shape
        self.rng = np.random.default_rng(self.seed)
        self.writer = writer = gguf.GGUFWriter(self.path, self.architecture)
        writer.add_name(f"tiny {self.architecture}")
        writer.add_context_length(shape.n_context)
        writer.add_embedding_length(shape.width)
        writer.add_block_count(shape.layers)
        writer.add_feed_forward_length(shape.feed_forward)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_file_type({"F32": 0, "F16": 1, "Q8_0": 7}[self.kind])
        add_vocabulary(writer, shape.n_vocab, LETTERS, TEMPLATE)

    def matrix(self, name: str, *size: int, scale: float | None = None) -> None:
        """Add a matrix [rows, columns], with whose columns is multiplied."""
        scale = 1 / np.sqrt(size[-1]) if scale is None else scale
        values = self.rng.standard_normal(size, dtype=np.float32) * np.float32(scale)
        if self.kind == "Q8_0" and size[-1] % 32 == 0:
            quantized = gguf.quants.quantize(values, GGMLQuantizationType.Q8_0)
            self.writer.add_tensor(name, quantized, raw_dtype=GGMLQuantizationType.Q8_0)
        else:
            self.writer.add_tensor(name, values.astype(np.float16) if self.kind == "F16" else values)

    def plain(self, name: str, values) -> None:
        """Add a tensor that is never quantized."""
        self.writer.add_tensor(name, np.asarray(values, dtype=np.float32))

    def ones(self, name: str, *size: int) -> None:
        self.plain(name, np.ones(size))

    def noise(self, name: str, *size: int, scale: float = 1.0, shift: float = 0.0) -> None:
        self.plain(name, self.rng.standard_normal(size) * scale + shift)

    def ends(self, norm: str = "output_norm.weight") -> None:
        shape = self.shape
        self.matrix("token_embd.weight", shape.n_vocab, shape.width, scale=1.0)
        self.ones(norm, shape.width)
        if not shape.tied:
            self.matrix("output.weight", shape.n_vocab, shape.width, scale=shape.sharpness / np.sqrt(shape.width))

    def add_heads(self, key_heads_of_layers: bool) -> None:
        shape = self.shape
        self.writer.add_head_count(shape.heads)
        each = [shape.key_heads if layer in shape.attention else 0 for layer in range(shape.layers)]
        self.writer.add_head_count_kv(each if key_heads_of_layers else shape.key_heads)

    def add_state(self, inner: int, rank: int, groups: int | None = None) -> None:
        self.writer.add_ssm_conv_kernel(self.shape.kernel)
        self.writer.add_ssm_inner_size(inner)
        self.writer.add_ssm_state_size(self.shape.state)
        self.writer.add_ssm_time_step_rank(rank)
        if groups is not None:
            self.writer.add_ssm_group_count(groups)

    def attention(self, block: str, head_width: int, *, gated: bool = False, norms: bool = True) -> None:
        shape = self.shape
        self.matrix(f"{block}.attn_q.weight", shape.heads * head_width * (1 + gated), shape.width)
        self.matrix(f"{block}.attn_k.weight", shape.key_heads * head_width, shape.width)
        self.matrix(f"{block}.attn_v.weight", shape.key_heads * head_width, shape.width)
        self.matrix(f"{block}.attn_output.weight", shape.width, shape.heads * head_width)
        if norms:
            self.ones(f"{block}.attn_q_norm.weight", head_width)
            self.ones(f"{block}.attn_k_norm.weight", head_width)

    def feed_forward(self, block: str) -> None:
        self.matrix(f"{block}.ffn_gate.weight", self.shape.feed_forward, self.shape.width)
        self.matrix(f"{block}.ffn_up.weight", self.shape.feed_forward, self.shape.width)
        self.matrix(f"{block}.ffn_down.weight", self.shape.width, self.shape.feed_forward)

    def finish(self) -> Path:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        return self.path


def write_mamba(path: Path, shape: Shape | None = None, *, seed: int = 0, kind: str = "F32") -> Path:
    """Write a Mamba: every layer is recurrent."""
    shape = shape or Shape(layers=3, state=8)
    model = HybridWriter(path, "mamba", shape, seed, kind)
    inner, rank = 2 * shape.width, max(2, shape.width // 16)
    model.writer.add_head_count(0)
    model.add_state(inner, rank)
    model.ends()
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        model.ones(f"{block}.attn_norm.weight", shape.width)
        model.matrix(f"{block}.ssm_in.weight", 2 * inner, shape.width)
        model.noise(f"{block}.ssm_conv1d.weight", inner, shape.kernel, scale=0.5)
        model.noise(f"{block}.ssm_conv1d.bias", inner, scale=0.1)
        model.matrix(f"{block}.ssm_x.weight", rank + 2 * shape.state, inner)
        model.matrix(f"{block}.ssm_dt.weight", inner, rank)
        model.noise(f"{block}.ssm_dt.bias", inner, scale=0.5, shift=-1.0)
        model.plain(f"{block}.ssm_a", -np.tile(np.arange(1.0, shape.state + 1), (inner, 1)))
        model.ones(f"{block}.ssm_d", inner)
        model.matrix(f"{block}.ssm_out.weight", shape.width, inner)
    return model.finish()


def write_granite(path: Path, shape: Shape | None = None, *, seed: int = 0, kind: str = "F32") -> Path:
    """Write a Granite 4 H: Mamba 2 layers, and some with attention."""
    shape = shape or Shape(state_heads=4)
    model = HybridWriter(path, "granitehybrid", shape, seed, kind)
    inner = 2 * shape.width
    convolved = inner + 2 * shape.state_groups * shape.state
    model.add_heads(key_heads_of_layers=True)
    model.writer.add_key_length(shape.head_width)
    model.writer.add_value_length(shape.head_width)
    model.writer.add_rope_dimension_count(shape.head_width)
    model.add_state(inner, shape.state_heads, shape.state_groups)
    model.ends()
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        model.ones(f"{block}.attn_norm.weight", shape.width)
        if layer in shape.attention:
            model.attention(block, shape.head_width, norms=False)
        else:
            model.matrix(f"{block}.ssm_in.weight", inner + convolved + shape.state_heads, shape.width)
            model.noise(f"{block}.ssm_conv1d.weight", convolved, shape.kernel, scale=0.5)
            model.noise(f"{block}.ssm_conv1d.bias", convolved, scale=0.1)
            model.noise(f"{block}.ssm_dt.bias", shape.state_heads, scale=0.5, shift=-1.0)
            model.plain(f"{block}.ssm_a", -np.linspace(1, 4, shape.state_heads).reshape(-1, 1))
            model.ones(f"{block}.ssm_d", shape.state_heads, 1)
            model.ones(f"{block}.ssm_norm.weight", shape.state_groups, inner // shape.state_groups)
            model.matrix(f"{block}.ssm_out.weight", shape.width, inner)
        model.ones(f"{block}.ffn_norm.weight", shape.width)
        model.feed_forward(block)
    return model.finish()


def write_lfm2(path: Path, shape: Shape | None = None, *, seed: int = 0, kind: str = "F32") -> Path:
    """Write an LFM2: short convolutions, and some layers with attention, perhaps over a sliding window."""
    shape = shape or Shape(kernel=3)
    model = HybridWriter(path, "lfm2", shape, seed, kind)
    head_width = shape.width // shape.heads
    model.add_heads(key_heads_of_layers=True)
    model.writer.add_shortconv_l_cache(shape.kernel)
    model.writer.add_rope_dimension_count(head_width)
    model.writer.add_rope_freq_base(1e6)
    if shape.window:
        model.writer.add_sliding_window(shape.window)
    model.ends(norm="token_embd_norm.weight")
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        model.ones(f"{block}.attn_norm.weight", shape.width)
        model.ones(f"{block}.ffn_norm.weight", shape.width)
        if layer in shape.attention:
            model.attention(block, head_width)
        else:
            model.noise(f"{block}.shortconv.conv.weight", shape.width, shape.kernel, scale=0.6)
            model.matrix(f"{block}.shortconv.in_proj.weight", 3 * shape.width, shape.width)
            model.matrix(f"{block}.shortconv.out_proj.weight", shape.width, shape.width)
        model.feed_forward(block)
    return model.finish()


def write_qwen35(path: Path, shape: Shape | None = None, *, seed: int = 0, kind: str = "F32", every: int = 4) -> Path:
    """Write a Qwen 3.5: gated delta nets, attention in every fourth layer, and one more for multi-token prediction."""
    shape = shape or Shape(state_groups=2)
    trunk, layers = shape.layers, shape.layers + 1
    model = HybridWriter(path, "qwen35", Shape(**{**vars(shape), "layers": layers}), seed, kind)
    section = shape.rope // 2 // 3
    inner = shape.state * shape.state_heads
    convolved = inner + 2 * shape.state * shape.state_groups
    model.add_heads(key_heads_of_layers=False)
    model.writer.add_key_length(shape.head_width)
    model.writer.add_value_length(shape.head_width)
    model.writer.add_rope_dimension_count(shape.rope)
    model.writer.add_array("qwen35.rope.dimension_sections", [shape.rope // 2 - 2 * section, section, section, 0])
    model.writer.add_rope_freq_base(1e7)
    model.writer.add_uint32("qwen35.full_attention_interval", every)
    model.writer.add_uint32("qwen35.nextn_predict_layers", 1)
    model.add_state(inner, shape.state_heads, shape.state_groups)
    model.ends()
    for layer in range(layers):
        block = f"blk.{layer}"
        model.ones(f"{block}.attn_norm.weight", shape.width)
        model.ones(f"{block}.post_attention_norm.weight", shape.width)
        if layer >= trunk or (layer + 1) % every == 0:
            model.attention(block, shape.head_width, gated=True)
        else:
            model.matrix(f"{block}.attn_qkv.weight", convolved, shape.width)
            model.matrix(f"{block}.attn_gate.weight", inner, shape.width)
            model.noise(f"{block}.ssm_conv1d.weight", convolved, shape.kernel, scale=0.5)
            model.noise(f"{block}.ssm_dt.bias", shape.state_heads, scale=0.5)
            model.plain(f"{block}.ssm_a", -np.linspace(0.2, 1.5, shape.state_heads))
            model.matrix(f"{block}.ssm_beta.weight", shape.state_heads, shape.width)
            model.matrix(f"{block}.ssm_alpha.weight", shape.state_heads, shape.width)
            model.ones(f"{block}.ssm_norm.weight", shape.state)
            model.matrix(f"{block}.ssm_out.weight", shape.width, inner)
        model.feed_forward(block)
        if layer >= trunk:
            model.matrix(f"{block}.nextn.eh_proj.weight", shape.width, 2 * shape.width)
            for norm in ("enorm", "hnorm", "shared_head_norm"):
                model.ones(f"{block}.nextn.{norm}.weight", shape.width)
    return model.finish()


WRITERS = {"mamba": write_mamba, "granitehybrid": write_granite, "lfm2": write_lfm2, "qwen35": write_qwen35}
