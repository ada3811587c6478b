"""A small server that speaks as much of the Hugging Face protocol as a fetch needs, on this machine alone."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "c" * 40


@dataclass
class Hub:
    """What the server has, how it behaves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)  # instead of the digest of the content
    delivered: dict[str, bytes] = field(default_factory=dict)  # instead of what the headers promise
    status: int | None = None
    code: str | None = None  # what the hub adds to the status
    silent: str | None = None  # a part of the paths that get no answer
    elsewhere: bool = False  # the bytes lie on another host, as those of large files do
    stranger: bool = False  # not the hub answers but, say, a page that wants a password
    cut: list[int] = field(default_factory=list)  # after so many bytes the next answers break off
    stall_after: int | None = None  # after so many bytes nothing more comes, and the connection stays
    ranges: bool = True
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    tokens: dict[str, str | None] = field(default_factory=dict)  # host name -> the token that it got
    released: threading.Event = field(default_factory=threading.Event)
    hold: threading.Event | None = None  # a GET waits for this
    asked: threading.Event = field(default_factory=threading.Event)
    endpoint: str = ""
    behavior: Callable[[Any], bool] | None = None  # answers a handler's request instead, unless it returns False

    def gets(self) -> list[str | None]:
        """Return the Range of every download that was asked for."""
        mark = "/elsewhere/" if self.elsewhere else "/resolve/"
        return [span for method, path, span in self.requests if method == "GET" and mark in path]


def serve(hub: Hub) -> ThreadingHTTPServer:
    """Start the server on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            hub.requests.append((self.command, self.path, self.headers.get("Range")))
            hub.tokens[self.headers["Host"].split(":")[0]] = self.headers.get("Authorization")
            if hub.behavior is not None and hub.behavior(self):
                self.close_connection = True
            elif hub.silent is not None and hub.silent in self.path:
                hub.released.wait(20)
                self.close_connection = True
            elif hub.status is not None:
                self.head(hub.status, {"Content-Length": "0", **({"X-Error-Code": hub.code} if hub.code else {})})
            elif hub.stranger:
                self.head(200, {"Content-Length": "6"})
                self.wfile.write(b"" if self.command == "HEAD" else b"<html>")
            elif self.path.startswith("/elsewhere/"):
                self.content(self.path.removeprefix("/elsewhere/"), {})
            elif self.path.startswith("/api/models/"):
                self.listing()
            elif "/resolve/" in self.path and self.path.split("/resolve/")[1].split("/", 1)[1] in hub.files:
                self.file(self.path.split("/resolve/")[1].split("/", 1)[1])
            else:
                code = {"X-Error-Code": "EntryNotFound"} if "/resolve/" in self.path else {}
                self.head(404, {"Content-Length": "0", **code})

        def head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.end_headers()

        def listing(self) -> None:
            if "/tree/" in self.path:
                content: object = [
                    {"type": "file", "path": n, "oid": "0", "size": len(b)} for n, b in hub.files.items()
                ]
            else:
                content = {"id": "some/model", "sha": COMMIT, "siblings": [{"rfilename": name} for name in hub.files]}
            body = json.dumps(content).encode()
            self.head(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
            self.wfile.write(body)

        def file(self, name: str) -> None:
            promised = hub.files[name]
            etag = hub.etags.get(name, hashlib.sha256(promised).hexdigest())
            headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"', "X-Linked-ETag": f'"{etag}"'}
            headers["X-Linked-Size"] = str(len(promised))
            headers["X-HF-Warning"] = f"{hub.endpoint}; said once a topic"
            if hub.elsewhere:
                headers["Location"] = hub.endpoint.replace("127.0.0.1", "localhost") + f"/elsewhere/{name}"
                headers["X-Xet-Hash"] = "f" * 64
                headers["X-Xet-Refresh-Route"] = f"{hub.endpoint}/api/models/some/model/xet-read-token/{COMMIT}"
                self.head(302, {**headers, "Content-Length": "0"})
            elif self.command == "HEAD":
                self.head(200, {**headers, "Content-Length": str(len(promised))})
            else:
                self.content(name, headers)

        def content(self, name: str, headers: dict[str, str]) -> None:
            hub.asked.set()
            if hub.hold is not None:
                hub.hold.wait(20)
            body = hub.delivered.get(name, hub.files[name])
            span = self.headers.get("Range")
            start = int(span.removeprefix("bytes=").rstrip("-")) if span and hub.ranges else 0
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
            self.head(206 if start else 200, {**headers, "Content-Length": str(len(body) - start)})
            rest = body[start:]
            if hub.stall_after is not None:
                self.wfile.write(rest[: hub.stall_after])
                self.wfile.flush()
                hub.released.wait(20)
                self.close_connection = True
            elif hub.cut:
                self.wfile.write(rest[: hub.cut.pop(0)])
                self.close_connection = True
            else:
                self.wfile.write(rest)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # a client that hung up is no news
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return server
