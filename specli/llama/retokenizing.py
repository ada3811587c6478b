"""The text of one model in the tokens of another: how a draft model with another tokenizer reads and writes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specli.errors import PromptError
from specli.llama.vocabulary import Vocabulary

# A single space between words: no token reaches across it, so what is before it can be tokenized once and for all. It
# must be far enough from the end that nothing after it changes.
_CUT = re.compile(r"(?<=[\w.,]) (?=\w)")
_UNSETTLED = 48  # characters
_BEFORE = 4  # tokens


class Retokenizer:
    """Reads a growing text in the target's tokens as the draft model's, and writes what that drafts as the target's.

    Control tokens are read as the token of the same text, if the draft model has one, else as text.
    """

    def __init__(self, target: Vocabulary, draft: Vocabulary) -> None:
        self._target, self._draft = target, draft
        self._control = {token: text for text, token in target.control_texts.items()}
        self._strips = _adds_space(draft)
        self._num_read = 0  # tokens of the target
        begin = draft.begin_token if draft.adds_begin_token else None
        self._settled = [] if begin is None else [begin]  # tokens of the draft model
        self._unsettled = b""
        self._readable = True

    def read(self, tokens: Sequence[int]) -> list[int] | None:
        """Return all of the text in the draft model's tokens, as if it were tokenized whole.

        `tokens` continues that of the call before. None where the draft model cannot read it: in the middle of a
        character, or where it has no token for one.
        """
        if not self._readable:
            return None
        try:
            for token in tokens[self._num_read :]:
                self._take(token)
            self._num_read = len(tokens)
            text = self._unsettled.decode()
            spaces = [found.start() for found in _CUT.finditer(text, 0, max(0, len(text) - _UNSETTLED))]
            if spaces:
                self._settle(len(text[: spaces[-1]].encode()))
            return self._settled + self._tokens(self._unsettled.decode())
        except UnicodeDecodeError:
            return None
        except PromptError:
            self._readable = False  # the text only grows
            return None

    def write(self, tokens: Sequence[int], drafted: Sequence[int]) -> list[int]:
        """Return what the draft model wrote after `tokens`, which are the target's, in the target's tokens.

        The last one may be the beginning of a longer one. An unfinished character at the end is left out.
        """
        text = b"".join(map(self._draft.piece, drafted)).decode("utf-8", errors="ignore")
        before = [b"" if token in self._control else self._target.piece(token) for token in tokens[-_BEFORE:]]
        size = len(text.encode())
        try:
            # Together with some text before it, as a tokenizer may treat the beginning of a text in its own way.
            found = self._tokenize(b"".join(before).decode("utf-8", errors="ignore") + text)
            start = len(found)
            while size > 0 and start > 0:
                start -= 1
                size -= len(self._target.piece(found[start]))
            return found[start:] if size == 0 else self._tokenize(text)
        except PromptError:
            return []

    def _take(self, token: int) -> None:
        if (text := self._control.get(token)) is None:
            self._unsettled += self._target.piece(token)
        elif text != self._target.text(self._target.begin_token):
            self._settle(len(self._unsettled))
            known = self._draft.control_texts.get(text)
            self._settled += [known] if known is not None else self._tokens(text)

    def _settle(self, size: int) -> None:
        self._settled += self._tokens(self._unsettled[:size].decode("utf-8", errors="replace"))
        self._unsettled = self._unsettled[size:]

    def _tokens(self, text: str) -> list[int]:
        if self._strips and text.startswith(" "):
            text = text[1:]
        return self._draft.tokenize(text, add_special=False, parse_special=False) if text else []

    def _tokenize(self, text: str) -> list[int]:
        return self._target.tokenize(text, add_special=False, parse_special=False)


def _adds_space(vocabulary: Vocabulary) -> bool:
    """Whether the tokenizer puts a space before each text."""
    try:
        found = vocabulary.tokenize("a", add_special=False, parse_special=False)
    except PromptError:
        return False
    return b"".join(map(vocabulary.piece, found)).startswith(b" ")
