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
    directory = cache_directory()
    if directory is None:
        return find()
    entries, name = EntryFolder(directory / folder), key_digest(*key)
    stored = entries.read(name)
    if stored is not None and has_form(stored):
        return stored
    found = find()
    with contextlib.suppress(OSError):
        entries.write(name, found)
    return found
