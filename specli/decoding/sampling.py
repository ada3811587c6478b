"""From a row of logits to the distribution a token is drawn from.

The order of the filters is llama.cpp's: logit bias, penalties, top-k, top-p, min-p, temperature. A distribution
is kept dense (one probability for each token of the vocabulary) or sparse (only the candidates that the filters
left), because vocabularies are 150,000 to 262,000 wide and most of the work is touching them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specli.decoding.options import SamplingOptions
from specli.errors import DecodeError

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.integer[Any]]

_FEW = 4096  # a row is folded until it has no more than this
_BLOCK = 1024  # long rows are cumulated block by block


class Random(Protocol):
    """What is asked of a source of random numbers; `numpy.random.Generator` is one."""

    def random(self) -> float:
        """Return a uniform number in [0, 1)."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Probabilities over the vocabulary: dense when `ids` is None, else only the tokens listed.

    Shapes:
        probs: [n], adding up to 1.
        ids: None for dense (the token id is the index), or [n] ascending token ids.
    """

    probs: Floats
    ids: Ids | None = None

    @classmethod
    def dense(cls, probs: Floats | Sequence[float]) -> Distribution:
        """Make a distribution from one probability for each token; `probs` is [n_vocab]."""
        return cls(_as_floats(probs))

    @classmethod
    def sparse(cls, ids: Ids | Sequence[int], probs: Floats | Sequence[float]) -> Distribution:
        """Make a distribution from [n] distinct token ids and their [n] probabilities; the rest have none."""
        ids, probs = np.asarray(ids), _as_floats(probs)
        if len(ids) > 1 and not (ids[1:] > ids[:-1]).all():
            order = np.argsort(ids)
            ids, probs = ids[order], probs[order]
        return cls(probs, ids)

    @classmethod
    def one_hot(cls, token: int) -> Distribution:
        """Make the distribution of a token that is certain."""
        return cls(_CERTAIN, np.array([token]))

    @property
    def certain_token(self) -> int | None:
        """The token that has all the probability, if the distribution is kept as one token."""
        return int(self.ids[0]) if self.ids is not None and len(self.ids) == 1 else None

    def probability(self, token: int) -> float:
        """Return the probability of one token; 0 for a token that is not in the distribution."""
        if self.ids is None:
            return float(self.probs[token]) if token < len(self.probs) else 0.0
        index = int(np.searchsorted(self.ids, token))
        found = index < len(self.ids) and self.ids[index] == token
        return float(self.probs[index]) if found else 0.0

    def probabilities(self, ids: Ids) -> Floats:
        """Return the probability of each of the ascending token ids `ids` [n], as [n]."""
        if self.ids is None:
            if not len(ids) or ids[-1] < len(self.probs):  # ids ascend, so the last one is the largest
                return self.probs[ids]
            inside = np.minimum(ids, len(self.probs) - 1)
            return np.where(ids < len(self.probs), self.probs[inside], 0.0)
        found = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[found] == ids, self.probs[found], 0.0)

    def draw(self, rng: Random) -> int:
        """Draw one token with one uniform number. A token with probability 0 is never drawn."""
        if self.certain_token is not None:
            return self.certain_token
        index = _draw_index(self.probs, rng.random())
        return index if self.ids is None else int(self.ids[index])

    def minus(self, other: Distribution, weight: float = 1.0) -> tuple[float, Distribution]:
        """Return max(0, weight * self - other) as its mass and the distribution it is when normalized.

        With self the target's and other the draft's probabilities this is the residual distribution. A mass of 0
        comes with self as the distribution, which then is the limit that every caller wants.
        """
        rest: Floats
        if self.ids is not None:
            rest = weight * self.probs - other.probabilities(self.ids)
        else:
            rest = self.probs * weight
            if other.ids is not None:
                inside = other.ids < len(rest)
                rest[other.ids[inside]] -= other.probs[inside]
            else:
                shared = min(len(rest), len(other.probs))  # vocabularies may differ by padding
                rest[:shared] -= other.probs[:shared]
        np.maximum(rest, 0.0, out=rest)
        mass = float(rest.sum(dtype=np.float64))
        return (mass, Distribution(rest / mass, self.ids)) if mass > 0 else (0.0, self)


_CERTAIN = np.ones(1)


def _as_floats(probs: Floats | Sequence[float]) -> Floats:
    array = np.asarray(probs)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _draw_index(probs: Floats, uniform: float) -> int:
    """Return the index whose share of the cumulated [n] probabilities holds `uniform`.

    Long rows are cumulated in two levels, blocks first, which is ten times faster than cumulating all.
    """
    if len(probs) <= _BLOCK:
        cumulated = np.cumsum(probs, dtype=np.float64)
        index = int(np.searchsorted(cumulated, uniform * cumulated[-1], side="right"))
        return index if index < len(probs) else int(np.flatnonzero(probs)[-1])
    starts = np.arange(0, len(probs), _BLOCK)
    sums = np.add.reduceat(probs, starts).astype(np.float64)
    cumulated = np.cumsum(sums)
    wanted = uniform * cumulated[-1]
    block = min(int(np.searchsorted(cumulated, wanted, side="right")), int(np.flatnonzero(sums)[-1]))
    within = (wanted - cumulated[block] + sums[block]) / sums[block]
    start = int(starts[block])
    return start + _draw_index(probs[start : start + _BLOCK], min(max(within, 0.0), 1.0))


def distribution(
    logits: Floats,  # [n_vocab]
    options: SamplingOptions,
    history: Sequence[int] = (),
) -> Distribution:
    """Apply all filters to one row of logits.

    Args:
        logits: [n_vocab], natural-log odds as the model gives them; not changed.
        options: the filters.
        history: the tokens before this one, prompt included; only penalties look at it.

    Raises:
        DecodeError: no logit is a finite number.
    """
    if options.logit_bias or options.has_penalties:
        logits = _with_bias_and_penalties(logits, options, history)
    best = int(logits.argmax())  # the lowest id among equals
    highest = float(logits[best])
    if not math.isfinite(highest):
        hint = "The file may be damaged: 'specli pull' checks it; or every token was forbidden by a logit bias."
        raise DecodeError(f"The model gave no usable logits: the largest is {highest}.", hint)
    if options.temperature == 0 or options.top_k == 1:
        return Distribution.one_hot(best)

    if 0 < options.top_k < len(logits):
        return _of_top(logits, options)
    ids: Ids | None = None
    if options.top_p < 1:
        ids = _nucleus(logits, options.top_p)
    if options.min_p > 0:
        least = highest + math.log(options.min_p)
        ids = np.flatnonzero(logits >= least) if ids is None else ids[logits[ids] >= least]
    if ids is None:
        return Distribution(_softmax(logits, options.temperature))
    return _sparse(ids, logits[ids].astype(np.float64), options.temperature)


def _of_top(logits: Floats, options: SamplingOptions) -> Distribution:
    """Apply top-k and what follows it to a row of logits [n_vocab]; all of it looks at a few tokens only."""
    ids = top_ids(logits, options.top_k)
    chosen = logits[ids].astype(np.float64)  # falling
    count = len(ids)
    if options.top_p < 1:
        cumulated = np.cumsum(np.exp(chosen - chosen[0]))
        count = min(count, int(np.searchsorted(cumulated, options.top_p * cumulated[-1])) + 1)
    if options.min_p > 0:
        least = float(chosen[0]) + math.log(options.min_p)
        count = min(count, int(np.searchsorted(-chosen, -least, side="right")))
    return _sparse(ids[:count], chosen[:count], options.temperature)


def _sparse(ids: Ids, logits: Floats, temperature: float) -> Distribution:
    """Return the distribution over the token ids [n] with these logits [n]."""
    if len(ids) == 1:
        return Distribution.one_hot(int(ids[0]))
    order = np.argsort(ids)
    return Distribution(_softmax(logits[order], temperature), ids[order])


def _softmax(logits: Floats, temperature: float) -> Floats:
    """Return exp(logits / temperature), normalized; [n] to [n], in the precision of the logits."""
    probs: Floats = logits - logits.max()
    if temperature != 1:
        probs /= temperature
    np.exp(probs, out=probs)
    probs /= float(probs.sum(dtype=np.float64))
    return probs


def confidence(logits: Floats, found: Distribution) -> float:
    """Return the largest probability that a model gives to a token.

    Where the distribution is a single token it is taken from the logits [n_vocab]: from the largest ones of some
    groups, which is fast, and somewhat too high.
    """
    if found.certain_token is None:
        return float(found.probs.max())
    peaks = _peaks(logits)
    return 1 / float(np.exp(peaks - peaks.max()).sum())


def _peaks(logits: Floats) -> Floats:
    """Return the maxima of a few thousand groups that the logits [n_vocab] fall into, each logit into one group.

    The row is folded onto itself, half on half, which is six times faster than maxima of neighbors.
    """
    folded, left_over = logits, []
    while len(folded) > _FEW:
        half = len(folded) // 2
        left_over.append(folded[2 * half :])
        folded = np.maximum(folded[:half], folded[half : 2 * half])
    return np.concatenate([folded, *left_over]) if left_over else folded


def top_ids(logits: Floats, count: int) -> Ids:
    """Return the ids of the `count` largest logits, largest first, the lower id first among equals.

    The `count`-th largest of the maxima of groups is a logit that at least `count` logits reach, so only logits that
    reach it can be among the largest: usually a few hundred of 150,000.
    """
    maxima = _peaks(logits)
    if count < len(maxima):
        bound = np.partition(maxima, len(maxima) - count)[len(maxima) - count]
        candidates = np.flatnonzero(logits >= bound)
    else:
        candidates = np.arange(len(logits))
    order = np.argsort(-logits[candidates], kind="stable")  # candidates are ascending, so ties stay in order of id
    return candidates[order[:count]]


def _nucleus(logits: Floats, top_p: float) -> Ids:
    """Return the fewest most probable ids whose probabilities, at temperature 1, reach `top_p`."""
    row = _softmax(logits, 1.0)
    count = 256  # most nuclei are small; look further only when this one was not
    while True:
        ids = top_ids(logits, min(count, len(logits)))
        cumulated = np.cumsum(row[ids].astype(np.float64))
        kept = min(int(np.searchsorted(cumulated, top_p)) + 1, len(ids))
        if kept < len(ids) or len(ids) == len(logits):
            return ids[:kept]
        count *= 16


def _with_bias_and_penalties(logits: Floats, options: SamplingOptions, history: Sequence[int]) -> Floats:
    """Return a copy of the logits [n_vocab] with the bias added and the penalties taken off."""
    logits = logits.copy()
    for token, bias in options.logit_bias:
        if token < len(logits):  # a draft model's vocabulary can be the shorter one
            logits[token] += bias
    if options.has_penalties:
        window = history if options.repeat_last_n < 0 else history[-options.repeat_last_n :]
        ids, counts = np.unique(np.asarray(window, dtype=np.int64), return_counts=True)
        ids, counts = ids[ids < len(logits)], counts[ids < len(logits)]
        seen = logits[ids]
        seen = np.where(seen > 0, seen / options.repeat_penalty, seen * options.repeat_penalty)
        logits[ids] = seen - counts * options.frequency_penalty - options.presence_penalty
    return logits
