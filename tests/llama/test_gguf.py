"""Damaged files are found before llama.cpp sees them."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from specli.errors import ModelFileError
from specli.llama.gguf import FILE_TYPES, TENSOR_KINDS, read_gguf


def test_a_whole_file(tiny_file):
    file = read_gguf(tiny_file)
    assert (file.architecture, file.quantization, file.value("context_length")) == ("llama", "F32", 2048)
    assert file.metadata["tokenizer.ggml.tokens"] == 40
    assert file.tensor_kinds == ("F32",)
    assert file.parameters == sum(tensor.n_elements for tensor in gguf.GGUFReader(tiny_file).tensors)


def test_a_file_cut_anywhere_is_refused(tiny_file, tmp_path):
    data = tiny_file.read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in [*range(0, 3000, 7), *range(3000, len(data), 997), len(data) - 1]:
        cut.write_bytes(data[:length])
        with pytest.raises(ModelFileError) as caught:
            read_gguf(cut)
        assert caught.value.hint
        assert "\n" not in caught.value.message


def test_a_damaged_head_is_read_or_refused_but_nothing_else(tiny_file, tmp_path):
    data = bytearray(tiny_file.read_bytes())
    rng = np.random.default_rng(3)
    damaged = tmp_path / "damaged.gguf"
    refused = 0
    for _ in range(1500):
        copy = bytearray(data)
        for position in rng.integers(4, 2600, size=rng.integers(1, 4)):
            copy[position] = rng.integers(256)
        damaged.write_bytes(copy)
        try:
            read_gguf(damaged)
        except ModelFileError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 a zip file of some length", "not a GGUF file"),
        (b"GGUF" + (99).to_bytes(4, "little") + bytes(16), "version 99"),
        (b"GGUF" + (3).to_bytes(4, "little") + (2**62).to_bytes(8, "little") * 2, "announces"),
    ],
)
def test_files_that_are_no_models(content, said, tmp_path):
    path = tmp_path / "other.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=said):
        read_gguf(path)


def test_missing_and_directory(tmp_path):
    with pytest.raises(ModelFileError, match="no file"):
        read_gguf(tmp_path / "none.gguf")
    with pytest.raises(ModelFileError, match="is a directory"):
        read_gguf(tmp_path)


def test_the_tables_agree_with_the_format():
    for kind, (name, block, size) in TENSOR_KINDS.items():
        assert gguf.GGMLQuantizationType(kind).name == name
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)] == (block, size)
    names = {number: gguf.LlamaFileType(number).name for number in FILE_TYPES}
    for number, name in FILE_TYPES.items():
        assert names[number].removeprefix("MOSTLY_").removeprefix("ALL_").removesuffix("_MOE") == name
