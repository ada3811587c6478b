"""`specli complete`: answer one prompt.

Knows options and output. Must not know how the answer is made.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from specli.engine.engine import Engine
from specli.engine.reply import Reply, ReplyOptions
from specli.errors import Interrupted, OptionError, PromptError
from specli.llama.model import LoadOptions
from specli.terminal import console, options
from specli.terminal.commands.models import choose_pair, load_options
from specli.terminal.interrupts import Interrupts
from specli.terminal.reply_view import PlainReply, print_legend, stream_reply


def complete(
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt; text on standard input is put before it.", show_default=False)
    ] = None,
    prompt_file: Annotated[
        Path | None, typer.Option("-f", "--file", help="Read the prompt from a file.", metavar="FILE")
    ] = None,
    system: Annotated[str | None, typer.Option("-s", "--system", help="System prompt.", metavar="TEXT")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")] = False,
    parse_special: Annotated[
        bool, typer.Option("--parse-special", help="Read control tokens in the prompt, as for fill-in-the-middle.")
    ] = False,
    max_tokens: options.MaxTokens = -1,
    model: options.Target = None,
    draft_model: options.DraftModel = None,
    context: options.Context = None,
    batch: options.Batch = 512,
    threads: options.Threads = None,
    gpu_layers: options.GpuLayers = None,
    draft_gpu_layers: options.DraftGpuLayers = None,
    exact: options.Exact = False,
    draft_length: options.DraftLength = "auto",
    drafter: options.Drafter = "auto",
    verification: options.Verification = "block",
    draft_temperature: options.DraftTemperature = None,
    no_draft: options.NoDraft = False,
    temperature: options.Temperature = 0.8,
    top_k: options.TopK = 40,
    top_p: options.TopP = 0.95,
    min_p: options.MinP = 0.05,
    repeat_penalty: options.RepeatPenalty = 1.0,
    frequency_penalty: options.FrequencyPenalty = 0.0,
    presence_penalty: options.PresencePenalty = 0.0,
    repeat_last_n: options.RepeatLastN = 64,
    logit_bias: options.LogitBias = None,
    seed: options.Seed = -1,
    stop: options.Stop = None,
    ignore_eos: options.IgnoreEos = False,
    show_draft: options.ShowDraft = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Answer one prompt.

    Examples:
        specli complete "Write a Python function that reverses a linked list."

        git diff | specli complete "Write a commit message for this change."

        specli complete --raw --temp 0 -n 64 "def fibonacci(n):"
    """
    # Everything typed is checked before anything is fetched or loaded.
    sampling = options.sampling_options(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repeat_penalty=repeat_penalty,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        repeat_last_n=repeat_last_n,
        logit_bias=logit_bias,
    )
    reply_options = ReplyOptions(
        sampling=sampling,
        draft_length=0 if no_draft else options.draft_length(draft_length),
        drafter=drafter,
        verification=verification,
        draft_temperature=draft_temperature,
        max_tokens=None if max_tokens == -1 else max_tokens,
        seed=None if seed == -1 else seed,
        stops=tuple(stop or ()),
        ignore_eos=ignore_eos,
    )
    target_load, draft_load = load_options(context, batch, threads, gpu_layers, draft_gpu_layers, exact=exact)
    text = read_prompt(prompt, prompt_file)
    pair = choose_pair(model, "none" if reply_options.draft_length == 0 or drafter == "lookup" else draft_model)

    with Interrupts() as interrupted:
        with console.waiting("Loading") as show:
            engine = Engine.load(
                pair.target,
                pair.draft,
                target_load,
                draft_load,
                progress=lambda name, share: show(f"Loading {name} {share:.0%}"),
                interrupted=interrupted,
            )
        with engine:
            if pair.draft_unknown:
                console.warn(
                    f"no draft model is known for {pair.target_name}, so it decodes plainly.",
                    "-md MODEL names one; '--no-draft' says that none is wanted.",
                )
            _warn_about_context(engine, target_load)
            _check_bias(engine, reply_options)
            if reply_options.draft_length is None:
                with console.waiting("Measuring what passes cost, once for these models"):
                    engine.calibrate()
            tokens = engine.prompt(text, system=system, raw=raw, parse_special=parse_special)
            if show_draft and console.output.is_terminal and not as_json:
                print_legend()
            reply = _stream(engine, tokens, reply_options, interrupted, silent=as_json, show_draft=show_draft)
            if as_json:
                console.print_json(reply_json(reply, pair.target_name, pair.draft_name))
    console.print_stats(reply.metrics)
    _explain_ending(reply, engine.target.n_context)


