"""From the shell to the first token: `specli complete` against llama.cpp's own load and prefill of the same files.

    python benchmarks/start.py --bin DIR [--target MODEL] [--draft MODEL] [--turns 7]

DIR holds the `llama-speculative-simple` of llama.cpp. All take turns, with the files in the page cache. llama.cpp's
first token is taken as the end of its whole run with `-n 1`, which includes giving memory back.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from specli.llama.parameters import default_threads
from specli.models.files import Silent, ensure_file
from specli.models.registry import load_registry

PROMPT = "Write a function that reverses a list in Python, and explain how it works in a sentence or two."


def seconds(command: list[object], *, first_byte: bool) -> float:
    """Run a command; return the time to its first byte of output, or to its end."""
    started = time.perf_counter()
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.read(1)
    first = time.perf_counter() - started
    process.communicate()
    if process.returncode:
        sys.exit(f"{command[0]} ended with {process.returncode}.")
    return first if first_byte else time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    registry = load_registry()
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--target", default=registry.default_target)
    parser.add_argument("--draft", default=registry[registry.default_target].draft)
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    target, draft = (ensure_file(registry.find(name), Silent()) for name in (arguments.target, arguments.draft))
    specli = [sys.executable, "-m", "specli", "complete", PROMPT, "-m", target, "-n", "1", "-q"]
    peer = [arguments.bin / "llama-speculative-simple", "-m", target, "-md", draft, "-p", PROMPT, "-n", "1"]
    peer += ["-c", "4096", "-t", default_threads(), "-td", default_threads(), "--spec-type", "draft-simple"]
    arms = {
        "specli, pair": ([*specli, "-md", draft], True),
        "specli, target alone": ([*specli, "--no-draft"], True),
        "llama.cpp, pair": (peer, False),
    }
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(arguments.turns + 1):
        for name in list(arms) if turn % 2 else list(arms)[::-1]:
            found = seconds(arms[name][0], first_byte=arms[name][1])
            if turn:  # the first one fills the page cache, and may calibrate
                taken[name].append(found)
    for name, values in taken.items():
        print(f"{name:22} {median(values):.2f} s ({min(values):.2f}-{max(values):.2f})")


if __name__ == "__main__":
    main()
