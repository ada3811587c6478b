"""The Hugging Face Hub as a source: choose a file of a repository, fetch it, and keep it in the hub's own cache.

Other tools find the file in that cache, too. The client library says where a file is, how long it is and who may have
it. The bytes are read here, because its own download starts over after an interruption, waits minutes for a host that
stopped sending, and draws progress bars of its own.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from glob import escape
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import huggingface_hub  # loads what it offers only when that is used

from specli.errors import DownloadError
from specli.models.registry import HuggingFaceSource, ModelEntry
from specli.models.storage import CHUNK, Report, check_file, explained_disk_errors, is_whole, own_path, require_space
from specli.state import atomic
from specli.state.data import replace

# A host that has sent nothing for this many seconds is left for the next source.
ANSWER_SECONDS = 8.0

Result = TypeVar("Result")


def cached_path(source: HuggingFaceSource) -> Path | None:
    """Return the file of a source in the Hugging Face cache, or None; asks no host."""
    folder = _cache_folder(source)
    try:
        reference = folder / "refs" / source.revision
        commit = reference.read_text().strip() if reference.is_file() else source.revision
        snapshot = folder / "snapshots" / commit
        if not source.file.startswith("*"):
            return snapshot / source.file
        names = (path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file())
        return snapshot / choose_file(source.file.strip("*"), names)
    except (OSError, UnicodeDecodeError, DownloadError):
        return None


def fetch(entry: ModelEntry, source: HuggingFaceSource, report: Report) -> Path:
    """Fetch the file of a source into the Hugging Face cache, checked against the entry and the hub's metadata.

    Raises:
        DownloadError: it was not delivered; what has arrived is kept for the next try.
    """
    folder = _cache_folder(source)
    with _silent_client(), explained_disk_errors(folder, "HF_HOME"):
        source = _with_file_name(source)
        entry, commit, tag = _with_facts(entry, source)
        blob = folder / "blobs" / tag
        fetched = blob
        if not is_whole(blob, entry.bytes):
            fetched = blob.with_name(f"{blob.name}.{_partial_suffix(entry)}")
            _download(entry, source, fetched, report)
        check_file(entry, fetched, report)
        os.replace(fetched, blob)
        return _link(folder, source, commit, blob)


def discard(entry: ModelEntry, source: HuggingFaceSource) -> None:
    """Delete what an unfinished fetch of a model has left behind."""
    with suppress(OSError):
        for path in (_cache_folder(source) / "blobs").glob(f"*.{escape(_partial_suffix(entry))}"):
            path.unlink()


def choose_file(quant: str, names: Iterable[str]) -> str:
    """Choose a file of a repository: of the quantization asked for, else Q4_K_M, Q8_0 or the first.

    Raises:
        DownloadError: none fits, or only one that is cut into parts.
    """
    models = sorted(name for name in names if name.lower().endswith(".gguf") and "mmproj" not in name.lower())
    models = [name for name in models if not {"..", "/"} & set(PurePosixPath(name).parts)]
    if not models:
        raise DownloadError("has no GGUF files", "specli runs GGUF models; many are published beside the originals.")
    whole = [name for name in models if not _parts(name)]
    for asked in [quant] if quant else ["Q4_K_M", "Q8_0", ""]:
        best = max(whole, key=lambda name: _fit(asked, name), default="")
        if best and _fit(asked, best):
            return best
    for name in models:
        if _parts(name) and _fit(quant, name):
            hint = "Choose another quantization, or join the parts with 'llama-gguf-split --merge' and name the file."
            raise DownloadError(f"{name} is cut into {_parts(name)} parts, which specli does not join", hint)
    raise DownloadError(f"has no file for {quant!r}; it has {', '.join(models[:5])}", "Ask for one that is there.")


def _fit(quant: str, name: str) -> int:
    """Return 2 if a file name has this quantization, 1 if it has one that begins so, else 0; BF16 does not fit F16."""
    words = rf"(?<![a-z0-9]){re.escape(quant.lower())}"
    if re.search(rf"{words}(?![a-z0-9_])", name.lower()):
        return 2
    return 1 if re.search(words, name.lower()) else 0


def _parts(name: str) -> int:
    """Return into how many files a model is cut, 0 if it is not."""
    found = re.search(r"-\d{5}-of-(\d{5})\.gguf$", name.lower())
    return int(found[1]) if found and int(found[1]) > 1 else 0


# --- The cache ------------------------------------------------------------------------------------------------------


def _cache_folder(source: HuggingFaceSource) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{source.repository.replace('/', '--')}"


def _partial_suffix(entry: ModelEntry) -> str:
    """Return the suffix of unfinished files; the hub's own tools list and prune files that end in `.incomplete`."""
    return f"specli-{own_path(entry).stem}.incomplete"


def _link(folder: Path, source: HuggingFaceSource, commit: str, blob: Path) -> Path:
    """Give a blob its name in the cache, as the client library does."""
    path = folder / "snapshots" / commit / source.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    try:
        path.symlink_to(os.path.relpath(blob, path.parent))
    except OSError:  # a system where not everybody may create links
        os.replace(blob, path)
    if source.revision != commit:
        reference = folder / "refs" / source.revision
        reference.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(reference, commit)
    return path


# --- The hub --------------------------------------------------------------------------------------------------------


