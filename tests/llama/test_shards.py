"""Models that are cut into several files: run from the first one, and each wrong file is named."""

from __future__ import annotations

import gguf
import pytest
from tiny import write_tiny_model

from specli.errors import ModelFileError, SpecliError
from specli.llama.gguf import read_gguf
from specli.llama.loading import load_models
from specli.llama.shards import shard_names, shard_of


@pytest.fixture
def first(tmp_path):
    """Return the first of several files of a tiny model, equal to `tiny_file`."""
    return write_tiny_model(tmp_path / "tiny.gguf", seed=1, tensors_per_file=4)


def others(first):
    return [first.with_name(name) for name in shard_names(first.name)[1:]]


@pytest.mark.parametrize(
    ("name", "shard", "names"),
    [
        ("a.gguf", (1, 1), ["a.gguf"]),
        ("a-00002-of-00003.gguf", (2, 3), [f"a-0000{number}-of-00003.gguf" for number in (1, 2, 3)]),
        ("folder/a-00001-of-00001.gguf", (1, 1), ["folder/a-00001-of-00001.gguf"]),
        ("a-1-of-2.gguf", (1, 1), ["a-1-of-2.gguf"]),
    ],
)
def test_names(name, shard, names):
    assert shard_of(name) == shard
    assert shard_names(name) == names


def test_the_first_file_stands_for_all(first, tiny_file):
    file, whole = read_gguf(first), read_gguf(tiny_file)
    paths = [first, *others(first)]
    assert file.shards == len(paths) == 3
    assert file.size == sum(path.stat().st_size for path in paths)
    for fact in ("parameters", "tensor_kinds", "matrix_kinds", "quantization"):
        assert getattr(file, fact) == getattr(whole, fact)
    models = load_models([(first, None), (tiny_file, None)])
    logits = [model.feed([1, 7, 8, 9], 4).tolist() for model in models]
    for model in models:
        model.close()
    assert logits[0] == logits[1]


def refused(path):
    with pytest.raises(ModelFileError) as caught:
        read_gguf(path)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value


def test_a_later_file_names_the_first(first):
    for number, path in enumerate(others(first), 2):
        error = refused(path)
        assert error.message == f"{path} is file {number} of the 3 of a model."
        assert first.name in error.hint


def test_each_missing_file_is_named(first):
    for number, path in enumerate(others(first), 2):
        path.rename(path.with_suffix(".away"))
        assert refused(first).message == f"file {number} of the 3 of a model is missing: {path}."
        path.with_suffix(".away").rename(path)


def test_a_file_in_the_place_of_another_is_named(first, tiny_file):
    second, third = (path.read_bytes() for path in others(first))
    for path, number in zip(others(first), (2, 3), strict=True):
        good = path.read_bytes()
        for content, what in [
            (tiny_file.read_bytes(), "a whole model"),
            (first.read_bytes(), "file 1 of 3"),
            (third if number == 2 else second, f"file {5 - number} of 3"),
        ]:
            path.write_bytes(content)
            assert refused(first).message == f"{path} is {what}, but should be file {number} of the 3 of a model."
        path.write_bytes(good[:-100])
        assert str(path) in refused(first).message
        path.write_bytes(good)


def test_a_first_file_with_another_name_is_refused(first):
    for name in ("model.gguf", "tiny-00002-of-00003.gguf", "tiny-00001-of-00004.gguf"):
        renamed = first.with_name(name)
        kept = renamed.read_bytes() if renamed.exists() else None
        renamed.write_bytes(first.read_bytes())
        error = refused(renamed)
        assert error.message == f"{renamed} is the first of the 3 files of a model, named otherwise."
        assert "-00001-of-00003.gguf" in error.hint
        if kept is not None:
            renamed.write_bytes(kept)


def test_files_of_two_models_are_refused(first, tmp_path):
    (tmp_path / "other").mkdir()
    more = write_tiny_model(tmp_path / "other" / "tiny.gguf", seed=1, n_layers=2, tensors_per_file=7)
    assert len(shard_names(more.name)) == 3
    for mine, its in zip(others(first), others(more), strict=True):
        good = mine.read_bytes()
        mine.write_bytes(its.read_bytes())
        assert "tensors together" in refused(first).message
        mine.write_bytes(good)


def test_a_strange_count_is_refused(tmp_path):
    for count in (2, 65535):
        path = tmp_path / "a-00001-of-00001.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        for key, value in (("split.no", 0), ("split.count", count), ("split.tensors.count", 3)):
            writer.add_uint16(key, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        assert f"first of the {count} files" in refused(path).message


def test_tensors_that_are_there_twice_are_an_error(tmp_path):
    """Two files of two models that fit by their numbers: llama.cpp's own words."""
    (tmp_path / "other").mkdir()
    first = write_tiny_model(tmp_path / "tiny.gguf", seed=1, tensors_per_file=6)
    other = write_tiny_model(tmp_path / "other" / "tiny.gguf", seed=1, tensors_per_file=6)
    second = others(first)[0]
    data = others(other)[0].read_bytes()
    assert b"blk.0.ffn_down" in data
    second.write_bytes(data.replace(b"blk.0.ffn_down", b"blk.9.ffn_down"))
    with pytest.raises(SpecliError) as caught:
        load_models([(first, None)])
    assert "\n" not in caught.value.message
