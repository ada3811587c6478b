"""Which drafter a reply gets, what passes cost, and what earlier replies taught about drafts.

Knows drafters, schedules and the file of costs. Must not know how a reply is made of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from specli.decoding.calibration import CostCurve, measure_costs
from specli.decoding.drafting import Drafter, DraftModelDrafter, LookupDrafter, ScheduledDrafter
from specli.decoding.lookup import LookupIndex
from specli.decoding.options import SamplingOptions
from specli.decoding.schedule import LONGEST_DRAFT, NO_EXPERIENCE, Costs, Schedule
from specli.decoding.verification import Verifier
from specli.engine.options import ReplyOptions
from specli.llama.model import LlamaModel
from specli.state import experience as costs

_CALIBRATION_ROWS = (1, 2, 3, 1, 4, 5, 6, 1, 8, 12, 16)  # one row is what all else is compared with
_CALIBRATION_CONTEXT = 32


class Speculation:
    """Makes the drafter of each reply, and remembers costs and acceptance from one to the next."""

    def __init__(self) -> None:
        self._index = LookupIndex()
        self._schedules: dict[object, Schedule] = {}
        self._curves: dict[str, CostCurve] = {}

    def drafter(
        self,
        target: LlamaModel,
        draft: LlamaModel | None,
        options: ReplyOptions,
        draft_sampling: SamplingOptions,
        verifier: Verifier,
    ) -> Drafter | None:
        """Return what proposes the tokens of a reply; None is plain decoding.

        Args:
            target: the target model.
            draft: the draft model, if there is one.
            options: of the reply.
            draft_sampling: what the draft model is sampled with.
            verifier: draws the draft tokens.
        """
        if options.draft_length == 0:
            return None
        if draft is None or options.drafter == "lookup":
            model = None
        else:
            model = DraftModelDrafter(draft, draft_sampling, verifier.draw_draft, target.n_vocab)
        index = self._index if options.drafter != "model" else None
        if options.draft_length is None and (model is not None or index is not None):
            return ScheduledDrafter(self._schedule(target, draft if model else None, options), model, index)
        return model or (LookupDrafter(index) if index is not None else None)

    def _schedule(self, target: LlamaModel, draft: LlamaModel | None, options: ReplyOptions) -> Schedule:
        """Return what decides about drafts. It remembers earlier replies, except where each is to be reproducible."""
        reproducible = options.seed is not None if options.reproducible is None else options.reproducible
        key = (draft.path if draft else None, options.drafter, options.sampling.temperature)
        if not reproducible and key in self._schedules:
            return self._schedules[key]
        curve = self.curve(target, draft)
        schedule = Schedule(
            Costs(curve.target, curve.draft or 0.0, learns=not reproducible),
            limit=LONGEST_DRAFT if draft else 0,
            experience=costs.load_experience(_key(target, draft)) or NO_EXPERIENCE,
        )
        if not reproducible:
            self._schedules[key] = schedule
        return schedule

    def remember(self, target: LlamaModel, draft: LlamaModel, options: ReplyOptions) -> None:
        """Keep on disk what replies with these options taught about drafts, for all that start later."""
        options = replace(options, reproducible=False)
        costs.save_experience(_key(target, draft), self._schedule(target, draft, options).experience)

    def curve(
        self,
        target: LlamaModel,
        draft: LlamaModel | None,
        *,
        again: bool = False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> CostCurve:
        """Return what passes of these models cost here: measured once, in two seconds at most, and kept on disk.

        Measuring empties the caches.

        Args:
            target: the target model.
            draft: the draft model, if there is one.
            again: measure again, for instance because the machine was busy the last time.
            progress: called with how many passes are done, and how many there are.
        """
        key = _key(target, draft)
        if key not in self._curves or again:
            curve = None if again else costs.load(key)
            if curve is None:
                rows = [count for count in _CALIBRATION_ROWS if count <= target.max_rows]
                text = [target.vocabulary.end_token or 0] * (_CALIBRATION_CONTEXT + max(rows))
                curve = measure_costs(target, draft, text, rows=rows, repeats=2, seconds=0.7, progress=progress)
                assert curve is not None
                costs.save(key, curve)
                for model in (target, draft):
                    if model is not None:
                        model.rewind(0)
            self._curves[key] = curve
        return self._curves[key]


def _key(target: LlamaModel, draft: LlamaModel | None) -> str:
    return ",".join(model.cost_key for model in (target, draft) if model is not None)
