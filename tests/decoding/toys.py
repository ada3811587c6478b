"""Toy language models, and the exact distribution of everything the real code does with them.

Every decision that specli leaves to chance is either `rng.random() < chance` or `Distribution.draw`. Both are
replaced by branching points here, and the real loop is run once for every way through them. Nothing is sampled, so
a rule that is off by 1e-9 is seen.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

import numpy as np

from specli.decoding.drafting import Draft, DraftModelDrafter
from specli.decoding.loop import Emitted, LoopOptions, decode
from specli.decoding.metrics import Metrics
from specli.decoding.model import LanguageModel
from specli.decoding.options import SamplingOptions
from specli.decoding.sampling import Distribution, distribution
from specli.decoding.verification import verify
from specli.decoding.vocabularies import SharedVocabulary


@dataclass
class ToyModel:
    """A language model whose logits are a table by prefix: each prefix has its own distribution."""

    seed: int
    n_vocab: int = 3
    zeros: float = 0.25  # share of tokens that have probability 0 after a prefix
    end_tokens: frozenset[int] = frozenset()
    n_context: int = 64
    batch_size: int = 64
    max_rows: int = 65
    tokens: list[int] = field(default_factory=list)

    @property
    def n_past(self) -> int:
        return len(self.tokens)

    def logits(self, prefix: Sequence[int]) -> np.ndarray:
        rng = np.random.default_rng([self.seed, *prefix])
        probs = rng.dirichlet(np.ones(self.n_vocab))
        gone = rng.random(self.n_vocab) < self.zeros
        gone[rng.integers(self.n_vocab)] = False
        with np.errstate(divide="ignore"):
            return np.where(gone, -np.inf, np.log(probs))

    def feed(self, tokens: Sequence[int], rows: int) -> np.ndarray:
        assert rows <= len(tokens)
        assert len(self.tokens) + len(tokens) <= self.n_context
        self.tokens += tokens
        ends = range(len(self.tokens) - rows + 1, len(self.tokens) + 1)
        return np.array([self.logits(self.tokens[:end]) for end in ends]).reshape(rows, self.n_vocab)

    def rewind(self, length: int) -> None:
        del self.tokens[length:]


def shared(target: LanguageModel, draft: LanguageModel) -> SharedVocabulary:
    """What two models have in common if all ids that both have mean the same."""
    return SharedVocabulary(min(target.n_vocab, draft.n_vocab), target.end_tokens)


class Chance:
    """One way through all decisions: follows a script, then takes the first way, and knows how likely that was."""

    def __init__(self, script: list[int]) -> None:
        self._script = script
        self._taken: list[tuple[int, list[float]]] = []

    def choose(self, chances: Sequence[float]) -> int:
        at = len(self._taken)
        way = self._script[at] if at < len(self._script) else _next_possible(chances, -1)
        assert way is not None
        self._taken.append((way, list(chances)))
        return way

    def random(self) -> Uniform:
        return Uniform(self)

    @property
    def weight(self) -> float:
        return math.prod(chances[way] for way, chances in self._taken)

    def next_script(self) -> list[int] | None:
        while self._taken:
            way, chances = self._taken.pop()
            other = _next_possible(chances, way)
            if other is not None:
                return [way for way, _ in self._taken] + [other]
        return None


def _next_possible(chances: Sequence[float], after: int) -> int | None:
    return next((way for way in range(after + 1, len(chances)) if chances[way] > 0), None)


class Uniform:
    """A uniform number of which only the interval is known that past comparisons left."""

    def __init__(self, chance: Chance) -> None:
        self._chance, self._low, self._high = chance, 0.0, 1.0

    def __lt__(self, bound: float) -> bool:
        bound = min(max(bound, self._low), self._high)
        below = (bound - self._low) / (self._high - self._low)
        if self._chance.choose([below, 1 - below]) == 0:
            self._high = bound
            return True
        self._low = bound
        return False


def _branching_draw(self: Distribution, rng: Chance) -> int:
    way = rng.choose([float(prob) for prob in self.probs / self.probs.sum()])
    return way if self.ids is None else int(self.ids[way])


@contextmanager
def branching() -> Iterator[None]:
    with mock.patch.object(Distribution, "draw", _branching_draw):
        yield


class BranchingVerifier:
    """The real rules, with branching points as their random numbers."""

    def __init__(self, rule: str, chance: Chance) -> None:
        self._rule, self._chance = rule, chance

    def draw_draft(self, dist: Distribution, position: int) -> int:
        return dist.draw(self._chance)

    def verify(self, draft, target_probs, position):
        return verify(self._rule, draft.tokens, draft.probs, target_probs, self._chance)


class RoundOver(Exception):
    """Raised in place of a second draft."""


def one_round_only(drafter_class: type) -> type:
    class OneRound(drafter_class):
        def propose(self, tokens: Sequence[int], limit: int) -> Draft:
            if getattr(self, "proposed", False):
                raise RoundOver
            self.proposed = True
            return super().propose(tokens, limit)

    return OneRound


@dataclass(frozen=True)
class Setting:
    """One pair of toys and how they are used."""

    target: ToyModel
    draft: ToyModel
    rule: str = "block"
    draft_length: int = 3
    sampling: SamplingOptions = SamplingOptions(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    draft_sampling: SamplingOptions | None = None  # None: as the target's
    drafter_class: type = DraftModelDrafter
    prompt: tuple[int, ...] = (0, 1)


def enumerate_outcomes(run: Callable[[Chance], tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    """Run once for every way through chance; return how likely each result is."""
    outcomes: dict[tuple[int, ...], float] = defaultdict(float)
    script: list[int] | None = []
    with branching():
        while script is not None:
            chance = Chance(script)
            outcomes[run(chance)] += chance.weight
            script = chance.next_script()
    assert math.isclose(sum(outcomes.values()), 1.0, abs_tol=1e-9)
    return outcomes


def replies(setting: Setting, chance: Chance, max_tokens: int | None, *, one_round: bool) -> tuple[int, ...]:
    setting.target.rewind(0)
    setting.draft.rewind(0)
    verifier = BranchingVerifier(setting.rule, chance)
    drafter_class = one_round_only(setting.drafter_class) if one_round else setting.drafter_class
    sampling = setting.draft_sampling or setting.sampling
    drafter = drafter_class(setting.draft, sampling, verifier.draw_draft, shared(setting.target, setting.draft))
    options = LoopOptions(setting.sampling, setting.draft_length, max_tokens)
    emitted: list[int] = []
    try:
        for event in decode(setting.target, drafter, verifier, list(setting.prompt), options, Metrics()):
            if isinstance(event, Emitted):
                emitted.append(event.token)
    except RoundOver:
        pass
    return tuple(emitted)


def exact(setting: Setting, length: int, emitted: tuple[int, ...] = ()) -> dict[tuple[int, ...], float]:
    """The target's own distribution over replies of this length, or shorter ones that end by themselves."""
    if len(emitted) == length or (emitted and emitted[-1] in setting.target.end_tokens):
        return {emitted: 1.0}
    prefix = [*setting.prompt, *emitted]
    dist = distribution(setting.target.logits(prefix), setting.sampling, prefix)
    total: dict[tuple[int, ...], float] = {}
    for token in range(setting.target.n_vocab):
        chance = dist.probability(token)
        if chance > 0:
            for reply, weight in exact(setting, length, (*emitted, token)).items():
                total[reply] = chance * weight
    return total


def round_error(setting: Setting) -> float:
    """Total variation between one round, continued exactly, and the target alone, over draft length + 1 tokens."""
    length = setting.draft_length + 1
    found: dict[tuple[int, ...], float] = defaultdict(float)
    outcomes = enumerate_outcomes(lambda chance: replies(setting, chance, None, one_round=True))
    for emitted, weight in outcomes.items():
        for reply, chance in exact(setting, length, emitted).items():
            found[reply] += weight * chance
    return total_variation(found, exact(setting, length))


def reply_error(setting: Setting, max_tokens: int) -> float:
    """Total variation between whole replies and the target alone."""
    outcomes = enumerate_outcomes(lambda chance: replies(setting, chance, max_tokens, one_round=False))
    return total_variation(outcomes, exact(setting, max_tokens))


def total_variation(first: dict, second: dict) -> float:
    return sum(abs(first.get(key, 0.0) - second.get(key, 0.0)) for key in first.keys() | second.keys()) / 2
