"""The schedule in a simulator: never much slower than plain decoding, mostly faster than the best fixed length."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulator import (
    CURVES,
    accepted_from,
    all_knowing,
    best_fixed,
    class_speedups,
    fixed,
    new_schedule,
    recorded_traces,
    scheduled,
)

from specli.decoding.schedule import NO_EXPERIENCE, Average, Costs, Schedule

TRACES = recorded_traces()


def mean_ratio(ratios) -> float:
    return float(np.exp(np.mean(np.log(list(ratios)))))


def processes() -> dict[str, list[tuple[int, float]]]:
    """Acceptance that is even, drifts, alternates or collapses, with a confidence that knows something about it."""
    rng = np.random.default_rng(0)
    chances = {
        "never": lambda at: 0.02,
        "seldom": lambda at: 0.3,
        "half": lambda at: 0.5,
        "often": lambda at: 0.7,
        "mostly": lambda at: 0.9,
        "always": lambda at: 1.0,
        "falls": lambda at: 0.95 - 0.0009 * at,
        "rises": lambda at: 0.05 + 0.0009 * at,
        "alternates": lambda at: (0.2, 0.95)[at // 40 % 2],
        "flickers": lambda at: (0.05, 0.98)[at // 10 % 2],
        "collapses": lambda at: 0.95 if at < 300 else 0.02,
    }
    found = {}
    for name, chance in chances.items():
        trace = []
        for at in range(1000):
            accepted = int(rng.random() < chance(at))
            confidence = np.clip(rng.normal(0.9 * chance(at) + 0.1 * accepted, 0.12), 0.05, 0.999)
            trace.append((accepted, float(confidence)))
        found[name] = trace
    found["lies"] = [(int(rng.random() < 0.1), 0.99) for _ in range(1000)]
    return found


@pytest.mark.parametrize("curve", CURVES.values(), ids=list(CURVES))
@pytest.mark.parametrize("tokens", [128, 1000])
def test_never_slower_than_plain_decoding(curve, tokens):
    for name, trace in (processes() | TRACES).items():
        ratio = fixed(trace, curve, 0, tokens) / scheduled(trace, curve, tokens)
        assert ratio > 0.97, name


# The Q8_0 curve has a step at five rows. A purse that never loses much to plain decoding cannot bear a whole draft
# across it at first, and after a failure it takes a hundred tokens to earn the next one.
STEP = pytest.mark.xfail(strict=True, reason="one prompt at 0.87 cold, 1.04 the second time: the purse allows no more")


@pytest.mark.parametrize(
    ("curve", "least", "overall", "second"),
    [
        ("bf16", 1.0, 1.07, 1.05),
        ("gpu", 1.0, 1.05, 1.05),
        ("q8_0", 0.86, 1.0, 1.03),
        pytest.param("q8_0", 0.9, 1.0, 1.05, marks=STEP),
    ],
)
def test_against_the_best_fixed_length_of_each_prompt(curve, least, overall, second):
    """The recorded traces are 60 to 200 tokens long, so what it costs to find out is in these figures."""
    ratios, again = [], []
    for trace in TRACES.values():
        schedule = new_schedule(CURVES[curve])
        best = best_fixed(trace, CURVES[curve], len(trace))
        ratios.append(best / scheduled(trace, CURVES[curve], len(trace), schedule))
        again.append(best / scheduled(trace, CURVES[curve], len(trace), schedule))
    assert min(ratios) > least
    assert mean_ratio(ratios) > overall
    assert mean_ratio(again) > second


def test_where_nothing_can_pay_nothing_is_tried():
    for trace in TRACES.values():
        assert scheduled(trace, CURVES["q4_k_m"], 500) == pytest.approx(fixed(trace, CURVES["q4_k_m"], 0, 500))
    assert not new_schedule(CURVES["q4_k_m"]).expects_drafts()
    assert new_schedule(CURVES["bf16"]).expects_drafts()


def test_nobody_beats_the_one_who_knows_the_future():
    for curve in CURVES.values():
        for trace in TRACES.values():
            assert (
                all_knowing(trace, curve, 200)
                <= min(scheduled(trace, curve, 200), best_fixed(trace, curve, 200)) * 1.03
            )


def test_the_simulator():
    trace = [(1, 0.9), (1, 0.9), (0, 0.9)]
    assert [accepted_from(trace, 0, length) for length in (0, 1, 2, 3, 9)] == [0, 1, 2, 2, 2]
    assert fixed(trace, CURVES["gpu"], 2, 300) == pytest.approx(100 * (2 * 1.6 + 10.45) / 1000)


def schedule(target=None, draft=0.1) -> Schedule:
    return Schedule(Costs(target or {1: 1.0, 2: 1.1, 3: 1.2, 4: 1.3, 5: 1.4}, draft))


def drafted(chosen: Schedule, confidence: float, limit: int = 16) -> int:
    chosen.begin(limit)
    count = 0
    while chosen.wants_pass() and chosen.wants_token(confidence):
        count += 1
    return count


def test_confident_drafts_are_longer():
    lengths = [drafted(schedule(), confidence) for confidence in (0.1, 0.5, 0.8, 0.99)]
    assert lengths == sorted(lengths)
    assert lengths[0] <= 2 < lengths[-1]


def test_limits_are_kept():
    assert drafted(schedule(), 0.99, limit=3) == 3
    assert drafted(schedule(), 0.99, limit=0) == 0


@pytest.mark.parametrize(
    ("curve", "least", "overall"),
    [("bf16", 0.97, 1.03), ("gpu", 0.97, 1.04), ("q4_k_m", 0.99, 0.99), ("q8_0", 0.92, 0.96)],
)
def test_against_the_best_fixed_length_of_each_class_at_temperature_1(curve, least, overall):
    """Acceptance is drawn from its chance at each position, so that no text is luckier than another."""
    ratios = [cold / best for best, cold, _ in class_speedups(CURVES[curve], seeds=6).values()]
    assert min(ratios) > least
    assert mean_ratio(ratios) > overall


def test_rejection_shortens_and_pauses_and_time_brings_back():
    chosen = schedule(draft=0.4)
    before = drafted(chosen, 0.9)
    for _ in range(12):
        count = drafted(chosen, 0.9)
        chosen.observe(0, count, 1.1, 0.4 * count)
    assert drafted(chosen, 0.9) == 0 < before
    pauses = 0
    while drafted(chosen, 0.9) == 0:
        chosen.observe(0, 0, 1.0, 0.0)
        pauses += 1
        assert pauses < 400
    assert pauses > 10


def test_a_slower_machine_does_not_keep_drafts_away():
    chosen = schedule(draft=0.2)
    for _ in range(50):  # plain passes take more than they are believed to
        chosen.observe(0, 0, 1.6, 0.0)
    assert drafted(chosen, 0.95) > 0
    for _ in range(20):  # and so do longer ones
        chosen.observe(1, 2, 4.0, 0.4)
    pauses = 0
    while drafted(chosen, 0.95) == 0:
        chosen.observe(0, 0, 1.0, 0.0)
        pauses += 1
        assert pauses < 80


def test_a_new_reply_may_lose_as_much_as_the_first_one():
    chosen = schedule(draft=0.2)
    chosen.observe(0, 4, 8.0, 0.8)
    assert drafted(chosen, 0.95) == 0
    chosen.begin_reply()
    assert drafted(chosen, 0.95) > 0


def test_costs_between_and_beyond_what_was_measured():
    costs = Costs({1: 1.0, 2: 2.0, 4: 3.0, 12: 6.0, 16: 5.0}, 0.1)
    assert [costs.target(rows) for rows in (1, 3, 8, 14, 16)] == [1.0, 2.5, 4.5, 5.5, 5.0]
    assert costs.target(48) == 15.0  # not less than sixteen rows
    assert Costs({1: 2.0}, 0.1).target(3) == 6.0


def test_experience_is_where_the_next_schedule_starts():
    chosen = schedule(draft=0.4)
    for _ in range(3):
        chosen.observe(0, drafted(chosen, 0.95), 1.9, 0.0)
    learned = chosen.experience
    assert Schedule(chosen.costs, experience=learned).experience == learned
    assert learned.acceptance[5] < NO_EXPERIENCE.acceptance[5]
    bad = replace(NO_EXPERIENCE, acceptance=(0.05,) * len(NO_EXPERIENCE.acceptance))
    assert drafted(Schedule(chosen.costs, experience=bad), 0.95) == 0 < drafted(schedule(draft=0.4), 0.95)


def test_a_backlog_can_be_too_dear():
    chosen = schedule(draft=0.3)
    chosen.begin(16, backlog=0)
    assert chosen.wants_pass()
    chosen.begin(16, backlog=500)
    assert not chosen.wants_pass()


def test_looked_up_drafts_cross_steps_and_learn():
    steps = Costs({1: 1.0, 2: 2.0, 3: 2.7, 4: 3.3, 8: 4.9, 9: 5.0, 16: 5.5, 32: 11.0}, 0.0)
    chosen = Schedule(steps, limit=0)
    chosen._purse = 6.0
    chosen.begin(48)
    assert chosen.plan_lookup(40).length >= 15  # not worth it at seven, but at fifteen
    assert chosen.plan_lookup(3).length == 0
    for _ in range(40):
        chosen.begin(48)
        chosen.use_lookup(3)
        chosen.observe(4, 4, 1.0, 0.0)
    chosen.begin(48)
    assert chosen.plan_lookup(3).length >= 15


def test_costs_follow_what_passes_take():
    costs = Costs({1: 1.0, 2: 1.5, 4: 2.0, 8: 4.0}, 0.5)
    assert (costs.target(3), costs.target(10)) == (1.75, 5.0)
    for _ in range(300):
        costs.observe(1, 2.0, 2, 2.0)
        costs.observe(4, 3.0, 0, 0.0)
    assert costs.target(1) == pytest.approx(2.0, rel=0.1)
    assert costs.target(4) == pytest.approx(3.0, rel=0.1)
    assert costs.draft == pytest.approx(1.0, rel=0.05)
    fixed_costs = Costs({1: 1.0, 2: 1.5}, 0.5, learns=False)
    assert fixed_costs.observe(2, 99.0, 2, 99.0) == (1.5, 1.0)
    assert fixed_costs.target(1) == 1.0


def test_an_average_forgets():
    average = Average(0.5, 4)
    for _ in range(400):
        average.add(1.0)
    assert average.value > 0.99
    for _ in range(150):
        average.add(0.0)
    assert average.value < 0.2
    once = Average(0.5, 4)
    once.value, once.weight = average.value, average.weight
    for _ in range(400):
        average.relax(1)
    once.relax(400)
    assert average.value == pytest.approx(0.5, abs=0.01)
    assert (once.value, once.weight) == pytest.approx((average.value, average.weight))
