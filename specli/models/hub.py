"""The Hugging Face Hub as a source: fetch a file of a repository, and keep it in the hub's own cache.

Other tools find the file in that cache, too. The client library says where a file is, how long it is and who may have
it. The bytes are read here, because its own download starts over after an interruption, waits minutes for a host that
stopped sending, and draws progress bars of its own.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

# Before the client library reads it: its telemetry asks the hub for a list of agents, and waits for it.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import huggingface_hub  # loads what it offers only when that is used

from specli.errors import DownloadError
from specli.llama.shards import shard_names
from specli.models.checks import check_inside, one_line, read_small, short
from specli.models.choice import choose_file
from specli.models.registry import MAXIMUM_BYTES, HuggingFaceSource, ModelEntry
from specli.models.storage import (
    CHUNK,
    LEAST_BYTES_SECONDS,
    Pace,
    Report,
    check_file,
    explained_disk_errors,
    freed_when_full,
    is_whole,
    own_path,
    require_space,
    unfinished_size,
)
from specli.state import atomic
from specli.state.data import Struct, checked, replace

# A host that has sent nothing for this many seconds is left for the next source.
ANSWER_SECONDS = 8.0
_LARGEST_LISTING = 1 << 23  # bytes
_MOST_REDIRECTS = 20
_COMMIT = r"[0-9a-f]{40}"
_STRANGER = "what answered is not the hub; a proxy or a login page may be in between"

Result = TypeVar("Result")


def cached_path(source: HuggingFaceSource) -> Path | None:
    """Return the file of a source in the Hugging Face cache, or None; asks no host."""
    folder = _cache_folder(source)
    try:
        reference = folder / "refs" / source.revision
        commit = read_small(reference, 1000).decode().strip() if reference.exists() else source.revision
        if commit != source.revision and not re.fullmatch(_COMMIT, commit):
            return None
        snapshot = folder / "snapshots" / commit
        if not source.file.startswith("*"):
            there = all((snapshot / name).exists() for name in shard_names(source.file))
            return snapshot / source.file if there else None
        names = (path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file())
        return snapshot / choose_file(source.file.strip("*"), names)
    except (OSError, UnicodeDecodeError, DownloadError):
        return None


def fetch(entry: ModelEntry, source: HuggingFaceSource, report: Report) -> Path:
    """Fetch the file of a source into the Hugging Face cache, checked against the entry and the hub's metadata.

    Of a model that is cut into several files all are fetched, and the first is returned. Size and digest of the entry
    are those of the first; the hub says those of the others.

    Raises:
        DownloadError: it was not delivered; what has arrived is kept for the next try.
    """
    folder = _cache_folder(source)
    with _guarded_client(), explained_disk_errors(folder, "HF_HOME"):
        source = _with_file_name(source)
        first, *others = shard_names(source.file)
        path = _fetch_file(entry, replace(source, file=first), folder, report)
        for number, name in enumerate(others, 2):
            report.say(f"file {number} of {len(others) + 1}: {name}")
            _fetch_file(replace(entry, bytes=None, sha256=None), replace(source, file=name), folder, report)
        return path


def _fetch_file(entry: ModelEntry, source: HuggingFaceSource, folder: Path, report: Report) -> Path:
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


# --- The cache ------------------------------------------------------------------------------------------------------


def _cache_folder(source: HuggingFaceSource) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{source.repository.replace('/', '--')}"


def _partial_suffix(entry: ModelEntry) -> str:
    """Return the suffix of unfinished files; the hub's own tools list and prune files that end in `.incomplete`."""
    return f"specli-{own_path(entry).stem}.incomplete"


