"""Commands made of functions that take option objects: one decorator writes the flags and builds the objects."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from specli.options import Option, check_value, declared, option_of
from specli.terminal import console
from specli.terminal.options import PANELS, SPELLINGS, OutputOptions, Spelling, flag, read_value


def command(*, without: Collection[str] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a command of a function: each field of its parameters that are option classes becomes a flag.

    The default of such a parameter gives the defaults of its flags. Fields in `without` get no flag.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        hints = get_type_hints(function, include_extras=True)
        parameters: list[inspect.Parameter] = []
        objects: dict[str, Any] = {}
        own: dict[str, tuple[Any, Option, Any]] = {}  # type, option and default of other parameters
        for parameter in inspect.signature(function).parameters.values():
            if is_dataclass(hints[parameter.name]):
                objects[parameter.name] = parameter.default
                parameters += _parameters(parameter.default, without)
            elif option := option_of(hints[parameter.name]):
                own[parameter.name] = hints[parameter.name].__origin__, option, parameter.default
                parameters.append(_parameter(parameter.name, *own[parameter.name]))
            else:
                parameters.append(parameter.replace(annotation=hints[parameter.name]))
        parameters.sort(key=lambda one: one.default is not inspect.Parameter.empty)

        @wraps(function)
        def run(**values: Any) -> Any:
            built = {name: _built(default, values) for name, default in objects.items()}
            output = next((one for one in built.values() if isinstance(one, OutputOptions)), OutputOptions())
            console.set_quiet(output.quiet)
            if output.verbose:
                from specli.llama.binding import show_log

                show_log(console.write_log)
            try:
                for name, declaration in own.items():
                    check_value(name, values[name], *declaration)
                return function(**built, **values)
            except Exception:
                if output.verbose > 1:
                    traceback.print_exc()
                raise

        kind = inspect.Parameter.KEYWORD_ONLY
        run.__signature__ = inspect.Signature([one.replace(kind=kind) for one in parameters])  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorated


def _parameters(default: Any, without: Collection[str]) -> Iterator[inspect.Parameter]:
    """Yield the parameters that stand for the fields of an option object, those of objects inside it included."""
    options = declared(default.__class__)
    for field in fields(default):
        value = getattr(default, field.name)
        if is_dataclass(value):
            yield from _parameters(value, without)
        elif field.name not in without and field.name in options:
            yield _parameter(field.name, *options[field.name], value, PANELS.get(type(default)))


def _parameter(name: str, kind: Any, option: Option, value: Any, panel: str | None = None) -> inspect.Parameter:
    spelling = SPELLINGS.get(name, Spelling())
    if get_origin(kind) is tuple:
        kind, value = list[str] | None, None
    elif spelling.none is not None:
        kind, value = type(spelling.none), str(value) if value is not None and spelling.read else value
        value = spelling.none if value is None else value
    plain = next((one for one in (kind, *get_args(kind)) if isinstance(one, type)), str).__name__
    metavars = {"int": "N", "float": "X", "str": "TEXT", "Path": "FILE"}
    typer_option = typer.Option(
        *(spelling.names or (flag(name),)),
        help=option.help,
        metavar=spelling.metavar or "|".join(option.choices) or metavars.get(plain),
        rich_help_panel=spelling.panel or panel,
        **spelling.more,
    )
    annotation = Annotated[kind, typer_option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=annotation)


def _built(default: Any, values: dict[str, Any]) -> Any:
    """Return an option object of the values of flags, which are taken out of `values`."""
    changes: dict[str, Any] = {}
    for field in fields(default):
        inside = getattr(default, field.name)
        if is_dataclass(inside):
            changes[field.name] = _built(inside, values)
        elif field.name in values:
            changes[field.name] = read_value(field.name, values.pop(field.name))
    return replace(default, **changes)
