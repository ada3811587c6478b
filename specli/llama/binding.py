"""llama.cpp's low-level bindings, imported in the one way that is safe, with the log under control."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from importlib import metadata

# Without this an abort inside llama.cpp starts a debugger on the user's terminal.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

from llama_cpp import llama_cpp

__all__ = ["last_complaint", "llama_cpp", "show_log", "version"]

_ERROR = 4  # ggml's level
_show_log: Callable[[str], object] | None = None
_complaints: list[str] = []


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _user_data: object) -> None:
    message = text.decode("utf-8", errors="replace")
    if level == _ERROR and message.strip():
        _complaints.append(message.strip())
        del _complaints[:-8]
    if _show_log is not None:
        _show_log(message)


# The package installs a callback of its own on import, which hides errors and prints warnings.
llama_cpp.llama_log_set(_on_log, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()


def show_log(show: Callable[[str], object] | None) -> None:
    """Have a function called with each piece of llama.cpp's log; None shows nothing, as at first."""
    global _show_log
    _show_log = show


def last_complaint() -> str:
    """Return the first of the error messages since the last call, for the reason of a failure; '' if there is none."""
    complaints = _complaints[:]
    _complaints.clear()
    return complaints[0] if complaints else ""


def version() -> str:
    """Return the version of llama-cpp-python, which names the llama.cpp in it."""
    return metadata.version("llama-cpp-python")
