"""`user/repository[:quant]`: which file of a repository is meant, online and offline."""

from __future__ import annotations

import pytest
from deliveries import Told, fails, pointed
from hub_server import COMMIT

from specli.errors import DownloadError
from specli.models.choice import choose_file
from specli.models.files import Silent, fetch_file, find_file
from specli.models.registry import load_registry


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


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["a-Q4_K_M.gguf", "b.gguf"], "has no file for 'Q5_K_M'; it has a-Q4_K_M.gguf, b.gguf"),
        (["README.md"], "has no GGUF files"),
        ([], "has no GGUF files"),
        (
            ["a-Q5_K_M-00001-of-00003.gguf", "a-Q5_K_M-00002-of-00003.gguf"],
            "-00001-of-00003.gguf has 3 parts, 1 missing",
        ),
        (["a-Q5_K_M-00001-of-90000.gguf"], "-00001-of-90000.gguf has 90000 parts, too many"),
        (["a-Q5_K_M-00002-of-00002.gguf"], "has no file for 'Q5_K_M'"),
        (["../a-Q5_K_M.gguf", "/a-Q5_K_M.gguf"], "has no GGUF files"),
    ],
)
def test_a_repository_without_the_quantization(hub, names, complaint):
    repository(hub, *names)
    report = Told()
    assert complaint in fails(load_registry().find("some/model:Q5_K_M"), report).message
    assert hub.gets() == []


@pytest.mark.parametrize(
    ("quant", "names", "chosen"),
    [
        ("Q8_0", ["a-Q4_K_M-00001-of-00002.gguf", "a-Q4_K_M-00002-of-00002.gguf", "a-Q8_0.gguf"], "a-Q8_0.gguf"),
        ("", ["a-Q4_K_M-00001-of-00002.gguf", "a-Q4_K_M-00002-of-00002.gguf", "b-Q4_K_M.gguf"], "b-Q4_K_M.gguf"),
        ("Q4_K_M", ["a-Q4_K_M-00001-of-00001.gguf"], "a-Q4_K_M-00001-of-00001.gguf"),
        ("Q4_K", ["a-Q4_K_M.gguf", "b-Q4_K.gguf"], "b-Q4_K.gguf"),
        ("Q4_K", ["a-IQ4_K.gguf", "a-Q4_K_S.gguf", "b-Q4_K_M.gguf"], "a-Q4_K_S.gguf"),
        ("q4_1", ["Model.Q4_0.gguf", "Model.Q4_1.gguf"], "Model.Q4_1.gguf"),
        ("", ["A.GGUF"], "A.GGUF"),
    ],
)
def test_choice(quant, names, chosen):
    assert choose_file(quant, reversed(names)) == chosen


def test_choice_of_a_model_in_parts():
    parts = [f"a-Q8_0-0000{part}-of-00003.gguf" for part in (3, 1, 2)]
    assert choose_file("", parts) == choose_file("Q8_0", [*parts, "b-Q4_K_M.gguf"]) == parts[1]
    with pytest.raises(DownloadError, match="has 3 parts, 1 missing"):
        choose_file("", parts[:2])


def test_a_model_in_parts_online_and_then_offline(hub, monkeypatch):
    parts = [f"q/a-Q4_K_M-0000{part}-of-00003.gguf" for part in (1, 2, 3)]
    repository(hub, *parts, "a-Q8_0.gguf")
    model = load_registry().find("some/model")
    report = Told()
    path = fetch_file(model, report)
    for name in parts:
        assert path.with_name(name.removeprefix("q/")).read_bytes() == name.encode() * 10
    assert path.as_posix().endswith(parts[0])
    assert any("file 3 of 3" in line for line in report.said)
    assert find_file(load_registry().find("some/model")) == path
    path.with_name("a-Q4_K_M-00002-of-00003.gguf").unlink()
    assert find_file(load_registry().find("some/model")) is None
    asked = len(hub.gets())
    assert fetch_file(load_registry().find("some/model"), Silent()) == path
    assert len(hub.gets()) == asked  # the content is in the cache, only the name was lost
    pointed("http://127.0.0.1:9", monkeypatch)
    assert find_file(load_registry().find("some/model")) == path


def test_a_damaged_part_is_refused(hub):
    parts = [f"a-Q4_K_M-0000{part}-of-00002.gguf" for part in (1, 2)]
    repository(hub, *parts)
    hub.delivered = {parts[1]: b"x" * len(hub.files[parts[1]])}
    assert "sha256" in fails(load_registry().find("some/model"), Silent()).message
    assert find_file(load_registry().find("some/model")) is None
