"""A comparison on disk: written as it is measured, so that an interrupted one can be continued.

The file is JSON Lines: first an object that says what is measured and where, then one measurement a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specli.errors import JournalError, OptionError, SpecliError
from specli.evaluation.comparison import Measurement
from specli.evaluation.machine import ModelFacts
from specli.evaluation.settings import Settings
from specli.state import jsonl
from specli.state.data import checked

KIND, VERSION = "comparison", 1


@dataclass(frozen=True, slots=True)
class Header:
    """What a comparison measures, and with which models."""

    settings: Settings
    models: tuple[ModelFacts, ...]  # the target first


class Journal:
    """Appends measurements to a file, each on disk as soon as it is made."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def create(cls, path: Path, header: Mapping[str, Any]) -> Journal:
        """Start a new file.

        Raises:
            OptionError: it exists already.
            JournalError: it cannot be written.
        """
        journal = cls(path)
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            raise OptionError(
                f"{path} exists already.", "Add `resume` to continue it, or choose another name."
            ) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise JournalError(f"cannot write {path}: {reason}.", "Choose another file with -o.") from None
        journal._append({"kind": KIND, "version": VERSION} | dict(header))
        return journal

    def add(self, measurement: Measurement) -> None:
        """Write a measurement."""
        self._append(asdict(measurement))

    def _append(self, content: Mapping[str, Any]) -> None:
        try:
            jsonl.append(self._path, content)
        except OSError as error:
            raise JournalError(
                f"cannot write {self._path}: {error.strerror}.", "Choose another file with -o."
            ) from None


def read_journal(path: Path) -> tuple[Header, list[Measurement]]:
    """Return what is measured, and what has been measured so far; damaged lines are left out and measured again.

    Raises:
        JournalError: the file cannot be read, or is not a comparison.
    """
    hint = "`resume` continues a file that `file` wrote."
    try:
        first, *lines = jsonl.read(path)[0] or [{}]
        if (first.get("kind"), first.get("version")) != (KIND, VERSION):
            raise ValueError("it is of another kind or version")
        for facts in first.get("models", ()):
            if "quantisation" in facts:  # as specli 0.1 spelled it
                facts["quantization"] = facts.pop("quantisation")
        header = checked(first, Header)
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror}.", hint) from None
    except (ValueError, TypeError, SpecliError) as error:
        raise JournalError(f"{path} holds no comparison that this version can continue: {error}.", hint) from None
    measured = []
    for line in lines:
        line.setdefault("configuration", line.get("arm"))  # as specli 0.1 called it
        with suppress(ValueError):
            measured.append(checked(line, Measurement))
    return header, [one for one in measured if header.settings.plan.holds(one)]
