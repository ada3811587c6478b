"""Reading a file as a whole, within bounds: a path that comes from outside can name anything."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MOST = 1 << 26  # bytes


def read_file(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: it cannot be read, is a folder, a device or a pipe, or has more than `MOST` bytes.
    """
    try:
        # A pipe that nobody writes to would otherwise keep us waiting.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError as error:  # there is a NUL in it
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return read_bounded(file)


def read_bounded(file: BinaryIO) -> bytes:
    """Return what is left of a file, which may be a pipe.

    Raises:
        OSError: that is more than `MOST` bytes.
    """
    content = file.read(MOST + 1)
    if len(content) > MOST:
        raise OSError(errno.EFBIG, f"it has more than {MOST >> 20} MiB")
    return content


def decoded(data: bytes) -> str:
    """Return UTF-8 text without the byte-order mark that some programs put before it.

    Raises:
        ValueError: it is not UTF-8; the text says which byte is wrong.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text: byte {data[error.start]:#04x} at offset {error.start}") from None
