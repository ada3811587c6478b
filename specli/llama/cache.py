"""How tokens are taken back from what llama.cpp remembers of the text.

Keys and values of attention lie there token by token, and the tail is dropped. The state of a recurrent layer has taken
in all tokens at once and has no tail. There are two ways back, both exact:

- Snapshots: for some architectures llama.cpp keeps the states after each of the last tokens of a pass.
- Marks: copies of the state at places behind which nothing is taken back. Going back means to the newest mark that is
  early enough: `rewind` leaves fewer tokens than asked for, and the caller feeds the rest again together with what
  follows, as it always feeds all that the cache does not hold.

A mark is another sequence, which shares the cells of attention, or, beside snapshots, a copy in main memory.
"""

from __future__ import annotations

import ctypes
from typing import Any

from specli.llama.binding import llama_cpp
from specli.llama.gguf import GgufFile
from specli.llama.options import LoadOptions

MOST_SNAPSHOTS = 8  # tokens of a draft that can be taken back without feeding others again
_SNAPSHOT_BYTES = 1 << 30  # that snapshots may take; large models get fewer
# What would be fed again after a rejected draft is fed in a pass of its own once it is more than this.
MOST_REPLAYED = 8
_ROLLING, _TURNS = 1, (2, 3, 4)  # sequences: the mark that follows the text, and those at ends of prompts

# llama.cpp keeps snapshots for these; what its context says then decides (llm_arch_supports_rs_rollback).
_SNAPSHOT_ARCHITECTURES = {
    "bailingmoe3", "glm5-next", "kimi-k3", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "qwen35", "qwen35moe",
    "qwen4exp",
}  # fmt: skip
# The companion of a single row in another sequence does not make it equal everywhere: layers work by sequence.
_EXACT_ARCHITECTURES = {"granitehybrid"}


def state_bytes(file: GgufFile) -> int:
    """Return about how many bytes the recurrent layers of a model keep of a text, whatever its length; 0 if none."""

    def number(key: str) -> int:
        value = file.value(key, 0)
        return value if isinstance(value, int) else 0

    width, inner, size = number("embedding_length"), number("ssm.inner_size"), number("ssm.state_size")
    if inner:
        convolution = (number("ssm.conv_kernel") - 1) * (inner + 2 * number("ssm.group_count") * size)
        values = convolution + size * inner
    elif number("shortconv.l_cache"):
        values = width * (number("shortconv.l_cache") - 1)
    else:  # RWKV
        values = width * (number("token_shift_count") + number("wkv.head_size"))
    return 4 * values * file.recurrent_layers


