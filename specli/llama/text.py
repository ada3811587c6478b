"""Between people's text and the model's tokens: prompts in, whole characters out."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence

from specli.errors import PromptError
from specli.llama.templates import Message as Message
from specli.llama.templates import Rendered, render_template
from specli.llama.vocabulary import Vocabulary


class TextStream:
    """Turns tokens into text as they arrive: whole characters only, and nothing from the first stop string on."""

    def __init__(self, vocabulary: Vocabulary, stops: Sequence[str] = ()) -> None:
        self._vocabulary = vocabulary
        self._stops = [stop for stop in stops if stop]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # might be the beginning of a stop string
        self.stopped = False

    def push(self, token: int) -> str:
        """Take one token and return the text that is certain now."""
        return self._release(self._decoder.decode(self._vocabulary.piece(token)))

    def finish(self) -> str:
        """Return what is left when no token follows, but no half character; its bytes are then `pending`."""
        text, self._held = self._held, ""
        return text

    @property
    def pending(self) -> bytes:
        """The first bytes of a character that has not arrived whole; none once the text has stopped."""
        return b"" if self.stopped else self._decoder.getstate()[0]

    def _release(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self._held + text
        if found := [start for stop in self._stops if (start := text.find(stop)) >= 0]:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        certain = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[certain:]
        return text[:certain]


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that is a beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)


def plain_prompt(vocabulary: Vocabulary, text: str, *, parse_special: bool = False) -> list[int]:
    """Return the tokens of a text that the model is to continue."""
    return vocabulary.tokenize(text, add_special=True, parse_special=parse_special)


def chat_prompt(
    vocabulary: Vocabulary, messages: Sequence[Message], *, parse_special: bool = False, known: Sequence[int] = ()
) -> list[int]:
    """Return the tokens of a conversation in the model's own chat template, ready for the next reply.

    Control tokens come from the template only: one that is written out in a message stays text, so that no message
    can close its own turn. `parse_special` gives that up, for people who write control tokens on purpose.

    The `known` tokens are those of an earlier state of the conversation, replies as they were generated. As far as they
    spell the same text they are kept, up to a control token: a text can be cut into tokens in several ways, and a cache
    is good for only one of them.

    Raises:
        PromptError: a character has no token, or as `render_template` says.
    """
    framed = render_template(vocabulary, messages)
    rendered = framed.text
    begin = vocabulary.text(vocabulary.begin_token)
    add_special = not (begin and rendered.startswith(begin))  # some templates write it, some leave it to the tokenizer
    typed = [message.content for message in messages]
    if parse_special or not any(_has_control(vocabulary, text) for text in typed):
        kept, at = _kept(vocabulary, rendered, known)
        if at == 0:
            return vocabulary.tokenize(rendered, add_special=add_special, parse_special=True)
        return kept + vocabulary.tokenize(rendered[at:], add_special=False, parse_special=True)
    tokens: list[int] = []
    control = vocabulary.control_texts
    for text in _split(rendered, _typed_spans(framed, typed), control):
        if text in control:
            tokens.append(control[text])
        else:
            tokens += vocabulary.tokenize(text, add_special=False, parse_special=False)
    if add_special and vocabulary.adds_begin_token and vocabulary.begin_token is not None:
        tokens.insert(0, vocabulary.begin_token)
    return tokens


def _kept(vocabulary: Vocabulary, rendered: str, known: Sequence[int]) -> tuple[list[int], int]:
    """Return which of the known tokens begin the text, and how many characters they are; 0 if none can be kept.

    A cut is safe after a control token and before one, because no other token reaches across.
    """
    data = rendered.encode()
    control = set(vocabulary.control_texts.values())
    starts = tuple(text.encode() for text in vocabulary.control_texts)
    count = at = best_count = best_at = 0
    if known and known[0] == vocabulary.begin_token and not data.startswith(vocabulary.text(known[0]).encode()):
        count = 1  # put there by the tokenizer
    for token in known[count:]:
        piece = vocabulary.text(token).encode() if token in control else vocabulary.piece(token)
        if not piece or not data.startswith(piece, at):
            break
        count, at = count + 1, at + len(piece)
        if token in control or data.startswith(starts, at):
            best_count, best_at = count, at
    return list(known[:best_count]), len(data[:best_at].decode())


def _has_control(vocabulary: Vocabulary, text: str) -> bool:
    read = vocabulary.tokenize(text, add_special=False, parse_special=True)
    return read != vocabulary.tokenize(text, add_special=False, parse_special=False)


def _typed_spans(framed: Rendered, typed: Sequence[str]) -> list[tuple[int, int]]:
    """Return where in the rendered conversation each message stands.

    The marks show where they go, provided that the template copies them, or copies them without the space around them.

    Raises:
        PromptError: the template changes messages in another way.
    """
    pieces = re.split(f"({'|'.join(framed.marks)})", framed.marked)
    for contents in (typed, [text.strip() for text in typed]):
        by_mark = dict(zip(framed.marks, contents, strict=True))
        spans, text = [], ""
        for piece in pieces:
            if piece in by_mark:
                spans.append((len(text), len(text) + len(by_mark[piece])))
            text += by_mark.get(piece, piece)
        if text == framed.text:
            return spans
    raise PromptError(
        "the prompt contains control tokens, and the model's chat template rewrites messages, "
        "so they cannot be told apart from the template's own.",
        "Remove them, or mean them: `parse_special` reads control tokens in the prompt.",
    )


def _split(rendered: str, typed: Sequence[tuple[int, int]], control: Iterable[str]) -> list[str]:
    """Cut the text at the control tokens that are outside the typed spans, longest first where several fit."""
    pattern = re.compile("|".join(re.escape(text) for text in sorted(control, key=len, reverse=True)))
    parts, at = [], 0
    for found in pattern.finditer(rendered):
        if not any(found.start() < stop and start < found.end() for start, stop in typed):
            parts += [rendered[at : found.start()], found.group()]
            at = found.end()
    return [part for part in [*parts, rendered[at:]] if part]
