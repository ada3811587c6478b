"""Faster answers from GGUF models by speculative decoding, without changing what they say.

    with specli.load("qwen2.5-coder-1.5b") as engine:
        reply = engine.complete("Name three rivers.", temperature=0, max_tokens=64)

docs/python.md shows the rest.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the module `typing` would take most of the time that importing this one takes
if TYPE_CHECKING:
    from typing import Any

    from specli.decoding.loop import PromptProgress as PromptProgress
    from specli.decoding.metrics import Metrics as Metrics
    from specli.decoding.options import SamplingOptions as SamplingOptions
    from specli.decoding.sampling import Distribution as Distribution
    from specli.decoding.verification import verify as verify
    from specli.engine.engine import Engine as Engine
    from specli.engine.loading import generate as generate
    from specli.engine.loading import load as load
    from specli.engine.options import ReplyOptions as ReplyOptions
    from specli.engine.reply import Piece as Piece
    from specli.engine.reply import Reply as Reply
    from specli.engine.reply import ReplyStream as ReplyStream
    from specli.errors import SpecliError as SpecliError
    from specli.llama.options import LoadOptions as LoadOptions
    from specli.llama.text import Message as Message

__version__ = "0.1.0"

# Imported when first used: numpy and llama.cpp take longer to load than most of what a command line is asked.
_HOMES = {
    "Distribution": "decoding.sampling",
    "Engine": "engine.engine",
    "LoadOptions": "llama.options",
    "Message": "llama.text",
    "Metrics": "decoding.metrics",
    "Piece": "engine.reply",
    "PromptProgress": "decoding.loop",
    "Reply": "engine.reply",
    "ReplyOptions": "engine.options",
    "ReplyStream": "engine.reply",
    "SamplingOptions": "decoding.options",
    "SpecliError": "errors",
    "generate": "engine.loading",
    "load": "engine.loading",
    "verify": "decoding.verification",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    """Import a public name from its home."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"specli.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'specli' has no attribute {name!r}")
