"""The joint distribution of three tokens through llama.cpp itself, against full enumeration of the target."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hybrids import Shape, write_qwen35
from test_exactness import resample_from_target
from tiny import write_tiny_model
from toys import shared

from specli.decoding.drafting import DraftModelDrafter
from specli.decoding.loop import LoopOptions, decode
from specli.decoding.metrics import Metrics
from specli.decoding.options import SamplingOptions
from specli.decoding.sampling import distribution
from specli.decoding.verification import RULES, make_verifier
from specli.evaluation.statistics import g_test
from specli.llama import cache
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions

PROMPT = [1, 5, 6, 7]
SAMPLING = SamplingOptions(temperature=1.1, top_k=0, top_p=0.97, min_p=0.01)
SAMPLES = 50_000


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    options = LoadOptions(context=256, threads=1)
    files = [write_tiny_model(folder / f"{seed}.gguf", seed=seed, n_vocab=8, sharpness=1.5) for seed in (21, 22)]
    with LlamaModel(files[0], options) as target, LlamaModel(files[1], options) as draft:
        yield target, draft


@pytest.fixture(scope="module")
def exact(models) -> dict[tuple[int, ...], float]:
    return enumerated(models[0])


def enumerated(target: LlamaModel) -> dict[tuple[int, ...], float]:
    """The target's own probabilities, one token fed at a time; no speculation code has a part in it."""
    found: dict[tuple[int, ...], float] = {}

    def visit(reply: tuple[int, ...], chance: float) -> None:
        if len(reply) == 3 or (reply and reply[-1] in target.end_tokens):
            found[reply] = chance
            return
        tokens = [*PROMPT, *reply]
        target.rewind(0)
        for token in tokens[:-1]:
            target.feed([token], rows=0)
        dist = distribution(target.feed(tokens[-1:], rows=1)[0].astype(np.float64), SAMPLING, tokens)
        for token in range(target.n_vocab):
            if dist.probability(token) > 0:
                visit((*reply, token), chance * dist.probability(token))

    visit((), 1.0)
    assert sum(found.values()) == pytest.approx(1.0)
    assert len(found) > 100
    return found


def sample(models, rule: str, count: int) -> Counter:
    target, draft = models
    counts: Counter = Counter()
    verifier = make_verifier(rule, 4321)
    options = LoopOptions(SAMPLING, draft_length=2, max_tokens=3)
    target.rewind(0)
    draft.rewind(0)
    for number in range(count):
        if rule == "coupled":  # its noise is a function of the position, so each sample needs a seed of its own
            verifier = make_verifier(rule, number)
        drafter = DraftModelDrafter(draft, SAMPLING, verifier.draw_draft, shared(target, draft))
        tokens = list(PROMPT)
        for _ in decode(target, drafter, verifier, tokens, options, Metrics()):
            pass
        counts[tuple(tokens[len(PROMPT) :])] += 1
        target.rewind(len(PROMPT) - 1)
        draft.rewind(len(PROMPT) - 1)
    return counts


@pytest.mark.parametrize("rule", ["block", "token", "match", "coupled"])
def test_three_tokens_follow_the_target(models, exact, rule):
    # 50,000 samples over some 300 cells find a total variation of 0.02 with probability 0.9.
    assert g_test(sample(models, rule, SAMPLES), exact).p_value > 1e-4


def test_a_broken_rule_is_rejected(models, exact, monkeypatch):
    monkeypatch.setitem(RULES, "wrong", resample_from_target)
    assert g_test(sample(models, "wrong", 10_000), exact).p_value < 1e-9


@pytest.mark.parametrize("way", ["snapshots", "marks"])
def test_three_tokens_follow_a_hybrid_target(tmp_path, monkeypatch, way):
    monkeypatch.setattr(cache, "MOST_SNAPSHOTS", 8 if way == "snapshots" else 0)
    shape = Shape(n_vocab=8, sharpness=1.5, state_groups=2)
    files = [write_qwen35(tmp_path / f"{seed}.gguf", shape, seed=seed) for seed in (21, 22)]
    options = LoadOptions(context=256, threads=1)
    with LlamaModel(files[0], options) as target, LlamaModel(files[1], options.for_draft()) as draft:
        exact = enumerated(target)
        # 20,000 samples over some 400 cells find a total variation of 0.035 with probability 0.9.
        assert g_test(sample((target, draft), "block", 20_000), exact).p_value > 1e-4
        monkeypatch.setitem(RULES, "wrong", resample_from_target)
        assert g_test(sample((target, draft), "wrong", 10_000), exact).p_value < 1e-6
