"""specli against llama.cpp's own speculation: same files, prompts and sampling, all taking turns in one run.

    python benchmarks/llama_cpp_peer.py --bin DIR [--target MODEL] [--draft MODEL] [--draft-length 2,3,4,8]
        [--temp 0,1] [--full] [--prompts builtin:code,story] [--limit N] [--tokens 128] [--turns 2] [-o FILE] [--simple]

DIR holds the `llama-server` of llama.cpp (and `llama-speculative-simple` for --simple). One server runs for each draft
length, and one without a draft; they wait while others work. Prompt by prompt, specli (plain, and with automatic
drafts) and the servers take turns: A B C, C B A. A server answers over HTTP and times itself (`predicted_per_second`),
so that HTTP does not count against it. Prints, for each class of prompts, all speeds as ratios to specli's plain
decoding of the same turn, and specli's automatic drafts over llama.cpp with its best draft length, plain decoding
included, which is chosen for each class and temperature after the fact. `-o` keeps every speed as JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specli.decoding.options import SamplingOptions
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.evaluation.comparison import by_turns
from specli.evaluation.prompts import Prompt, load_prompts
from specli.evaluation.summary import Interval, bootstrap_mean_of_classes, bootstrap_median
from specli.llama.options import LoadOptions
from specli.llama.parameters import default_threads
from specli.llama.text import render_template
from specli.models.files import Silent, ensure_file
from specli.models.registry import load_registry

CONTEXT = 2048
WARM_UP = 8  # tokens
PLAIN, AUTO = "specli plain", "specli auto"
OVERALL = "overall"
HOW_TO_GET = """{name} is not in {folder}. It comes with llama.cpp (https://github.com/ggml-org/llama.cpp):
    cmake -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build --target llama-server llama-speculative-simple
    python benchmarks/llama_cpp_peer.py --bin build/bin
Take the version that llama-cpp-python was built from, so that both compute with the same kernels."""


@dataclass(frozen=True)
class Speed:
    """One reply of one arm."""

    kind: str
    prompt: str
    temperature: float
    turn: int  # from 1
    arm: str
    tokens_per_second: float
    accepted: float  # share of the draft tokens; llama.cpp counts untested ones, too


Runner = Callable[[Prompt, list[int], SamplingOptions, int, int], tuple[float, float]]


def find_binary(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        sys.exit(HOW_TO_GET.format(folder=folder, name=name))
    return path.absolute()


@contextmanager
def server(binary: Path, target: Path, draft: Path | None, length: int, threads: int):
    """Run a server until the block ends; yield what asks it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [binary, "-m", target, "-c", str(CONTEXT), "-t", str(threads), "-np", "1", "--port", str(port)]
    command += ["--host", "127.0.0.1", "--no-webui"]
    if draft is not None:
        command += ["-md", draft, "--spec-type", "draft-simple", "--spec-draft-n-max", str(length), "-td", str(threads)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"{address}/health", timeout=2)
                    break
                except OSError:
                    if process.poll() is not None:
                        log.seek(0)
                        sys.exit(f"llama-server ended:\n{log.read().decode(errors='replace')[-2000:]}")
                    time.sleep(0.2)
            yield asking(f"{address}/completion")
        finally:
            process.terminate()
            process.wait()


def asking(address: str) -> Runner:
    def run(prompt: Prompt, tokens: list[int], sampling: SamplingOptions, count: int, seed: int) -> tuple[float, float]:
        body = {
            "prompt": tokens, "n_predict": count, "ignore_eos": True, "cache_prompt": True, "seed": seed,
            "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p,
            "min_p": sampling.min_p,
        }  # fmt: skip
        request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
        timings = json.load(urllib.request.urlopen(request, timeout=600))["timings"]
        return timings["predicted_per_second"], timings.get("draft_n_accepted", 0) / max(1, timings.get("draft_n", 0))

    return run


def simple(
    binary: Path, target: Path, draft: Path, length: int, threads: int, render: Callable[[Prompt], str]
) -> Runner:
    """Return what runs llama-speculative-simple once; it loads both models each time, which its figure leaves out."""

    def run(prompt: Prompt, tokens: list[int], sampling: SamplingOptions, count: int, seed: int) -> tuple[float, float]:
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write(render(prompt))
            file.flush()
            command = [binary, "-m", target, "-md", draft, "-f", file.name, "-n", str(count), "-c", str(CONTEXT)]
            command += ["-t", str(threads), "-td", str(threads), "--spec-type", "draft-simple", "--ignore-eos"]
            command += ["--spec-draft-n-max", str(length), "--temp", str(sampling.temperature), "--seed", str(seed)]
            command += ["--top-k", str(sampling.top_k), "--top-p", str(sampling.top_p)]
            command += ["--min-p", str(sampling.min_p)]
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace")
        output = done.stdout + done.stderr
        speed = re.search(r"decoded\s+\d+ tokens in\s+[\d.]+ seconds, speed:\s+([\d.]+)", output)
        accepted = re.search(r"accept\s+=\s+([\d.]+)%", output)
        if not speed:
            sys.exit(f"llama-speculative-simple ended with {done.returncode}:\n{output[-2000:]}")
        return float(speed[1]), float(accepted[1]) / 100 if accepted else 0.0

    return run


def specli(engine: Engine, draft_length: int | None) -> Runner:
    def run(prompt: Prompt, tokens: list[int], sampling: SamplingOptions, count: int, seed: int) -> tuple[float, float]:
        options = ReplyOptions(
            sampling, draft_length=draft_length, max_tokens=count, seed=seed, ignore_eos=True, reproducible=False
        )
        *_, reply = engine.reply(tokens, options)
        return reply.metrics.tokens_per_second, reply.metrics.acceptance_rate or 0.0

    return run


def measure(arguments, engine: Engine, runners: dict[str, Runner]) -> list[Speed]:
    found = []
    filters = {"top_k": 0, "top_p": 1.0, "min_p": 0.0} if arguments.full else {}
    prompts = by_turns(load_prompts(arguments.prompts))[: arguments.limit]
    for number, prompt in enumerate(prompts):
        tokens = engine.conversation(prompt.messages)
        for temperature in (float(number) for number in arguments.temp.split(",")):
            sampling = SamplingOptions(temperature=temperature, **filters)
            for turn in range(arguments.turns + 1):
                for arm in list(runners) if turn % 2 else list(runners)[::-1]:
                    count = arguments.tokens if turn else WARM_UP  # the first reads the prompt
                    speed, accepted = runners[arm](prompt, tokens, sampling, count, turn)
                    if turn:
                        found.append(Speed(prompt.kind, prompt.name, temperature, turn, arm, speed, accepted))
            print(
                f"{number + 1}/{len(prompts)} {prompt.name}, temperature {temperature:g}", file=sys.stderr, flush=True
            )
        if arguments.output:
            arguments.output.write_text(json.dumps([vars(one) for one in found], indent=0) + "\n")
    return found


def ratios(speeds: list[Speed], above: str, below: str, kind: str) -> dict[str, list[float]]:
    """Return the ratios of two arms' speeds in the same turn, by class; of one class, or all of them."""
    by_key = {(one.arm, one.prompt, one.turn): one.tokens_per_second for one in speeds}
    found: dict[str, list[float]] = {}
    for one in speeds:
        if one.arm == above and kind in (one.kind, OVERALL):
            found.setdefault(one.kind, []).append(one.tokens_per_second / by_key[below, one.prompt, one.turn])
    return found


def summary(speeds: list[Speed], above: str, below: str, kind: str) -> Interval:
    found = ratios(speeds, above, below, kind)
    return bootstrap_mean_of_classes(found.values()) if kind == OVERALL else bootstrap_median(found[kind])


def show(speeds: list[Speed], title: str) -> None:
    """Print one table: each arm over specli's plain decoding, and automatic drafts over llama.cpp's best length."""
    arms = list(dict.fromkeys(one.arm for one in speeds))
    others = [arm for arm in arms if arm != PLAIN]
    peers = [arm for arm in others if arm.startswith("llama.cpp")]
    print(f"\n{title}: ratios to specli's plain decoding\n")
    print(f"| prompts | {' | '.join(others)} | {AUTO} / best llama.cpp | accepted, in the same order |")
    print("|---" * (len(others) + 3) + "|")
    for kind in [*dict.fromkeys(one.kind for one in speeds), OVERALL]:
        cells = [_text(summary(speeds, arm, PLAIN, kind)) for arm in others]
        best = max(peers, key=lambda arm: summary(speeds, arm, PLAIN, kind).estimate)
        cells.append(f"{_text(summary(speeds, AUTO, best, kind))}, {best.removeprefix('llama.cpp ')}")
        rates = [
            np.mean([one.accepted for one in speeds if one.arm == arm and kind in (one.kind, OVERALL)])
            for arm in others
        ]
        print(
            f"| {kind} | {' | '.join(cells)} | {', '.join(f'{100 * rate:.0f} %' if rate else '-' for rate in rates)} |"
        )


def _text(found: Interval) -> str:
    return f"{found.estimate:.2f}" + (f" ({found.low:.2f}-{found.high:.2f})" if found.low is not None else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    registry = load_registry()
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--target", default=registry.default_target)
    parser.add_argument("--draft", default=registry[registry.default_target].draft)
    parser.add_argument("--draft-length", default="2,3,4,8", help="of llama.cpp's drafts; plain decoding always runs")
    parser.add_argument("--temp", default="0,1")
    parser.add_argument("--full", action="store_true", help="the whole vocabulary, without top-k, top-p and min-p")
    parser.add_argument("--prompts", default="builtin")
    parser.add_argument("--limit", type=int, default=9, help="how many prompts, the classes taking turns")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--simple", action="store_true", help="llama-speculative-simple instead of llama-server")
    parser.add_argument("-o", "--output", type=Path, help="write every speed as JSON")
    arguments = parser.parse_args()
    binary = find_binary(arguments.bin, "llama-speculative-simple" if arguments.simple else "llama-server")
    target, draft = (ensure_file(registry.find(name), Silent()) for name in (arguments.target, arguments.draft))
    threads = default_threads()
    lengths = [int(number) for number in arguments.draft_length.split(",")]
    with Engine.load(target, draft, LoadOptions(context=CONTEXT)) as engine, ExitStack() as stack:
        runners = {PLAIN: specli(engine, 0), AUTO: specli(engine, None)}
        for length in lengths if arguments.simple else [0, *lengths]:
            name = f"llama.cpp {length}" if length else "llama.cpp plain"
            if arguments.simple:
                runners[name] = simple(
                    binary,
                    target,
                    draft,
                    length,
                    threads,
                    lambda prompt: render_template(engine.target.vocabulary, prompt.messages),
                )
            else:
                runners[name] = stack.enter_context(server(binary, target, draft if length else None, length, threads))
        speeds = measure(arguments, engine, runners)
    for temperature in dict.fromkeys(one.temperature for one in speeds):
        ours = [one for one in speeds if one.temperature == temperature]
        show(ours, f"temperature {temperature:g}, {arguments.tokens} tokens, {arguments.turns} turns")


if __name__ == "__main__":
    main()
