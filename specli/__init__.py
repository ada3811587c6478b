"""specli: faster answers from GGUF models by speculative decoding, without changing what they say.

For scripts: `specli.generate(prompt, ...)` yields `Reading`, `Piece` and at last `Reply` events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specli.engine.engine import generate
    from specli.engine.reply import Piece, Reading, Reply, ReplyOptions

__all__ = ["Piece", "Reading", "Reply", "ReplyOptions", "generate"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the engine when it is first used: it brings llama.cpp with it."""
    if name in __all__:
        from specli.engine import engine

        return getattr(engine, name)
    raise AttributeError(f"module 'specli' has no attribute {name!r}")
