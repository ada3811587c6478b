"""What comes from outside, checked before it is used: names, paths, and small files."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath

from specli.errors import DownloadError

_LONGEST_NAME = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def check_name(what: str, name: str) -> None:
    """Check a name that becomes part of a file name, an address or a message.

    Raises:
        ValueError: it is empty, too long, or has control characters or backslashes.
    """
    if not 0 < len(name) <= _LONGEST_NAME:
        raise ValueError(f"{what} has {len(name)} characters instead of 1 to {_LONGEST_NAME}")
    found = next((character for character in name if not character.isprintable() or character == "\\"), None)
    if found is not None:
        raise ValueError(f"{what} {short(name)!r} has the character {found!r}, which no name may have")


def check_relative(what: str, name: str) -> None:
    """Check a name, with slashes or not, that becomes a path below a folder.

    Raises:
        ValueError: it would leave the folder on some system, or is no name at all.
    """
    check_name(what, name)
    windows = PureWindowsPath(name)
    if windows.anchor or ".." in windows.parts or not PurePosixPath(name).parts:
        raise ValueError(f"{what} {short(name)!r} is no path below a folder: it may not be absolute or have '..'")


def check_path(what: str, path: Path) -> None:
    """Check a path of the user's own, which may lead anywhere.

    Raises:
        ValueError: it has control characters.
    """
    if _CONTROL.search(str(path)):
        raise ValueError(f"{what} {short(str(path))!r} has a control character")


def check_inside(folder: Path, path: Path) -> Path:
    """Return a path that is about to be written; follows the links that are there already.

    Raises:
        DownloadError: it is not below the folder.
    """
    if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(folder)):
        raise DownloadError(f"{one_line(str(path))} would be outside {folder}", "Delete the link that leads there.")
    return path


def read_small(path: Path, limit: int) -> bytes:
    """Return the content of a regular file; nothing else is opened, as a pipe may never end.

    Raises:
        OSError: it is something else, has more bytes than the limit, or cannot be read.
    """
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if status.st_size <= limit:
        with path.open("rb") as file:
            content = file.read(limit + 1)
        if len(content) <= limit:
            return content
    raise OSError(errno.EFBIG, f"it has more than {limit} bytes", str(path))


def short(text: str) -> str:
    """Return a text, without its middle if it is long."""
    return text if len(text) <= 100 else f"{text[:60]}…{text[-20:]}"


def one_line(text: str) -> str:
    """Return a text of any origin as one line that can be printed, without its middle if it is long."""
    if len(text) > 400:
        text = f"{text[:280]}…{text[-100:]}"
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())
