"""Recurrent and hybrid models through llama.cpp: going back must leave what was never fed, and never guess."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hybrids import WRITERS, Shape, write_lfm2
from tiny import write_tiny_model
from toys import shared

from specli.decoding.drafting import DraftModelDrafter
from specli.decoding.loop import LoopOptions, decode
from specli.decoding.metrics import Metrics
from specli.decoding.options import SamplingOptions
from specli.decoding.verification import make_verifier
from specli.errors import DecodeError, Interrupted, OptionError
from specli.llama import cache
from specli.llama.binding import llama_cpp
from specli.llama.cache import RecurrentCache
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions

NATIVE = ("lfm2", "qwen35")  # architectures for which llama.cpp keeps snapshots
# Target and draft of each architecture, and each beside one of attention.
PAIRS = [
    ("qwen35", "lfm2"), ("qwen35", "qwen35"), ("lfm2", "mamba"), ("granitehybrid", "granitehybrid"),
    ("mamba", "qwen35"), ("llama", "mamba"), ("llama", "granitehybrid"), ("granitehybrid", "lfm2"),
]  # fmt: skip
WAYS = [(architecture, way) for architecture in WRITERS for way in ("snapshots", "marks")
        if way == "marks" or architecture in NATIVE]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("hybrids")
    written = {name: write(folder / f"{name}.gguf", seed=3, kind="Q8_0") for name, write in WRITERS.items()}
    return {**written, "llama": write_tiny_model(folder / "llama.gguf", seed=3)}


@pytest.fixture
def load(files, monkeypatch):
    """Load a tiny model that goes back in a way; closed at the end."""
    models = []

    def loaded(name: str, way: str, batch: int = 64, **options) -> LlamaModel:
        monkeypatch.setattr(cache, "MOST_SNAPSHOTS", 8 if way == "snapshots" else 0)
        interrupted = options.pop("interrupted", lambda: False)
        chosen = LoadOptions(**{"context": 512, "threads": 1, "batch": batch, **options})
        models.append(LlamaModel(files[name], chosen, interrupted=interrupted))
        return models[-1]

    yield loaded
    for model in models:
        model.close()


@pytest.mark.parametrize("way", ["snapshots", "marks"])
@pytest.mark.parametrize(("target_name", "draft_name"), PAIRS)
def test_the_text_with_drafts_is_the_text_without(load, target_name, draft_name, way):
    target, draft = load(target_name, way), load(draft_name, way, for_drafts=True)
    accepted = drafted_tokens = 0
    for seed in range(4):
        prompt = np.random.default_rng(seed).integers(5, 36, 20 + 30 * seed).tolist()
        for temperature, length in ((0.0, 4), (1.0, 3), (1.0, 12)):
            alone, _ = reply(target, None, prompt, 0, temperature, seed)
            drafted, metrics = reply(target, draft, prompt, length, temperature, seed)
            assert drafted == alone, (seed, temperature, length)
            accepted += metrics.accepted
            drafted_tokens += metrics.drafted
    assert target_name == draft_name or 0 < accepted < drafted_tokens


def reply(target, draft, prompt, length, temperature, seed) -> tuple[list[int], Metrics]:
    sampling, metrics, verifier = SamplingOptions(temperature), Metrics(), make_verifier("coupled", seed)
    drafter = DraftModelDrafter(draft, sampling, verifier.draw_draft, shared(target, draft)) if draft else None
    tokens = list(prompt)
    for model in (target, draft) if draft else (target,):
        model.rewind(0)
    for _ in decode(target, drafter, verifier, tokens, LoopOptions(sampling, length, 60), metrics):
        pass
    return tokens, metrics


@pytest.mark.parametrize(("architecture", "way"), WAYS)
def test_random_feeds_and_rewinds_leave_what_was_never_fed(load, architecture, way):
    assert mistakes(load(architecture, way, batch=32), load(architecture, way, batch=32), steps=400) == 0


def test_a_sliding_window_beside_recurrent_layers(tmp_path, monkeypatch):
    path = write_lfm2(tmp_path / "window.gguf", Shape(kernel=3, window=16), seed=3, kind="Q8_0")
    options = LoadOptions(context=512, batch=32, threads=1)
    for most in (8, 0):
        monkeypatch.setattr(cache, "MOST_SNAPSHOTS", most)
        with LlamaModel(path, options) as model, LlamaModel(path, options) as fresh:
            assert mistakes(model, fresh, steps=150) == 0


def mistakes(model: LlamaModel, fresh: LlamaModel, steps: int, seed: int = 5) -> int:
    """Return how often logits differ from those of a fresh read, after random feeds and rewinds."""
    chance, text, wrong = random.Random(seed), [], 0
    for _ in range(steps):
        count = min(chance.choice([1, 1, 1, 2, 3, 5, 8, 12, 40]), 400 - model.n_past)
        if count <= 0:
            model.rewind(chance.randrange(50))
            text = text[: model.n_past]
            continue
        tokens = [chance.randrange(5, 36) for _ in range(count)]
        rows = min(chance.choice([0, 1, count, 3]), count, model.max_rows)
        found = model.feed(tokens, rows).copy()
        text = [*text, *tokens]
        assert model.tokens == text
        if rows:
            fresh.rewind(0)
            wrong += not np.array_equal(found, fresh.feed(text, rows))
        for _ in range(chance.choice([0, 1, 1, 2])):
            length = max(0, model.n_past - chance.choice([0, 0, 1, 2, 3, count - 1, count, count + 3, 100]))
            model.rewind(length)
            assert model.n_past <= length
            text = text[: model.n_past]
    return wrong


@pytest.mark.parametrize(("architecture", "way"), WAYS)
def test_an_interrupted_prompt_is_taken_back_whole(load, architecture, way):
    asked, allowed = 0, 10**9

    def interrupted() -> bool:
        nonlocal asked
        asked += 1
        return asked > allowed

    model = load(architecture, way, batch=256, interrupted=interrupted)
    prompt, more = (np.random.default_rng(seed).integers(5, 36, count).tolist() for seed, count in ((0, 50), (1, 200)))
    model.feed(prompt, 0)
    for allowed in (1, 10, 40):
        asked = 0
        with pytest.raises(Interrupted):
            model.feed(more, 1)
        assert model.tokens == prompt[: model.n_past]
        allowed = 10**9
        text = [*prompt, *more[:5]]
        found = model.feed(text[model.n_past :], 1).copy()
        model.rewind(0)
        assert np.array_equal(found, model.feed(text, 1))
        model.rewind(0)
        model.feed(prompt, 0)


class TestTraps:
    """Each of llama.cpp's traps bites where its guard is taken away."""

    @pytest.mark.parametrize("architecture", NATIVE)
    def test_snapshots_reach_to_the_first_token_of_the_last_pass(self, load, monkeypatch, architecture):
        monkeypatch.setattr(RecurrentCache, "passed", lambda self, count: setattr(self, "_reach", self._snapshots))
        model, fresh = load(architecture, "snapshots", batch=32), load(architecture, "snapshots", batch=32)
        assert mistakes(model, fresh, steps=150) > 0

    @pytest.mark.parametrize("architecture", NATIVE)
    def test_going_back_twice(self, load, monkeypatch, architecture):
        model, fresh = load(architecture, "snapshots", batch=32), load(architecture, "snapshots", batch=32)
        rewind = RecurrentCache.rewind

        def unguarded(self, length, wanted):
            reach = self._reach
            left = rewind(self, length, wanted)
            self._reach = reach - (length - left) if left == wanted else 0
            return left

        def twice() -> bool:
            """Whether llama.cpp itself was asked to go back a second time before a pass."""
            model.rewind(0)
            model.feed([7] * 10, 1)
            model.rewind(8)
            asked.clear()
            model.rewind(7)
            return (0, 7) in asked

        remove, asked = llama_cpp.llama_memory_seq_rm, []

        def watched(memory, sequence, start, end):
            asked.append((sequence, start))
            return remove(memory, sequence, start, end)

        monkeypatch.setattr(llama_cpp, "llama_memory_seq_rm", watched)
        assert not twice()
        assert mistakes(model, fresh, steps=150) == 0
        monkeypatch.setattr(RecurrentCache, "rewind", unguarded)
        assert twice()
        # llama.cpp refuses it. Whoever does not hear that goes on from a place where the state is not.
        monkeypatch.setattr(llama_cpp, "llama_memory_seq_rm", lambda *arguments: remove(*arguments) or True)
        model.rewind(0)
        with pytest.raises(DecodeError, match="inconsistent sequence positions"):
            mistakes(model, fresh, steps=150)

    @pytest.mark.parametrize("architecture", NATIVE)
    def test_snapshots_of_a_whole_batch_end_the_process(self, files, architecture):
        program = (
            "import sys; from pathlib import Path; from specli.llama import cache, parameters\n"
            "from specli.llama.model import LlamaModel; from specli.llama.options import LoadOptions\n"
            "if sys.argv[2] == 'unguarded': parameters.snapshots = lambda file, options: 8\n"
            "model = LlamaModel(Path(sys.argv[1]), LoadOptions(context=256, batch=int(sys.argv[3]), threads=1))\n"
            "model.feed([7] * 20, 1); model.rewind(18); model.feed([8], 1)"
        )

        def run(guard: str, batch: int) -> int:
            command = [sys.executable, "-c", program, str(files[architecture]), guard, str(batch)]
            return subprocess.run(command, capture_output=True).returncode

        assert [run("guarded", batch) for batch in (1, 2, 3, 9)] == [0, 0, 0, 0]
        assert run("unguarded", 9) < 0


