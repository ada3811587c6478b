"""Every filter on four hand-computed tokens, and the fast paths against the obvious ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from specli.decoding.options import SamplingOptions
from specli.decoding.sampling import Distribution, distribution, top_ids
from specli.errors import DecodeError, OptionError

PROBS = [0.5, 0.3, 0.15, 0.05]
LOGITS = np.log(np.array(PROBS))


def options(**changes) -> SamplingOptions:
    return SamplingOptions(**{"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **changes})


def dense(dist: Distribution, size: int = 4) -> list[float]:
    return [dist.probability(token) for token in range(size)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, PROBS),
        ({"top_k": 2}, [0.625, 0.375, 0, 0]),
        ({"top_k": 9}, PROBS),
        ({"top_p": 0.75}, [0.625, 0.375, 0, 0]),  # 0.5 is not enough, 0.8 is
        ({"top_p": 0.81}, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        ({"top_p": 0.0}, [1, 0, 0, 0]),
        ({"min_p": 0.2}, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),  # 0.2 of 0.5 is 0.1
        ({"min_p": 1.0}, [1, 0, 0, 0]),
        ({"temperature": 0.0}, [1, 0, 0, 0]),
        ({"temperature": 0.5}, [0.25 / 0.365, 0.09 / 0.365, 0.0225 / 0.365, 0.0025 / 0.365]),  # squares
        # top-p looks at the four probabilities before temperature makes them more even: 0.5 + 0.3 reach 0.75.
        (
            {"top_p": 0.75, "temperature": 5.0},
            [0.5**0.2 / (0.5**0.2 + 0.3**0.2), 0.3**0.2 / (0.5**0.2 + 0.3**0.2), 0, 0],
        ),
        # top-k comes before top-p: 0.625 of the two is enough.
        ({"top_k": 2, "top_p": 0.6}, [1, 0, 0, 0]),
        ({"logit_bias": ((0, -math.inf),)}, [0, 0.6, 0.3, 0.1]),
        ({"logit_bias": ((3, math.log(10)),)}, [0.5 / 1.45, 0.3 / 1.45, 0.15 / 1.45, 0.5 / 1.45]),
    ],
)
def test_filters(changes, expected):
    assert dense(distribution(LOGITS, options(**changes))) == pytest.approx(expected, abs=1e-12)


def test_penalties_by_hand():
    logits = np.array([2.0, -1.0, 0.5, 0.0])
    changed = options(repeat_penalty=2.0, frequency_penalty=0.25, presence_penalty=0.5, repeat_last_n=3)
    # The last three tokens are 0, 1, 1: token 0 once, token 1 twice; token 2 is too long ago.
    expected = np.exp([2.0 / 2 - 0.25 - 0.5, -1.0 * 2 - 0.5 - 0.5, 0.5, 0.0])
    found = distribution(logits, changed, [2, 0, 1, 1])
    assert dense(found) == pytest.approx(list(expected / expected.sum()), abs=1e-12)
    assert logits.tolist() == [2.0, -1.0, 0.5, 0.0]


def test_equal_logits_go_to_the_lowest_id():
    assert distribution(np.array([1.0, 3.0, 3.0]), options(temperature=0.0)).certain_token == 1
    assert sorted(top_ids(np.array([2.0, 2.0, 2.0, 2.0]), 2)) == [0, 1]


@pytest.mark.parametrize("row", [[math.nan, 1.0], [-math.inf, -math.inf], [math.inf, 0.0]])
def test_unusable_logits(row):
    with pytest.raises(DecodeError, match="no usable logits"):
        distribution(np.array(row), options())


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": -1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": -1},
        {"top_p": 2},
        {"top_p": -0.1},
        {"min_p": 1.5},
        {"repeat_penalty": 0},
        {"repeat_penalty": math.inf},
        {"repeat_last_n": -2},
        {"frequency_penalty": math.nan},
        {"presence_penalty": math.inf},
    ],
)
def test_options_out_of_bounds(changes):
    (value,) = changes.values()
    with pytest.raises(OptionError) as caught:
        options(**changes)
    assert str(value) in caught.value.message
    assert caught.value.hint


rows = arrays(np.float32, st.integers(1, 3000), elements=st.floats(-30, 30, width=32))


@given(rows, st.integers(1, 60))
@settings(max_examples=200, deadline=None)
def test_top_ids_is_a_stable_sort(row, count):
    expected = np.argsort(-row, kind="stable")[:count]
    assert top_ids(row, count).tolist() == expected.tolist()


@given(
    rows,
    st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    st.sampled_from([0, 1, 5, 40]),
    st.sampled_from([1.0, 0.95, 0.5]),
    st.sampled_from([0.0, 0.05, 0.5]),
)
@settings(max_examples=300, deadline=None)
def test_filters_against_the_obvious_way(row, temperature, top_k, top_p, min_p):
    chosen = SamplingOptions(temperature, top_k, top_p, min_p)
    found = distribution(row.astype(np.float64), chosen)
    expected = obvious(row.astype(np.float64), chosen)
    assert np.abs([found.probability(token) for token in range(len(row))] - expected).max() < 1e-9


def obvious(row, chosen: SamplingOptions) -> np.ndarray:
    order = np.argsort(-row, kind="stable")
    if chosen.temperature == 0:
        order = order[:1]
    if chosen.top_k:
        order = order[: chosen.top_k]
    if chosen.top_p < 1:
        probs = np.exp(row[order] - row[order[0]])
        total, kept = 0.0, 0
        for prob in probs / probs.sum():
            total, kept = total + prob, kept + 1
            if total >= chosen.top_p:
                break
        order = order[:kept]
    if chosen.min_p:
        order = order[row[order] >= row[order[0]] + math.log(chosen.min_p)]
    probs = np.zeros(len(row))
    probs[order] = np.exp((row[order] - row[order[0]]) / (chosen.temperature or 1.0))
    return probs / probs.sum()


class Fixed:
    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


@pytest.mark.parametrize("size", [5, 5000])
def test_a_draw_follows_the_cumulated_probabilities(size):
    rng = np.random.default_rng(5)
    probs = rng.dirichlet(np.ones(size))
    probs[::3] = 0
    probs /= probs.sum()
    bounds = np.cumsum(probs)
    for token in np.flatnonzero(probs)[:: max(1, size // 50)]:
        inside = bounds[token] - probs[token] / 2
        assert Distribution.dense(probs).draw(Fixed(inside)) == token
        some = np.flatnonzero(probs)
        assert Distribution.sparse(some, probs[some]).draw(Fixed(inside)) == token


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
@pytest.mark.parametrize("size", [4, 4000, 100_000])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_ends_of_the_interval_never_give_an_impossible_token(uniform, size, kind):
    probs = np.zeros(size, dtype=kind)
    probs[1 : size - 1] = 1 / (size - 2)
    token = Distribution.dense(probs).draw(Fixed(uniform))
    assert token == (1 if uniform == 0 else size - 2)


def test_draws_of_a_long_row_have_the_right_frequencies():
    # 200,000 draws over 3,000 tokens, chi-square with few degrees of freedom by merging: z stays below 4.5.
    rng = np.random.default_rng(11)
    probs = rng.dirichlet(np.full(3000, 0.3)).astype(np.float32)
    dist = Distribution.dense(probs)
    draws = np.bincount([dist.draw(rng) for _ in range(200_000)], minlength=3000)
    groups = np.arange(3000) % 50
    expected = np.bincount(groups, weights=probs.astype(np.float64) / probs.sum(dtype=np.float64)) * 200_000
    found = np.bincount(groups, weights=draws)
    statistic = ((found - expected) ** 2 / expected).sum()
    assert abs(statistic - 49) / math.sqrt(2 * 49) < 4.5


def test_minus_by_hand():
    target = Distribution.dense([0.5, 0.3, 0.2])
    mass, residual = target.minus(Distribution.dense([0.2, 0.6, 0.2]))
    assert mass == pytest.approx(0.3)
    assert dense(residual, 3) == pytest.approx([1, 0, 0])
    mass, residual = target.minus(Distribution.sparse([1], [1.0]), weight=0.5)
    assert mass == pytest.approx(0.35)
    assert dense(residual, 3) == pytest.approx([0.25 / 0.35, 0, 0.1 / 0.35])
    assert target.minus(target)[0] == 0.0


distributions = st.integers(0, 10_000).map(lambda seed: np.random.default_rng(seed))


@given(distributions, st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_sparse_and_dense_agree(rng, weight):
    size = int(rng.integers(2, 30))
    first, second = (rng.dirichlet(np.ones(size)) * (rng.random(size) < 0.6) for _ in range(2))
    for probs in (first, second):
        probs[rng.integers(size)] += 0.5
        probs /= probs.sum()
    forms = [
        [Distribution.dense(probs), Distribution.sparse(np.flatnonzero(probs), probs[probs > 0])]
        for probs in (first, second)
    ]
    results = [one.minus(other, weight) for one in forms[0] for other in forms[1]]
    for mass, residual in results[1:]:
        assert mass == pytest.approx(results[0][0], abs=1e-12)
        if mass > 1e-9:
            assert dense(residual, size) == pytest.approx(dense(results[0][1], size), abs=1e-9)
