"""What every source of model files needs: where files are kept, how they are checked, how progress is reported."""

from __future__ import annotations

import errno
import hashlib
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specli.errors import DownloadError
from specli.models.checks import check_inside
from specli.models.registry import ModelEntry
from specli.state.paths import models_directory

CHUNK = 1 << 20
# A download of which fewer bytes arrive in so many seconds is given up.
LEAST_BYTES = 1 << 16
LEAST_BYTES_SECONDS = 60.0


class Report:
    """What a fetch tells its caller while it runs. This one is silent; others override its methods."""

    def say(self, message: str) -> None:
        """Report something worth knowing: a source that did not answer, a lock that is held by another process."""

    def progress(self, activity: str, done: int, total: int) -> None:
        """Report how many bytes of an activity are done; a total of 0 means that it is unknown."""


Silent = Report


def own_path(entry: ModelEntry, suffix: str = "") -> Path:
    """Return where specli keeps the file of a model when it does not lie elsewhere, or what belongs to that file."""
    folder = models_directory()
    return check_inside(folder, folder / f"{re.sub('[/:]', '--', entry.name)}.gguf{suffix}")


def is_whole(path: Path, size: int | None) -> bool:
    """Whether a file exists and, if its size in bytes is known, has that size."""
    try:
        return path.is_file() and size in (None, path.stat().st_size)
    except OSError:
        return False


def check_file(entry: ModelEntry, path: Path, report: Report) -> None:
    """Check size and digest of a downloaded file; a wrong file is deleted.

    Raises:
        DownloadError: it is not the file that was asked for.
    """
    size = path.stat().st_size
    if entry.bytes not in (None, size):
        path.unlink()
        raise DownloadError(f"delivered {size} bytes instead of {entry.bytes}; the file was deleted")
    if entry.sha256 is None:
        return
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(8 * CHUNK):
            digest.update(chunk)
            done += len(chunk)
            report.progress(f"Checking {entry.name}", done, size)
    if digest.hexdigest() != entry.sha256:
        path.unlink()
        found, expected = digest.hexdigest()[:16], entry.sha256[:16]
        raise DownloadError(f"delivered a file with sha256 {found}… instead of {expected}…; it was deleted")


def unfinished_size(path: Path, total: int) -> int:
    """Return how many bytes of an unfinished file can be used; what cannot be the beginning of the file is deleted."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return 0
    if stat.S_ISREG(status.st_mode) and status.st_size <= total:
        return status.st_size
    path.unlink()
    return 0


class Pace:
    """Watches that a download goes on: gives up when too few bytes arrive in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began, self._bytes = time.monotonic(), 0

    def add(self, count: int) -> None:
        """Count bytes that have arrived.

        Raises:
            DownloadError: there were too few.
        """
        self._bytes += count
        passed = time.monotonic() - self._began
        if passed < self._seconds:
            return
        if self._bytes < LEAST_BYTES:
            raise DownloadError(f"sent only {self._bytes} bytes in {passed:.0f} seconds")
        self._began, self._bytes = time.monotonic(), 0


def require_space(folder: Path, needed: int) -> None:
    """Fail now rather than after an hour when a folder's disk has too little space.

    Raises:
        OSError: it has fewer bytes free than are needed.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"{needed / 1e6:.1f} MB are needed and {free / 1e6:.1f} MB are free", str(folder))


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def freed_when_full(*paths: Path) -> Iterator[None]:
    """Delete unfinished files when they have filled the disk, so that it can be used again."""
    try:
        yield
    except OSError as error:
        if _is_full(error):
            for path in paths:
                path.unlink(missing_ok=True)
        raise


@contextmanager
def explained_disk_errors(folder: Path, variable: str) -> Iterator[None]:
    """Turn disk errors into one sentence; the hint names the variable that chooses another folder.

    Raises:
        DownloadError: the disk is full, or something cannot be written or read.
    """
    try:
        yield
    except OSError as error:
        raise DownloadError(
            f"cannot write to {error.filename or folder}: {error.strerror or error}.",
            f"Free some space, or set {variable} to a folder on another disk."
            if _is_full(error)
            else f"Check its permissions, or set {variable} to a folder of your own.",
        ) from None
