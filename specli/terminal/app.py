"""The command line: which commands there are, and how every failure becomes a message and an exit code.

A command's module is imported when the command is run, asked for help, or completed: listing them must be quick.
"""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from specli import __version__
from specli.errors import Interrupted, OptionError, SpecliError
from specli.terminal import console, streams

# Name -> (module, function, first line of its help).
COMMANDS = {
    "complete": ("complete", "complete", "Answer one prompt."),
    "chat": ("chat", "chat", "Chat with a model; every conversation is kept and can be resumed."),
    "compare": ("compare", "compare", "Measure whether a draft model makes the target faster here, by kind of prompt."),
    "audit": ("audit", "audit", "Check that drafts do not change the output; exit 3 when they do."),
    "tune": ("tune", "tune_pair", "Predict what drafts gain on this machine, check it in short runs, and say why."),
    "quantize": ("quantize", "quantize", "Write a model with another type of weights."),
    "list": ("models", "list_models", "List the models that have names, and with --all those of other tools."),
    "pairs": ("pairs", "pairs", "Say which models on this disk can draft for which."),
    "show": ("models", "show", "Show what a model file says about itself."),
    "pull": ("models", "pull", "Fetch a model, verified and whole, or say where it is."),
    "check": ("models", "check", "Check whether a draft model can serve a target model; exit 1 when it cannot."),
}
_CONTEXT = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="specli",
    help="Faster answers from GGUF models by speculative decoding, without changing what they say.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings=_CONTEXT,
)


class _Deferred(TyperCommand):
    """Stands for a command in lists; whatever else is asked of it goes to the command itself."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return load_command(str(self.name)).make_context(info_name, args, parent=parent, **extra)


def load_command(name: str) -> Any:
    """Import a command."""
    module, function, _ = COMMANDS[name]
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, context_settings=_CONTEXT)
    single.command(name)(getattr(import_module(f"specli.terminal.commands.{module}"), function))
    return typer.main.get_command(single)


for _name, (_, _, _help) in COMMANDS.items():
    app.command(_name, help=_help, cls=_Deferred)(lambda: None)


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
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run specli with these arguments and return its exit code."""
    try:
        if streams.output_is_closed:
            raise SpecliError("standard output is closed, so there is nowhere to write to.", "Use >/dev/null instead.")
        result = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except typer.TyperException as error:
        if not error.format_message():  # it was help that was wanted, and shown
            return OptionError.exit_code
        hint = "'specli --help' and 'specli COMMAND --help' show how."
        if error.format_message().startswith("No such option"):
            hint = f"{hint} A prompt that begins with '-' comes after '--'."
        return _failed(OptionError(error.format_message(), hint))
    except typer.Exit as request:
        return request.exit_code
    except BrokenPipeError:
        # Nobody reads any more, for instance after '| head'. Keep Python from complaining when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, OSError) and error.filename is None:
            # The result could not be written: the disk is full, or the device is gone.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _failed(as_error(error))
    finally:
        if streams.replaced():
            console.warn(f"some characters do not exist in {sys.stdout.encoding}; '?' stands for them.", "Use UTF-8.")


def as_error(error: BaseException) -> SpecliError:
    """Return what a failure means for a person: a fault of ours is as short as all others."""
    match error:
        case SpecliError():
            return error
        case KeyboardInterrupt():
            return Interrupted("interrupted.")
        case MemoryError():
            return SpecliError("there is not enough memory.", "A smaller model or `context` needs less.")
        case OSError(filename=None):
            return SpecliError(f"cannot write the result: {error.strerror}.", "Is the disk full?")
        case OSError():
            hint = "Check that it exists and that you may use it."
            return SpecliError(f"cannot use {error.filename}: {error.strerror}.", hint)
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__} in {os.path.basename(where.filename)}, line {where.lineno}: {error}"
    return SpecliError(f"specli has a fault: {what}.", "Please report it; -vv shows the whole traceback.")


def _failed(error: SpecliError) -> int:
    sys.stdout.flush()
    console.print_error(error)
    return error.exit_code
