"""Renders chat templates, in a process of its own: one JSON object a line in, one a line out.

Templates come with model files and are not to be trusted. The sandbox keeps them away from Python, but not from all
the time and memory that there is; a process can be limited and ended. `specli.llama.templates` starts it. This file
imports nothing of specli, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MEMORY = 1 << 30  # bytes
_OUTPUT = 8_000_000  # characters, besides those of the messages
_SECONDS = 20  # more than whoever asks waits: it ends a template that runs on after specli was killed


class _Generation(Extension):
    """The block tag that marks replies for training; only what is in it matters here."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def _refuse(message: str) -> None:
    raise ValueError(message)


def _json(value: Any, ensure_ascii: bool = False, **layout: Any) -> str:
    """Write JSON as transformers does: unlike Jinja's own filter, without escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **layout)


_ENVIRONMENT = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
)
_ENVIRONMENT.filters["tojson"] = _json
_ENVIRONMENT.globals |= {
    "add_generation_prompt": True,
    "raise_exception": _refuse,
    "strftime_now": lambda layout: datetime.now().strftime(layout),
} | dict.fromkeys(("functions", "function_call", "tools", "tool_choice"))


@lru_cache(maxsize=8)
def _compiled(template: str) -> jinja2.Template:
    return _ENVIRONMENT.from_string(template)


def render(request: dict[str, Any]) -> dict[str, str]:
    """Render a template.

    The request has `template`, `messages`, and the texts of the `begin` and `end` tokens. The answer has either the
    `text`, or a `refusal` in the template's or Jinja's words, or a `fault`: what the template does that it must not.
    """
    messages = request["messages"]
    room = _OUTPUT + len(json.dumps(messages, ensure_ascii=False))
    chunks: list[str] = []
    try:
        template = _compiled(request["template"])
        values = {"messages": messages, "bos_token": request["begin"], "eos_token": request["end"]}
        for chunk in template.generate(values):
            chunks.append(chunk)
            room -= len(chunk)
            if room < 0:
                return {"fault": f"writes more than {_OUTPUT:,} characters around the messages"}
        # A template can write halves of surrogate pairs, which are no text.
        return {"text": "".join(chunks).encode(errors="replace").decode()}
    except MemoryError:
        return {"fault": f"needs more than {_MEMORY >> 30} GiB of memory"}
    except Exception as error:  # a template can fail in any way its author thought of
        return {"refusal": " ".join(str(error)[:300].split()).rstrip(".") or type(error).__name__}


def _limit_memory() -> None:
    if sys.platform != "win32":
        import resource

        with contextlib.suppress(OSError, ValueError):  # macOS refuses some limits, and one may be set already
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _serve() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal
    _limit_memory()
    with open(os.devnull, "w") as nowhere:
        for line in sys.stdin.buffer:
            # Ends the process without asking Python, which may be busy with one long multiplication.
            faulthandler.dump_traceback_later(_SECONDS, exit=True, file=nowhere)
            answer = json.dumps(render(json.loads(line)))
            faulthandler.cancel_dump_traceback_later()
            print(answer, flush=True)


if __name__ == "__main__":
    _serve()
