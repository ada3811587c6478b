"""`specli tune`: predict what a draft model brings here, and say why.

Knows options, and how findings are shown. Must not know how they are found.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

import typer

from specli.engine.engine import Engine
from specli.engine.reply import ReplyOptions
from specli.errors import Interrupted, OptionError
from specli.evaluation.prompts import load_prompts
from specli.evaluation.tuning import LENGTHS, Tuning, explain, tune
from specli.terminal import console, options
from specli.terminal.commands.models import Pair, choose_pair, load_options
from specli.terminal.interrupts import Interrupts


def tune_pair(
    model: options.Target = None,
    draft_model: options.DraftModel = None,
    prompts: options.Prompts = "builtin",
    max_tokens: int = typer.Option(64, "-n", "--max-tokens", help="Tokens of each reply.", metavar="N"),
    context: options.Context = None,
    batch: options.Batch = 512,
    threads: options.Threads = None,
    gpu_layers: options.GpuLayers = None,
    draft_gpu_layers: options.DraftGpuLayers = None,
    verification: options.Verification = "block",
    temperature: options.Temperature = 0.8,
    top_k: options.TopK = 40,
    top_p: options.TopP = 0.95,
    min_p: options.MinP = 0.05,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Predict what drafts bring on this machine, hold it against short runs, and say why; about two minutes.

    Example:
        specli tune -m big.gguf -md small.gguf
    """
    sampling = options.sampling_options(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repeat_penalty=1.0,
        frequency_penalty=0.0,
        presence_penalty=0.0,
        repeat_last_n=64,
        logit_bias=None,
    )
    reply_options = ReplyOptions(sampling, verification=verification, max_tokens=max_tokens, seed=0)
    if max_tokens < 16:
        raise OptionError(
            f"--max-tokens is {max_tokens}, but must be 16 or more to tell anything.", "64 is the default."
        )
    wanted = list({prompt.kind: prompt for prompt in reversed(load_prompts(prompts))}.values())[::-1]
    target_load, draft_load = load_options(context, batch, threads, gpu_layers, draft_gpu_layers, exact=False)
    pair = choose_pair(model, draft_model)
    if pair.draft is None:
        raise OptionError(f"there is no draft model for {pair.target_name} to tune.", "-md MODEL names one.")
    with Interrupts() as interrupted:
        with console.waiting("Loading"):
            engine = Engine.load(pair.target, pair.draft, target_load, draft_load, interrupted=interrupted)
        with engine:
            with console.counting("Measuring") as progress:
                found = tune(engine, wanted, reply_options, max_tokens, progress=progress, interrupted=interrupted)
            if found is None:
                raise Interrupted("interrupted.", "Nothing is kept.")
            server = server_flags(pair, found, engine.target.threads)
    if as_json:
        console.print_json(tuning_json(found, pair, server))
    else:
        _print(found, pair, server)


def server_flags(pair: Pair, found: Tuning, threads: int) -> str:
    """Return the command that serves the pair with llama.cpp in the recommended way."""
    command = ["llama-server", "-m", str(pair.target), "-t", str(threads)]
    if found.best_length:
        command += ["-md", str(pair.draft), "--spec-type", "draft-simple"]
        command += ["--spec-draft-n-max", str(found.best_length)]
    return shlex.join(command)


def tuning_json(found: Tuning, pair: Pair, server: str) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "kind": "tuning",
        "version": 1,
        "model": pair.target_name,
        "draft_model": pair.draft_name,
        **asdict(found),
        "acceptance_rate": found.acceptance_rate,
        "explanation": explain(found),
        "llama_server": server,
    }


def _print(found: Tuning, pair: Pair, server: str) -> None:
    console.print_line(
        f"{pair.target_name} with {pair.draft_name}, seed {found.seed}: predicted speedup by draft length"
    )
    rows = [
        (
            one.kind,
            f"{one.baseline_tokens_per_second:.1f}",
            f"{100 * one.acceptance_rate:.0f} %",
            *(f"{one.predicted[length]:.2f}" for length in LENGTHS),
            str(one.best_length),
            f"{one.measured:.2f}",
            f"{one.automatic:.2f}",
        )
        for one in found.classes
    ]
    columns = [
        ("prompts", False),
        ("baseline/s", True),
        ("accepted", True),
        *((str(length), True) for length in LENGTHS),
    ]
    console.print_table([*columns, ("best", True), ("measured", True), ("auto", True)], rows)
    for line in explain(found):
        console.print_line(line)
    console.print_line("The measured costs and acceptance rates are saved; automatic draft length starts from them.")
    console.print_line(f"With llama.cpp: {server}")
