"""One model in memory: feed it tokens, read logits, rewind.

Everything that llama.cpp would answer by ending the process (a batch too large, a row that was not asked for, a
position that is taken) is ruled out here, before the call.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specli.decoding.sampling import Floats
from specli.errors import DecodeError, Interrupted, ModelLoadError, ModelUnsupportedError
from specli.llama.adapters import load_adapters, read_adapters, set_adapters
from specli.llama.binding import last_complaint, llama_cpp, unlocked, version
from specli.llama.cache import Cache, RecurrentCache
from specli.llama.fitness import require_runnable
from specli.llama.gguf import GgufFile, read_gguf
from specli.llama.options import QUANTIZED, LoadOptions
from specli.llama.parameters import (
    MAX_ROWS,
    context_parameters,
    model_parameters,
    on_gpu,
    planned_context,
    require_backend,
    require_possible,
)
from specli.llama.vocabulary import Vocabulary

MAX_ROWS_EXACT = 63  # from 64 on, attention has another kernel

_LONG_PASS = 64  # a pass with more tokens can be broken off in the middle
_LOG_HINT = "`verbose` shows llama.cpp's own log."


class LlamaModel:
    """A GGUF model with its cache; a `LanguageModel` for `specli.decoding`. Close it, or use it in `with`.

    `file` is what was read of the GGUF file already. `progress` is called with the loaded share, 0 to 1; `interrupted`
    is asked during loading and during long passes, and True breaks off.

    Raises:
        OptionError: exact mode on a GPU, or another option that cannot hold here or for this model.
        ModelFileError: the file, or one of an adapter, is no whole GGUF.
        ModelUnsupportedError: a model whose state cannot be taken back, or that does not continue text; an adapter that
            is none or does not fit.
        ModelLoadError: llama.cpp refused it.
        Interrupted: `interrupted` said so.
    """

    def __init__(
        self,
        path: Path,
        options: LoadOptions | None = None,
        *,
        file: GgufFile | None = None,
        progress: Callable[[float], None] = lambda share: None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.path = path
        self.options = options or LoadOptions()
        require_backend(self.options)
        self.file: GgufFile = file or read_gguf(path)
        require_runnable(self.file)
        require_possible(self.file, self.options)
        self.adapters = read_adapters(self.file, self.options)
        self._model: Any = None
        self._context: Any = None
        self._batch: Any = None
        self._interrupted = interrupted
        self.tokens: list[int] = []  # what the cache holds; only `feed` and `rewind` change it
        # Is shown the position and the logits of each pass that has rows.
        self.observer: Callable[[int, Floats], None] | None = None
        try:
            self._load(progress)
            self._create_context()
        except BaseException:
            self.close()
            raise

    vocabulary: Vocabulary
    n_context: int  # tokens the cache holds at most
    batch_size: int  # tokens one pass takes at most
    max_rows: int  # rows of logits one pass returns at most
    threads: int
    swappable: bool  # whether memory was to be locked, and the system refused

    def _load(self, progress: Callable[[float], None]) -> None:
        parameters = model_parameters(self.options)

        def on_progress(share: float, _user_data: object) -> bool:
            progress(share)
            return not self._interrupted()

        callback = llama_cpp.llama_progress_callback(on_progress)
        parameters.progress_callback = callback
        last_complaint()
        self._model = llama_cpp.llama_model_load_from_file(os.fsencode(self.path), parameters)
        if not self._model:
            if self._interrupted():
                raise Interrupted
            message = f"llama.cpp cannot load {self.path}: {last_complaint() or 'no reason given'}."
            raise ModelLoadError(message, f"{_LOG_HINT[:-1]}; the model may need a newer llama-cpp-python.")
        if why := self._why_unsupported():
            raise ModelUnsupportedError(f"{self.path.name} ({self.file.architecture}) {why}.", "Choose another model.")
        self.vocabulary = Vocabulary(self._model)
        self.swappable = unlocked() and self.options.mlock
        self._adapters = load_adapters(self._model, self.adapters)

    def _is_recurrent(self) -> bool:
        model = self._model
        return bool(llama_cpp.llama_model_is_recurrent(model) or llama_cpp.llama_model_is_hybrid(model))

    def _why_unsupported(self) -> str:
        if self._is_recurrent() and not self.file.recurrent_layers:
            return "has recurrent layers of a kind that specli does not know: rejected tokens could not be taken back"
        if llama_cpp.llama_model_has_encoder(self._model) or not llama_cpp.llama_model_has_decoder(self._model):
            return "is an encoder model and does not continue text"
        if llama_cpp.llama_model_is_diffusion(self._model):
            return "is a diffusion model and does not continue text token by token"
        return ""

    def _create_context(self) -> None:
        options, context = self.options, planned_context(self.file, self.options)
        parameters = context_parameters(self.file, options)
        self.threads = int(parameters.n_threads)
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise ModelLoadError(
                f"llama.cpp cannot make a context of {context} tokens for {self.path.name}: "
                f"{last_complaint() or 'no reason given'}.",
                "A smaller `context` needs less memory.",
            )
        set_adapters(self._context, self._adapters, self.adapters)
        if self._is_recurrent():
            self._cache: Cache = RecurrentCache(self._context, int(parameters.n_seq_max))
        else:
            self._cache = Cache(self._context, int(llama_cpp.llama_model_n_swa(self._model)))
        self._abort = llama_cpp.ggml_abort_callback(lambda _user_data: self._interrupted())
        self._no_abort = llama_cpp.ggml_abort_callback()
        # llama.cpp rounds the context up and caps the batch by what was asked for: read both back.
        # What was asked for holds, except that the companion of exact mode needs a cell.
        room = int(llama_cpp.llama_n_ctx_seq(self._context)) - options.exact
        self.n_context = min(room, context)
        self.batch_size = int(llama_cpp.llama_n_batch(self._context))
        self.max_rows = min(MAX_ROWS_EXACT if options.exact else MAX_ROWS, self.batch_size)
        self._batch = passed = llama_cpp.llama_batch_init(max(2, self.batch_size), 0, 1)
        shape = (max(2, self.batch_size),)
        self._tokens = np.ctypeslib.as_array(passed.token, shape)
        self._positions = np.ctypeslib.as_array(passed.pos, shape)
        self._flags = np.ctypeslib.as_array(passed.logits, shape)
        np.ctypeslib.as_array(passed.n_seq_id, shape)[:] = 1
        for index in range(shape[0]):
            passed.seq_id[index][0] = 0

    @property
    def cost_key(self) -> str:
        """What decides about the cost of passes, as text: the file, how it is loaded, and with which llama.cpp."""
        options = self.options
        with self.path.open("rb") as file:
            head = hashlib.sha256(file.read(1 << 16)).hexdigest()[:16]
        gpu = options.gpu_layers if on_gpu(options) else 0
        # The key must stay what it was where nothing else is chosen: costs are kept under it.
        parts = [head, self.file.size, self.threads, options.batch, gpu, options.exact, version()]
        parts += [part for part in (options.cost_part, *(adapter.key for adapter in self.adapters)) if part]
        return "-".join(map(str, parts))

    @property
    def n_past(self) -> int:
        """How many tokens the cache holds."""
        return len(self.tokens)

    @property
    def n_vocab(self) -> int:
        """Width of a row of logits."""
        return self.vocabulary.size

    @property
    def replays(self) -> bool:
        """Whether tokens before a rejected one may have to be fed again: `rewind` then leaves fewer than asked for."""
        return self._cache.replays

    @property
    def end_tokens(self) -> frozenset[int]:
        """End-of-generation tokens."""
        return self.vocabulary.end_tokens

    def require_open(self) -> None:
        """Refuse to work with memory that was freed.

        Raises:
            DecodeError: the model is closed.
        """
        if not self._context:
            raise DecodeError(f"{self.path.name} is closed.", "Load it again.")

    def feed(self, tokens: Sequence[int], rows: int) -> Floats:
        """Append tokens to the cache and return logits for the last `rows` of them.

        The tokens are [n] ids, any number; `rows` is at most n and `max_rows`. The logits are [rows, n_vocab] float32
        in llama.cpp's own memory: valid until the next call.

        Raises:
            DecodeError: a token id the model does not have, no room in the context, llama.cpp failed, or it is closed.
            Interrupted: the user stopped it. In each case the cache holds what it did before, or less.
        """
        self.require_open()
        count = len(tokens)
        assert rows <= min(count, self.max_rows), f"{rows} rows of {count} tokens, at most {self.max_rows}"
        if count and (min(tokens) < 0 or max(tokens) >= self.n_vocab):
            raise DecodeError(f"token ids must be 0 to {self.n_vocab - 1}; got {min(tokens)} to {max(tokens)}.")
        if self.n_past + count > self.n_context:
            message = f"{self.n_past} tokens in the cache and {count} more do not fit in a context of {self.n_context}."
            raise DecodeError(message, "A larger `context` holds more.")
        if before := self._cache.prepare(self.n_past, count, rows):
            self._passes(tokens[:before], 0)
            self._cache.mark(self.n_past)
        self._passes(tokens[before:], rows)
        self._cache.fed(self.n_past, rows)
        if rows == 0:
            return np.empty((0, self.n_vocab), dtype=np.float32)
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(self._context), (rows, self.n_vocab))
        if self.observer is not None:
            self.observer(self.n_past - rows, logits)
        return logits

    def _passes(self, tokens: Sequence[int], rows: int) -> None:
        before, count, start = self.n_past, len(tokens), 0
        while start < count:
            # All rows must come from the last pass.
            stop = count if count - start <= self.batch_size else min(start + self.batch_size, count - rows)
            self._pass(tokens[start:stop], rows if stop == count else 0, before)
            start = stop

    def _pass(self, tokens: Sequence[int], rows: int, before: int) -> None:
        count = len(tokens)
        self._tokens[:count] = tokens
        self._positions[:count] = np.arange(self.n_past, self.n_past + count)
        self._flags[:count] = 0
        self._flags[count - rows : count] = 1
        companion = self.options.exact and count == 1 and self._single_rows_differ()
        if companion:  # it asks for logits too: otherwise the last layers would still work on a single row
            sequence = self._cache.companion
            self._tokens[1], self._positions[1], self._flags[1] = tokens[0], 0 if sequence else self.n_past + 1, 1
            self._batch.seq_id[1][0] = sequence
        self._batch.n_tokens = count + companion
        # Asked for every operation of a pass, which is expensive for short passes; those end soon anyway.
        if count > _LONG_PASS:
            llama_cpp.llama_set_abort_callback(self._context, self._abort, None)
        status = llama_cpp.llama_decode(self._context, self._batch)
        llama_cpp.llama_synchronize(self._context)
        if count > _LONG_PASS:
            llama_cpp.llama_set_abort_callback(self._context, self._no_abort, None)
        self._batch.seq_id[1][0] = 0
        if status == 0:
            self.tokens.extend(tokens)
            self._cache.passed(count)
            if companion:
                self._cache.drop_companion(self.n_past)
            return
        if companion:
            self._cache.drop_companion(self.n_past + 1)
        del self.tokens[self._cache.recover(before) :]
        if status == 2 or self._interrupted():
            raise Interrupted
        why = f"code {status}: {last_complaint() or 'no reason given'}"
        raise DecodeError(f"llama.cpp could not evaluate {count} tokens at position {before} ({why}).", _LOG_HINT)

    def _single_rows_differ(self) -> bool:
        """Whether a pass of one row, here, would have other bits than the same row among others.

        Matrices of floating-point numbers have a kernel for one row and one for more; quantized ones have not.
        Attention splits a single row among threads once the cache has 512 cells, counted in steps of 256. A quantized
        cache is rotated with a matrix of floating-point numbers.
        """
        kinds = self.file.matrix_kinds.union(*(adapter.file.matrix_kinds for adapter in self.adapters))
        rotated = {self.options.cache_type_k, self.options.cache_type_v} & {*QUANTIZED}
        return bool(kinds & {"F32", "F16", "BF16"} or rotated) or (self.threads > 1 and self.n_past + 1 > 256)

    def rewind(self, length: int) -> None:
        """Drop cached tokens so that at most `length` are left; fewer where the model cannot go back to that place."""
        del self.tokens[self._cache.rewind(self.n_past, length) :]

    def close(self) -> None:
        """Free the memory; safe to call twice, and while a reply is being made: it can only be given up then."""
        self.tokens = []  # so that nothing is left to rewind
        if self._batch is not None:
            llama_cpp.llama_batch_free(self._batch)
            self._batch = None
        if self._context:
            llama_cpp.llama_free(self._context)
            self._context = None
        if self._model:
            llama_cpp.llama_model_free(self._model)
            self._model = None

    def __enter__(self) -> LlamaModel:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def load_vocabulary(path: Path) -> Vocabulary:
    """Load only the vocabulary of a model file, for `specli check`; raises as `LlamaModel` does."""
    require_runnable(read_gguf(path), weights=False)
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(os.fsencode(path), parameters)
    if not model:
        reason = last_complaint() or "no reason given"
        raise ModelLoadError(f"llama.cpp cannot read the vocabulary of {path}: {reason}.", _LOG_HINT)
    return Vocabulary(model, owned=True)
