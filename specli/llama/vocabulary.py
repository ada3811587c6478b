"""The vocabulary of a model: text to tokens and back."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

from specli.llama.binding import llama_cpp

_TYPE_NAMES = {0: "none", 1: "SPM", 2: "BPE", 3: "WPM", 4: "UGM", 5: "RWKV", 6: "PLaMo-2"}


class Vocabulary:
    """The tokens of one model.

    Args:
        model: llama.cpp's model pointer.
        owned: free the model together with the vocabulary.
    """

    def __init__(self, model: Any, *, owned: bool = False) -> None:
        self._model = model
        self._owned = owned
        self._vocab = llama_cpp.llama_model_get_vocab(model)
        self.size = int(llama_cpp.llama_vocab_n_tokens(self._vocab))
        self._pieces: dict[int, bytes] = {}

    def __del__(self) -> None:
        if self._owned:
            llama_cpp.llama_model_free(self._model)

    @property
    def type_name(self) -> str:
        """The kind of tokenizer: BPE, SPM, ..."""
        number = int(llama_cpp.llama_vocab_type(self._vocab))
        return _TYPE_NAMES.get(number, f"type {number}")

    @property
    def begin_token(self) -> int | None:
        """The beginning-of-sequence token, if the model has one."""
        return _or_none(llama_cpp.llama_vocab_bos(self._vocab))

    @property
    def end_token(self) -> int | None:
        """The end-of-sequence token, if the model has one."""
        return _or_none(llama_cpp.llama_vocab_eos(self._vocab))

    @property
    def adds_begin_token(self) -> bool:
        """Whether a text starts with the beginning-of-sequence token."""
        return bool(llama_cpp.llama_vocab_get_add_bos(self._vocab))

    @property
    def adds_end_token(self) -> bool:
        """Whether a text ends with the end-of-sequence token."""
        return bool(llama_cpp.llama_vocab_get_add_eos(self._vocab))

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """Every token that ends a reply."""
        return frozenset(token for token in range(self.size) if llama_cpp.llama_vocab_is_eog(self._vocab, token))

    @cached_property
    def texts(self) -> list[bytes]:
        """The raw text of each token, as it is in the file."""
        vocab, text = self._vocab, llama_cpp.llama_vocab_get_text
        return [text(vocab, token) for token in range(self.size)]

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
        """The model's chat template (Jinja), if it has one."""
        template = llama_cpp.llama_model_chat_template(self._model, None)
        return template.decode("utf-8", errors="replace") if template else None

    def text(self, token: int | None) -> str:
        """Return the raw text of one token; '' for None."""
        if token is None:
            return ""
        raw: bytes = llama_cpp.llama_vocab_get_text(self._vocab, token)
        return raw.decode("utf-8", errors="replace")

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Return the token ids of a text.

        Args:
            text: any text.
            add_special: add the beginning-of-sequence token where the model wants one.
            parse_special: read control tokens that are written out; never for text that a user typed.
        """
        data = text.encode("utf-8", errors="surrogatepass")
        size = len(data)
        capacity = size + 2  # tokens
        while True:
            buffer = (llama_cpp.llama_token * capacity)()
            found = llama_cpp.llama_tokenize(self._vocab, data, size, buffer, capacity, add_special, parse_special)
            count = int(found)
            if count >= 0:
                return list(buffer[:count])
            capacity = -count

    def piece(self, token: int) -> bytes:
        """Return the bytes that a token adds to the text: none for control tokens, and perhaps half a character."""
        cached = self._pieces.get(token)
        if cached is None:
            cached = self._pieces[token] = self._piece(token)
        return cached

    def _piece(self, token: int) -> bytes:
        capacity = 64  # bytes
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            count = int(llama_cpp.llama_token_to_piece(self._vocab, token, buffer, capacity, 0, False))
            if count >= 0:
                return buffer.raw[:count]
            capacity = -count


def _or_none(token: int) -> int | None:
    return int(token) if token >= 0 else None
