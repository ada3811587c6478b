"""Model files damaged at random: our reader says what is wrong, and what it lets through ends in a line or a reply.

SPECLI_FUZZ=N damages N files for the reader, and a tenth of them for whole runs of specli.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

import pytest
from damage import ARRAY, CODES, STRING, Parts

from specli.errors import ModelFileError, ModelUnsupportedError
from specli.llama.fitness import require_runnable
from specli.llama.gguf import read_gguf

CASES = int(os.environ.get("SPECLI_FUZZ", 200))
RUNS = max(8, CASES // 10)
NUMBERS = [0, 1, 2, 3, 7, 31, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, -1, -(2**31)]
FLOATS = [0.0, -1.0, 1e-38, 1e38, float("inf"), float("-inf"), float("nan")]
TEXTS = [b"", b"x", b"\0", b"\xff", b"llama", b"qwen2", b"bert", b"no_vocab", b"gpt2", b"\x1b]0;t\x07", b"a" * 10_000]
LARGEST = {"B": 2**8, "b": 2**7, "H": 2**16, "h": 2**15, "I": 2**32, "i": 2**31, "Q": 2**64, "q": 2**63}


def value_of(rng: random.Random, kind: int):
    if kind == STRING:
        return rng.choice(TEXTS)
    if kind == ARRAY:
        item = rng.choice([4, 5, 6, STRING])
        return item, [value_of(rng, item) for _ in range(rng.choice([0, 1, 40]))]
    if CODES[kind] in "fd":
        return rng.choice(FLOATS)
    if CODES[kind] == "?":
        return rng.random() < 0.5
    number, size = rng.choice(NUMBERS), LARGEST[CODES[kind]]
    return number % size if CODES[kind].isupper() else (number + size) % (2 * size) - size


def damage(rng: random.Random, source: bytes, path) -> None:
    parts = Parts(source)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        key, tensor = rng.choice(list(parts.values)), rng.choice(parts.tensors)
        kind, before = parts.values[key]
        match rng.randrange(9):
            case 0 | 1:  # a number of the right type, or a text
                parts.values[key] = kind, value_of(rng, kind)
            case 2:
                other = rng.choice([*CODES, STRING, ARRAY])
                parts.values[key] = other, value_of(rng, other)
            case 3:
                del parts.values[key]
            case 4:
                tensor.kind = rng.randrange(45)
            case 5:
                tensor.shape = [rng.choice([*tensor.shape, 0, 1, 33, 2**40]) for _ in range(rng.randrange(6))]
            case 6:
                tensor.offset = rng.choice([0, 1, 32, 2**40, tensor.offset + 32])
            case 7:
                parts.tensors.remove(tensor)
            case _:
                if kind == ARRAY and before[1]:
                    item, values = before
                    at, to = (rng.randrange(len(values)) for _ in range(2))
                    values[to] = values[at] if rng.random() < 0.5 else value_of(rng, item)
        if not parts.values or not parts.tensors:
            break
    parts.write(path)
    data = bytearray(path.read_bytes())
    if rng.random() < 0.3:
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(min(len(data), parts.head_size))] = rng.randrange(256)
    if rng.random() < 0.2:
        del data[rng.randrange(len(data)) :]
    path.write_bytes(data)


def test_the_reader(tiny_file, tmp_path):
    source, path = tiny_file.read_bytes(), tmp_path / "damaged.gguf"
    passed = 0
    for seed in range(CASES):
        damage(random.Random(seed), source, path)
        began = time.monotonic()
        try:
            require_runnable(read_gguf(path))
            passed += 1
        except (ModelFileError, ModelUnsupportedError) as error:
            assert "\n" not in error.message
        assert time.monotonic() - began < 5
    assert 0 < passed < CASES


@pytest.mark.parametrize("command", [["complete", "-q", "--no-draft", "-n", "2", "-m"], ["show"]])
def test_whole_runs(home, tiny_file, tmp_path, command):
    source, path = tiny_file.read_bytes(), tmp_path / "damaged.gguf"
    prompt = ["abc"] if command[0] == "complete" else []
    for seed in range(RUNS):
        damage(random.Random(seed), source, path)
        done = subprocess.run(
            [sys.executable, "-m", "specli", *command, str(path), *prompt], stdin=subprocess.DEVNULL, env=os.environ,
            capture_output=True, timeout=20, errors="replace",
        )  # fmt: skip
        assert done.returncode in (0, 1, 2), (seed, done.stderr)
        assert "Traceback" not in done.stderr, (seed, done.stderr)
        assert "has a fault" not in done.stderr, (seed, done.stderr)
        if done.returncode:
            assert done.stderr.startswith("Error: "), (seed, done.stderr)
            assert done.stderr.count("\n") == 2, (seed, done.stderr)
