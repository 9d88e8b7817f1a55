"""Files that a user asks for, written as a whole: a file has its old content or its new one, never a part."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO


def write_text(path: Path | str, text: str) -> None:
    """Write a file in UTF-8.  Raises OSError; the file then has its old content."""
    write_file(path, lambda file: file.write(text.encode()))


def write_file(path: Path | str, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file by a function of the open file.  Raises OSError and what `write` raises; the old content remains.

    A link is followed.  What is no regular file, such as a pipe or `/dev/stdout`, is written directly.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            write(file)
        return
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(handle)
        if target.exists():
            os.chmod(temporary, target.stat().st_mode & 0o7777)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
