"""The schedule in a simulator: never much slower than plain decoding, mostly faster than the best fixed length."""

from __future__ import annotations

import numpy as np
import pytest
from simulator import (
    CURVES,
    Position,
    accepted_from,
    all_knowing,
    best_fixed,
    best_fixed_lookup,
    class_speedups,
    fixed,
    new_schedule,
    recorded_traces,
    repetitive_traces,
    scheduled,
)

from specli.decoding.costs import PassCosts
from specli.decoding.schedule import BUDGET, LONGEST_LOOKUP, DraftPlan, Experience, Schedule

TRACES = recorded_traces()


def mean_ratio(ratios) -> float:
    return float(np.exp(np.mean(np.log(list(ratios)))))


def processes() -> dict[str, list[Position]]:
    """Acceptance that is even, drifts, alternates or collapses, with a confidence that knows something about it."""
    rng = np.random.default_rng(0)
    probabilities = {
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
    for name, probability in probabilities.items():
        trace = []
        for at in range(1000):
            accepted = int(rng.random() < probability(at))
            confidence = np.clip(rng.normal(0.9 * probability(at) + 0.1 * accepted, 0.12), 0.05, 0.999)
            trace.append(Position(accepted, float(confidence)))
        found[name] = trace
    found["lies"] = [Position(int(rng.random() < 0.1), 0.99) for _ in range(1000)]
    return found


def misleading_matches() -> list[Position]:
    """There is always a long match, and what followed it is never right."""
    return [Position(0, 0.1, match=40, copied=0) for _ in range(1000)]


@pytest.mark.parametrize("curve", CURVES.values(), ids=list(CURVES))
@pytest.mark.parametrize(("tokens", "least"), [(128, 0.955), (1000, 0.97)])
def test_never_slower_than_plain_decoding(curve, tokens, least):
    traces = processes() | TRACES | repetitive_traces() | {"misleading": misleading_matches()}
    for name, trace in traces.items():
        ratio = fixed(trace, curve, 0, tokens) / scheduled(trace, curve, tokens, catches_up=True)
        assert ratio > least, name


@pytest.mark.parametrize(
    ("curve", "least", "overall", "second"),
    [("bf16", 1.0, 1.1, 1.1), ("gpu", 0.98, 1.07, 1.1), ("q8_0", 0.95, 1.03, 1.05)],
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


@pytest.mark.parametrize("curve", CURVES)
def test_against_the_better_of_two_fixed_drafters_where_text_repeats(curve):
    """The best length and drafter for a whole reply are known only afterwards; the schedule finds out on the way."""
    ratios = []
    for trace in repetitive_traces().values():
        best = min(best_fixed(trace, CURVES[curve], 400), best_fixed_lookup(trace, CURVES[curve], 400))
        ratios.append(best / scheduled(trace, CURVES[curve], 400, catches_up=True))
    print(curve, [round(one, 3) for one in ratios])
    assert min(ratios) > 0.85
    assert mean_ratio(ratios) > 0.95


def test_where_nothing_can_pay_nothing_is_tried():
    for trace in TRACES.values():
        assert scheduled(trace, CURVES["q4_k_m"], 500) == pytest.approx(fixed(trace, CURVES["q4_k_m"], 0, 500))
    assert not new_schedule(CURVES["q4_k_m"]).expects_drafts
    assert new_schedule(CURVES["bf16"]).expects_drafts


def test_nobody_beats_the_one_who_knows_the_future():
    for curve in CURVES.values():
        for trace in TRACES.values():
            assert (
                all_knowing(trace, curve, 200)
                <= min(scheduled(trace, curve, 200), best_fixed(trace, curve, 200)) * 1.03
            )


def test_the_simulator():
    trace = [Position(1, 0.9), Position(1, 0.9), Position(0, 0.9)]
    assert [accepted_from(trace, 0, length) for length in (0, 1, 2, 3, 9)] == [0, 1, 2, 2, 2]
    assert fixed(trace, CURVES["gpu"], 2, 300) == pytest.approx(100 * (2 * 1.6 + 10.45) / 1000)


def costs(draft=0.1) -> PassCosts:
    return PassCosts(0, {1: 1.0, 2: 1.1, 3: 1.2, 4: 1.3, 5: 1.4}, draft)


def drafted(chosen: Schedule, confidence: float, limit: int = 16) -> DraftPlan:
    """Return a plan after as many tokens of a confidence as it wants."""
    plan = chosen.plan(limit)
    while plan.wants_pass() and plan.wants_token(confidence):
        pass
    return plan


def length(chosen: Schedule, confidence: float, limit: int = 16) -> int:
    return len(drafted(chosen, confidence, limit).kinds)


def test_confident_drafts_are_longer():
    lengths = [length(Schedule(costs()), confidence) for confidence in (0.1, 0.5, 0.8, 0.99)]
    assert lengths == sorted(lengths)
    assert lengths[0] <= 2 < lengths[-1]


def test_limits_are_kept():
    assert length(Schedule(costs()), 0.99, limit=3) == 3
    assert length(Schedule(costs()), 0.99, limit=0) == 0


@pytest.mark.parametrize(
    ("curve", "least", "overall"),
    [("bf16", 0.96, 1.04), ("gpu", 0.97, 1.04), ("q4_k_m", 0.99, 0.99), ("q8_0", 0.94, 0.98)],
)
def test_against_the_best_fixed_length_of_each_class_at_temperature_1(curve, least, overall):
    """Acceptance is drawn from its probability at each position, so that no text is luckier than another."""
    ratios = [cold / best for best, cold, _ in class_speedups(CURVES[curve], seeds=6).values()]
    assert min(ratios) > least
    assert mean_ratio(ratios) > overall


def test_rejection_shortens_and_pauses_and_time_brings_back():
    chosen = Schedule(costs(draft=0.4))
    before = length(chosen, 0.9)
    for _ in range(12):
        plan = drafted(chosen, 0.9)
        chosen.observe(plan, 0, 1.1, 0.4 * len(plan.kinds))
    assert length(chosen, 0.9) == 0 < before
    pauses = 0
    while not (plan := drafted(chosen, 0.9)).kinds:
        chosen.observe(plan, 0, 1.0, 0.0)
        pauses += 1
        assert pauses < 400
    assert pauses > 10


def test_a_slower_machine_does_not_keep_drafts_away():
    chosen = Schedule(costs(draft=0.2))
    for _ in range(50):  # plain passes take more than they are believed to
        chosen.observe(chosen.plan(0), 0, 1.6, 0.0)
    assert length(chosen, 0.95) > 0
    for _ in range(20):  # and so do longer ones
        chosen.observe(drafted(chosen, 0.95, limit=2), 1, 4.0, 0.4)
    pauses = 0
    while not (plan := drafted(chosen, 0.95)).kinds:
        chosen.observe(plan, 0, 1.0, 0.0)
        pauses += 1
        assert pauses < 80


def test_the_budget_bounds_the_first_draft_and_what_it_loses_is_missing():
    lengths = [length(Schedule(costs(draft=0.4), budget=budget), 0.999) for budget in (0.0, 1.0, 2.0, BUDGET)]
    assert lengths[0] == 0
    assert lengths == sorted(set(lengths))
    chosen = Schedule(costs(draft=0.4), budget=1.0)
    chosen.observe(drafted(chosen, 0.999), 0, 1.2, 0.8)
    assert length(chosen, 0.999) == 0


def test_a_new_reply_may_lose_as_much_as_the_first_one():
    chosen = Schedule(costs(draft=0.2))
    chosen.observe(drafted(chosen, 0.95, limit=4), 0, 8.0, 0.8)
    assert length(chosen, 0.95) == 0
    chosen.begin_reply()
    assert length(chosen, 0.95) > 0


def test_experience_is_where_the_next_schedule_starts():
    chosen = Schedule(costs(draft=0.4))
    for _ in range(3):
        chosen.observe(drafted(chosen, 0.95), 0, 1.9, 0.0)
    learned = chosen.experience
    assert learned.acceptance[5] < Experience().acceptance[5]
    assert learned.overall < Experience().overall
    again = Schedule(costs(draft=0.4), experience=learned).experience
    assert np.allclose(again.acceptance, learned.acceptance)
    assert np.allclose([again.overall, *again.matches], [learned.overall, *learned.matches])
    bad = Experience(acceptance=(0.05,) * len(learned.acceptance), overall=0.05)
    assert length(Schedule(costs(draft=0.4), experience=bad), 0.95) == 0 < length(Schedule(costs(draft=0.4)), 0.95)


def test_a_backlog_can_be_too_expensive():
    assert Schedule(costs(draft=0.3)).plan(16, backlog=0).wants_pass()
    assert not Schedule(costs(draft=0.3)).plan(16, backlog=500).wants_pass()


def test_looked_up_drafts_cross_steps_and_learn():
    steps = PassCosts(0, {1: 1.0, 2: 2.0, 3: 2.7, 4: 3.3, 8: 4.9, 9: 5.0, 16: 5.5, 32: 11.0}, None)
    chosen = Schedule(steps, limit=0, budget=6.0)
    assert chosen.plan(LONGEST_LOOKUP, match_length=40).lookup_length >= 15  # not worth it at seven, but at fifteen
    assert chosen.plan(LONGEST_LOOKUP, match_length=3).lookup_length == 0
    for _ in range(40):
        plan = chosen.plan(LONGEST_LOOKUP, match_length=40)
        chosen.observe(plan, 0, 1.0, 0.0)
    assert chosen.plan(LONGEST_LOOKUP, match_length=40).lookup_length == 0
    assert not chosen.plan(LONGEST_LOOKUP, match_length=40).wants_pass()


def test_a_reproducible_schedule_does_not_look_at_the_clock():
    plans = []
    for seconds in (0.1, 10.0):
        chosen = Schedule(PassCosts(0, {1: 1.0, 2: 1.1, 8: 2.0}, 0.2, learns=False))
        lengths = []
        for number in range(60):
            plan = drafted(chosen, (0.5, 0.9, 0.99)[number % 3])
            lengths.append(len(plan.kinds))
            chosen.observe(plan, number % (len(plan.kinds) + 1), seconds, seconds)
        plans.append(lengths)
    assert plans[0] == plans[1]
    assert len(set(plans[0])) > 2


class TestReplays:
    """Recurrent targets read what was kept of a draft again, which is counted in decisions and in what is learned."""

    # A row costs half a pass more: drafts that are half accepted pay, but not if they are read twice.
    COSTS = PassCosts(32, {1: 10.0, 2: 14.0, 3: 18.0, 4: 22.0, 5: 26.0, 8: 38.0, 16: 70.0}, 1.0)

    def test_what_is_read_again_after_a_rejection_makes_drafts_dearer(self):
        experience = Experience(overall=0.6)
        assert Schedule(self.COSTS, experience=experience).expects_drafts
        assert not Schedule(self.COSTS, experience=experience, replays=True).expects_drafts
        assert Schedule(self.COSTS, experience=Experience(overall=0.95), replays=True).expects_drafts

    def test_a_pass_that_reads_tokens_again_is_no_slower_machine(self):
        schedule = Schedule(self.COSTS, replays=True)
        before = self.COSTS.seconds(1)
        for _ in range(50):
            plan = schedule.plan(0, replayed=4)
            schedule.observe(plan, 0, self.COSTS.seconds(5), 0.0)
        assert self.COSTS.seconds(1) == pytest.approx(before)

    def test_reading_again_is_paid_from_the_budget(self):
        schedule = Schedule(self.COSTS, replays=True)
        full = schedule.plan(24)._limit
        for _ in range(3):
            schedule.observe(schedule.plan(0, replayed=4), 0, self.COSTS.seconds(5), 0.0)
        assert schedule.plan(24)._limit < full

    def test_rows_after_those_read_again_cost_what_they_do_there(self):
        steps = PassCosts(32, {1: 10.0, 4: 10.0, 5: 40.0, 16: 40.0}, 0.1)
        assert Schedule(steps).plan(3).worth() > 0
        assert Schedule(steps).plan(3, replayed=3).worth() <= 0
