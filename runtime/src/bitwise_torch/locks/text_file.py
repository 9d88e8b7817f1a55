"""Text files of a limited size, with errors as sentences."""

from __future__ import annotations

from pathlib import Path

from bitwise_core.errors import BitwiseError


def read_text(path: Path | str, most: int, error: type[BitwiseError]) -> str:
    """Return the text of a file of at most so many bytes.  Raises `error`, whose message begins with the path."""
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
