"""The pair check: can this draft model serve this target model, and how. It needs vocabularies, not weights."""

from __future__ import annotations

from dataclasses import dataclass

from specli.decoding.vocabularies import SharedVocabulary
from specli.errors import PairError
from specli.llama.model import LlamaModel
from specli.llama.vocabulary import Vocabulary

_MOST_DIFFERING = 0.05  # of the shared ids; the pairs of one family that are known differ in 0.2 % at most


@dataclass(frozen=True, slots=True)
class PairReport:
    """The outcome of a pair check."""

    problems: tuple[str, ...]  # why the draft's tokens cannot be the target's, the most telling reason first
    as_text: bool  # whether the draft model's text can be used, tokenized again for the target
    shared_tokens: int  # ids below this are in both vocabularies
    target_tokens: int
    draft_tokens: int
    differing: tuple[int, ...]  # ids in both that are another text for each

    @property
    def compatible(self) -> bool:
        """Whether the draft model can propose tokens to the target model."""
        return not self.problems


def check_pair(target: Vocabulary, draft: Vocabulary) -> PairReport:
    """Compare two vocabularies: same type, and the same text for nearly each id that both have.

    Sizes may differ: some models pad theirs. Tokens that begin and end a text may differ, too: a draft ends where the
    target's does.
    """
    problems = []
    if target.type_name != draft.type_name:
        problems.append(f"the vocabulary types differ ({target.type_name} and {draft.type_name})")
    shared = min(target.size, draft.size)
    texts = zip(target.texts[:shared], draft.texts[:shared], strict=True)
    differing = tuple(token for token, (wanted, got) in enumerate(texts) if wanted != got)
    if len(differing) > _MOST_DIFFERING * shared:
        token = differing[0]
        problems.append(
            f"token {token} is {target.text(token)!r} for the target and {draft.text(token)!r} for the draft, "
            f"and so on for {len(differing):,} of {shared:,}"
        )
    as_text = "none" not in (target.type_name, draft.type_name)
    return PairReport(tuple(problems), as_text, shared, target.size, draft.size, differing)


def share_vocabulary(target: LlamaModel, draft: LlamaModel) -> SharedVocabulary | None:
    """Return what the vocabularies of a pair have in common; None if the draft model can only serve as text.

    Raises:
        PairError: it cannot serve at all; the message names the first reason.
    """
    report = check_pair(target.vocabulary, draft.vocabulary)
    if report.compatible:
        return _shared(target.vocabulary, draft.vocabulary, report)
    if not report.as_text:
        hint = "A draft model must come from the same family as its target; `draft_model` 'none' goes without one."
        raise PairError(f"{draft.path.name} cannot draft for {target.path.name}: {report.problems[0]}.", hint)
    return None


def _shared(target: Vocabulary, draft: Vocabulary, report: PairReport) -> SharedVocabulary:
    strange = (*report.differing, *range(report.shared_tokens, target.size))
    readings = {}
    if strange:
        known = {text: token for token, text in enumerate(draft.texts) if text}
        readings = {token: known[text] for token in strange if (text := target.texts[token]) in known}
    stand_in = draft.end_token or 0
    return SharedVocabulary(report.shared_tokens, target.end_tokens, report.differing, readings, stand_in)
