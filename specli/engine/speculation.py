"""Which drafter a reply gets, what passes cost, and what earlier replies taught about drafts."""

from __future__ import annotations

from dataclasses import replace

from specli.decoding.costs import PassCosts, measure_costs
from specli.decoding.drafting import Drafter, DraftModelDrafter, LookupDrafter, ScheduledDrafter
from specli.decoding.lookup import LookupIndex
from specli.decoding.options import SamplingOptions
from specli.decoding.schedule import LONGEST_DRAFT, Schedule
from specli.decoding.verification import Verifier
from specli.engine.options import ReplyOptions
from specli.llama.model import LlamaModel
from specli.state.experience import load_costs, load_experience, save_costs, save_experience

_CALIBRATION_ROWS = (1, 2, 3, 1, 4, 5, 6, 1, 8, 12, 16)  # one row is what all else is compared with
_CALIBRATION_CONTEXT = 32
_LOW_TEMPERATURE = 0.6  # below, drafts are accepted nearly as often as at temperature 0


class Speculation:
    """Makes the drafter of each reply, and remembers costs and acceptance from one to the next."""

    def __init__(self) -> None:
        self._index = LookupIndex()
        self._schedules: dict[tuple[str, str], Schedule] = {}  # by pair and use, as experience is on disk
        self._costs: dict[str, PassCosts] = {}  # by pair

    def drafter(
        self,
        target: LlamaModel,
        draft: LlamaModel | None,
        options: ReplyOptions,
        sampling: SamplingOptions,
        verifier: Verifier,
    ) -> Drafter | None:
        """Return what proposes the tokens of a reply, None for plain decoding; `sampling` is the draft model's."""
        if options.draft_length == 0:
            return None
        model = index = None
        if draft is not None and options.drafter != "lookup":
            model = DraftModelDrafter(draft, sampling, verifier.draw_draft, target.n_vocab)
        if options.drafter != "model":
            index = self._index
        if options.draft_length is None and (model is not None or index is not None):
            return ScheduledDrafter(self._schedule(target, draft, options), target, model, index)
        return model or (LookupDrafter(index) if index is not None else None)

    def _schedule(self, target: LlamaModel, draft: LlamaModel | None, options: ReplyOptions) -> Schedule:
        """Return what plans drafts. It remembers earlier replies, except where each is to be reproducible."""
        reproducible = options.seed is not None if options.reproducible is None else options.reproducible
        draft = None if options.drafter == "lookup" else draft
        key = _key(target, draft, options)
        if reproducible or key not in self._schedules:
            costs = replace(self.curve(target, draft), learns=not reproducible)
            longest = LONGEST_DRAFT if draft else 0
            schedule = Schedule(costs, longest, load_experience(*key), replays=target.replays)
            if reproducible:
                return schedule
            self._schedules[key] = schedule
        return self._schedules[key]

    def remember(self, target: LlamaModel, draft: LlamaModel, options: ReplyOptions) -> None:
        """Keep on disk what replies with these options taught about drafts, for all that start later."""
        schedule = self._schedule(target, draft, replace(options, reproducible=False))
        save_experience(*_key(target, draft, options), schedule.experience)

    def curve(self, target: LlamaModel, draft: LlamaModel | None, *, again: bool = False) -> PassCosts:
        """Return what passes of these models cost here: measured once, in two seconds at most, and kept on disk.

        Measuring empties the caches. `again` measures anew, as when the machine was busy the last time.
        """
        pair = _pair(target, draft)
        if pair not in self._costs or again:
            costs = None if again else load_costs(pair)
            if costs is None:
                rows = [count for count in _CALIBRATION_ROWS if count <= target.max_rows]
                text = [target.vocabulary.end_token or 0] * (_CALIBRATION_CONTEXT + max(rows))
                costs = measure_costs(target, draft, text, rows=rows, repeats=2, seconds=0.7)
                assert costs is not None
                save_costs(pair, costs)
                for model in filter(None, (target, draft)):
                    model.rewind(0)
            self._costs[pair] = costs
        return self._costs[pair]


def _pair(target: LlamaModel, draft: LlamaModel | None) -> str:
    return ",".join(model.cost_key for model in (target, draft) if model is not None)


def _key(target: LlamaModel, draft: LlamaModel | None, options: ReplyOptions) -> tuple[str, str]:
    """Return for which replies experience holds: those with the same pair, drafter and kind of temperature."""
    temperature = options.sampling.temperature
    kind = "greedy" if temperature == 0 else "low" if temperature < _LOW_TEMPERATURE else "high"
    return _pair(target, None if options.drafter == "lookup" else draft), f"{options.drafter} {kind}"
