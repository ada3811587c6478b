"""A hub that misbehaves at random: a fetch ends with the right file or in one line. SPECLI_FUZZ=N tries N, not 40."""

from __future__ import annotations

import json
import os
import random
import time

import pytest
from deliveries import REPOSITORY, entry, sha
from hub_server import COMMIT

from specli.errors import DownloadError
from specli.models.files import Silent, fetch_file, find_file
from specli.models.registry import HuggingFaceSource, load_registry

CASES = int(os.environ.get("SPECLI_FUZZ", "40"))
ENDLESS = 64 << 20  # more than all buffers on the way hold
STATUSES = [
    100,
    102,
    199,
    201,
    204,
    206,
    206,
    300,
    301,
    302,
    304,
    307,
    308,
    400,
    401,
    403,
    404,
    416,
    429,
    500,
    503,
    999,
]
CODES = ["GatedRepo", "RepoNotFound", "RevisionNotFound", "EntryNotFound", "Other", "\x80"]
TAGS = ["", '""', "../../../outside", '"a b"', "/outside", 'W/"x"', f'"{"0" * 64}"', "x" * 300, "."]
COMMITS = ["", "..", "../../../outside", "/outside", "main", "d" * 40, "D" * 40, "c" * 39]
SIZES = ["", "0", "-1", "1e3", "many", "9" * 25, "9" * 5000, "١٢", str(1 << 45)]
ENCODINGS = ["gzip", "br", "deflate", "identity", "IDENTITY", "gzip, gzip", "\x80"]
JUNK = [
    b"",
    b"\0" * 100,
    b"HTTP/1.1 200\r\n\r\n",
    b"HTTP/1.1 20x OK\r\n\r\n",
    b"HTTP/9.9 200 OK\r\n\r\n",
    b"SSH-2.0-x\r\n",
    b"<html>",
]
JUNK += [
    b"HTTP/1.1 200 OK\r\nX" + b"y" * 200_000,
    b"HTTP/1.1 200 OK\r\n: \r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
]
JUNK += [b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 20_000, b"HTTP/1.1 100 Continue\r\n\r\n" * 3]
NAMES = [
    3,
    None,
    [],
    {},
    "",
    "/outside.gguf",
    "../../../../outside.gguf",
    "a/../../outside.gguf",
    "nul\0.gguf",
    "\ud800.gguf",
]
NAMES += [
    "x\n.gguf",
    "C:\\outside.gguf",
    "a" * 5000 + ".gguf",
    "README.md",
    "b-Q8_0-00001-of-00002.gguf",
    "\u202e.gguf",
]
LISTINGS = [
    b"",
    b"{",
    b"null",
    b"[" * 50_000,
    b"\xff",
    b'{"siblings": 3}',
    b'{"siblings": {}}',
    b'{"siblings": [null]}',
]


