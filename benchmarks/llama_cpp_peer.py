"""specli against llama.cpp's own speculation: same files, prompts, sampling and draft length, taking turns.

    python benchmarks/llama_cpp_peer.py --bin DIR [--target MODEL] [--draft MODEL] [--draft-length 2,3,4,8]
        [--temp 0,1] [--prompts builtin:code,story] [--limit N] [--tokens 128] [--simple]

DIR holds the `llama-server` of llama.cpp (and `llama-speculative-simple` for --simple). For each draft length and
without a draft, one server is started. Prompt by prompt, it takes turns with specli: A B C, C B A. It answers over HTTP
and times itself (`predicted_per_second`), so that HTTP does not count against it. Prints, for each class of prompts,
all speeds as ratios to specli's plain decoding of the same turn, and specli over llama.cpp.
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
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

from specli.decoding.sampling import SamplingOptions
from specli.engine import Engine, ReplyOptions
from specli.evaluation.comparison import by_turns
from specli.evaluation.prompts import load_prompts
from specli.evaluation.summary import bootstrap_median
from specli.library.files import Silent, ensure_file
from specli.library.registry import load_registry
from specli.llama.model import LoadOptions, default_threads
from specli.llama.text import render_template

CONTEXT = 2048
HOW_TO_GET = """llama-server is not in {folder}. It comes with llama.cpp (https://github.com/ggml-org/llama.cpp):
    cmake -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build --target llama-server llama-speculative-simple
    python benchmarks/llama_cpp_peer.py --bin build/bin
Take the version that llama-cpp-python was built from, so that both compute with the same kernels."""


def find_binary(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        sys.exit(HOW_TO_GET.format(folder=folder))
    return path


@contextmanager
def server(binary: Path, target: Path, draft: Path | None, length: int, threads: int):
    """Run a server until the block ends; yield the address that completes prompts."""
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
            yield f"{address}/completion"
        finally:
            process.terminate()
            process.wait()


def server_speed(
    address: str, tokens: list[int], sampling: SamplingOptions, count: int, seed: int
) -> tuple[float, float]:
    """Return tokens per second and the share of draft tokens that were accepted."""
    body = {
        "prompt": tokens, "n_predict": count, "ignore_eos": True, "cache_prompt": True, "seed": seed,
        "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": sampling.min_p,
    }  # fmt: skip
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    timings = json.load(urllib.request.urlopen(request, timeout=600))["timings"]
    return timings["predicted_per_second"], timings.get("draft_n_accepted", 0) / max(1, timings.get("draft_n", 0))


def simple_speed(
    binary: Path, target: Path, draft: Path, length: int, text: str, sampling: SamplingOptions, count: int, threads: int
) -> tuple[float, float]:
    """Run llama-speculative-simple once; it loads both models each time, which its own figure leaves out."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        command = [binary, "-m", target, "-md", draft, "-f", file.name, "-n", str(count), "-c", str(CONTEXT)]
        command += ["-t", str(threads), "-td", str(threads), "--spec-type", "draft-simple", "--ignore-eos"]
        command += ["--spec-draft-n-max", str(length), "--temp", str(sampling.temperature), "--seed", "0"]
        command += ["--top-k", str(sampling.top_k), "--top-p", str(sampling.top_p), "--min-p", str(sampling.min_p)]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace")
    output = done.stdout + done.stderr
    speed = re.search(r"decoded\s+\d+ tokens in\s+[\d.]+ seconds, speed:\s+([\d.]+)", output)
    accepted = re.search(r"accept\s+=\s+([\d.]+)%", output)
    if not speed:
        sys.exit(f"llama-speculative-simple ended with {done.returncode}:\n{output[-2000:]}")
    return float(speed[1]), float(accepted[1]) / 100 if accepted else 0.0


def specli_speed(engine: Engine, tokens: list[int], options: ReplyOptions) -> tuple[float, float]:
    *_, reply = engine.reply(tokens, options)
    return reply.metrics.tokens_per_second, reply.metrics.acceptance_rate or 0.0


def show(title: str, speeds: dict, accepted: dict, arms: list[str]) -> None:
    print(f"\n{title}")
    others = arms[1:]
    print("| prompts | " + " | ".join(f"{arm} / plain" for arm in others) + " | specli / llama.cpp | accepted |")
    print("|---" * (len(others) + 3) + "|")
    kinds = [*dict.fromkeys(kind for kind, _, _ in speeds["specli plain"]), "overall"]
    for kind in kinds:
        keys = [key for key in speeds["specli plain"] if kind in (key[0], "overall")]
        cells = [_interval([speeds[arm][key] / speeds["specli plain"][key] for key in keys]) for arm in others]
        cells.append(_interval([speeds[arms[1]][key] / speeds[arms[2]][key] for key in keys]))
        rates = [sum(accepted[arm][key] for key in keys) / len(keys) for arm in others]
        print(
            f"| {kind} | " + " | ".join(cells) + " | " + ", ".join(f"{100 * rate:.0f} %" for rate in rates) + " |",
            flush=True,
        )


def _interval(ratios: list[float]) -> str:
    found = bootstrap_median(ratios)
    return f"{found.middle:.2f}" + (f" ({found.low:.2f}-{found.high:.2f})" if found.low is not None else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    registry = load_registry()
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--target", default=registry.default_target)
    parser.add_argument("--draft", default=registry[registry.default_target].draft)
    parser.add_argument("--draft-length", default="2,3,4,8")
    parser.add_argument("--temp", default="0,1")
    parser.add_argument("--full", action="store_true", help="the whole vocabulary, without top-k, top-p and min-p")
    parser.add_argument("--prompts", default="builtin")
    parser.add_argument("--limit", type=int, default=9, help="how many prompts, the classes taking turns")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--simple", action="store_true", help="llama-speculative-simple instead of llama-server")
    arguments = parser.parse_args()
    binary = find_binary(arguments.bin, "llama-speculative-simple" if arguments.simple else "llama-server")
    target, draft = (ensure_file(registry.find(name), Silent()) for name in (arguments.target, arguments.draft))
    prompts = by_turns(load_prompts(arguments.prompts))[: arguments.limit]
    threads = default_threads()
    filters = {"top_k": 0, "top_p": 1.0, "min_p": 0.0} if arguments.full else {}
    lengths = [int(number) for number in arguments.draft_length.split(",")]
    with Engine.load(target, draft, LoadOptions(context=CONTEXT)) as engine:
        for length in lengths if arguments.simple else [0, *lengths]:
            if arguments.simple:
                run_length(arguments, engine, prompts, filters, length, threads, binary, target, draft, None)
                continue
            with server(binary, target, draft if length else None, length, threads) as address:
                run_length(arguments, engine, prompts, filters, length, threads, binary, target, draft, address)


def run_length(arguments, engine, prompts, filters, length, threads, binary, target, draft, address) -> None:
    for temperature in (float(number) for number in arguments.temp.split(",")):
        sampling = SamplingOptions(temperature=temperature, **filters)
        arms = ["specli plain", f"specli {length}", f"llama.cpp {length}"]
        speeds, accepted = defaultdict(dict), defaultdict(dict)
        for prompt in prompts:
            tokens = engine.conversation(prompt.messages)
            text = render_template(engine.target.vocabulary, prompt.messages) if arguments.simple else ""
            for turn in range(arguments.turns + 1):
                for arm in arms if turn % 2 else arms[::-1]:
                    drafted = length if arm == arms[1] else 0
                    options = ReplyOptions(
                        sampling, draft_length=drafted, max_tokens=arguments.tokens, seed=turn, ignore_eos=True
                    )
                    if arm != arms[2]:
                        found = specli_speed(engine, tokens, options)
                    elif address is not None:
                        found = server_speed(address, tokens, sampling, arguments.tokens, turn)
                    else:
                        found = simple_speed(binary, target, draft, length, text, sampling, arguments.tokens, threads)
                    if turn:  # the first warms up
                        speeds[arm][prompt.kind, prompt.name, turn], accepted[arm][prompt.kind, prompt.name, turn] = (
                            found
                        )
        show(f"temperature {temperature:g}, draft length {length}, {arguments.tokens} tokens", speeds, accepted, arms)


if __name__ == "__main__":
    main()
