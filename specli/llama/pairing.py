"""The pair check: can this draft model serve this target model, and if not, why. It needs vocabularies, not weights."""

from __future__ import annotations

from dataclasses import dataclass

from specli.errors import PairError
from specli.llama.model import LlamaModel
from specli.llama.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class PairReport:
    """The outcome of a pair check."""

    problems: tuple[str, ...]  # why the pair does not work, the most telling reason first
    shared_tokens: int  # ids below this are in both vocabularies
    target_tokens: int
    draft_tokens: int

    @property
    def compatible(self) -> bool:
        """Whether the draft model can serve the target model."""
        return not self.problems


def check_pair(target: Vocabulary, draft: Vocabulary) -> PairReport:
    """Compare two vocabularies: same type, same text for each id that both have, same special tokens.

    Sizes may differ: some models pad theirs.
    """
    problems = []
    if target.type_name != draft.type_name:
        problems.append(f"the vocabulary types differ ({target.type_name} and {draft.type_name})")
    shared = min(target.size, draft.size)
    target_texts, draft_texts = target.texts, draft.texts
    if target_texts[:shared] != draft_texts[:shared]:
        token = next(token for token in range(shared) if target_texts[token] != draft_texts[token])
        wanted, got = (texts[token].decode("utf-8", errors="replace") for texts in (target_texts, draft_texts))
        problems.append(f"token {token} is {wanted!r} for the target and {got!r} for the draft")
    if target.adds_begin_token != draft.adds_begin_token:
        problems.append("only one of them starts a text with a beginning-of-sequence token")
    elif target.adds_begin_token and target.begin_token != draft.begin_token:
        problems.append(f"the beginning-of-sequence tokens differ ({target.begin_token} and {draft.begin_token})")
    if target.adds_end_token != draft.adds_end_token:
        problems.append("only one of them ends a text with an end-of-sequence token")
    if target.end_tokens != draft.end_tokens:
        token = min(target.end_tokens ^ draft.end_tokens)
        owner = "target" if token in target.end_tokens else "draft"
        text = (target if token < target.size else draft).text(token)
        problems.append(f"token {token} ({text!r}) ends a reply only for the {owner}")
    return PairReport(tuple(problems), shared, target.size, draft.size)


def require_pair(target: LlamaModel, draft: LlamaModel) -> None:
    """Check a pair.

    Raises:
        PairError: it does not work; the message names the first reason.
    """
    report = check_pair(target.vocabulary, draft.vocabulary)
    if not report.compatible:
        hint = "A draft model must come from the same family as its target; `draft_model` 'none' goes without one."
        raise PairError(f"{draft.path.name} cannot draft for {target.path.name}: {report.problems[0]}.", hint)
