"""The command line: which commands there are, and how every failure becomes a message and an exit code.

Knows the commands. Must not know how they work; each is imported only when it is run.
"""

from __future__ import annotations

import os
import sys
import traceback

import typer

from specli import __version__
from specli.errors import Interrupted, OptionError, SpecliError
from specli.llama.binding import set_verbose
from specli.terminal import console
from specli.terminal.commands import models
from specli.terminal.commands.audit import audit
from specli.terminal.commands.chat import chat
from specli.terminal.commands.compare import compare
from specli.terminal.commands.complete import complete
from specli.terminal.commands.quantize import quantize
from specli.terminal.commands.tune import tune_pair

app = typer.Typer(
    name="specli",
    help="Faster answers from GGUF models by speculative decoding, without changing what they say.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("complete")(complete)
app.command("chat")(chat)
app.command("compare")(compare)
app.command("audit")(audit)
app.command("tune")(tune_pair)
app.command("quantize")(quantize)
app.command("list")(models.list_models)
app.command("show")(models.show)
app.command("pull")(models.pull)
app.command("check")(models.check)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"specli {__version__}")
        raise typer.Exit


@app.callback()
def specli(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Faster answers from GGUF models by speculative decoding, without changing what they say."""


def main(arguments: list[str] | None = None) -> None:
    """Run specli and end the process with its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """Run specli with these arguments and return its exit code."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    verbosity = sum(len(word) - 1 for word in words if word in ("-v", "-vv")) + words.count("--verbose")
    set_verbose(verbosity > 0)
    console.set_quiet("-q" in words or "--quiet" in words)
    try:
        result = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except typer.TyperException as error:
        if not error.format_message():  # it was help that was wanted, and shown
            return OptionError.exit_code
        return _failed(OptionError(error.format_message(), "'specli --help' and 'specli COMMAND --help' show how."))
    except SpecliError as error:
        return _failed(error, verbosity)
    except KeyboardInterrupt:
        return _failed(Interrupted("interrupted.", "What was fetched so far is kept."), verbosity)
    except BrokenPipeError:
        # Nobody reads any more, for instance after '| head'. Keep Python from complaining when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is not None:
            hint = "Check that it is there and that you may use it."
            return _failed(SpecliError(f"cannot use {error.filename}: {error.strerror}.", hint), verbosity)
        # The result could not be written: the disk is full, or the device is gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _failed(SpecliError(f"cannot write the result: {error.strerror}.", "Is the disk full?"), verbosity)
    except typer.Exit as request:
        return request.exit_code
    except MemoryError:
        return _failed(
            SpecliError("there is not enough memory.", "A smaller model or --context needs less."), verbosity
        )


def _failed(error: SpecliError, verbosity: int = 0) -> int:
    if verbosity > 1:
        traceback.print_exc()
    sys.stdout.flush()
    console.print_error(error)
    return error.exit_code
