"""llama.cpp's low-level bindings, imported in the one way that is safe, with the log under control."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

# Without this an abort inside llama.cpp starts a debugger on the user's terminal.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

from llama_cpp import llama_cpp
from llama_cpp._ctypes_extensions import load_shared_library

__all__ = ["last_complaint", "library_function", "llama_cpp", "show_log", "unlocked", "version"]

_WARNING, _ERROR = 3, 4  # ggml's levels
_show_log: Callable[[str], object] | None = None
_complaints: list[str] = []
_unlocked = False


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _user_data: object) -> None:
    global _unlocked
    message = text.decode("utf-8", errors="replace")
    if level == _ERROR and message.strip():
        _complaints.append(message.strip())
        del _complaints[:-8]
    _unlocked |= level == _WARNING and "mlock" in message
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


def unlocked() -> bool:
    """Whether the system has refused to lock memory since the last call: llama.cpp goes on and only warns."""
    global _unlocked
    before, _unlocked = _unlocked, False
    return before


def library_function(name: str, result: Any, arguments: list[Any]) -> Any:
    """Return a function of llama.cpp's libraries that the bindings do not have, by its C types."""
    found = getattr(llama_cpp._lib, name, None)
    if found is None:  # Windows looks into no other library than the one that was asked
        folder = Path(llama_cpp.__file__).parent / "lib"
        libraries = (load_shared_library(other, folder) for other in ("ggml", "ggml-base"))
        found = next(filter(None, (getattr(library, name, None) for library in libraries)))
    found.restype, found.argtypes = result, arguments
    return found


def version() -> str:
    """Return the version of llama-cpp-python, which names the llama.cpp in it."""
    return metadata.version("llama-cpp-python")
