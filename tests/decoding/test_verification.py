"""The accept rules: what they spend random numbers on, and what must hold for any distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specli.decoding.sampling import Distribution
from specli.decoding.verification import CoupledVerifier, Draft, SeededVerifier, Verdict, hashed_uniforms, verify
from specli.errors import OptionError

dense = Distribution.dense


class Scripted:
    """Gives the numbers it was told, and no more."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


TARGET = [dense([0.4, 0.4, 0.2]), dense([0.1, 0.8, 0.1]), dense([0.0, 0.0, 1.0])]
DRAFT = [dense([0.8, 0.1, 0.1]), dense([0.5, 0.25, 0.25])]


@pytest.mark.parametrize(
    ("tokens", "numbers", "expected"),
    [
        ((0, 0), (0.49, 0.19, 0.5), (2, 2)),  # ratios 0.5 and 0.2; the bonus row is certain
        ((0, 0), (0.5, 0.5), (0, 1)),  # not less than 0.5; residual 0, 0.3, 0.1
        ((0, 0), (0.5, 0.76), (0, 2)),
        ((0, 0), (0.49, 0.2, 0.0), (1, 1)),  # residual of the second row is token 1 alone
        ((1, 1), (0.999, 0.999, 0.5), (2, 2)),  # ratios above 1
    ],
)
def test_token_rule_by_hand(tokens, numbers, expected):
    rng = Scripted(*numbers)
    assert verify("token", tokens, DRAFT, TARGET, rng) == Verdict(*expected)


def test_block_rule_by_hand():
    # First token: weight 0.5; residual mass of the next row is max(0, 0.5 * target - draft) = 0.15 for token 1, so the
    # prefix of one token passes with 0.15 / (0.15 + 0.5) = 0.2308; both pass with 0.5 * 0.2 = 0.1.
    for numbers, expected in (
        ((0.99, 0.09, 0.5), (2, 2)),  # the whole block passes though its first part did not
        ((0.23, 0.11, 0.5), (1, 1)),
        ((0.24, 0.11, 0.5), (0, 1)),
        ((0.24, 0.11, 0.8), (0, 2)),
    ):
        assert verify("block", (0, 0), DRAFT, TARGET, Scripted(*numbers)) == Verdict(*expected)


def test_match_rule_by_hand():
    assert verify("match", (0, 0), DRAFT, TARGET, Scripted(0.3, 0.05, 0.5)) == Verdict(2, 2)
    assert verify("match", (0, 0), DRAFT, TARGET, Scripted(0.5)) == Verdict(0, 1)


def test_the_token_rule_does_not_look_past_a_rejection():
    class Rows(list):
        def __getitem__(self, place):
            assert place == 0, "looked past the rejected token"
            return super().__getitem__(place)

    verify("token", (0, 0), DRAFT, Rows(TARGET), Scripted(0.9, 0.5))


def test_an_unknown_rule():
    with pytest.raises(OptionError, match="'sloppy'"):
        verify("sloppy", (), [], TARGET, np.random.default_rng(0))


