"""What can go wrong in the user's world, as one tree.

Every error is one sentence that names the value and the bound, and one hint that names a next step. Options are named
as in Python, in backquotes; the command line writes the flag instead, and turns an error into an exit code, in
`specli.terminal.app`. A broken rule of our own code is an `assert` instead, and is never caught.

    SpecliError                exit 1
    ├── OptionError            exit 2   an option or argument has a value that cannot be used
    ├── RegistryError                   a models.toml that cannot be read
    ├── ModelNotFoundError              no file, registry entry or repository has this name
    ├── ModelFileError                  a file that is missing, empty, cut short or no GGUF
    ├── ModelUnsupportedError           a model that speculative decoding cannot run
    ├── ModelLoadError                  llama.cpp refused the file or the context
    ├── DecodeError                     llama.cpp failed in the middle of the work
    ├── PairError                       this draft model cannot serve this target model
    ├── PromptError                     a prompt that is empty, not text, or cannot be framed
    │   └── ContextFullError            a conversation or message that does not fit in the context
    ├── DownloadError                   no source delivered the file
    ├── MissingExtraError               an optional library is not installed
    ├── QuantizeError                   llama.cpp could not quantize a model
    ├── SessionError                    a conversation that cannot be read or written
    ├── JournalError                    a file of measurements that cannot be read or written
    ├── CheckFailedError       exit 3   what was asked for with --require-... does not hold
    └── Interrupted            exit 130 the user stopped it
"""

from __future__ import annotations

CHECK_FAILED = 3  # the exit code of a command that worked and found what it was asked to look for


class SpecliError(Exception):
    """Base of every error that is shown to the user as a message, without a traceback.

    Args:
        message: one sentence that names the value and the bound.
        hint: what to try next.
        field: the option it is about, as it is named in Python.
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
