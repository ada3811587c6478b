"""Writing models with other weights: whole files, refusals, interruption."""

from __future__ import annotations

import pytest
from tiny import write_tiny_model

from specli.errors import Interrupted, OptionError, QuantizeError
from specli.llama import quantizing
from specli.llama.gguf import read_gguf
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions
from specli.llama.quantizing import QUANTIZATIONS, quantize


def test_the_kinds():
    assert {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k_m", "q6_k"} <= set(QUANTIZATIONS)
    assert not any(name.startswith("iq") for name in QUANTIZATIONS)


@pytest.mark.parametrize(("name", "kind"), [("q8_0", "Q8_0"), ("BF16", "BF16"), ("q4_0", "Q4_0")])
def test_a_model_is_written_again(tmp_path, tiny_file, name, kind):
    shown = []
    target = tmp_path / "new.gguf"
    quantize(tiny_file, target, name, progress=lambda *at: shown.append(at))
    assert read_gguf(target).quantization == kind
    assert kind in read_gguf(target).matrix_kinds
    assert shown[-1][0] == shown[-1][1] > 5
    with LlamaModel(target, LoadOptions(context=256, threads=1)) as model:
        assert model.feed([1, 5, 6], rows=1).shape == (1, 40)
    assert [path.name for path in tmp_path.iterdir()] == ["new.gguf"]


def test_refusals(tmp_path, tiny_file):
    with pytest.raises(OptionError, match="`kind` is 'iq2_xxs'"):
        quantize(tiny_file, tmp_path / "new.gguf", "iq2_xxs")
    (tmp_path / "old.gguf").touch()
    with pytest.raises(OptionError, match="exists already"):
        quantize(tiny_file, tmp_path / "old.gguf", "q8_0")
    with pytest.raises(QuantizeError, match="cannot write to"):
        quantize(tiny_file, tmp_path / "nowhere" / "new.gguf", "q8_0")
    assert (tmp_path / "old.gguf").stat().st_size == 0


def test_interrupted_or_failed_it_leaves_nothing(tmp_path, tiny_file, monkeypatch):
    with pytest.raises(Interrupted):
        quantize(tiny_file, tmp_path / "new.gguf", "q8_0", interrupted=lambda: True)
    monkeypatch.setitem(QUANTIZATIONS, "q8_0", 12345)
    with pytest.raises(QuantizeError, match="could not write"):
        quantize(tiny_file, tmp_path / "new.gguf", "q8_0")
    assert list(tmp_path.iterdir()) == []
    assert quantizing.QUANTIZATIONS["q8_0"] == 12345


def test_many_layers(tmp_path):
    source = write_tiny_model(tmp_path / "deep.gguf", seed=3, n_layers=3)
    quantize(source, tmp_path / "new.gguf", "f16")
    assert read_gguf(tmp_path / "new.gguf").parameters == read_gguf(source).parameters
