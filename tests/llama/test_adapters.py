"""LoRA adapters: they change the target and nothing else, and what does not fit is refused before llama.cpp sees it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from damage import ARRAY, STRING, Parts, changed
from hybrids import WRITERS
from tiny import write_tiny_adapter, write_tiny_model

from specli.engine.engine import Engine
from specli.errors import ModelFileError, ModelUnsupportedError, OptionError, SpecliError
from specli.llama.adapters import read_adapters
from specli.llama.gguf import read_gguf
from specli.llama.loading import load_models
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions

LOAD = LoadOptions(context=256, threads=1, batch=32)
TEXT = np.random.default_rng(1).integers(5, 40, 60).tolist()
U32, F32, F64 = 4, 6, 12


@pytest.fixture(scope="module")
def adapter(tiny_file, tmp_path_factory):
    return write_tiny_adapter(tmp_path_factory.mktemp("adapter") / "style.gguf", tiny_file)


def adapted(*adapters, **changes) -> LoadOptions:
    pairs = tuple((str(path), scale) for path, scale in adapters)
    return replace(LOAD, lora=pairs, **changes)


def logits(path, load: LoadOptions) -> np.ndarray:
    with LlamaModel(path, load) as model:
        return model.feed(TEXT[:20], rows=20).copy()


def test_an_adapter_does_what_its_matrices_say(tiny_file, adapter, tmp_path):
    """The adapted model has the logits of one whose weights have the product of the two matrices added."""
    parts, delta = Parts(tiny_file.read_bytes()), Parts(adapter.read_bytes())

    def matrix(of: Parts, tensor) -> np.ndarray:
        count = int(np.prod(tensor.shape))
        return np.frombuffer(of.weights, np.float32, count, tensor.offset).reshape(tensor.shape[::-1])

    small = {tensor.name: matrix(delta, tensor) for tensor in delta.tensors}
    weights = bytearray(parts.weights)
    for tensor in parts.tensors:
        if (down := small.get(tensor.name + b".lora_a")) is not None:
            up = small[tensor.name + b".lora_b"]
            merged = matrix(parts, tensor) + 0.5 * 8.0 / 4 * up @ down  # scale, alpha, rank
            weights[tensor.offset : tensor.offset + merged.nbytes] = merged.astype(np.float32).tobytes()
    parts.weights = bytes(weights)
    merged_file = parts.write(tmp_path / "merged.gguf")
    found = logits(tiny_file, adapted((adapter, 0.5)))
    assert np.abs(found - logits(merged_file, LOAD)).max() < 1e-2
    assert np.abs(found - logits(tiny_file, LOAD)).max() > 1  # it is not the base model's


def test_without_and_at_scale_0_the_model_is_what_it_was(tiny_file, adapter):
    base = logits(tiny_file, LOAD)
    assert not np.array_equal(base, logits(tiny_file, adapted((adapter, 1.0))))
    assert np.array_equal(base, logits(tiny_file, adapted((adapter, 0.0))))
    assert np.array_equal(base, logits(tiny_file, LOAD))


def test_several_adapters_add_up(tiny_file, adapter, tmp_path):
    other = write_tiny_adapter(tmp_path / "other.gguf", tiny_file, seed=7, alpha=None)
    one, two, both = (
        logits(tiny_file, adapted(*chosen))
        for chosen in ([(adapter, 1.0)], [(other, 1.0)], [(adapter, 1.0), (other, 1.0)])
    )
    assert not np.allclose(one, both) and not np.allclose(two, both)
    halves = logits(tiny_file, adapted((adapter, 0.5), (adapter, 0.5)))
    assert np.abs(halves - one).max() < 1e-2


@pytest.mark.parametrize("verification", ["block", "match"])
def test_drafts_change_nothing_and_the_draft_model_has_no_adapter(
    tiny_file, tiny_draft_file, adapter, home, verification
):
    with Engine.load(tiny_file, tiny_draft_file, adapted((adapter, 0.3), exact=True, gpu_layers=0)) as engine:
        assert engine.draft.adapters == ()
        texts = [
            engine.complete(
                "abc", temperature=0, max_tokens=60, draft_length=length, verification=verification, ignore_eos=True
            ).tokens
            for length in (0, 1, 4, 8)
        ]
    assert texts[1:] == texts[:1] * 3
    with Engine.load(tiny_file, None, LOAD) as engine:
        base = engine.complete("abc", temperature=0, max_tokens=60, draft_length=0, ignore_eos=True)
    assert base.tokens != texts[0]


def test_an_adapter_of_the_embedding(tiny_file, tmp_path):
    path = write_tiny_adapter(tmp_path / "lora.gguf", tiny_file, names=("token_embd.weight",))
    assert not np.allclose(logits(tiny_file, adapted((path, 1.0))), logits(tiny_file, LOAD))


def test_cost_keys(tiny_file, adapter, tmp_path):
    other = write_tiny_adapter(tmp_path / "other.gguf", tiny_file, seed=9)
    assert other.stat().st_size == adapter.stat().st_size
    keys = []
    for load in (LOAD, adapted((adapter, 1.0)), adapted((adapter, 0.5)), adapted((other, 1.0)),
                 adapted((other, 1.0), (adapter, 1.0)), adapted((adapter, 1.0), (other, 1.0))):  # fmt: skip
        with LlamaModel(tiny_file, load) as model:
            keys.append(model.cost_key)
    assert len(set(keys)) == len(keys)
    moved = tmp_path / "moved.gguf"
    moved.write_bytes(adapter.read_bytes())
    with LlamaModel(tiny_file, adapted((moved, 1.0))) as model:
        assert model.cost_key == keys[1]


def refusal(tiny_file, path) -> SpecliError:
    """Return why an adapter is refused, by both ways in; llama.cpp has not seen it then."""
    errors = []
    for load in (lambda one: load_models([(tiny_file, one)]), lambda one: read_adapters(read_gguf(tiny_file), one)):
        with pytest.raises(SpecliError) as caught:
            load(adapted((path, 1.0)))
        errors.append(caught.value)
    assert errors[0].message == errors[1].message
    assert errors[0].field == "lora" and errors[0].hint and "\n" not in errors[0].message
    return errors[0]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"general__type": (STRING, b"model")}, "is no adapter"),
        ({"general__type": (U32, 3)}, "is no adapter"),
        ({"general__type": None}, "is no adapter"),
        ({"adapter__type": (STRING, b"control_vector")}, "adapter of type control_vector, not a LoRA"),
        ({"adapter__type": None}, "adapter of type None"),
        ({"general__architecture": (STRING, b"qwen2")}, "for qwen2 models, but target.gguf is llama"),
        ({"general__architecture": (U32, 1)}, "does not say for which architecture"),
        ({"general__architecture": None}, "does not say for which architecture"),
        ({"adapter__lora__alpha": (F64, 8.0)}, "alpha of 8.0, no number of 32 bits"),
        ({"adapter__lora__alpha": (U32, 8)}, "alpha of 8, no"),
        ({"adapter__lora__alpha": (F32, float("nan"))}, "alpha of 'nan'"),
        ({"adapter__alora__invocation_tokens": (ARRAY, (U32, [(U32, 1)]))}, "activated LoRA"),
    ],
)
def test_other_kinds_of_adapters(tiny_file, adapter, tmp_path, values, said):
    if values.get("adapter__alora__invocation_tokens"):
        values = {"adapter__alora__invocation_tokens": (ARRAY, (U32, [1, 2]))}
    error = refusal(tiny_file, changed(adapter, tmp_path / "x.gguf", **values))
    assert isinstance(error, ModelUnsupportedError) and said in error.message


def test_a_model_is_no_adapter(tiny_file, tiny_draft_file):
    assert "is a model, not an adapter" in refusal(tiny_file, tiny_draft_file).message


def test_an_adapter_is_no_model(adapter):
    with pytest.raises(ModelUnsupportedError, match="LoRA adapter") as caught:
        LlamaModel(adapter)
    assert "lora" in caught.value.hint


def tensor(parts: Parts, name: str):
    return next(one for one in parts.tensors if one.name == name.encode())


def rename(before, after):
    return lambda parts: setattr(tensor(parts, before), "name", after.encode())


def reshape(name, *shape):
    return lambda parts: setattr(tensor(parts, name), "shape", list(shape))


Q = "blk.0.attn_q.weight"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (rename(f"{Q}.lora_a", "blk.7.attn_q.weight.lora_a"), "without"),
        (rename(f"{Q}.lora_a", f"{Q}.bias"), "neither lora_a nor lora_b"),
        (rename(f"{Q}.lora_a", "x"), "neither lora_a nor lora_b"),
        (reshape(f"{Q}.lora_a", 16, 4), "is 32x32, but lora_a is 16x4"),
        (reshape(f"{Q}.lora_b", 4, 16), "lora_b is 4x16"),
        (reshape(f"{Q}.lora_a", 32, 2), "lora_a is 32x2"),
        (reshape(f"{Q}.lora_a", 32, 2, 2), "lora_a is 32x2x2"),
        (reshape(f"{Q}.lora_a", 32), "lora_a is 32x1"),
        (reshape(f"{Q}.lora_a", 32, 0), "lora_a is 32x0"),
        (lambda parts: setattr(tensor(parts, f"{Q}.lora_a"), "kind", 26), "of type I32"),
        (lambda parts: setattr(tensor(parts, f"{Q}.lora_b"), "kind", 999), "of type kind 999"),
        (lambda parts: parts.tensors.clear(), "has no tensors"),
    ],
)
def test_tensors_that_do_not_fit(tiny_file, adapter, tmp_path, damage, said):
    parts = Parts(adapter.read_bytes())
    damage(parts)
    error = refusal(tiny_file, parts.write(tmp_path / "x.gguf"))
    assert isinstance(error, ModelUnsupportedError) and said in error.message


def test_adapters_for_other_sizes(tiny_file, tmp_path):
    wide = write_tiny_model(tmp_path / "wide.gguf", seed=1, width=64, n_layers=2)
    assert "is 32x32, but lora_a is 64x4" in refusal(tiny_file, write_tiny_adapter(tmp_path / "a.gguf", wide)).message
    deep = write_tiny_adapter(tmp_path / "b.gguf", wide, names=("blk.1.attn_q.weight",))
    assert "there is no tensor blk.1.attn_q.weight" in refusal(tiny_file, deep).message


def test_files_that_are_no_adapters(tiny_file, adapter, tmp_path):
    whole, path = adapter.read_bytes(), tmp_path / "x.gguf"
    for content in (b"", b"{}", b'{"format":"pt"}', whole[:30], whole[:600], whole[:-100]):
        path.write_bytes(content)
        error = refusal(tiny_file, path)
        assert isinstance(error, ModelFileError) and str(path) in error.message
    for missing in (tmp_path / "missing.gguf", tmp_path, "a\0b"):
        assert isinstance(refusal(tiny_file, missing), ModelFileError)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), 1e4])
def test_scales_out_of_bounds(scale):
    with pytest.raises(OptionError, match=f"`lora` is {scale:g} for a.gguf"):
        LoadOptions(lora=(("a.gguf", scale),))


@pytest.mark.parametrize("lora", [("a.gguf",), (("a.gguf",),), (("a.gguf", "1"),), ((1, 1.0),)])
def test_what_is_no_pair_of_file_and_scale(lora):
    with pytest.raises(OptionError, match="must be a pair"):
        LoadOptions(lora=lora)


def test_damage_anywhere_in_the_header_is_found_or_harmless(tiny_file, adapter, tmp_path):
    """Whatever bytes are changed, loading ends in an adapted model or in one of our errors, not in the process."""
    program = (
        "import sys, random\nfrom pathlib import Path\n"
        "from specli.errors import SpecliError\n"
        "from specli.llama.model import LlamaModel\nfrom specli.llama.options import LoadOptions\n"
        "base, source, path = map(Path, sys.argv[1:4])\n"
        "whole = source.read_bytes(); chance = random.Random(int(sys.argv[4])); loaded = 0\n"
        "for number in range(250):\n"
        "    data = bytearray(whole)\n"
        "    for _ in range(chance.choice((1, 1, 2, 4))):\n"
        "        data[chance.randrange(900)] = chance.choice((0, 1, 2, 255, chance.randrange(256)))\n"
        "    path.write_bytes(data)\n"
        "    try:\n"
        "        load = LoadOptions(context=64, threads=1, lora=((str(path), 1.0),))\n"
        "        with LlamaModel(base, load) as model: model.feed([5, 6, 7], 2)\n"
        "        loaded += 1\n"
        "    except SpecliError: pass\n"
        "print(loaded)"
    )
    for seed in (1, 2):
        command = [sys.executable, "-c", program, str(tiny_file), str(adapter), str(tmp_path / "x.gguf"), str(seed)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        assert 0 < int(done.stdout) < 250


@pytest.mark.parametrize("case", ["alpha", "tied embedding", "kind"])
def test_what_is_refused_would_end_the_process(tiny_file, adapter, tmp_path, case):
    """The negative control: the same files without our look at them."""
    base, path = tiny_file, tmp_path / "x.gguf"
    if case == "alpha":
        changed(adapter, path, adapter__lora__alpha=(F64, 8.0))
    elif case == "kind":
        parts = Parts(adapter.read_bytes())
        tensor(parts, f"{Q}.lora_a").kind = 26
        parts.write(path)
    else:
        parts = Parts(tiny_file.read_bytes())
        parts.tensors = [one for one in parts.tensors if one.name != b"output.weight"]
        base = parts.write(tmp_path / "tied.gguf")
        write_tiny_adapter(path, base, names=("token_embd.weight",))
    program = (
        "import sys; from pathlib import Path; from specli.llama import adapters\n"
        "from specli.llama.model import LlamaModel; from specli.llama.options import LoadOptions\n"
        "if sys.argv[3] == 'unguarded':\n"
        "    adapters._misfit = lambda base, tensors: ''; adapters._other_kind = lambda file: ''\n"
        "load = LoadOptions(context=64, threads=1, lora=((sys.argv[2], 1.0),))\n"
        "LlamaModel(Path(sys.argv[1]), load).feed([5, 6, 7], 2)"
    )

    def run(guard: str) -> int:
        return subprocess.run([sys.executable, "-c", program, base, path, guard], capture_output=True).returncode

    assert run("guarded") == 1
    assert run("unguarded") < 0


def rows_agree(path, load: LoadOptions) -> bool:
    """Whether single rows have the bits of those in passes of several."""
    with LlamaModel(path, load) as model:
        model.feed(TEXT[:24], 0)
        single = [model.feed([token], 1)[0].copy() for token in TEXT[24:42]]
        found = []
        for count in (2, 3, 6, 9, 18):
            model.rewind(24)
            model.feed(TEXT[model.n_past : 24], 0)
            starts = range(24, 42, count)
            found.append([row.copy() for at in starts for row in model.feed(TEXT[at : at + count], count)])
        return all(np.array_equal(single, rows) for rows in found)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("base_kind", ["F32", "Q8_0"])
def test_exact_mode_gives_single_rows_the_bits_of_many(tmp_path, monkeypatch, kind, base_kind):
    path = WRITERS["lfm2"](tmp_path / "model.gguf", seed=3, kind=base_kind)
    names = ("blk.2.attn_q.weight", "blk.0.ffn_down.weight", "blk.0.shortconv.in_proj.weight")
    adapter = write_tiny_adapter(
        tmp_path / "lora.gguf", path, names=names, kind=kind, architecture="lfm2", rank=5, strength=0.1
    )
    load = adapted((adapter, 0.7), exact=True, gpu_layers=0)
    assert rows_agree(path, load)
    if base_kind == "F32":  # the negative control: without a row beside it, a single one has other bits
        monkeypatch.setattr(LlamaModel, "_single_rows_differ", lambda self: False)
        assert not rows_agree(path, load)


@pytest.mark.parametrize(("architecture", "attention"), [("lfm2", 2), ("qwen35", 3)])
def test_recurrent_models_take_adapters(tmp_path, architecture, attention):
    path = WRITERS[architecture](tmp_path / "model.gguf", seed=3)
    names = (f"blk.{attention}.attn_q.weight", "blk.0.ffn_down.weight")
    adapter = write_tiny_adapter(tmp_path / "lora.gguf", path, names=names, architecture=architecture)
    load = adapted((adapter, 1.0))
    assert not np.allclose(logits(path, load), logits(path, LOAD))
    with LlamaModel(path, load) as model:
        model.feed(TEXT[:20], 0)
        expected = model.feed(TEXT[20:24], 4).copy()
        model.rewind(20)
        model.feed(TEXT[model.n_past : 20], 0)
        assert np.abs(model.feed(TEXT[20:24], 4) - expected).max() < 1e-3
