"""Data from files and hosts, checked against the class that describes it: a dataclass or a `Struct`."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from msgspec import Struct as Struct
from msgspec import field as field
from msgspec.structs import replace as replace

Described = TypeVar("Described")


def checked(content: Any, kind: type[Described]) -> Described:
    """Return data as a value of a class. Keys that a dataclass does not have are ignored.

    Raises:
        ValueError: it does not fit; the text says what, and at which key.
    """
    try:
        return msgspec.convert(content, kind, dec_hook=lambda other, value: other(value))
    except msgspec.ValidationError as error:
        what, _, where = str(error).replace("`", "'").partition(" - at ")
        what = re.sub("Object contains unknown field", "unknown key", what)
        what = re.sub("Object missing required field", "no", what)
        key = re.sub(r"^\$\.?|\[\.\.\.\]\.?", "", where.strip("'"))
        raise ValueError(what[:1].lower() + what[1:] + (f" at {key!r}" if key else "")) from None
