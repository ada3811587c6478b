"""Cache types, flash attention, places of tensors and memory: they hold, and what cannot hold together is refused."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hybrids import WRITERS
from tiny import write_tiny_model

from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.errors import ModelLoadError, OptionError
from specli.evaluation.distribution import judge, sample_tokens
from specli.evaluation.identity import identity_audit
from specli.evaluation.prompts import Prompt
from specli.llama import hardware, loading
from specli.llama.binding import version
from specli.llama.cache_types import require_cache_types, value_bytes
from specli.llama.gguf import read_gguf
from specli.llama.loading import load_models
from specli.llama.model import LlamaModel
from specli.llama.options import CACHE_TYPES, QUANTIZED, LoadOptions
from specli.llama.parameters import has_gpu_backend
from specli.llama.placement import EXPERTS
from specli.llama.quantizing import quantize
from specli.llama.text import Message

LOAD = LoadOptions(context=512, threads=1, batch=64)
TEXT = np.random.default_rng(1).integers(5, 40, 400).tolist()
PROMPTS = [Prompt("own", f"own-{number}", (Message("user", text),)) for number, text in enumerate(("abc", "hello"))]


@pytest.fixture(scope="module", params=[64, 128], ids=["heads of 32", "heads of 64"])
def pair(request, tmp_path_factory):
    """A pair whose heads take blocks of 32; llama.cpp rotates a quantized cache only of those of 64."""
    folder = tmp_path_factory.mktemp("wide")
    return tuple(
        write_tiny_model(folder / f"{seed}.gguf", seed=seed, width=request.param, tensor_scale=1.5) for seed in (1, 2)
    )


def logits(path, **changes) -> np.ndarray:
    with LlamaModel(path, replace(LOAD, **changes)) as model:
        return model.feed(TEXT[:40], rows=40).copy()


@pytest.mark.parametrize("keys", CACHE_TYPES)
@pytest.mark.parametrize("values", CACHE_TYPES)
def test_a_cache_of_any_type_holds_about_what_it_should(pair, keys, values):
    base, found = logits(pair[0]), logits(pair[0], cache_type_k=keys, cache_type_v=values)
    assert np.array_equal(base, found) == (keys == values == "f16")
    deviation = np.abs(found - base).max() / base.std()
    assert deviation < (1.5 if "q4_0" in (keys, values) else 0.3)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("keys", "values"), [*((one, one) for one in CACHE_TYPES), ("q8_0", "f16"), ("f16", "q4_0")])
def test_texts_with_and_without_drafts_are_the_same(pair, keys, values, exact, home):
    load = replace(LOAD, cache_type_k=keys, cache_type_v=values, exact=exact, gpu_layers=0)
    with Engine.load(*pair, load) as engine:
        assert (engine.draft.options.cache_type_k, engine.draft.options.cache_type_v) == ("f16", "f16")
        report = identity_audit(engine, PROMPTS, ReplyOptions(draft_length=3, max_tokens=60, seed=0))
    assert report.unexplained == 0
    assert report.differences == 0 or not exact


def test_an_audit_of_a_quantized_cache_finds_no_bias(pair, home):
    """The target drafts for itself, at another temperature: so drafts are accepted often, but not always."""
    load = replace(LOAD, cache_type_k="q8_0", cache_type_v="q8_0")
    with Engine.load(pair[0], pair[0], load) as engine:
        options = ReplyOptions(draft_length=4, draft_temperature=0.5, max_tokens=64, seed=0)
        assert not judge(sample_tokens(engine, PROMPTS, options, 1500)).found
        assert judge(sample_tokens(engine, PROMPTS, options, 1500, control=True)).found


@pytest.fixture(scope="module")
def quantized(pair, tmp_path_factory):
    """The target with weights whose kernels are the same for one row and for many: the cache alone can differ."""
    path = tmp_path_factory.mktemp("quantized") / "q8_0.gguf"
    quantize(pair[0], path, "q8_0")
    return path


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("keys", "values"), [*((one, one) for one in CACHE_TYPES), ("q8_0", "f16"), ("f16", "q4_0")])
def test_exact_mode_gives_single_rows_the_bits_of_many(pair, quantized, keys, values, threads):
    load = LoadOptions(
        context=1024, threads=threads, batch=64, exact=True, gpu_layers=0, cache_type_k=keys, cache_type_v=values
    )
    for path in (pair[0], quantized):
        with LlamaModel(path, load) as model:
            assert [before for before in (40, 240, 600) if not rows_agree(model, before)] == []


def rows_agree(model: LlamaModel, before: int) -> bool:
    """Whether single rows after so many tokens have the bits of those in passes of several."""
    text = (TEXT * 2)[: before + 18]
    model.rewind(0)
    model.feed(text[:before], 0)
    single = [model.feed([token], 1)[0].copy() for token in text[before:]]
    found = []
    for count in (2, 6, 18):
        model.rewind(before)
        starts = range(before, before + 18, count)
        found.append([row.copy() for at in starts for row in model.feed(text[at : at + count], count)])
    return all(np.array_equal(single, rows) for rows in found)


@pytest.mark.parametrize("flash", ["on", "off", "auto"])
@pytest.mark.parametrize("keys", CACHE_TYPES)
def test_flash_attention_and_keys_go_together(pair, flash, keys):
    deviation = np.abs(logits(pair[0], flash_attention=flash, cache_type_k=keys) - logits(pair[0])).max()
    assert deviation / logits(pair[0]).std() < (1.5 if keys == "q4_0" else 0.3)


@pytest.mark.parametrize(
    ("field", "flash"),
    [
        ("cache_type_k", "on"),
        ("cache_type_k", "off"),
        ("cache_type_k", "auto"),
        ("cache_type_v", "on"),
        ("cache_type_v", "auto"),
    ],
)
@pytest.mark.parametrize("kind", QUANTIZED)
def test_heads_that_blocks_do_not_fit(tiny_file, flash, field, kind):
    with pytest.raises(OptionError, match=rf"`{field}` is '{kind}', but .* target.gguf are 16 wide, no multiple of 32"):
        LlamaModel(tiny_file, replace(LOAD, flash_attention=flash, **{field: kind}))


def test_a_file_that_does_not_say_how_wide_its_heads_are(tiny_file):
    from specli.llama.gguf import ArrayLength

    file = read_gguf(tiny_file)
    file = replace(file, metadata=file.metadata | {"llama.attention.head_count": ArrayLength(2)})
    require_cache_types(file, replace(LOAD, cache_type_k="q8_0"))  # llama.cpp looks itself
    with pytest.raises(OptionError, match="does not say how wide"):
        require_cache_types(file, replace(LOAD, cache_type_k="q8_0", flash_attention="off"))


@pytest.mark.parametrize("architecture", sorted(WRITERS))
def test_recurrent_models_take_cache_types(tmp_path, architecture):
    path = WRITERS[architecture](tmp_path / "model.gguf", seed=1)
    base = logits(path)
    assert np.abs(logits(path, cache_type_k="bf16", cache_type_v="bf16") - base).max() / base.std() < 0.3


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"cache_type_v": "q8_0", "flash_attention": "off"}, "cache_type_v", "needs flash attention, but it is off"),
        ({"cache_type_v": "q4_0", "flash_attention": "off"}, "cache_type_v", "needs flash attention, but it is off"),
        ({"exact": True, "flash_attention": "off"}, "flash_attention", "`exact` needs flash attention"),
        ({"cache_type_k": "q5_1"}, "cache_type_k", "must be one of: f16, bf16, q8_0, q4_0"),
        ({"flash_attention": "yes"}, "flash_attention", "must be one of: auto, on, off"),
        ({"devices": ("none", "CUDA0")}, "devices", "'none' excludes all others"),
        ({"override_tensor": ("x=CPU",)}, "override_tensor", "must be a pair"),
    ],
)
def test_what_cannot_hold_together(changes, field, said):
    with pytest.raises(OptionError) as caught:
        LoadOptions(**changes)
    assert said in caught.value.message and caught.value.field == field and caught.value.hint


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"devices": ("CUDA77",)}, "`devices` names 'CUDA77', but this llama.cpp has"),
        ({"devices": ("CPU",)}, "`devices` names 'CPU', but this llama.cpp has"),
        ({"devices": ("",)}, "`devices` names '', but this llama.cpp has"),
        ({"override_tensor": (("ffn", "GPU9"),)}, "`override_tensor` names 'GPU9', but this llama.cpp has the buffers"),
        ({"override_tensor": (("nothing", "CPU"),)}, "'nothing' matches no tensor of target.gguf"),
        ({"override_tensor": (("(", "CPU"),)}, "no regular expression"),
        ({"override_tensor": (("[[:alpha:]]", "CPU"),)}, "no regular expression"),
        ({"override_tensor": (("", "CPU"),)}, "it is empty"),
        ({"override_tensor": (("a\0b", "CPU"),)}, "zero byte"),
        ({"override_tensor": (("\udc80", "CPU"),)}, "no regular expression"),
        ({"cpu_moe": True}, "`cpu_moe`: there is no expert tensor of target.gguf"),
    ],
)
def test_places_that_are_not_there(tiny_file, changes, said):
    for load in (lambda options: LlamaModel(tiny_file, options), lambda options: load_models([(tiny_file, options)])):
        with pytest.raises(OptionError) as caught:
            load(replace(LOAD, **changes))
        assert said in caught.value.message and "\n" not in caught.value.message
        assert caught.value.field in changes and caught.value.hint


@pytest.mark.parametrize(
    "changes",
    [
        {"override_tensor": ((r"blk\.0\.ffn_.*", "CPU"), ("output", "CPU"))},
        {"devices": ("none",)},
        {"devices": ["none"]},
        {"no_mmap": True},
        {"mlock": True},
        {"no_mmap": True, "mlock": True},
    ],
)
def test_places_and_memory_change_nothing_that_is_computed(tiny_file, changes):
    with LlamaModel(tiny_file, replace(LOAD, **changes)) as model:
        found = model.feed(TEXT[:40], rows=40).copy()
    assert np.abs(found - logits(tiny_file)).max() < (1 if has_gpu_backend() else 1e-5)


def test_patterns_are_kept_until_the_model_is_loaded(tiny_file):
    """llama.cpp reads names and pointers from memory that Python may free: many loads would stumble over it."""
    patterns = tuple((f"blk.0.ffn_(down|up){number * '|x'}", "CPU") for number in range(50))
    for _ in range(5):
        LlamaModel(tiny_file, replace(LOAD, override_tensor=patterns, devices=("none",))).close()


def test_experts_have_the_names_that_are_matched():
    import re

    for name in ("blk.0.ffn_up_exps.weight", "blk.3.ffn_gate_chexps.weight", "blk.1.ffn_gate_up_exps.weight"):
        assert re.search(EXPERTS, name)
    assert not re.search(EXPERTS, "blk.0.ffn_up_shexp.weight") and not re.search(EXPERTS, "blk.0.ffn_up.weight")


def test_a_cost_key_is_what_it_was_until_something_else_is_chosen(pair):
    path = pair[0]

    def key(**changes) -> str:
        with LlamaModel(path, replace(LOAD, **changes)) as model:
            return model.cost_key

    plain = key()
    head, size, threads, batch, _gpu, exact, *rest = plain.split("-")
    assert (int(size), threads, batch, exact) == (path.stat().st_size, "1", "64", "False")
    assert (len(head), "-".join(rest)) == (16, version())
    changed = [
        key(cache_type_k="q8_0"),
        key(cache_type_v="q8_0"),
        key(cache_type_v="bf16"),
        key(flash_attention="off"),
        key(devices=("none",)),
        key(override_tensor=(("ffn", "CPU"),)),
        key(override_tensor=(("ffn_up", "CPU"),)),
        key(no_mmap=True),
    ]
    assert len({plain, *changed}) == len(changed) + 1
    assert all(one.startswith(f"{plain}-") for one in changed if not has_gpu_backend())
    assert key(mlock=True) == plain


def test_what_a_draft_model_is_loaded_with():
    load = LoadOptions(
        lora=(("a.gguf", 1.0),), cache_type_k="q8_0", cache_type_v="q4_0", override_tensor=(("a", "CPU"),),
        cpu_moe=True, devices=("none",), no_mmap=True, mlock=True, flash_attention="on",
    )  # fmt: skip
    draft = load.for_draft()
    same = {"devices", "no_mmap", "mlock", "flash_attention"}
    for field in fields(LoadOptions):
        expected = load if field.name in same else LoadOptions(for_drafts=True)
        assert getattr(draft, field.name) == getattr(expected, field.name), field.name


def test_smaller_caches_need_less_memory(pair, monkeypatch):
    file = read_gguf(pair[0])

    def needed(**changes) -> int:
        return loading._needed_bytes(file, LoadOptions(context=100_000, **changes))

    assert [value_bytes(one) for one in CACHE_TYPES] == [2, 2, 34 / 32, 18 / 32]
    width = file.value("embedding_length")
    assert needed() - file.size == 4 * 100_000 * width
    assert needed(cache_type_k="q8_0") - file.size == int(100_000 * width * (2 + 34 / 32))
    assert needed(cache_type_k="q4_0", cache_type_v="q4_0") - file.size == int(100_000 * width * 2 * 18 / 32)
    monkeypatch.setattr(hardware, "available_memory", lambda: needed() - 1)
    options = LoadOptions(context=100_000, gpu_layers=0)
    with pytest.raises(ModelLoadError, match="do not fit"):
        load_models([(pair[0], options)])
    for model in load_models([(pair[0], replace(options, cache_type_v="q8_0", threads=1))]):
        model.close()


def test_what_is_unusual_is_said_in_words():
    assert LoadOptions(context=8, exact=True).in_words == ""
    load = LoadOptions(
        lora=(("/a/style.gguf", 1.0), ("b.gguf", 0.5)), cache_type_v="q8_0", flash_attention="on", devices=("none",),
        override_tensor=(("ffn", "CPU"),), cpu_moe=True, no_mmap=True, mlock=True,
    )  # fmt: skip
    assert load.in_words == (
        "LoRA style.gguf, LoRA b.gguf at 0.5, cache f16 and q8_0, flash attention on, devices none, ffn in CPU, "
        "experts on the CPU, no memory map, locked in memory"
    )
