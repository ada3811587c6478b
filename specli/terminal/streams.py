"""The standard streams, made safe to use: closed ones lead nowhere, and no character is too much for them."""

from __future__ import annotations

import codecs
import os
import sys

output_is_closed = False
_replaced = False


def prepare() -> None:
    """Replace streams that are closed, and let the others replace characters that they cannot take."""
    global output_is_closed
    output_is_closed = sys.stdout is None
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115 - kept until the end
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="surrogateescape")  # what is no text is refused where it is used
    codecs.register_error("specli.replace", _replace)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="specli.replace" if stream is sys.stdout else "replace")


def takes_everything() -> bool:
    """Whether standard output has a character set that leaves none out."""
    return codecs.lookup(sys.stdout.encoding or "ascii").name.startswith("utf")


def replaced() -> bool:
    """Whether anything was replaced so far."""
    return _replaced


def _replace(error: UnicodeError) -> tuple[str, int]:
    global _replaced
    assert isinstance(error, UnicodeEncodeError)
    _replaced = True
    return "?" * (error.end - error.start), error.end
