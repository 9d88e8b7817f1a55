"""Files of users: regular ones only, read up to a limited size, with errors as sentences."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

MAXIMUM_BYTES = 64 << 20
"""The size of the largest file that is read where a caller states no other."""


def open_file(path: Path | str, error: type[Exception]) -> BinaryIO:
    """Return a regular file, opened for reading.  Raises `error`, whose message begins with the path.

    A named pipe is refused, since to read one without a writer would wait for ever.
    """
    try:
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115  # the caller closes it
    except IsADirectoryError:
        raise error(f"{path}: is a folder; name a file") from None
    except OSError as reason:
        raise error(f"{path}: cannot be read ({reason.strerror})") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise error(f"{path}: is a pipe or a device; write its content to a file and name that")
    return file


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe is opened before it has a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_bytes(path: Path | str, error: type[Exception], most: int = MAXIMUM_BYTES) -> bytes:
    """Return the content of a regular file of at most `most` bytes.  Raises `error` as `open_file` does."""
    with open_file(path, error) as file:
        try:
            content = file.read(most + 1)
        except OSError as reason:
            raise error(f"{path}: cannot be read ({reason.strerror})") from None
    if len(content) > most:
        raise error(f"{path}: has more than {most >> 20} MiB; at most that is read")
    return content


def read_text(path: Path | str, error: type[Exception], most: int = MAXIMUM_BYTES) -> str:
    """Return the text of a regular file of at most `most` bytes.  Raises `error` as `open_file` does."""
    try:
        return read_bytes(path, error, most).decode()
    except UnicodeDecodeError:
        raise error(f"{path}: cannot be read (it is not text)") from None
