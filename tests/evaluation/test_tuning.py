"""Predictions from three numbers, by hand and on a tiny pair."""

from __future__ import annotations

import pytest

from specli.decoding.costs import PassCosts
from specli.decoding.metrics import Metrics
from specli.decoding.options import SamplingOptions
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.evaluation.prompts import Prompt
from specli.evaluation.tuning import (
    LENGTHS,
    ClassTuning,
    Tuning,
    acceptance_by_position,
    expected_tokens,
    explain,
    predict,
    tune,
)
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions
from specli.llama.text import Message


def counted(accepted: list[int], tested: list[int], **times) -> Metrics:
    metrics = Metrics(tested=sum(tested), accepted=sum(accepted), **times)
    metrics.tested_at.update(dict(enumerate(tested)))
    metrics.accepted_at.update(dict(enumerate(accepted)))
    return metrics


def test_acceptance_by_position():
    metrics = counted([8, 3, 1], [10, 8, 3])
    assert acceptance_by_position(metrics, 4) == pytest.approx([0.8, 3 / 8, 13 / 23, 13 / 23])


def test_expected_tokens():
    assert expected_tokens([]) == 1
    assert expected_tokens([0.5, 0.5]) == 1.75
    assert expected_tokens([1.0] * 4) == 5


def test_a_prediction_by_hand():
    curve = PassCosts(32, {1: 1.0, 2: 1.2, 3: 1.4, 4: 1.6, 5: 1.8, 6: 2.0, 8: 2.4, 12: 3.2}, 0.1)
    baseline = Metrics(generated=10, rounds=10, decode_seconds=10.0, verify_seconds=10.0)
    # Ten rounds of eight draft tokens; nine rows cost what the curve says, 2.6.
    drafted = counted([10] * 8, [10] * 8, rounds=10, drafted=80, decode_seconds=34.0, draft_seconds=8.0,
                      verify_seconds=26.0)  # fmt: skip
    found = predict(curve, baseline, drafted)
    assert found[8] == pytest.approx(9 / 3.4)
    assert found[1] == pytest.approx(2 / 1.3)


@pytest.mark.parametrize(
    ("five", "draft", "rate", "best", "words"),
    [
        (3.9, 0.7, 0.8, 0, ["compute-bound", "is expensive", "which is high", "No fixed draft length is faster"]),
        (1.4, 0.1, 0.6, 4, ["memory-bound", "cheap enough", "which is fair", "best fixed draft length is 4"]),
    ],
)
def test_the_explanation(five, draft, rate, best, words):
    one = ClassTuning("x", 10.0, rate, dict.fromkeys(LENGTHS, 1.5), best, 1.5, 1.5)
    tuning = Tuning((one,), draft, {1: 1.0, 5: five}, 0.2, dict.fromkeys(LENGTHS, 1.5), best, seed=0)
    text = " ".join(explain(tuning))
    assert all(word in text for word in words)
    assert "20 % of the time is spent neither" in text


def test_a_tiny_pair(tiny_file, tiny_draft_file, home):
    load = LoadOptions(context=512, threads=1)
    prompts = [Prompt(kind, f"{kind}-1", (Message("user", text),)) for kind, text in (("x", "abc"), ("y", "hello"))]
    shown = []
    with Engine(LlamaModel(tiny_file, load), LlamaModel(tiny_draft_file, load)) as engine:
        options = ReplyOptions(SamplingOptions(temperature=0.0), seed=4)
        found = tune(engine, prompts, options, 24, progress=lambda *at: shown.append(at))
        assert tune(engine, prompts, options, 24, interrupted=lambda: True) is None
    assert [one.kind for one in found.classes] == ["x", "y"]
    assert found.seed == 4
    assert set(found.predicted) == set(LENGTHS)
    assert all(one.measured > 0 and one.automatic > 0 for one in found.classes)
    assert shown == [(at, 8) for at in range(8)]