def snapshots(file: GgufFile, options: LoadOptions) -> int:
    """Return how many snapshots a recurrent model is to keep; 0 where marks are the way back.

    A draft model is fed token by token, and snapshots reach no further back than the last pass.
    """
    if file.architecture not in _SNAPSHOT_ARCHITECTURES or options.for_drafts:
        return 0
    # Beyond `batch - 2` an assertion of llama.cpp ends the process.
    return max(0, min(MOST_SNAPSHOTS, options.batch - 2, _SNAPSHOT_BYTES // max(1, state_bytes(file)) - 1))


def sequences(file: GgufFile, options: LoadOptions) -> int:
    """Return how many sequences the context of a model needs, a companion of exact mode included."""
    if not file.recurrent_layers:
        return 1 + options.exact
    return 1 if snapshots(file, options) else 2 + len(_TURNS) + options.exact


def cached_states(file: GgufFile, options: LoadOptions) -> int:
    """Return how many copies of its state a model keeps: where it is, snapshots, and marks."""
    kept = snapshots(file, options)
    return 1 + kept + 1 + len(_TURNS) if kept else sequences(file, options)


def why_inexact(file: GgufFile, options: LoadOptions) -> str:
    """Return why exact mode is not known to hold for a model, '' if it is."""
    if not file.recurrent_layers or snapshots(file, options) or file.architecture in _EXACT_ARCHITECTURES:
        return ""
    return f"{file.path.name} ({file.architecture}) has recurrent layers that compute single tokens in another way"


class Cache:
    """What a context holds of the text, for models of attention alone. `n_swa` is the sliding window, 0 if none."""

    def __init__(self, context: Any, n_swa: int) -> None:
        self._context = context
        self._memory = llama_cpp.llama_get_memory(context)
        self._n_swa = n_swa

    companion = 1  # the sequence in which a single row of exact mode gets another beside it
    replays = False  # whether tokens before a rejected one may have to be fed again

    def prepare(self, length: int, count: int, rows: int) -> int:
        """Get ready to feed `count` tokens after `length`, of which the last `rows` give logits.

        Returns how many of them are to be fed in passes of their own before, to `mark` the place behind them.
        """
        return 0

    def mark(self, length: int) -> None:
        """Make the end of the text a place to come back to."""

    def passed(self, count: int) -> None:
        """Take note of a pass of `count` tokens."""

    def fed(self, length: int, rows: int) -> None:
        """Take note that what was prepared has been fed; the text now has `length` tokens."""

    def rewind(self, length: int, wanted: int) -> int:
        """Go back from `length` tokens to at most `wanted`; return how many are left, 0 where there is no exact way.

        Models with a sliding window keep only the last tokens of most layers. llama.cpp removes the tail without
        complaint also when the window before it is gone already, and answers wrongly after that.
        """
        if wanted >= length:
            return length
        exact = llama_cpp.llama_memory_seq_rm(self._memory, 0, wanted, -1)
        if self._n_swa and wanted > 0:
            exact &= llama_cpp.llama_memory_seq_pos_min(self._memory, 0) <= max(0, wanted - self._n_swa)
        if not exact:
            return self._clear()
        return wanted

    def recover(self, length: int) -> int:
        """Undo a pass that failed after `length` tokens; return how many are left."""
        llama_cpp.llama_memory_seq_rm(self._memory, 0, length, -1)
        return length

    def drop_companion(self, length: int) -> None:
        """Remove the row beside the last token of a text that has `length` tokens."""
        llama_cpp.llama_memory_seq_rm(self._memory, self.companion, 0 if self.companion else length, -1)

    def _clear(self) -> int:
        llama_cpp.llama_memory_clear(self._memory, True)
        return 0


class RecurrentCache(Cache):
    """What a context holds of the text, for models with recurrent layers: snapshots, marks, or both.

    Snapshots have three traps, in which llama.cpp answers wrongly or ends the process: they are those of the last pass
    and do not hold the state before its first token; going back a second time before the next pass; and as many as a
    pass takes. Hence `_reach` and the bound in `snapshots`.
    """

    def __init__(self, context: Any, n_sequences: int) -> None:
        super().__init__(context, n_swa=0)  # the cache of a window is made as long as the context
        self._snapshots = int(llama_cpp.llama_n_rs_seq(context))
        self._copies = n_sequences == 1  # marks lie in main memory, as another sequence would need snapshots, too
        self.companion = 0 if self._copies else n_sequences - 1  # in the same sequence if it can be taken back at once
        self.replays = not self._snapshots
        self._marks: dict[int, int] = {}  # by sequence: the tokens that it holds, a beginning of the text
        self._states: dict[int, Any] = {}  # by sequence: the copy in main memory
        self._reach = 0  # tokens that snapshots can take back now
        self._fresh = True  # nothing was fed since the caller last went back, so all that is fed again is certain
        self._certain = 0  # of the text, so many tokens will not be taken back before that
        self._reading: int | None = None  # the mark of the prompt that is being read

    def prepare(self, length: int, count: int, rows: int) -> int:
        """Make sure that there is a place to come back to before the first token that may be taken back.

        Those are all after the first of `rows`, and all that is fed before the caller has gone back.
        """
        if rows == 0:
            return 0
        if not self._fresh:
            if length == self._certain:
                self.mark(length)
            return 0
        self._fresh = False
        doubtful = rows - 1
        self._certain = length + count - doubtful
        if doubtful <= self._snapshots:  # also where nothing is doubtful
            return 0
        before = count - rows  # certain ones whose rows nobody needs
        newest = max(self._marks.values(), default=-MOST_REPLAYED - 1)
        if before and length + before - newest > MOST_REPLAYED:
            return before
        if not before:
            self.mark(length)
        return 0

    def mark(self, length: int) -> None:
        """Move the mark that follows the text to its end."""
        if length and length not in self._marks.values():
            self._store(_ROLLING, length)

    def passed(self, count: int) -> None:
        """Take note of a pass: there are snapshots after each of its last tokens, but none before its first one."""
        self._reach = min(self._snapshots, count - 1)

    def fed(self, length: int, rows: int) -> None:
        """Mark the end of a prompt: another reply, or the next turn, begins there."""
        if rows:
            self._reading = None
            return
        self._fresh = True
        if self._reading is None:
            free = [sequence for sequence in _TURNS if sequence not in self._marks]
            self._reading = free[0] if free else min(_TURNS, key=self._marks.__getitem__)
        self._store(self._reading, length)

    def rewind(self, length: int, wanted: int) -> int:
        """Go back from `length` tokens to at most `wanted`; return how many are left."""
        self._fresh, self._reading = True, None
        if wanted >= length:
            return length
        for sequence in [one for one, held in self._marks.items() if held > wanted]:
            self._forget(sequence)
        if wanted > 0 and length - wanted <= self._reach:
            self._reach = 0  # a second time would be wrong before the next pass
            if llama_cpp.llama_memory_seq_rm(self._memory, 0, wanted, -1):
                return wanted
        return self._return_to_mark()

    def recover(self, length: int) -> int:
        """Undo a pass that failed: it leaves a state that is neither before nor after it."""
        self._fresh, self._reading = True, None
        return self._return_to_mark()

    def drop_companion(self, length: int) -> None:
        """Remove the row beside the last token; one in the same sequence takes the snapshots with it."""
        super().drop_companion(length)
        self._reach = 0

    def _return_to_mark(self) -> int:
        self._reach = 0
        if not self._marks:
            return self._clear()
        sequence = max(self._marks, key=self._marks.__getitem__)
        length = self._marks[sequence]
        if self._copies:
            state = self._states[sequence]
            size = llama_cpp.llama_state_seq_set_data_ext(
                self._context, state, len(state), 0, llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
            )
            if size != len(state) or not llama_cpp.llama_memory_seq_rm(self._memory, 0, length, -1):
                return self._clear()
        else:
            llama_cpp.llama_memory_seq_rm(self._memory, 0, -1, -1)
            llama_cpp.llama_memory_seq_cp(self._memory, sequence, 0, -1, -1)
        return length

    def _store(self, sequence: int, length: int) -> None:
        if self._copies:
            flags = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
            size = llama_cpp.llama_state_seq_get_size_ext(self._context, 0, flags)
            state = (ctypes.c_uint8 * size)()
            if llama_cpp.llama_state_seq_get_data_ext(self._context, state, size, 0, flags) != size:
                self._forget(sequence)
                return
            self._states[sequence] = state
        else:
            llama_cpp.llama_memory_seq_rm(self._memory, sequence, -1, -1)
            llama_cpp.llama_memory_seq_cp(self._memory, 0, sequence, -1, -1)
        self._marks[sequence] = length

    def _forget(self, sequence: int) -> None:
        self._states.pop(sequence, None)
        if not self._copies:
            llama_cpp.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        self._marks.pop(sequence, None)

    def _clear(self) -> int:
        self._marks.clear()
        self._states.clear()
        return super()._clear()
