"""`specli complete`: answer one prompt."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from specli.engine.options import ReplyOptions
from specli.errors import Interrupted, OptionError, PromptError
from specli.llama.options import LoadOptions
from specli.options import Option
from specli.state.reading import decoded, read_bounded
from specli.terminal import console, options
from specli.terminal.command import command
from specli.terminal.commands.models import choose_pair_for
from specli.terminal.interrupts import Interrupts
from specli.terminal.options import ModelOptions, OutputOptions
from specli.terminal.ready import calibrate, load_engine, warn_about_draft, warn_about_gpu, warn_about_lengths

if TYPE_CHECKING:
    from specli.engine.engine import Engine
    from specli.engine.reply import Reply

_SPECULATION = [
    "rounds",
    "undrafted_rounds",
    "drafted",
    "tested",
    "accepted",
    "acceptance_rate",
    "mean_accepted_length",
]
_TIMING = ("load", "prefill", "decode", "draft", "verify", "other")


@command()
def complete(
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt; text on standard input is put before it.", show_default=False)
    ] = None,
    prompt_file: Annotated[Path | None, Option("Read the prompt from a file.")] = None,
    system: options.System = None,
    raw: Annotated[bool, Option("Continue the text as it is, without the chat template.")] = False,
    parse_special: Annotated[bool, Option("Read control tokens in the prompt, as for fill-in-the-middle.")] = False,
    no_draft: options.NoDraft = False,
    show_draft: options.ShowDraft = False,
    models: ModelOptions = ModelOptions(),
    load: LoadOptions = LoadOptions(),
    reply: ReplyOptions = ReplyOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Answer one prompt.

    Examples:
        specli complete "Write a Python function that reverses a linked list."

        git diff | specli complete "Write a commit message for this change."

        specli complete --raw --temp 0 -n 64 "def fibonacci(n):"
    """
    from specli.terminal.reply_view import PlainReply, print_legend, stream_reply

    if no_draft:
        reply = replace(reply, draft_length=0)
    text = read_prompt(prompt, prompt_file)
    warn_about_gpu(load)
    pair = choose_pair_for(models, reply)

    with Interrupts() as interrupted, load_engine(pair, load, interrupted) as engine:
        warn_about_draft(pair)
        _check(engine, load, reply, raw=raw)
        calibrate(engine, reply)
        tokens = engine.prompt(text, system=system, raw=raw, parse_special=parse_special)
        if show_draft and console.output.is_terminal and not output.as_json:
            print_legend()
        shown = None if output.as_json else PlainReply(show_draft=show_draft)
        found = stream_reply(engine.reply(tokens, reply, interrupted=interrupted), shown)
        if output.as_json:
            console.print_json(reply_json(found, pair.target_name, pair.draft_name))
    console.print_stats(found)
    _explain_ending(found, engine.target.n_context)


def read_prompt(argument: str | None, file: Path | None) -> str:
    """Put the prompt together: standard input, then the file, then the argument.

    Raises:
        OptionError: there is none.
        PromptError: one of them cannot be read, or is not text.
    """
    parts = []
    argument = None if argument == "-" else argument
    file = None if file == Path("-") else file
    if not sys.stdin.isatty():
        parts.append(_read(sys.stdin.buffer, "standard input"))
        if parts[0] and (argument or file):
            console.note(f"{len(parts[0])} characters of standard input come first; </dev/null leaves it out.")
    if file is not None:
        try:
            with file.open("rb") as opened:
                parts.append(_read(opened, str(file)))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            hint = "Check the path and its permissions."
            raise PromptError(f"cannot read the prompt file {file}: {reason}.", hint) from None
    if argument is not None:
        parts.append(argument)
    text = " ".join(part for part in parts if part)
    if not text.strip():
        raise OptionError("there is no prompt.", "Give it as argument, with -f FILE, or on standard input.")
    return text


def _read(file: BinaryIO, where: str) -> str:
    """Return the text of a file that may be a pipe, and tell a person who has to wait for it what is going on."""
    message = f"Reading the prompt from {where}; </dev/null goes without standard input."
    waiting = Timer(1.0, console.note, [message])
    waiting.daemon = True
    waiting.start()
    try:
        return decoded(read_bounded(file)).removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise PromptError(f"cannot read {where}: {error.strerror}.", "A prompt must be shorter than that.") from None
    except ValueError as error:
        raise PromptError(f"{where} is {error}.", "Convert it first, for instance with iconv.") from None
    finally:
        waiting.cancel()


def _check(engine: Engine, load: LoadOptions, reply: ReplyOptions, *, raw: bool) -> None:
    """Look at options that only the model can judge."""
    trained, last = engine.target.file.value("context_length"), engine.target.n_vocab - 1
    if isinstance(trained, int) and load.context is not None and load.context > trained:
        message = f"`context` is {load.context}, but the model was trained with {trained}; text past that may be poor."
        console.warn(message, f"{trained} is the most it knows.")
    if unknown := [token for token, _ in reply.sampling.logit_bias if token > last]:
        message = f"`logit_bias` names token {unknown[0]}, but the model's are 0 to {last}."
        raise OptionError(message, "'specli complete --json' shows token ids.")
    warn_about_lengths(engine, reply)
    if engine.target.vocabulary.template is None and not raw:
        console.note("The model has no chat template, so it continues the prompt as plain text.")


def _explain_ending(reply: Reply, context: int) -> None:
    if reply.finish_reason == "interrupt":
        console.note("Interrupted.")
        raise typer.Exit(Interrupted.exit_code)
    if reply.finish_reason == "context":
        hint = f"A larger `context` holds more, for instance {2 * context}."
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
        "tokens": {
            "prompt": metrics.prompt,
            "generated": metrics.generated,
            "ids": list(reply.tokens),
            "of_text": reply.text_tokens,
            "pending_bytes": reply.pending_bytes.hex(),
        },
        "speculation": {name: getattr(metrics, name) for name in _SPECULATION},
        "timing": {
            "ttft_s": metrics.first_token_seconds,
            **{f"{name}_s": getattr(metrics, f"{name}_seconds") for name in _TIMING},
            "tokens_per_second": metrics.tokens_per_second,
        },
    }
