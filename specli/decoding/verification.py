"""The rejection step: how many draft tokens are kept, and the one token that follows them.

Words:
    draft token         a token that the drafter proposed
    draft_probs         for each draft token, the very distribution it was drawn from
    target_probs        what the target model gives at the same positions, and one position further
    accepted token      a draft token that is kept
    recovered token     the token that replaces the first rejected one, drawn from the residual distribution
    bonus token         the token that follows when all draft tokens are accepted
    residual            target_probs - draft_probs where that is positive, normalized

Whatever the drafter proposes, the kept tokens and the one after them are distributed exactly as if the target
model had been sampled alone ("lossless"). Each rule returns `Verdict(num_accepted, next_token)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from specli.decoding.sampling import Distribution, Floats, Ids, Random
from specli.errors import OptionError


class Distributions(Protocol):
    """One distribution for each position: a list, or rows that are made when they are looked at."""

    def __getitem__(self, index: int, /) -> Distribution:
        """Return the distribution at a position of the draft, counted from 0."""


class Draft(NamedTuple):
    """One proposed run of tokens, each with the distribution it was drawn from."""

    tokens: Sequence[int] = ()  # [k]
    probs: Sequence[Distribution] = ()  # [k]


class Verdict(NamedTuple):
    """The outcome of one verification."""

    num_accepted: int  # how many draft tokens are kept, from the first on
    next_token: int  # the recovered token, or the bonus token when all are kept


def token_verification(
    draft_tokens: Sequence[int],  # [k]
    draft_probs: Sequence[Distribution],  # [k]
    target_probs: Distributions,  # [k + 1]
    rng: Random,
) -> Verdict:
    """Test the draft tokens one by one and stop at the first that is rejected.

    Leviathan et al. 2023 (arXiv 2211.17192, algorithm 1) and Chen et al. 2023 (arXiv 2302.01318, algorithm 2).
    Rows of `target_probs` after the rejected token are never looked at.
    """
    num_accepted = count_accepted(draft_tokens, draft_probs, target_probs, rng)
    target = target_probs[num_accepted]
    if num_accepted < len(draft_tokens):
        _, target = target.minus(draft_probs[num_accepted])
    return Verdict(num_accepted, target.draw(rng))


def count_accepted(
    draft_tokens: Sequence[int],  # [k]
    draft_probs: Sequence[Distribution],  # [k]
    target_probs: Distributions,  # [k + 1]
    rng: Random,
) -> int:
    """Return how many draft tokens the token rule accepts before it rejects one."""
    for position, token in enumerate(draft_tokens):
        ratio = target_probs[position].probability(token) / draft_probs[position].probability(token)
        # Strictly less, because the uniform number can be 0: a token the target excludes is never kept.
        if not rng.random() < ratio:
            return position
    return len(draft_tokens)


def block_verification(
    draft_tokens: Sequence[int],  # [k]
    draft_probs: Sequence[Distribution],  # [k]
    target_probs: Distributions,  # [k + 1]
    rng: Random,
) -> Verdict:
    """Test the draft as a whole: keep the longest prefix that passes its own test.

    Sun et al. 2024, "Block verification accelerates speculative decoding" (arXiv 2403.10444, algorithm 2).
    Keeps at least as many tokens as `token_verification` in expectation, because what an unlikely token costs can be
    made good by the likely ones after it. Where every draft token was certain there is nothing to balance and the two
    rules have the same expectation, so the cheaper one decides.
    """
    if all(probs.certain_token is not None for probs in draft_probs):
        return token_verification(draft_tokens, draft_probs, target_probs, rng)
    weights = [1.0]  # how well the target supports each prefix of the draft, never above 1
    probabilities = []  # that each prefix of length 1..k passes
    for index, token in enumerate(draft_tokens):
        ratio = target_probs[index].probability(token) / draft_probs[index].probability(token)
        weight = min(1.0, weights[-1] * ratio)
        weights.append(weight)
        if index + 1 == len(draft_tokens):
            probabilities.append(weight)
        else:  # the residual mass is that of the NEXT position
            mass, _ = target_probs[index + 1].minus(draft_probs[index + 1], weight)
            probabilities.append(mass / (mass + 1 - weight) if mass + 1 - weight > 0 else 1.0)
    num_accepted = 0
    for length, probability in enumerate(probabilities, start=1):
        if rng.random() < probability:  # a fresh uniform number for each, and no early end: the last success counts
            num_accepted = length
    if num_accepted == len(draft_tokens):
        return Verdict(num_accepted, target_probs[num_accepted].draw(rng))
    _, residual = target_probs[num_accepted].minus(draft_probs[num_accepted], weights[num_accepted])
    return Verdict(num_accepted, residual.draw(rng))


def match_verification(
    draft_tokens: Sequence[int],  # [k]
    draft_probs: Sequence[Distribution],  # [k], not looked at
    target_probs: Distributions,  # [k + 1]
    rng: Random,
) -> Verdict:
    """Sample the target at each position and keep the draft while it says the same.

    Lossless for any draft, but it keeps fewer tokens than the two rules above. The comparison with other tools
    needs it: it is what llama.cpp and mlx-lm do.
    """
    return _match(draft_tokens, lambda index: target_probs[index].draw(rng))


def _match(draft_tokens: Sequence[int], draw_target: Callable[[int], int]) -> Verdict:
    for index, token in enumerate(draft_tokens):
        sampled = draw_target(index)
        if sampled != token:
            return Verdict(index, sampled)
    return Verdict(len(draft_tokens), draw_target(len(draft_tokens)))


Rule = Callable[[Sequence[int], Sequence[Distribution], Distributions, Random], Verdict]

RULES: dict[str, Rule] = {"block": block_verification, "token": token_verification, "match": match_verification}


def verify(
    rule: str,
    draft_tokens: Sequence[int],
    draft_probs: Sequence[Distribution],
    target_probs: Distributions,
    rng: Random,
) -> Verdict:
    """Decide how many draft tokens are kept and which token follows.

    Args:
        rule: a key of `RULES`.
        draft_tokens: [k] token ids; k may be 0, then the next token is drawn from the target alone.
        draft_probs: [k], the distribution each draft token was drawn from.
        target_probs: [k + 1].
        rng: a `numpy.random.Generator`, used for nothing but verification.

    Raises:
        OptionError: there is no such rule.
    """
    if rule not in RULES:
        raise OptionError(f"there is no verification rule {rule!r}.", f"Choose one of: {', '.join(RULES)}.")
    return RULES[rule](draft_tokens, draft_probs, target_probs, rng)


class Verifier(Protocol):
    """A rule together with its random numbers: all the randomness that there is in a reply."""

    def draw_draft(self, distribution: Distribution, position: int) -> int:
        """Draw a draft token for the given position of the text."""

    def verify(self, draft: Draft, target_probs: Distributions, position: int) -> Verdict:
        """Decide about a draft whose first token has the given position of the text."""


class SeededVerifier:
    """A rule with two independent streams of random numbers from one seed: one drafts, the other verifies.

    A single stream would make the acceptance of a token depend on how it was drawn, which is biased.
    """

    def __init__(self, rule: str, seed: int) -> None:
        drafting, verifying = np.random.SeedSequence(seed).spawn(2)
        self._rule = rule
        self._drafting = np.random.default_rng(drafting)
        self._verifying = np.random.default_rng(verifying)

    def draw_draft(self, distribution: Distribution, position: int) -> int:
        """Draw from the drafting stream; the position does not matter."""
        return distribution.draw(self._drafting)

    def verify(self, draft: Draft, target_probs: Distributions, position: int) -> Verdict:
        """Apply the rule with the verifying stream; the position does not matter."""
        return verify(self._rule, draft.tokens, draft.probs, target_probs, self._verifying)


class CoupledVerifier:
    """Draft and target choose by the same noise, so the text depends on the seed and the target alone.

    Daliri, Musco and Suresh 2024, "Coupling without communication and drafter-invariant speculative decoding"
    (arXiv 2408.07978). Each token has a waiting time that is exponentially distributed with its probability as rate;
    the first to arrive is chosen, which is a draw from the distribution. The noise is a function of seed, position
    and token id, so draft and target often choose the same token, and the target chooses the same one whatever was
    drafted: the same seed gives the same text with any draft model, any draft length, and none.
    """

    def __init__(self, seed: int) -> None:
        self._seed = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])

    def draw_draft(self, distribution: Distribution, position: int) -> int:
        """Choose the draft token for the position."""
        return self._choose(distribution, position)

    def verify(self, draft: Draft, target_probs: Distributions, position: int) -> Verdict:
        """Choose the target's tokens and keep the draft while it says the same."""
        return _match(draft.tokens, lambda index: self._choose(target_probs[index], position + index))

    def _choose(self, distribution: Distribution, position: int) -> int:
        if distribution.certain_token is not None:
            return distribution.certain_token
        ids = np.arange(len(distribution.probs)) if distribution.ids is None else distribution.ids
        with np.errstate(divide="ignore"):  # a token with probability 0 never arrives
            waiting = -np.log(hashed_uniforms(self._seed, position, ids)) / distribution.probs
        return int(ids[waiting.argmin()])


def hashed_uniforms(seed: int, position: int, ids: Ids) -> Floats:
    """Return a uniform number in (0, 1) for each of the token ids [n], a function of its three arguments alone.

    Counters through the finalizer of SplitMix64 (Steele, Lea and Flood 2014), seed and position being mixed first.
    """
    counters = ids.astype(np.uint64)
    key = _mix(np.array([seed], dtype=np.uint64))
    key = _mix(key + np.uint64(position))
    bits = _mix(counters * np.uint64(0x9E3779B97F4A7C15) + key)
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) / 2.0**52


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def make_verifier(verification: str, seed: int) -> Verifier:
    """Return the verifier of a rule, or of "coupled", with its random numbers from a seed of 0 or more."""
    return CoupledVerifier(seed) if verification == "coupled" else SeededVerifier(verification, seed)
