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
        (["a-Q5_K_M-00001-of-00002.gguf", "a-Q5_K_M-00002-of-00002.gguf"], "-00001-of-00002.gguf is cut into 2 parts"),
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
        ("", ["a-Q4_K_M-00001-of-00002.gguf", "a-Q4_K_M-00002-of-00002.gguf", "a-Q8_0.gguf"], "a-Q8_0.gguf"),
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
    with pytest.raises(DownloadError, match="is cut into 3 parts"):
        choose_file("", [f"a-Q8_0-0000{part}-of-00003.gguf" for part in (1, 2, 3)])
