"""`specli tune`: predict what a draft model gains here, and say why."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from specli.engine.options import ReplyOptions
from specli.errors import Interrupted, OptionError
from specli.llama.options import LoadOptions
from specli.models.pair import Pair
from specli.terminal import console, options
from specli.terminal.command import command
from specli.terminal.commands.models import choose_pair
from specli.terminal.interrupts import Interrupts
from specli.terminal.options import ModelOptions, OutputOptions, seeded
from specli.terminal.ready import load_engine, warn_about_gpu

if TYPE_CHECKING:
    from specli.evaluation.tuning import Tuning


@command(without={"draft_length", "drafter", "draft_temperature", "stop", "ignore_eos", "logit_bias"})
def tune_pair(
    prompts: options.Prompts = "builtin",
    models: ModelOptions = ModelOptions(),
    load: LoadOptions = LoadOptions(),
    reply: ReplyOptions = ReplyOptions(max_tokens=64, seed=0),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Predict what drafts gain on this machine, check it in short runs, and say why.

    About two minutes.

    Example:
        specli tune -m big.gguf -md small.gguf
    """
    from specli.evaluation.prompts import load_prompts, one_of_each_kind
    from specli.evaluation.tuning import tune

    reply = seeded(reply)
    if reply.max_tokens is None or reply.max_tokens < 16:
        message = f"`max_tokens` is {reply.max_tokens or -1}, but must be 16 or more to tell anything."
        raise OptionError(message, "64 is the default.")
    wanted = one_of_each_kind(load_prompts(prompts))
    warn_about_gpu(load)
    pair = choose_pair(models.model, models.draft_model)
    if pair.draft is None:
        raise OptionError(f"there is no draft model for {pair.target_name} to tune.", "-md MODEL names one.")
    with Interrupts() as interrupted, load_engine(pair, load, interrupted) as engine:
        with console.counting("Measuring") as progress:
            found = tune(engine, wanted, reply, reply.max_tokens, progress=progress, interrupted=interrupted)
        if found is None:
            raise Interrupted("interrupted.", "Nothing is kept.")
        server = server_flags(pair, found, engine.target.threads, load)
    if output.as_json:
        console.print_json(tuning_json(found, pair, server))
    else:
        _print(found, pair, server)


def server_flags(pair: Pair, found: Tuning, threads: int, load: LoadOptions) -> str:
    """Return the command that serves the pair with llama.cpp in the recommended way, loaded as it was here."""
    command = ["llama-server", "-m", str(pair.target), "-t", str(threads)]
    usual = LoadOptions()
    for name in ("cache_type_k", "cache_type_v", "flash_attention"):
        if getattr(load, name) != getattr(usual, name):
            command += [options.flag(name), getattr(load, name)]
    if load.devices:
        command += ["--device", ",".join(load.devices)]
    for pattern, buffer in load.override_tensor:
        command += ["--override-tensor", f"{pattern}={buffer}"]
    if load.cpu_moe:
        command.append("--cpu-moe")
    for path, scale in load.lora:
        command += ["--lora-scaled", f"{path}:{scale:g}"]
    if found.best_length:
        command += ["-md", str(pair.draft), "--spec-type", "draft-simple"]
        command += ["--spec-draft-n-max", str(found.best_length)]
    return shlex.join(command)


def tuning_json(found: Tuning, pair: Pair, server: str) -> dict[str, Any]:
    """Return what `--json` prints."""
    from specli.evaluation.tuning import explain

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
    from specli.evaluation.tuning import LENGTHS, explain

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
    titles = ["prompts", "baseline/s", "accepted", *map(str, LENGTHS), "best", "measured", "auto"]
    console.print_table(titles, rows)
    console.print_lines(explain(found))
    console.print_line("The measured costs and acceptance rates are saved; automatic draft length starts from them.")
    console.print_line(f"With llama.cpp: {server}")
