"""Text files of users, read up to a limited size, with errors as sentences."""

from __future__ import annotations

from pathlib import Path

MAXIMUM_BYTES = 64 << 20
"""The size of the largest file that is read where a caller states no other."""


def read_text(path: Path | str, error: type[Exception], most: int = MAXIMUM_BYTES) -> str:
    """Return the text of a file of at most `most` bytes.  Raises `error`, whose message begins with the path."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(most + 1)
    except OSError as reason:
        raise error(f"{path}: cannot be read ({reason.strerror})") from None
    if len(content) > most:
        raise error(f"{path}: has more than {most >> 20} MiB; at most that is read")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise error(f"{path}: cannot be read (it is not text)") from None
