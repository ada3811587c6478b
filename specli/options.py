"""What an option is: its help text and its bounds, declared once beside the field and checked in one function.

Option classes are frozen dataclasses whose fields are annotated with an `Option`. The command line makes flags of them
(`specli.terminal.options`); in Python they are ordinary keyword arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from typing import Any, get_args, get_type_hints

from specli.errors import OptionError


@dataclass(frozen=True, slots=True)
class Option:
    """Help and bounds of one field. A value of None is always allowed where it is the default."""

    help: str
    low: float | None = None
    high: float | None = None
    above: float | None = None  # a lower bound that is itself not allowed
    choices: tuple[str, ...] = ()
    hint: str = ""  # what to do about a value that is out of bounds, instead of naming the default

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        if self.choices:
            return f"one of: {', '.join(self.choices)}"
        if self.above is not None:
            return f"a finite number above {self.above:g}"
        if self.low is None:
            return "a finite number"
        return f"{self.low:.10g} or more" if self.high is None else f"between {self.low:.10g} and {self.high:.10g}"

    def allows(self, value: Any) -> bool:
        """Whether a value is within the bounds."""
        if self.choices:
            return value in self.choices
        if self.low is None and self.high is None and self.above is None:
            return not isinstance(value, float) or math.isfinite(value)
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            return False
        number = float(value)
        above = self.above is None or number > self.above
        return above and (self.low is None or number >= self.low) and (self.high is None or number <= self.high)


@cache
def declared(kind: Any) -> dict[str, tuple[Any, Option]]:
    """Return the type and the `Option` of each annotated field of an option class, in order."""
    hints = get_type_hints(kind, include_extras=True)
    found = {field.name: (hints[field.name], option_of(hints[field.name])) for field in fields(kind)}
    return {name: (annotated.__origin__, option) for name, (annotated, option) in found.items() if option is not None}


def option_of(annotation: Any) -> Option | None:
    """Return the `Option` of an annotated type, if it has one."""
    return next((one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, Option)), None)


def check(options: Any) -> None:
    """Check all annotated fields of an option object; to be called in `__post_init__`.

    Raises:
        OptionError: a value is out of its bounds; `field` names it.
    """
    defaults = {field.name: field.default for field in fields(options)}
    for name, (kind, option) in declared(options.__class__).items():
        check_value(name, getattr(options, name), kind, option, defaults[name])


def check_value(name: str, value: Any, kind: Any, option: Option, default: Any) -> None:
    """Check one value; raises as `check` does."""
    if value is None and type(None) in get_args(kind):
        return
    fraction = int in (kind, *get_args(kind)) and not isinstance(value, Integral)
    if fraction or not option.allows(value):
        allowed = f"a whole number {option.allowed}" if fraction else option.allowed
        hint = option.hint or f"{default} is the default."
        raise OptionError(f"`{name}` is {value!r}, but must be {allowed}.", hint, field=name)
