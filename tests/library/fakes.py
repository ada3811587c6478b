"""A hub and wheels of our own, for tests that need no network."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Request:
    """What the hub was asked."""

    method: str
    kind: str  # "api", "resolve" or "cdn"
    range: str | None
    authorization: str | None


@dataclass
class FakeHub:
    """Speaks enough of the Hugging Face protocol: the list of files, what is known of one, its bytes from elsewhere."""

    repository: str = "someone/models"
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    etags: dict[str, str] = field(default_factory=dict)  # instead of the sha256
    sizes: dict[str, int] = field(default_factory=dict)  # instead of the real ones
    errors: dict[str, tuple[int, str | None]] = field(default_factory=dict)  # kind -> (status, X-Error-Code)
    silent: set[str] = field(default_factory=set)  # kinds of requests that get no answer
    stops: list[int] = field(default_factory=list)  # each download ends early after so many bytes
    stalls: list[int] = field(default_factory=list)  # each download falls silent after so many bytes
    ranges: bool = True
    is_hub: bool = True  # False: something else answers, a login page for example
    asked_for_bytes: threading.Event = field(default_factory=threading.Event)
    may_send: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_send.set()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def downloads(self) -> list[str | None]:
        """Return the ranges of the downloads that were asked for."""
        return [request.range for request in self.requests if request.kind == "cdn"]

    def wait_for_the_end(self) -> None:
        self._closing.wait(60)

    def close(self) -> None:
        self._closing.set()
        self.may_send.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def _answer(self):
        path = unquote(urlsplit(self.path).path)
        kind = "api" if path.startswith("/api/") else "cdn" if path.startswith("/cdn/") else "resolve"
        hub = self.hub
        hub.requests.append(Request(self.command, kind, self.headers["Range"], self.headers["Authorization"]))
        if kind in hub.silent:
            hub.wait_for_the_end()
        elif kind in hub.errors:
            status, code = hub.errors[kind]
            self._send(status, b"Access denied", **({"X-Error-Code": code} if code else {}))
        elif not hub.is_hub:
            self._send(200, b"<html>Please log in</html>")
        elif kind == "api":
            assert path == f"/api/models/{hub.repository}/revision/main"
            siblings = [{"rfilename": name} for name in hub.files]
            self._send(200, json.dumps({"id": hub.repository, "siblings": siblings}).encode())
        elif kind == "resolve":
            self._resolve(path)
        else:
            self._send_file(path.removeprefix("/cdn/"))

    def _resolve(self, path):
        hub = self.hub
        owner, name, _, _, file = path.removeprefix("/").split("/", 4)
        if f"{owner}/{name}" != hub.repository:
            self._send(401, b"Invalid username or password.", **{"X-Error-Code": "RepoNotFound"})
        elif file not in hub.files:
            self._send(404, b"Entry not found", **{"X-Error-Code": "EntryNotFound"})
        else:
            content = hub.files[file]
            headers = {
                "X-Repo-Commit": COMMIT,
                "X-Linked-Etag": f'"{hub.etags.get(file, sha256(content))}"',
                "X-Linked-Size": str(hub.sizes.get(file, len(content))),
                "X-Xet-Hash": "f" * 64,
                "X-Xet-Refresh-Route": f"{hub.endpoint}/api/models/{hub.repository}/xet-read-token/{COMMIT}",
                "X-HF-Warning": "topic; the hub would like to say something",
                # Another host name: what is meant for the hub alone must not go there.
                "Location": f"http://localhost:{hub.port}/cdn/{file}",
            }
            self._send(302, b"", **headers)

    def _send_file(self, file):
        hub = self.hub
        hub.asked_for_bytes.set()
        hub.may_send.wait(60)
        content, start = hub.files[file], 0
        if hub.ranges and self.headers["Range"]:
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if hub.stops:
            self.wfile.write(content[start : start + hub.stops.pop(0)])
        elif hub.stalls:
            self.wfile.write(content[start : start + hub.stalls.pop(0)])
            hub.wait_for_the_end()
        else:
            self.wfile.write(content[start:])

    def _send(self, status, body, **headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def write_wheel(
    folder: Path, package: str, version: str, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED
) -> Path:
    """Write a wheel that pip takes for one."""
    name = package.replace("-", "_")
    information = f"{name}-{version}.dist-info"
    members = {
        **members,
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode(),
        f"{information}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for member, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{member},sha256={digest},{len(content)}")
    members[f"{information}/RECORD"] = "\n".join([*lines, f"{information}/RECORD,,", ""]).encode()
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", compression) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return path


class Recorder:
    """A report that remembers, and does something when it hears of it."""

    def __init__(self, on_progress=None, on_say=None):
        self.said = []
        self.steps = []
        self._on_progress, self._on_say = on_progress, on_say

    def say(self, message):
        self.said.append(message)
        if self._on_say:
            self._on_say(message)

    def progress(self, activity, done, total):
        self.steps.append((activity, done, total))
        if self._on_progress:
            self._on_progress(activity, done, total)

    def fetched(self):
        """Return how many bytes were said to have come, step by step."""
        return [done for activity, done, _ in self.steps if activity.startswith("Fetching")]
