"""What is learnt from machine code, cached on disk: one entry of core's cache directory for each answer."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence

from bitwise_core.caching.entry_files import EntryFolder, cache_directory
from bitwise_core.caching.key_digest import key_digest

_DIGEST = re.compile(r"[0-9a-f]{64}")


def cached_digest(folder: str, key: Sequence[str], find: Callable[[], str]) -> str:
    """Return a SHA-256 in hexadecimal from a folder of the cache directory, or compute and store it.

    `key` contains everything that the digest depends on.  A cache that cannot be read or written is not used.
    """
    return cached_text(folder, key, _DIGEST, find)


def cached_text(folder: str, key: Sequence[str], form: re.Pattern[str], find: Callable[[], str]) -> str:
    """Return a text of ASCII of a form from a folder of the cache directory, as `cached_digest` does."""

    def has_form(stored: bytes) -> bool:
        return form.fullmatch(stored.decode("ascii", "replace")) is not None

    return cached_bytes(folder, key, has_form, lambda: find().encode("ascii")).decode("ascii")


def cached_bytes(
    folder: str, key: Sequence[str], has_form: Callable[[bytes], bool], find: Callable[[], bytes]
) -> bytes:
    """Return bytes of a form from a folder of the cache directory, as `cached_digest` does."""
    stored = kept_bytes(folder, key, has_form)
    if stored is not None:
        return stored
    found = find()
    keep_bytes(folder, key, found)
    return found


def kept_bytes(folder: str, key: Sequence[str], has_form: Callable[[bytes], bool]) -> bytes | None:
    """Return bytes of a form that `keep_bytes` stored, None where there are none or the cache cannot be read."""
    directory = cache_directory()
    stored = None if directory is None else EntryFolder(directory / folder).read(key_digest(*key))
    return stored if stored is not None and has_form(stored) else None


def keep_bytes(folder: str, key: Sequence[str], content: bytes) -> None:
    """Store bytes in a folder of the cache directory, if it can be written."""
    directory = cache_directory()
    if directory is not None:
        with contextlib.suppress(OSError):
            EntryFolder(directory / folder).write(key_digest(*key), content)
