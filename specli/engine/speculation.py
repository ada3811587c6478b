"""Which drafter a reply gets, what passes cost, and what earlier replies taught about drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specli.decoding.costs import PassCosts, measure_costs
from specli.decoding.drafting import Drafter, DraftModelDrafter, LookupDrafter, ModelDrafter, ScheduledDrafter
from specli.decoding.lookup import LookupIndex
from specli.decoding.options import SamplingOptions
from specli.decoding.schedule import LONGEST_DRAFT, Schedule
from specli.decoding.sequences import shared_prefix
from specli.decoding.text_drafting import TEXT_EXPERIENCE, TextDrafter
from specli.decoding.verification import Verifier
from specli.engine.options import ReplyOptions
from specli.llama.model import LlamaModel
from specli.llama.pairing import share_vocabulary
from specli.llama.retokenizing import Retokenizer
from specli.state.experience import load_costs, load_experience, save_costs, save_experience

_CALIBRATION_ROWS = (1, 2, 3, 1, 4, 5, 6, 1, 8, 12, 16)  # one row is what all else is compared with
_CALIBRATION_CONTEXT = 32
_LOW_TEMPERATURE = 0.6  # below, drafts are accepted nearly as often as at temperature 0


class Speculation:
    """Makes the drafter of each reply, and remembers costs and acceptance from one to the next.

    Raises:
        PairError: the draft model cannot serve the target model.
    """

    def __init__(self, target: LlamaModel, draft: LlamaModel | None) -> None:
        self._target = target
        self._index = LookupIndex()
        self._schedules: dict[tuple[str, str], Schedule] = {}  # by pair and use, as experience is on disk
        self._costs: dict[str, PassCosts] = {}  # by pair
        self.use_draft(draft)

    def use_draft(self, draft: LlamaModel | None) -> None:
        """Draft with another model from now on, or with none; raises as the class does, and then changes nothing."""
        self._shared = share_vocabulary(self._target, draft) if draft is not None else None
        self._draft = draft

    def drafter(self, options: ReplyOptions, sampling: SamplingOptions, verifier: Verifier) -> Drafter | None:
        """Return what proposes the tokens of a reply, None for plain decoding; `sampling` is the draft model's."""
        if options.draft_length == 0:
            return None
        model = self._model_drafter(options, sampling, verifier)
        index = self._index if options.drafter in ("auto", "lookup") else None
        if options.draft_length is None and (model is not None or index is not None):
            return ScheduledDrafter(self._schedule(options), self._target, model, index)
        return model or (LookupDrafter(index) if index is not None else None)

    def _model_drafter(
        self, options: ReplyOptions, sampling: SamplingOptions, verifier: Verifier
    ) -> ModelDrafter | None:
        if self._draft is None or options.drafter == "lookup":
            return None
        if self._shared is None or options.drafter == "text":
            target = self._target.vocabulary
            return TextDrafter(self._draft, Retokenizer(target, self._draft.vocabulary), target.turn_end_token)
        return DraftModelDrafter(self._draft, sampling, verifier.draw_draft, self._shared)

    def rewind(self, tokens: Sequence[int]) -> None:
        """Let the caches keep what they hold of `tokens`, which are the target's; a text drafter sees for itself."""
        self._target.rewind(shared_prefix(self._target.tokens, tokens))
        if self._draft is not None and self._shared is not None:
            self._draft.rewind(shared_prefix(self._draft.tokens, self._shared.read(tokens)))

    def _schedule(self, options: ReplyOptions) -> Schedule:
        """Return what plans drafts. It remembers earlier replies, except where each is to be reproducible."""
        reproducible = options.seed is not None if options.reproducible is None else options.reproducible
        draft = None if options.drafter == "lookup" else self._draft
        key = self._key(options)
        if reproducible or key not in self._schedules:
            as_text = draft is not None and (self._shared is None or options.drafter == "text")
            schedule = Schedule(
                replace(self._curve(draft), learns=not reproducible),
                LONGEST_DRAFT if draft else 0,
                load_experience(*key, TEXT_EXPERIENCE if as_text else None),
                replays=self._target.replays,
                held_back=int(as_text),
            )
            if reproducible:
                return schedule
            self._schedules[key] = schedule
        return self._schedules[key]

    def remember(self, options: ReplyOptions) -> None:
        """Keep on disk what replies with these options taught about drafts, for all that start later."""
        if self._draft is not None:
            schedule = self._schedule(replace(options, reproducible=False))
            save_experience(*self._key(options), schedule.experience)

    def curve(self, *, again: bool = False) -> PassCosts:
        """Return what passes of these models cost here: measured once, in two seconds at most, and kept on disk.

        Measuring empties the caches. `again` measures anew, as when the machine was busy the last time.
        """
        return self._curve(self._draft, again=again)

    def _curve(self, draft: LlamaModel | None, *, again: bool = False) -> PassCosts:
        target, pair = self._target, self._pair(draft)
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

    def _pair(self, draft: LlamaModel | None) -> str:
        return ",".join(model.cost_key for model in (self._target, draft) if model is not None)

    def _key(self, options: ReplyOptions) -> tuple[str, str]:
        """Return for which replies experience holds: those with the same pair, drafter and kind of temperature."""
        temperature = options.sampling.temperature
        kind = "greedy" if temperature == 0 else "low" if temperature < _LOW_TEMPERATURE else "high"
        draft = None if options.drafter == "lookup" else self._draft
        return self._pair(draft), f"{options.drafter} {kind}"