def _link(folder: Path, source: HuggingFaceSource, commit: str, blob: Path) -> Path:
    """Give a blob its name in the cache, as the client library does."""
    path = check_inside(folder, folder / "snapshots" / commit / source.file)
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path) and not (path.is_symlink() or path.is_file()):
        raise DownloadError(f"{path} is neither a file nor a link", "Move it away and try again.")
    path.unlink(missing_ok=True)
    try:
        path.symlink_to(os.path.relpath(blob, path.parent))
    except OSError:  # a system where not everybody may create links
        os.replace(blob, path)
    if source.revision != commit:
        reference = check_inside(folder, folder / "refs" / source.revision)
        reference.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(reference, commit)
    return path


# --- The hub --------------------------------------------------------------------------------------------------------


def _with_file_name(source: HuggingFaceSource) -> HuggingFaceSource:
    """Return the source with the name of a file instead of a pattern."""
    if not source.file.startswith("*"):
        return source
    return replace(source, file=choose_file(source.file.strip("*"), _names(source)))


class _File(Struct):
    rfilename: str


class _Listing(Struct):
    siblings: list[_File]


def _names(source: HuggingFaceSource) -> list[str]:
    """Return the names of all files of a repository; the client library would read an answer without an end."""
    from huggingface_hub import constants

    revision = quote(source.revision, safe="")

    def body() -> bytes:
        content = bytearray()
        with _response(f"{constants.ENDPOINT}/api/models/{source.repository}/revision/{revision}", 0) as response:
            for chunk in response.iter_raw():
                content += chunk
                if len(content) > _LARGEST_LISTING:
                    raise DownloadError(f"has a list of files of more than {_LARGEST_LISTING} bytes")
        return bytes(content)

    try:
        return [file.rfilename for file in checked(json.loads(_answered(body)), _Listing).siblings]
    except (ValueError, RecursionError):
        raise DownloadError(_STRANGER) from None


def _url(source: HuggingFaceSource) -> str:
    return huggingface_hub.hf_hub_url(source.repository, source.file, revision=source.revision)


def _with_facts(entry: ModelEntry, source: HuggingFaceSource) -> tuple[ModelEntry, str, str]:
    """Return the entry with the hub's facts about the file, its commit and its tag; refuse at once another file."""
    metadata = _answered(lambda: huggingface_hub.get_hf_file_metadata(_url(source), timeout=ANSWER_SECONDS))
    commit, tag = metadata.commit_hash or "", metadata.etag or ""
    if not re.fullmatch(_COMMIT, commit) or not re.fullmatch(r"[0-9A-Za-z][\w.-]{0,127}", tag, re.ASCII):
        raise DownloadError(_STRANGER)
    size = metadata.size
    if size is None or not 0 < size <= MAXIMUM_BYTES:
        raise DownloadError(f"names no size between 1 and {MAXIMUM_BYTES} bytes, as the hub does for a model")
    if size != (entry.bytes or size):
        raise DownloadError(f"has a file of {size} bytes instead of {entry.bytes}")
    sha256 = tag if re.fullmatch(r"[0-9a-f]{64}", tag) else None  # a large file's tag is its digest
    if entry.sha256 and sha256 not in (None, entry.sha256):
        raise DownloadError(f"has a file with sha256 {tag[:16]}… instead of {entry.sha256[:16]}…")
    return replace(entry, bytes=size, sha256=entry.sha256 or sha256), commit, tag


def _download(entry: ModelEntry, source: HuggingFaceSource, partial: Path, report: Report) -> None:
    """Complete a partial file; resume after an interruption as long as each attempt makes good progress.

    One byte too many ends it, too; `check_file` then deletes the file.
    """
    total = entry.bytes
    assert total is not None  # the hub has named it
    partial.parent.mkdir(parents=True, exist_ok=True)
    require_space(partial.parent, total - unfinished_size(partial, total))
    with freed_when_full(partial), partial.open("ab") as file:
        while file.tell() < total:
            start = file.tell()
            try:
                with closing(_read(_url(source), start)) as chunks:
                    for chunk in chunks:
                        file.write(chunk)
                        report.progress(f"Fetching {entry.name}", min(file.tell(), total), total)
                        if file.tell() > total:
                            break
                if file.tell() < total:
                    raise DownloadError(f"stopped after {file.tell()} of {total} bytes")
            except DownloadError:
                if file.tell() - start < CHUNK:
                    raise
        file.flush()
        os.fsync(file.fileno())