def read_prompt(argument: str | None, file: Path | None) -> str:
    """Put the prompt together: standard input, then the file, then the argument.

    Raises:
        OptionError: there is none.
        PromptError: one of them cannot be read, or is not text.
    """
    parts = []
    if argument == "-":
        argument = None
    if file == Path("-"):
        file = None
    if sys.stdin is not None and not sys.stdin.isatty():
        parts.append(_text(sys.stdin.buffer.read(), "standard input"))
    if file is not None:
        try:
            parts.append(_text(file.read_bytes(), str(file)))
        except OSError as error:
            raise PromptError(
                f"cannot read the prompt file {file}: {error.strerror}.", "Check the path and its permissions."
            ) from None
    if argument is not None:
        parts.append(argument)
    text = " ".join(part for part in parts if part)
    if not text.strip():
        raise OptionError("there is no prompt.", "Give it as argument, with -f FILE, or on standard input.")
    return text


def _text(data: bytes, where: str) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"{where} is not UTF-8 text: byte {error.object[error.start]:#04x} at offset {error.start}.",
            "Convert it first, for instance with iconv.",
        ) from None
    return text.removesuffix("\n").removesuffix("\r")


def _warn_about_context(engine: Engine, load: LoadOptions) -> None:
    trained = engine.target.file.value("context_length")
    if isinstance(trained, int) and load.context is not None and load.context > trained:
        console.warn(
            f"--context is {load.context}, but the model was trained with {trained}; text past that may be poor.",
            f"-c {trained} is the most it knows.",
        )


def _check_bias(engine: Engine, reply_options: ReplyOptions) -> None:
    for token, _ in reply_options.sampling.logit_bias:
        if token >= engine.target.n_vocab:
            raise OptionError(
                f"--logit-bias names token {token}, but the model's are 0 to {engine.target.n_vocab - 1}.",
                "'specli complete --json' shows token ids.",
            )


def _stream(
    engine: Engine, tokens: list[int], reply_options: ReplyOptions, interrupted: Any, *, silent: bool, show_draft: bool
) -> Reply:
    """Print the reply as it comes and return it whole."""
    events = engine.reply(tokens, reply_options, interrupted=interrupted)
    return stream_reply(events, None if silent else PlainReply(show_draft=show_draft))


def _explain_ending(reply: Reply, context: int) -> None:
    if reply.finish_reason == "interrupt":
        console.note("Interrupted.")
        raise typer.Exit(Interrupted.exit_code)
    if reply.finish_reason != "context":
        return
    hint = f"A larger context holds more: -c {2 * context}."
    if not reply.tokens:
        raise PromptError(
            f"the prompt has {reply.metrics.prompt} tokens and does not fit in a context of {context}.",
            f"A larger context holds more: -c {max(2 * context, reply.metrics.prompt + 1024)}.",
        )
    console.warn(f"the reply ended because the context of {context} tokens is full.", hint)


def reply_json(reply: Reply, target: str, draft: str | None) -> dict[str, Any]:
    """Return what `--json` prints."""
    metrics = reply.metrics
    return {
        "text": reply.text,
        "finish_reason": reply.finish_reason,
        "model": target,
        "draft_model": draft,
        "seed": reply.seed,
        "tokens": {"prompt": metrics.prompt, "generated": metrics.generated, "ids": list(reply.tokens)},
        "speculation": {
            "rounds": metrics.rounds,
            "paused": metrics.paused,
            "drafted": metrics.drafted,
            "tested": metrics.tested,
            "accepted": metrics.accepted,
            "acceptance_rate": metrics.acceptance_rate,
            "mean_accepted_length": metrics.mean_accepted_length,
        },
        "timing": {
            "load_s": metrics.load_seconds,
            "prefill_s": metrics.prefill_seconds,
            "ttft_s": metrics.first_token_seconds,
            "decode_s": metrics.decode_seconds,
            "draft_s": metrics.draft_seconds,
            "verify_s": metrics.verify_seconds,
            "other_s": metrics.other_seconds,
            "tokens_per_second": metrics.tokens_per_second,
        },
    }