class Misbehavior:
    """Answers some requests in a wrong way; everything follows from the seed."""

    def __init__(self, hub, seed, outside):
        self.rng = random.Random(seed)
        self.content = self.rng.randbytes(self.rng.randint(1, 150_000))
        self.announced = len(self.content)
        self.share = self.rng.choice([0.2, 0.5, 0.9])
        self.hub, self.outside = hub, outside
        self.poured = False  # somebody has read an endless body

    def __call__(self, handler):
        if self.rng.random() > self.share:
            return False
        if "/api/" in handler.path and self.rng.random() < 0.6:
            return self.listing(handler)
        if handler.command == "HEAD" and self.rng.random() < 0.6:
            return self.facts(handler)
        choices = [self.status, self.junk, self.body, self.body, self.body, self.redirect, self.endless, self.slow]
        return self.rng.choice(choices)(handler)

    def facts(self, handler):
        facts = {
            "X-Repo-Commit": COMMIT,
            "X-Linked-ETag": f'"{sha(self.content)}"',
            "X-Linked-Size": str(self.announced),
        }
        for name in self.rng.sample(list(facts), self.rng.randint(0, 2)):
            values = {"X-Repo-Commit": COMMITS, "X-Linked-ETag": TAGS, "X-Linked-Size": SIZES}[name]
            if name == "X-Linked-Size":
                other = max(1, len(self.content) + self.rng.choice([-1, 1, 100_000]))
                values = [*values, str(other)]
            facts[name] = self.rng.choice(values)
            if self.rng.random() < 0.2:
                del facts[name]
        with_size = facts.get("X-Linked-Size", "")
        if with_size.isascii() and with_size.isdigit() and len(with_size) < 10:
            self.announced = max(self.announced, int(with_size))
        self.head(handler, 200, facts)
        return True

    def head(self, handler, status, headers):
        handler.wfile.write(f"HTTP/1.1 {status} X\r\n".encode())
        for name, value in headers.items():
            handler.wfile.write(f"{name}: {value}\r\n".encode(self.rng.choice(["utf-8", "latin-1"]), "replace"))
        handler.wfile.write(b"\r\n")

    def status(self, handler):
        headers = {"Content-Length": self.rng.choice(["0", "5", "9" * 20])}
        if self.rng.random() < 0.5:
            headers["X-Error-Code"] = self.rng.choice(CODES)
        if self.rng.random() < 0.3:
            headers["Retry-After"] = self.rng.choice(["1000000", "x"])
        self.head(handler, self.rng.choice(STATUSES), headers)
        return True

    def junk(self, handler):
        handler.wfile.write(self.rng.choice(JUNK))
        return True

    def redirect(self, handler):
        places = [
            handler.path,
            "http://127.0.0.1:1/",
            "file:///etc/passwd",
            "//",
            "http://[",
            "",
            "x" * 3000,
            "ftp://a/",
        ]
        places += [
            f"{self.hub.endpoint}{handler.path}",
            f"http://localhost:{self.hub.endpoint.rpartition(':')[2]}/nowhere",
        ]
        headers = {"Location": self.rng.choice(places), "Content-Length": "0"}
        self.head(handler, self.rng.choice([301, 302, 303, 307, 308]), headers)
        return True

    def listing(self, handler):
        names = self.rng.sample(NAMES, self.rng.randint(1, 4)) + ["toy.gguf"] * self.rng.randint(0, 1)
        names.append(f"{self.outside}.gguf")
        body = json.dumps({"siblings": [{"rfilename": name} for name in names]}).encode()
        body = self.rng.choice([body, body, body[: len(body) // 2], *self.rng.sample(LISTINGS, 2)])
        self.head(handler, 200, {"Content-Length": str(len(body))})
        handler.wfile.write(body)
        return True

    def body(self, handler):
        span = handler.headers.get("Range")
        start = int(span[6:-1]) if span and self.rng.random() < 0.7 else 0
        body = self.content[start:]
        length = len(body)
        kind = self.rng.choice(["cut", "more", "less", "wrong", "shifted", "encoded", "bad-length", "whole"])
        if kind == "cut":
            body = body[: self.rng.randint(0, len(body))]
        elif kind == "more":
            body, length = body + bytes(200_000), length + 200_000
        elif kind == "less":
            body = body[: self.rng.randint(0, len(body))]
            length = len(body)
        elif kind == "wrong":
            body = bytes(len(body))
        headers = {"Content-Length": self.rng.choice(["", "-1", "x", "1, 2"]) if kind == "bad-length" else str(length)}
        if kind == "encoded":
            headers["Content-Encoding"] = self.rng.choice(ENCODINGS)
        if start or kind == "shifted":
            begin = start + (kind == "shifted")
            headers["Content-Range"] = self.rng.choice([f"bytes {begin}-{begin + length - 1}/{len(self.content)}", "x"])
        self.head(handler, 206 if "Content-Range" in headers else 200, headers)
        handler.wfile.write(b"" if handler.command == "HEAD" else body)
        return True

    def endless(self, handler):
        status, headers = (
            self.rng.choice([200, 200, 302, 404]),
            {"Location": "/nowhere", "Transfer-Encoding": "chunked"},
        )
        self.head(handler, status, headers)
        for _ in range(ENDLESS >> 16):
            handler.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
        self.poured = True
        return True

    def slow(self, handler):
        self.head(handler, 200, {"Content-Length": str(len(self.content))})
        for position in range(self.rng.choice([0, 1000])):
            handler.wfile.write(self.content[position : position + 1])
            if self.hub.released.wait(0.05):
                break
        self.hub.released.wait(20)
        return True


@pytest.mark.parametrize("seed", range(CASES))
def test_a_hub_with_random_faults(hub, home, tmp_path, monkeypatch, seed):
    monkeypatch.setattr("specli.models.hub.ANSWER_SECONDS", 0.5)
    monkeypatch.setattr("specli.models.hub.LEAST_BYTES_SECONDS", 0.5)
    faults = Misbehavior(hub, seed, tmp_path / "outside")
    hub.files, hub.elsewhere, hub.ranges = {"toy.gguf": faults.content}, seed % 3 == 0, seed % 5 != 0
    hub.behavior = faults
    pinned = HuggingFaceSource(REPOSITORY, COMMIT, "toy.gguf")
    model = entry(pinned, content=faults.content) if seed % 2 else load_registry().find(REPOSITORY)
    before = set(tmp_path.rglob("*"))
    began = time.monotonic()
    for _ in range(3):  # what the first leaves behind, the next finds
        try:
            path = fetch_file(model, Silent())
        except DownloadError as error:
            assert error.message.isprintable() and len(error.message) < 1000, error.message
            assert error.hint.isprintable()
            assert find_file(model) is None
        else:
            assert path.read_bytes() == faults.content
            assert path == find_file(model)
        assert time.monotonic() - began < 20
    assert not faults.poured
    folders = [tmp_path / "hub" / "models--some--model", home / "models"]
    for path in set(tmp_path.rglob("*")) - before - {tmp_path / "hub", *folders}:
        assert any(path.is_relative_to(folder) and path.resolve().is_relative_to(folder) for folder in folders), path
        assert path.is_dir() or path.stat().st_size <= faults.announced, path
