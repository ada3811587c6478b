"""Writing a model again with weights of another kind, by llama.cpp's own quantiser.

Knows llama.cpp's quantiser. Must not know the terminal.

The quantiser runs in a process of its own: it cannot be interrupted, and ends its process when something goes wrong.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from specli.errors import Interrupted, OptionError, QuantiseError
from specli.llama.binding import llama_cpp
from specli.llama.gguf import FILE_TYPES, read_gguf

# Kinds that need no importance matrix, by the names people use for them.
QUANTISATIONS = {
    name.lower(): number
    for number, name in FILE_TYPES.items()
    if name in ("F32", "F16", "BF16") or re.fullmatch(r"Q\d_([01]|K|K_[SML])", name)
}
_PROGRESS = re.compile(rb"\[\s*(\d+)/\s*(\d+)\]")


def check_quantisation(name: str) -> None:
    """Refuse what is no kind of weights.

    Raises:
        OptionError: there is no such kind, or it cannot be made without more.
    """
    if name.lower() not in QUANTISATIONS:
        raise OptionError(
            f"--type is {name!r}, but must be one of: {', '.join(QUANTISATIONS)}.", "q4_0 makes a fast draft model."
        )


def quantise(
    source: Path,
    destination: Path,
    name: str,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> None:
    """Write a model with weights of another kind, whole or not at all.

    Args:
        source: a GGUF file of any kind.
        destination: a file that does not exist yet.
        name: a key of `QUANTISATIONS`.
        progress: called with how many tensors are done, and how many there are.
        interrupted: asked between tensors; True breaks off.

    Raises:
        OptionError: there is no such kind, or the file exists.
        ModelFileError: the source is no whole GGUF.
        QuantiseError: llama.cpp failed.
        Interrupted: `interrupted` said so.
    """
    check_quantisation(name)
    if destination.exists():
        raise OptionError(f"{destination} exists already.", "Choose another name with -o.")
    read_gguf(source)
    try:
        handle, unfinished = tempfile.mkstemp(suffix=".part", prefix=f".{destination.name}.", dir=destination.parent)
    except OSError as error:
        raise QuantiseError(
            f"cannot write to {destination.parent}: {error.strerror}.", "Choose another place with -o."
        ) from None
    os.close(handle)
    try:
        command = [sys.executable, "-m", __name__, str(source), unfinished, str(QUANTISATIONS[name.lower()])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
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
            said = [line.decode(errors="replace").strip() for line in log if line.strip()]
            raise QuantiseError(
                f"llama.cpp could not write {source.name} as {name}: {said[-1] if said else 'no reason given'}.",
                "Is there room on the disk? The file needs about as much as its kind of weights takes.",
            )
        Path(unfinished).chmod(0o666 & ~_umask())
        os.rename(unfinished, destination)
    finally:
        Path(unfinished).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _run(source: str, destination: str, number: str) -> int:
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = int(number)
    parameters.allow_requantize = True
    return int(llama_cpp.llama_model_quantize(source.encode(), destination.encode(), ctypes.byref(parameters)))


if __name__ == "__main__":
    from specli.llama.binding import set_verbose

    set_verbose(True)  # the log is what tells the progress
    sys.exit(_run(*sys.argv[1:]))
