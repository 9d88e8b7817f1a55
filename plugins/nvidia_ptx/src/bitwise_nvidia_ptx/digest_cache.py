"""A cache of digests on disk, whose entries are used only if this user wrote them whole and for the same key.

An entry is one text file: the format, the digest of the key, the cached digest, and a checksum of these three.  It is
ignored, and computed and written again, if the checksum is wrong, if it belongs to another key, or if somebody else
could have written it: it must be a regular file of the effective user that nobody else may write.  A folder that others
may write to is therefore safe: they can remove entries, but not change or add any.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

_FORMAT = "bitwise digest 1"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SIZE_LIMIT = 4096


def cache_directory() -> Path:
    """Return `$XDG_CACHE_HOME/bitwise`, or `~/.cache/bitwise` if the variable is not set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bitwise"


def cached_digest(folder: str, key: Sequence[str], find: Callable[[], str]) -> str:
    """Return a SHA-256 in hexadecimal from a folder of the cache directory, or compute and store it.

    `key` contains everything that the digest depends on.  A cache that cannot be read or written is not used.
    """
    name = _sha256(json.dumps(list(key)))
    path = cache_directory() / folder / name[:2] / name
    stored = _read(path, name)
    if stored is not None:
        return stored
    found = find()
    _write(path, name, found)
    return found


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _entry(name: str, digest: str) -> str:
    lines = f"{_FORMAT}\n{name}\n{digest}\n"
    return f"{lines}{_sha256(lines)}\n"


def _read(path: Path, name: str) -> str | None:
    """Return the digest of an entry, or None if there is none that may be used."""
    try:
        # A link is not followed, and a pipe that somebody put there does not block.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not _written_by_this_user(os.fstat(handle)):
            return None
        text = os.read(handle, _SIZE_LIMIT).decode("ascii")
    except (OSError, UnicodeDecodeError):
        return None
    finally:
        os.close(handle)
    digest = text.split("\n")[2] if text.count("\n") == 4 else ""
    return digest if _DIGEST.fullmatch(digest) and text == _entry(name, digest) else None


def _written_by_this_user(status: os.stat_result) -> bool:
    others = stat.S_IWGRP | stat.S_IWOTH
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & others


def _write(path: Path, name: str, digest: str) -> None:
    """Write an entry as a whole: under another name first, which `mkstemp` makes writable by this user only."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(_entry(name, digest))
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
