"""Wrong kinds of files are named, and numbers that would end the process are found before llama.cpp sees them."""

from __future__ import annotations

import math

import pytest
from damage import STRING, Parts, changed

from specli.errors import ModelFileError, ModelUnsupportedError
from specli.llama.gguf import read_gguf
from specli.llama.model import LlamaModel, load_vocabulary
from specli.llama.options import LoadOptions

U32, F32, BOOL = 4, 6, 7


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"general__type": (STRING, b"adapter")}, "LoRA adapter"),
        ({"adapter__type": (STRING, b"lora")}, "LoRA adapter"),
        ({"general__type": (STRING, b"mmproj")}, "mmproj"),
        ({"general__architecture": (STRING, b"clip")}, "mmproj"),
        ({"general__type": (STRING, b"imatrix")}, "importance matrix"),
        ({"general__architecture": (STRING, b"bert")}, "embedding model"),
        ({"llama__pooling_type": (U32, 3)}, "embedding model"),
        ({"llama__attention__causal": (BOOL, False)}, "embedding model"),
        ({"tokenizer__ggml__model": (STRING, b"no_vocab")}, "has no vocabulary"),
    ],
)
def test_other_kinds_of_files(tiny_file, tmp_path, values, said):
    with pytest.raises(ModelUnsupportedError, match=said) as caught:
        LlamaModel(changed(tiny_file, tmp_path / "x.gguf", **values))
    assert caught.value.hint


def test_a_file_without_weights_is_good_for_its_vocabulary(tiny_file, tmp_path):
    parts = Parts(tiny_file.read_bytes())
    parts.tensors = []
    path = parts.write(tmp_path / "x.gguf")
    assert load_vocabulary(path).size == 40
    with pytest.raises(ModelUnsupportedError, match="no weights"):
        LlamaModel(path)


@pytest.mark.parametrize(
    "values",
    [
        {"llama__block_count": (U32, 0)},
        {"llama__block_count": (U32, 513)},
        {"llama__context_length": (U32, 0)},
        {"llama__embedding_length": (U32, 0)},
        {"llama__expert_count": (U32, 2)},
        {"llama__expert_used_count": (U32, 2)},
        {"llama__expert_count": (U32, 2), "llama__expert_used_count": (U32, 3)},
        {"llama__attention__layer_norm_rms_epsilon": (F32, -1.0)},
        {"llama__attention__layer_norm_rms_epsilon": (F32, math.nan)},
        {"llama__attention__head_count": (U32, 3)},
        {"llama__rope__scaling__type": (STRING, b"x")},
        {"tokenizer__chat_template": (U32, 3)},
        {"general__alignment": (U32, 48)},
        {"general__alignment": (U32, 1)},
    ],
)
def test_numbers_that_would_end_the_process(tiny_file, tmp_path, values):
    with pytest.raises(ModelFileError):
        LlamaModel(changed(tiny_file, tmp_path / "x.gguf", **values))


@pytest.mark.parametrize("kind", [9, 24, 25, 26, 27, 28])
def test_matrices_that_are_no_weights(tiny_file, tmp_path, kind):
    parts = Parts(tiny_file.read_bytes())
    next(tensor for tensor in parts.tensors if tensor.name == b"blk.0.attn_q.weight").kind = kind
    parts.weights += bytes(10_000)
    with pytest.raises(ModelFileError, match="matrices of type"):
        LlamaModel(parts.write(tmp_path / "x.gguf"))


def test_big_endian_files(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "big") + bytes(64))
    with pytest.raises(ModelFileError, match="big-endian"):
        read_gguf(path)


def test_what_is_not_finite_is_text(tiny_file, tmp_path):
    path = changed(tiny_file, tmp_path / "x.gguf", llama__one=(F32, math.inf), llama__two=(F32, math.nan))
    file = read_gguf(path)
    assert (file.value("one"), file.value("two")) == ("inf", "nan")


def test_exact_mode_with_a_batch_of_one(tiny_file):
    with LlamaModel(tiny_file, LoadOptions(batch=1, exact=True, context=64, gpu_layers=0)) as model:
        assert model.feed([1, 5, 6], rows=1).shape == (1, 40)