@pytest.mark.parametrize("architecture", ["lfm2", "qwen35", "granitehybrid"])
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_exact_mode_gives_single_rows_the_bits_of_many(tmp_path, architecture, kind):
    path = WRITERS[architecture](tmp_path / "model.gguf", seed=3, kind=kind)
    text = np.random.default_rng(2).integers(5, 36, 42).tolist()
    with LlamaModel(path, LoadOptions(context=512, threads=1, batch=32, exact=True)) as model:
        model.feed(text[:24], 0)
        single = [model.feed([token], 1)[0].copy() for token in text[24:]]
        for count in (2, 3, 6, 9, 18):
            model.rewind(24)
            model.feed(text[model.n_past : 24], 0)
            rows = [row.copy() for at in range(24, 42, count) for row in model.feed(text[at : at + count], count)]
            assert np.array_equal(single, rows), count


def test_exact_mode_is_refused_where_it_is_not_known_to_hold(files):
    with pytest.raises(OptionError, match=r"mamba.gguf .mamba. has recurrent layers that compute single tokens"):
        LlamaModel(files["mamba"], LoadOptions(exact=True))


@pytest.mark.parametrize(("architecture", "way"), WAYS)
def test_the_next_turns_are_not_read_from_the_beginning(load, architecture, way):
    """A thinking model's thoughts are left out of the next prompt, which then parts from the text in the cache."""
    model = load(architecture, way)
    chance = random.Random(1)
    turns = [[chance.randrange(5, 36) for _ in range(90)] for _ in range(4)]
    conversation, read = [], []
    for turn in turns:
        conversation += turn
        model.rewind(len(conversation) - len(turn))
        read.append(len(conversation) - model.n_past)
        model.feed(conversation[model.n_past : -1], 0)
        for token in (conversation[-1], *(chance.randrange(5, 36) for _ in range(20))):  # thoughts
            model.feed([token], 1)
            model.rewind(model.n_past)
    assert read[0] == 90
    assert all(count <= 2 * 90 for count in read[1:])


def test_a_state_is_counted_and_explained(files, monkeypatch):
    with LlamaModel(files["qwen35"], LoadOptions(context=256, threads=1)) as model:
        model.feed([7] * 20, 1)
        size = llama_cpp.llama_state_seq_get_size_ext(model._context, 0, llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)
        assert cache.state_bytes(model.file) == pytest.approx(size, rel=0.2)