@st.composite
def drafts(draw):
    """Draft tokens with distributions over a few tokens, some of which have no probability."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size, length = int(rng.integers(2, 6)), int(rng.integers(0, 5))

    def some() -> Distribution:
        probs = rng.dirichlet(np.full(size, 0.7)) * (rng.random(size) < 0.7)
        probs[rng.integers(size)] += 0.1
        return dense(probs / probs.sum())

    draft = [some() for _ in range(length)]
    return [dist.draw(rng) for dist in draft], draft, [some() for _ in range(length + 1)], rng


@given(drafts(), st.sampled_from(["token", "block", "match"]))
@settings(max_examples=500, deadline=None)
def test_a_token_the_target_excludes_is_never_emitted(case, rule):
    tokens, draft, target, rng = case
    verdict = verify(rule, tokens, draft, target, rng)
    for place, token in enumerate([*tokens[: verdict.num_accepted], verdict.next_token]):
        assert target[place].probability(token) > 0


@given(drafts(), st.sampled_from(["token", "block"]))
@settings(max_examples=200, deadline=None)
def test_equal_distributions_accept_everything(case, rule):
    tokens, draft, target, rng = case
    assert verify(rule, tokens, draft, [*draft, target[-1]], rng).num_accepted == len(tokens)


def test_streams_of_one_seed_differ_and_repeat():
    dist = dense(np.full(1000, 1e-3))
    first, again, other = (SeededVerifier("block", seed) for seed in (0, 0, 1))
    drawn = [first.draw_draft(dist, at) for at in range(20)]
    verified = [first.verify(Draft(), [dist], at).next_token for at in range(20)]
    assert drawn != verified
    assert drawn == [again.draw_draft(dist, at) for at in range(20)]
    assert drawn != [other.draw_draft(dist, at) for at in range(20)]


# --- Coupled ---


def test_coupled_noise_is_uniform_and_independent():
    # Chi-square over 64 bins of three slices through (seed, position, token); |z| stays below 4.5 for fixed seeds.
    ids = np.arange(200_000)
    slices = [
        hashed_uniforms(7, 3, ids),
        np.concatenate([hashed_uniforms(7, position, np.arange(4)) for position in range(50_000)]),
        np.concatenate([hashed_uniforms(seed, 0, np.arange(4)) for seed in range(50_000)]),
    ]
    for uniforms in slices:
        assert 0 < uniforms.min() < uniforms.max() < 1
        counts = np.bincount((uniforms * 64).astype(int), minlength=64)
        expected = len(uniforms) / 64
        assert abs((((counts - expected) ** 2).sum() / expected - 63) / np.sqrt(2 * 63)) < 4.5
        assert abs(np.corrcoef(uniforms[:-1], uniforms[1:])[0, 1]) < 4.5 / np.sqrt(len(uniforms))


def test_coupled_choices_follow_the_distribution():
    dist = dense([0.5, 0.3, 0.15, 0.05, 0.0])
    chosen = [CoupledVerifier(seed).draw_draft(dist, position=9) for seed in range(40_000)]
    counts = np.bincount(chosen, minlength=5)
    assert counts[4] == 0
    expected = 40_000 * dist.probs[:4]
    assert ((counts[:4] - expected) ** 2 / expected).sum() < 20  # 3 degrees of freedom: p is about 2e-4


@given(drafts(), st.integers(0, 2**64), st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_coupled_text_does_not_depend_on_the_draft(case, seed, position):
    _, _, target, rng = case
    alone = [CoupledVerifier(seed).verify(Draft(), [dist], position + at).next_token for at, dist in enumerate(target)]
    drafted = rng.integers(0, len(target[0].probs), len(target) - 1).tolist()
    verdict = CoupledVerifier(seed).verify(Draft(drafted), target, position)
    kept = verdict.num_accepted
    assert [*drafted[:kept], verdict.next_token] == alone[: kept + 1]


def test_coupled_choices_are_the_same_sparse_and_dense():
    probs = np.array([0.0, 0.2, 0.0, 0.5, 0.3])
    for position in range(200):
        verifier = CoupledVerifier(1)
        sparse = Distribution.sparse(np.flatnonzero(probs), probs[probs > 0])
        assert verifier.draw_draft(dense(probs), position) == verifier.draw_draft(sparse, position)


def test_coupled_drafts_of_similar_distributions_are_often_accepted():
    # Coupling accepts at least (1 - TV) / (1 + TV); independent draws would accept the sum of squares, 0.36 here.
    target, draft = dense([0.5, 0.3, 0.2]), dense([0.4, 0.4, 0.2])
    verifier = CoupledVerifier(3)
    agreed = np.mean([verifier.draw_draft(target, at) == verifier.draw_draft(draft, at) for at in range(20_000)])
    assert agreed > (1 - 0.1) / (1 + 0.1) - 0.01
