"""The joint audit: exact probabilities, its false alarms, its power, and the control it must find."""

from __future__ import annotations

import numpy as np
import pytest
from test_distribution import FULL, PROMPTS

from specli.decoding.sampling import distribution
from specli.engine.options import ReplyOptions
from specli.evaluation.joint import REST, joint_audit, joint_probabilities
from specli.evaluation.statistics import detectable_variation, g_test


def test_the_bound_of_the_joint_test_holds_for_an_even_and_for_an_uneven_bias():
    rng = np.random.default_rng(6)
    probs = rng.dirichlet(np.ones(40))
    total = 4000
    variation = detectable_variation(total, 39, 0.001)
    signs = np.where(np.arange(40) % 2, 1, -1)
    spread = probs * signs
    even = probs + spread * variation * 2 / np.abs(spread).sum()
    assert 0.5 * np.abs(even - probs).sum() == pytest.approx(variation, rel=0.1)
    even /= even.sum()
    exact = dict(enumerate(probs))
    alarms = sum(g_test(dict(enumerate(rng.multinomial(total, even))), exact).p_value < 0.001 for _ in range(100))
    assert alarms >= 75  # 90 expected or more
    assert sum(g_test(dict(enumerate(rng.multinomial(total, probs))), exact).p_value < 0.001 for _ in range(100)) <= 3


def test_joint_probabilities_add_up_and_agree_with_the_chain_rule(engine):
    prompt = engine.conversation(PROMPTS[0].messages)
    engine.target.rewind(0)
    cells = joint_probabilities(engine.target, FULL, prompt, 2, 0.01)
    assert sum(cells.values()) == pytest.approx(1.0)
    assert cells[REST] < 0.9
    (first, second), joint = next(item for item in cells.items() if len(item[0]) == 2)
    engine.target.rewind(0)
    probabilities = [
        distribution(engine.target.feed(tokens[engine.target.n_past :], rows=1)[0], FULL).probability(token)
        for tokens, token in ((prompt, first), ([*prompt, first], second))
    ]
    assert joint == pytest.approx(np.prod(probabilities), rel=1e-4)


@pytest.mark.parametrize("rule", ["block", "coupled"])
def test_joint_audit(engine, rule):
    options = ReplyOptions(FULL, draft_length=3, verification=rule, seed=3)
    report = joint_audit(engine, PROMPTS[0], options, 1500, depth=2)
    assert report.test.p_value > 0.01
    assert not report.found
    assert report.cells > 20


def test_joint_audit_finds_the_control(engine):
    report = joint_audit(engine, PROMPTS[0], ReplyOptions(FULL, draft_length=3, seed=3), 4000, depth=2, control=True)
    assert report.found
