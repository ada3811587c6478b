"""Chat templates: a conversation as the model was trained to read it, and what its template does with each message."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Timer
from time import monotonic
from typing import Any

from specli.errors import TemplateError
from specli.llama.vocabulary import Vocabulary
from specli.state.unfinished import at_the_end

_SECONDS = 10  # that a template may take
_CHARACTERS = 1_000_000  # that it may have; known ones have less than 30,000
_HINT = "Use another model, or another file of this one."


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str  # "system", "user" or "assistant"
    content: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation in the model's chat template, up to the reply."""

    text: str
    marked: str  # the same with marks in place of the messages
    marks: list[str]  # one for each message


class _RefusedError(TemplateError):
    """The template works, but not with this conversation."""


def render_template(vocabulary: Vocabulary, messages: Sequence[Message]) -> Rendered:
    """Render a conversation.

    Marks in place of the messages show whether the template writes what they say; a short text could be in the rest of
    the template by chance. If it does not, the template may want messages as lists of parts.

    Raises:
        TemplateError: the model has no template, or the template refuses these messages, drops what the user or the
            system prompt says, or takes too much time or memory.
    """
    conversation = _Conversation(vocabulary, messages)
    problem: TemplateError | None
    try:
        rendered, dropped = conversation.rendered(())
        problem = _complaint(messages, dropped)
    except _RefusedError as refusal:
        dropped, problem = list(range(len(messages))), refusal
    if problem:
        try:
            rendered, dropped = conversation.rendered(dropped)
        except _RefusedError:
            raise problem from None
        if complaint := _complaint(messages, dropped):
            raise problem if isinstance(problem, _RefusedError) else complaint
    return rendered


def _complaint(messages: Sequence[Message], dropped: Sequence[int]) -> TemplateError | None:
    """Return why these messages must not be dropped; templates may leave out what the model said earlier."""
    roles = {messages[at].role for at in dropped}
    if "user" in roles:
        return TemplateError("the model's chat template drops what the user said.", _HINT)
    if "system" in roles:
        hint = "Leave out the system prompt: the model would not see it."
        return TemplateError("the model's chat template drops the system prompt.", hint)
    return None


class _Conversation:
    """The messages of a conversation and what its template makes of them, all within the time of one rendering."""

    def __init__(self, vocabulary: Vocabulary, messages: Sequence[Message]) -> None:
        if vocabulary.template is None:
            raise TemplateError("the model has no chat template.", "Use a model that has one.")
        if (length := len(vocabulary.template)) > _CHARACTERS:
            raise TemplateError(f"the model's chat template has {length:,} characters, at most {_CHARACTERS:,}.", _HINT)
        begin, end = (vocabulary.text(token) for token in (vocabulary.begin_token, vocabulary.end_token))
        self._request = {"template": vocabulary.template, "begin": begin, "end": end}
        self._messages = messages
        self._marks = [_mark() for _ in messages]
        self._until = monotonic() + _SECONDS

    def rendered(self, parts: Container[int]) -> tuple[Rendered, list[int]]:
        """Render, with these messages as parts; the others that are returned make no difference to the result."""
        texts = [message.content for message in self._messages]
        rendered = Rendered(self._render(texts, parts), self._render(self._marks, parts), self._marks)
        written, dropped = rendered.marked.lower(), []
        for at, mark in enumerate(self._marks):
            if mark not in written and texts[at].strip():
                # Templates may change letters: what is dropped can be exchanged without effect.
                others = [*self._marks[:at], _mark(), *self._marks[at + 1 :]]
                if self._render(others, parts) == rendered.marked:
                    dropped.append(at)
        return rendered, dropped

    def _render(self, contents: Sequence[str], parts: Container[int]) -> str:
        turns = [
            {"role": message.role, "content": [{"type": "text", "text": content}] if at in parts else content}
            for at, (message, content) in enumerate(zip(self._messages, contents, strict=True))
        ]
        answer = _process.ask(self._request | {"messages": turns}, self._until)
        if "fault" in answer:
            raise TemplateError(f"the model's chat template {answer['fault']}.", _HINT)
        if "refusal" in answer:
            has_system = any(message.role == "system" for message in self._messages)
            hint = "Leave out the system prompt: some templates know none." if has_system else _HINT
            raise _RefusedError(f"the model's chat template refuses this conversation: {answer['refusal']}.", hint)
        return answer["text"]


def _mark() -> str:
    return f"mark{secrets.token_hex(8)}"


class _Process:
    """The process that renders: started when first needed, and again after it ended."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        at_the_end(self._stop)

    def ask(self, request: dict[str, Any], until: float) -> dict[str, str]:
        """Return the answer to a request, see `rendering.render`; none until then, in `monotonic`, is a fault too."""
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            for _ in range(2):  # it may have ended for a reason outside of it
                if answer := self._answer(line, until - monotonic()):
                    return dict(json.loads(answer))
                if monotonic() >= until:
                    return {"fault": f"takes longer than {_SECONDS} seconds"}
        return {"fault": "ends the process that renders it"}

    def _answer(self, line: bytes, seconds: float) -> bytes:
        if self._process is None:
            # The file, not the module: a folder in which specli is started must not lend it other modules.
            command = [sys.executable, "-P", str(Path(__file__).with_name("rendering.py"))]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        process, answer = self._process, b""
        assert process.stdin is not None
        assert process.stdout is not None
        late = Timer(seconds, process.kill)
        late.start()
        try:
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            pass  # it has ended
        finally:
            late.cancel()
            if not answer.endswith(b"\n"):
                self._stop()
        return answer if answer.endswith(b"\n") else b""

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


_process = _Process()