def _read(url: str, start: int) -> Generator[bytes]:
    """Yield the content of a file from a byte on."""
    with ExitStack() as stack:
        response = _answered(lambda: stack.enter_context(_response(url, start)))
        surplus = 0 if response.status_code == 206 else start  # a host without ranges begins at the first byte
        pace = Pace(LEAST_BYTES_SECONDS)
        try:
            for chunk in response.iter_raw():
                pace.add(len(chunk))
                if chunk[surplus:]:
                    yield chunk[surplus:]
                surplus = max(0, surplus - len(chunk))
        except DownloadError:
            raise
        except Exception as error:
            raise _explained(error, f"sent nothing more for {ANSWER_SECONDS:g} seconds") from error


@contextmanager
def _response(url: str, start: int) -> Iterator[Any]:
    """Give the answer of a host, whose body from a byte on is yet to be read.

    The bodies of redirects and refusals are never read: the client library would, however long they are.
    """
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    session = huggingface_hub.get_session()
    request = session.build_request("GET", url, headers=headers, timeout=ANSWER_SECONDS)
    for _ in range(_MOST_REDIRECTS):
        with closing(session.send(request, stream=True, follow_redirects=False)) as response:
            if response.next_request is None:
                _check_response(response, start)
                yield response
                return
            request = response.next_request
    raise DownloadError(f"redirected more than {_MOST_REDIRECTS} times")


def _check_response(response: Any, start: int) -> None:
    """Raise an error of the client library for a refusal, and a `DownloadError` for what does not fit the request."""
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

    status, headers = response.status_code, response.headers
    if status >= 400:
        reasons = {name: headers[name] for name in ("X-Error-Code", "X-Error-Message") if name in headers}
        hf_raise_for_status(type(response)(status, headers=reasons, request=response.request))
    if status not in (200, 206):
        raise DownloadError(f"answered with HTTP {status}")
    encoding = headers.get("Content-Encoding") or "identity"
    if encoding.strip().lower() != "identity":
        raise DownloadError(f"sent the encoding {short(one_line(encoding))!r}, which was not asked for")
    if status == 206 and not headers.get("Content-Range", "").startswith(f"bytes {start}-"):
        raise DownloadError(f"sent another part of the file than the one from byte {start} on")


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
    except DownloadError:
        raise
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
    if isinstance(error, ImportError) and "socks" in str(error).lower():
        return _without_socks()
    text = re.sub(r"^\[Errno -?\d+\] ", "", one_line(str(error).strip().split("\n")[0]).rstrip("."))
    if not text or not (isinstance(error, OSError) or type(error).__module__.startswith("httpx")):
        text = f"{type(error).__name__}: {text}".rstrip(": ")  # nobody foresaw it
    return DownloadError(f"the request failed: {text}")


def _without_socks() -> DownloadError:
    kinds = ("all_proxy", "https_proxy", "http_proxy")
    names = [name for name, value in os.environ.items() if name.lower() in kinds and value.lower().startswith("socks")]
    place, unset = (names[0], f"unset {names[0]}") if names else ("the system's settings", "remove it there")
    message = f"a SOCKS proxy is set in {place}, which needs the package socksio"
    return DownloadError(message, f"python -m pip install socksio, or {unset}.")


@contextmanager
def _guarded_client() -> Iterator[None]:
    """Keep the client library from writing to the terminal, and from errors that nobody foresaw.

    What matters is in the errors and the report.
    """
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except (DownloadError, OSError):
        raise
    except Exception as error:
        raise _explained(error, "did not answer in time") from error
    finally:
        logger.setLevel(level)