def _with_file_name(source: HuggingFaceSource) -> HuggingFaceSource:
    """Return the source with the name of a file instead of a pattern."""
    if not source.file.startswith("*"):
        return source
    information = _answered(
        lambda: huggingface_hub.HfApi().model_info(source.repository, revision=source.revision, timeout=ANSWER_SECONDS)
    )
    names = [file.rfilename for file in information.siblings or []]
    return replace(source, file=choose_file(source.file.strip("*"), names))


def _url(source: HuggingFaceSource) -> str:
    return huggingface_hub.hf_hub_url(source.repository, source.file, revision=source.revision)


def _with_facts(entry: ModelEntry, source: HuggingFaceSource) -> tuple[ModelEntry, str, str]:
    """Return the entry with the hub's facts about the file, its commit and its tag; refuse at once another file."""
    metadata = _answered(lambda: huggingface_hub.get_hf_file_metadata(_url(source), timeout=ANSWER_SECONDS))
    commit, tag = metadata.commit_hash or "", metadata.etag or ""
    if not all(re.fullmatch(r"\w[\w.-]*", part) for part in (commit, tag)):
        raise DownloadError("what answered is not the hub; a proxy or a login page may be in between")
    if entry.bytes is not None and metadata.size not in (None, entry.bytes):
        raise DownloadError(f"has a file of {metadata.size} bytes instead of {entry.bytes}")
    sha256 = tag if re.fullmatch(r"[0-9a-f]{64}", tag) else None  # a large file's tag is its digest
    if entry.sha256 and sha256 not in (None, entry.sha256):
        raise DownloadError(f"has a file with sha256 {tag[:16]}… instead of {entry.sha256[:16]}…")
    return replace(entry, bytes=entry.bytes or metadata.size, sha256=entry.sha256 or sha256), commit, tag


def _download(entry: ModelEntry, source: HuggingFaceSource, partial: Path, report: Report) -> None:
    """Complete a partial file; resume after an interruption as long as each attempt makes good progress."""
    total = entry.bytes or 0
    partial.parent.mkdir(parents=True, exist_ok=True)
    with partial.open("ab") as file:
        if file.tell() > total:  # useless, as is one whose full length is unknown
            file.truncate(0)
            file.seek(0)
        require_space(partial.parent, total - file.tell())
        while not total or file.tell() < total:
            start = file.tell()
            try:
                with closing(_read(_url(source), start)) as chunks:
                    for chunk in chunks:
                        file.write(chunk)
                        report.progress(f"Fetching {entry.name}", file.tell(), total)
                if file.tell() >= total:
                    break
                raise DownloadError(f"stopped after {file.tell()} of {total} bytes")
            except DownloadError:
                if file.tell() - start < CHUNK:
                    raise
        file.flush()
        os.fsync(file.fileno())


def _read(url: str, start: int) -> Generator[bytes]:
    """Yield the content of a file from a byte on."""
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

    with ExitStack() as stack:

        def opened() -> Any:
            headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
            if start:
                headers["Range"] = f"bytes={start}-"
            session = huggingface_hub.get_session()
            stream = session.stream("GET", url, headers=headers, follow_redirects=True, timeout=ANSWER_SECONDS)
            response = stack.enter_context(stream)
            hf_raise_for_status(response)
            return response

        response = _answered(opened)
        surplus = 0 if response.status_code == 206 else start  # a host without ranges begins at the first byte
        try:
            for chunk in response.iter_bytes():
                if chunk[surplus:]:
                    yield chunk[surplus:]
                surplus = max(0, surplus - len(chunk))
        except Exception as error:
            raise _explained(error, f"sent nothing more for {ANSWER_SECONDS:g} seconds") from error


def _answered(call: Callable[[], Result]) -> Result:
    """Return what a call to a host returns; give up when it takes too long, name resolution included.

    Raises:
        DownloadError: it failed, or there was no answer in time.
    """
    answer: Future[Result] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()  # a daemon: one that hangs must not keep the program alive
    try:
        return answer.result(ANSWER_SECONDS)
    except Exception as error:
        raise _explained(error, f"did not answer within {ANSWER_SECONDS:g} seconds") from error


def _explained(error: Exception, silence: str) -> DownloadError:
    """Return an error of the client library in a few words, with the step that helps."""
    from huggingface_hub import errors

    accept = "Accept them on the repository's page, log in with 'hf auth login', and try again."
    check = "Check the name (user/repository[:quant]); 'hf auth login' opens private ones."
    offline = "the hub is switched off by HF_HUB_OFFLINE"
    kinds: list[tuple[type[Exception], str, str | None]] = [
        (errors.OfflineModeIsEnabled, offline, "Unset HF_HUB_OFFLINE and try again."),
        (errors.GatedRepoError, "its terms must be accepted first", accept),  # a RepositoryNotFoundError, too
        (errors.RepositoryNotFoundError, "there is no such repository, or it is private", check),
        (errors.RevisionNotFoundError, "the repository has no such revision", None),
        (errors.EntryNotFoundError, "the repository has no such file", None),
    ]
    for kind, message, hint in kinds:
        if isinstance(error, kind):
            return DownloadError(message, hint)
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return DownloadError(f"refused (HTTP {status})", "'hf auth login' sets a token that may read it.")
    if status is not None:
        return DownloadError(f"answered with HTTP {status}")
    if "Timeout" in type(error).__name__:
        return DownloadError(silence)
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return DownloadError("the request failed: " + re.sub(r"^\[Errno -?\d+\] ", "", lines[0]).rstrip("."))


@contextmanager
def _silent_client() -> Iterator[None]:
    """Keep the client library from writing to the terminal; what matters is in the errors and the report."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
