"""Real models through the whole engine. Skipped, with the reason, when the files were not fetched."""

from __future__ import annotations

import numpy as np
import pytest

from specli.decoding.options import SamplingOptions
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.engine.reply import Reply
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions

PROMPTS = {
    "code": "Write a Python function that merges two sorted lists.",
    "explanation": "Explain in simple words why the sky is blue.",
    "story": "Tell a short story about a lighthouse keeper and a lost bird.",
    "maths": "A train has 7 cars with 48 seats each. 129 seats are taken. How many are free?",
    "edit": "Rename the variable x to total and print all of it:\nx = 0\nfor n in range(9):\n    x += n\nprint(x)",
}
GREEDY = SamplingOptions(temperature=0.0)


class RecordingModel(LlamaModel):
    """Keeps, for each position, how far the best two logits of its row are apart."""

    def feed(self, tokens, rows):
        logits = super().feed(tokens, rows)
        for row, position in zip(logits, range(self.n_past - rows, self.n_past), strict=True):
            second, first = np.partition(row, -2)[-2:]
            self.gaps[position + 1] = float(first - second)
        return logits

    @property
    def gaps(self) -> dict[int, float]:
        return self.__dict__.setdefault("_gaps", {})


def reply_to(engine: Engine, prompt: list[int], **options) -> Reply:
    return list(engine.reply(prompt, ReplyOptions(**({"seed": 0, "draft_length": 4} | options))))[-1]


@pytest.fixture(scope="module")
def twins(model_file):
    """SmolLM2 as target, and once more as its own draft model."""
    path = model_file("smollm2-135m")
    load = LoadOptions(context=1024)
    with Engine(RecordingModel(path, load), LlamaModel(path, load)) as engine:
        yield engine


def test_a_real_model_that_drafts_for_itself_is_always_accepted(twins):
    prompt = twins.prompt("Write a long story about a river.")
    reply = reply_to(twins, prompt, sampling=GREEDY, max_tokens=500, ignore_eos=True)
    counted = reply.metrics
    assert (counted.generated, counted.accepted, counted.rounds) == (500, 400, 100)
    assert counted.acceptance_rate == 1.0


@pytest.mark.parametrize("draft_length", [1, 4, 7])
def test_greedy_text_is_the_same_or_differs_at_a_near_tie(twins, draft_length):
    prompt = twins.prompt("Name the seasons and say something about each.")
    options = {"sampling": GREEDY, "max_tokens": 200, "ignore_eos": True}
    plain = reply_to(twins, prompt, draft_length=0, **options)
    plain_gaps = dict(twins.target.gaps)
    drafted = reply_to(twins, prompt, draft_length=draft_length, **options)
    different = [at for at, pair in enumerate(zip(plain.tokens, drafted.tokens, strict=True)) if pair[0] != pair[1]]
    if different:
        position = len(prompt) + different[0]
        assert plain_gaps[position] < 0.5, "the texts differ where the model was certain"
        assert twins.target.gaps[position] < 0.5


@pytest.fixture(scope="module")
def default_pair(model_file):
    load = LoadOptions(context=1024)
    files = model_file("qwen2.5-coder-1.5b"), model_file("qwen2.5-coder-0.5b")
    with Engine.load(*files, load) as engine:
        yield engine


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", PROMPTS)
def test_the_default_pair(default_pair, kind, temperature):
    prompt = default_pair.prompt(PROMPTS[kind])
    reply = reply_to(default_pair, prompt, sampling=SamplingOptions(temperature), max_tokens=32)
    counted = reply.metrics
    assert counted.generated == len(reply.tokens)
    assert 0 < counted.accepted <= counted.tested <= counted.drafted
    assert counted.accepted + counted.rounds - counted.generated in (0, 1)
    assert len(reply.text) > 50
    assert "\ufffd" not in reply.text.removesuffix("\ufffd")
    if kind == "code":
        again = reply_to(default_pair, prompt, sampling=SamplingOptions(temperature), max_tokens=32)
        assert (again.tokens, again.metrics.cached) == (reply.tokens, len(prompt) - 1)


@pytest.fixture(scope="module")
def exact_pair(model_file):
    """SmolLM2 in exact mode, with itself as a draft model that computes in the usual way."""
    path = model_file("smollm2-135m")
    with Engine.load(path, path, LoadOptions(context=1024, exact=True)) as engine:
        yield engine


def test_rows_have_the_same_bits_in_passes_of_any_size(exact_pair):
    target = exact_pair.target
    tokens = np.random.default_rng(0).integers(1000, 20_000, 560).tolist()
    for start in (40, 250, 505):  # the cache grows in steps of 256 cells; at 512 attention would change its kernel
        found = {}
        for count in (1, 2, 5, 9, 17):
            target.rewind(0)
            target.feed(tokens[:start], rows=0)
            passes = [tokens[at : min(at + count, start + 17)] for at in range(start, start + 17, count)]
            found[count] = np.concatenate([target.feed(part, rows=len(part)).copy() for part in passes])
        for count, rows in found.items():
            assert (rows == found[1]).all(), f"passes of {count} rows at {start}"


@pytest.mark.parametrize("temperature", [0.8, 1.0])
def test_coupled_text_is_the_same_with_any_draft_length_and_none(exact_pair, temperature):
    prompt = exact_pair.prompt("Tell me something about bridges.")
    sampling = SamplingOptions(temperature)
    options = {"sampling": sampling, "verification": "coupled", "max_tokens": 300, "ignore_eos": True}
    plain = reply_to(exact_pair, prompt, draft_length=0, **options)
    for draft_length in (1, 4, 9):
        drafted = reply_to(exact_pair, prompt, draft_length=draft_length, **options)
        assert drafted.tokens == plain.tokens
        assert drafted.metrics.accepted > 100
