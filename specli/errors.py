"""What can go wrong in the user's world, as one tree.

Every error is one sentence that names the value and the bound, and one hint that names a next step. Options are named
as in Python, in backquotes; the command line writes the flag instead, and turns an error into an exit code, in
`specli.terminal.app`. A broken rule of our own code is an `assert` instead, and is never caught.

All are kinds of `SpecliError` (exit code 1), and `ContextFullError` and `TemplateError` are kinds of `PromptError`.
"""

from __future__ import annotations

CHECK_FAILED = 3  # the exit code of a command that worked and found what it was asked to look for


class SpecliError(Exception):
    """Base of every error that is shown to the user as a message, without a traceback.

    `message` is one sentence, `hint` says what to try next, and `field` is the option it is about, as in Python.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field


class OptionError(SpecliError):
    """An option or argument has a value that cannot be used."""

    exit_code = 2


class RegistryError(SpecliError):
    """A models.toml that cannot be read."""


class ModelNotFoundError(SpecliError):
    """No file, registry entry or repository has this name."""


class ModelFileError(SpecliError):
    """A model file is missing, empty, cut short or not a GGUF file."""


class ModelUnsupportedError(SpecliError):
    """The model loads, but speculative decoding cannot run it."""


class ModelLoadError(SpecliError):
    """llama.cpp refused to load the model or to create its context."""


class DecodeError(SpecliError):
    """llama.cpp failed while evaluating tokens."""


class PairError(SpecliError):
    """The draft model cannot serve the target model."""


class PromptError(SpecliError):
    """The prompt is empty, is not text, or cannot be framed by the chat template."""


class ContextFullError(PromptError):
    """A conversation, or a message alone, does not fit in the context."""


class TemplateError(PromptError):
    """The model's chat template cannot frame a conversation."""


class DownloadError(SpecliError):
    """No source delivered the file."""


class MissingExtraError(SpecliError):
    """What was asked for needs an optional library that is not installed."""


class QuantizeError(SpecliError):
    """llama.cpp could not write a model with weights of another type."""


class SessionError(SpecliError):
    """A conversation on disk cannot be found, read or written."""


class JournalError(SpecliError):
    """A file of measurements cannot be read or written."""


class CheckFailedError(SpecliError):
    """A check that was asked for failed."""

    exit_code = CHECK_FAILED


class Interrupted(SpecliError):
    """The user stopped the work."""

    exit_code = 130

    def __init__(self, message: str = "interrupted", hint: str | None = None) -> None:
        super().__init__(message, hint)
