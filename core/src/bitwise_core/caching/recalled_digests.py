"""Digests of files that are recalled while the files keep their state, since to read an assembler takes longest.

The state of a file is its device, inode, size and times.  A write sets the time of change, which no program can choose.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import NamedTuple

from bitwise_core.caching.entry_files import OFF_VARIABLE, EntryFolder, cache_directory

FOLDER = "digests"
"""The folder of digests in the cache directory."""

_MARGIN = 2.0
"""Files that changed less than this number of seconds ago may change again within one tick of their file system."""


class FileState(NamedTuple):
    """A file's path and what changes with its content: device, inode, size, times of modification and change in ns."""

    path: str
    device: int
    inode: int
    size: int
    modified: int
    changed: int


def file_state(path: str) -> FileState:
    """Return the state of a file.  Raises OSError."""
    status = os.stat(path)
    return FileState(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def recalled(name: str, states: Iterable[FileState], make: Callable[[], bytes]) -> bytes:
    """Return what `make` derives from files in these states, or what it returned in a former run.

    `name` distinguishes functions of the same files, and versions of one.  Raises what `make` raises.
    """
    states = tuple(states)
    directory = cache_directory()
    if directory is None or os.environ.get(OFF_VARIABLE, "") not in ("", "0"):
        return make()
    entries = EntryFolder(directory / FOLDER)
    known = [tuple(each) for each in states]
    key = sha256(repr((name, known)).encode("utf-8", "surrogateescape")).hexdigest()
    found = entries.read(key)
    if found is None:
        start = time.time()
        found = make()
        if all(max(each.modified, each.changed) < (start - _MARGIN) * 1e9 for each in states):
            with contextlib.suppress(OSError):
                entries.write(key, found)
    return found
