"""Rewriting a model with weights of another type, with llama.cpp's own quantizer.

The quantizer runs in a process of its own: it cannot be interrupted, and may end its process when something goes wrong.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from specli.errors import Interrupted, OptionError, QuantizeError
from specli.llama.binding import llama_cpp, show_log
from specli.llama.gguf import FILE_TYPES, read_gguf
from specli.state.atomic import replacing
from specli.state.unfinished import cleaning_up

# Types that need no importance matrix: common name, in lower case -> llama.cpp's number.
QUANTIZATIONS = {
    name.lower(): number
    for number, name in FILE_TYPES.items()
    if name in ("F32", "F16", "BF16") or re.fullmatch(r"Q\d_([01]|K|K_[SML])", name)
}
_PROGRESS = re.compile(rb"\[\s*(\d+)/\s*(\d+)\]")


def check_quantization(kind: str) -> None:
    """Refuse a type of weights that is unknown, or that needs an importance matrix.

    Raises:
        OptionError: it is not a key of `QUANTIZATIONS`, in upper or lower case.
    """
    if kind.lower() not in QUANTIZATIONS:
        allowed = f"one of: {', '.join(QUANTIZATIONS)}"
        raise OptionError(f"`kind` is {kind!r}, but must be {allowed}.", "q4_0 makes a fast draft model.")


def quantize(
    source: Path,
    destination: Path,
    kind: str,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> None:
    """Write a model with weights of another type, completely or not at all.

    `progress` is called with the number of tensors that are done, and of all; `interrupted` is asked in between.

    Raises:
        OptionError: `kind` is not in `QUANTIZATIONS`, or the destination exists.
        ModelFileError: the source is not a complete GGUF file.
        QuantizeError: llama.cpp failed.
        Interrupted: `interrupted` said so.
    """
    check_quantization(kind)
    if destination.exists():
        raise OptionError(f"{destination} exists already.", "Choose another `destination`.")
    read_gguf(source)
    try:
        with replacing(destination) as unfinished:
            _write(source, unfinished, kind, progress, interrupted)
    except OSError as error:
        message = f"cannot write to {destination.parent}: {error.strerror}."
        raise QuantizeError(message, "Choose another `destination`.") from None


def _write(
    source: Path, unfinished: Path, kind: str, progress: Callable[[int, int], None], interrupted: Callable[[], bool]
) -> None:
    command = [sys.executable, "-m", __name__, str(source), str(unfinished), str(QUANTIZATIONS[kind.lower()])]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process,
        cleaning_up(process.kill),
    ):
        assert process.stdout is not None
        log: list[bytes] = []
        for line in process.stdout:
            log.append(line)
            if found := _PROGRESS.search(line):
                progress(int(found[1]), int(found[2]))
            if interrupted():
                process.kill()
                raise Interrupted
    if process.returncode != 0:
        said = [line.decode(errors="replace").strip() for line in log if line.strip()] or ["no reason given"]
        hint = "Is there enough space on the disk? The file takes about as much as its type of weights."
        raise QuantizeError(f"llama.cpp could not write {source.name} as {kind}: {said[-1]}.", hint)


if __name__ == "__main__":
    show_log(sys.stderr.write)  # progress is read from it
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.allow_requantize = True
    parameters.ftype = int(sys.argv[3])
    files = (os.fsencode(name) for name in sys.argv[1:3])
    sys.exit(int(llama_cpp.llama_model_quantize(*files, ctypes.byref(parameters))))
