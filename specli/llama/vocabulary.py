"""The vocabulary of a model: text to tokens and back."""

from __future__ import annotations

import ctypes
import re
from functools import cached_property
from typing import Any

from specli.errors import PromptError
from specli.llama.binding import llama_cpp

_TYPE_NAMES = {0: "none", 1: "SPM", 2: "BPE", 3: "WPM", 4: "UGM", 5: "RWKV", 6: "PLaMo-2"}

# Characters of a text that takes noticeable time, and of a part of it.
_LONG, _PART = 100_000, 10_000
_SPACE = re.compile(r"\s")


class Vocabulary:
    """The tokens of one model, which llama.cpp's pointer names; if `owned`, it is freed together with them."""

    def __init__(self, model: Any, *, owned: bool = False) -> None:
        self._model = model
        self._owned = owned
        self._vocab = llama_cpp.llama_model_get_vocab(model)
        self.size = int(llama_cpp.llama_vocab_n_tokens(self._vocab))
        number = int(llama_cpp.llama_vocab_type(self._vocab))
        self.type_name = _TYPE_NAMES.get(number, f"type {number}")  # of tokenizer
        # The tokens that begin and end a sequence, if the model has them, and whether a text gets them.
        self.begin_token = self._or_none(llama_cpp.llama_vocab_bos(self._vocab))
        self.end_token = self._or_none(llama_cpp.llama_vocab_eos(self._vocab))
        turn_end = self._or_none(llama_cpp.llama_vocab_eot(self._vocab))
        self.turn_end_token = self.end_token if turn_end is None else turn_end  # ends a reply in a chat
        self.adds_begin_token = bool(llama_cpp.llama_vocab_get_add_bos(self._vocab))
        self.adds_end_token = bool(llama_cpp.llama_vocab_get_add_eos(self._vocab))
        self._pieces: dict[int, bytes] = {}

    def __del__(self) -> None:
        if self._owned:
            llama_cpp.llama_model_free(self._model)

    def _or_none(self, token: int) -> int | None:
        return int(token) if 0 <= token < self.size else None

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """Every token that ends a reply."""
        return frozenset(token for token in range(self.size) if llama_cpp.llama_vocab_is_eog(self._vocab, token))

    @cached_property
    def texts(self) -> list[bytes]:
        """The raw text of each token, as it is in the file."""
        return [llama_cpp.llama_vocab_get_text(self._vocab, token) for token in range(self.size)]

    @cached_property
    def control_texts(self) -> dict[str, int]:
        """The text of each control token and its id."""
        return {
            self.texts[token].decode("utf-8", errors="replace"): token
            for token in range(self.size)
            if llama_cpp.llama_vocab_is_control(self._vocab, token) and self.texts[token]
        }

    @cached_property
    def template(self) -> str | None:
        """The model's chat template (Jinja), if it has one; an empty one is none."""
        template = llama_cpp.llama_model_chat_template(self._model, None) or b""
        return template.decode("utf-8", errors="replace") if template.strip() else None

    def text(self, token: int | None) -> str:
        """Return the raw text of one token; '' for None."""
        if token is None:
            return ""
        raw: bytes = llama_cpp.llama_vocab_get_text(self._vocab, token)
        return raw.decode("utf-8", errors="replace")

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Return the token ids of a text that is to be continued.

        With `add_special` it begins as the model wants it, but never ends with an end token; with `parse_special`,
        which is not for text that a user typed, control tokens that are written out are read.

        Raises:
            PromptError: a character has no token, and the vocabulary none for its bytes.
        """
        if self._lacks_bytes:
            self._require_characters(text, parse_special)
        data = text.encode("utf-8", errors="surrogatepass")
        begin = [self.begin_token] if add_special and self.adds_begin_token and self.begin_token is not None else []
        capacity = len(data) + 2  # tokens
        while True:
            buffer = (llama_cpp.llama_token * capacity)()
            # Not asked to add tokens: it would add the end, too, and end the process if the file names none.
            count = llama_cpp.llama_tokenize(self._vocab, data, len(data), buffer, capacity, False, parse_special)
            if count >= 0:
                return begin + list(buffer[:count])
            capacity = -count

    def excess(self, text: str, limit: int) -> tuple[int, int] | None:
        """Return how many tokens a long text has at least, and about, if that is clearly more than `limit`.

        Only as much of it is read as that takes. It is cut into parts, at white space if there is some, which changes
        the number of tokens by a few for each part; so twice the limit is wanted.

        Raises:
            PromptError: as `tokenize` does.
        """
        count = at = 0
        while at < len(text) > _LONG:
            space = _SPACE.search(text, at + _PART, at + 2 * _PART)
            end = space.start() if space else at + 2 * _PART
            count += len(self.tokenize(text[at:end], add_special=False, parse_special=False))
            at = min(end, len(text))
            if count > 2 * limit + 64:
                return count // 2, count * len(text) // at
        return None

    @cached_property
    def _lacks_bytes(self) -> bool:
        """Whether a character without a token of its own ends the process: llama.cpp then wants tokens of its bytes."""
        texts = (llama_cpp.llama_vocab_get_text(self._vocab, token) for token in range(self.size))
        return self.type_name == "SPM" and b"<0xFF>" not in texts

    def _require_characters(self, text: str, parse_special: bool) -> None:
        for control in self.control_texts if parse_special else ():
            text = text.replace(control, "")
        known = set(self.texts)
        for character in dict.fromkeys(text.replace(" ", "▁")):  # as SPM writes a space
            if character.encode("utf-8", errors="surrogatepass") not in known:
                raise PromptError(f"the model has no token for {character!r}.", "Write the prompt without it.")

    def piece(self, token: int) -> bytes:
        """Return the bytes that a token adds to the text: none for control tokens, and perhaps half a character."""
        capacity = 64  # bytes
        while token not in self._pieces:
            buffer = ctypes.create_string_buffer(capacity)
            count = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, capacity, 0, False)
            if count >= 0:
                self._pieces[token] = buffer.raw[:count]
            capacity = -count
        return self._pieces[token]
