"""Entries on disk, each one file, which are used only if this user wrote them whole and for the same key.

An entry holds the format, the digest of its key, a checksum, and its content.  It is ignored if the checksum is wrong,
if it belongs to another key, or if somebody else could have written it: it must be a regular file of the effective user
that nobody else may write.  A folder that others may write to is therefore safe: they can remove entries, but not
change or add any.

A folder has 256 subfolders by the first two digits of the key.  Where a new entry makes its subfolder larger than its
share of the limit, the entries that were not used for the longest time are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SIZE_VARIABLE = "BITWISE_CACHE_SIZE"
"""The environment variable that limits each folder of entries, in MiB."""

OFF_VARIABLE = "BITWISE_NO_CACHE"
"""The environment variable that turns the cache of readings off, if it is neither empty nor 0."""

DEFAULT_MIB = 256

MAXIMUM_CONTENT = 1 << 18
"""The maximum size of the content of an entry, in bytes."""

_FORMAT = b"bitwise entry 1"
_KEY = re.compile(r"[0-9a-f]{64}")
_SUBFOLDER = re.compile(r"[0-9a-f]{2}")
_TEMPORARY = "unfinished-"
_OWN_FILE = re.compile(rf"{_KEY.pattern}|{_TEMPORARY}\w+")
_SUBFOLDERS = 256
_BLOCK = 4096
_KEPT_SHARE = 0.8


def cache_directory() -> Path | None:
    """Return `$XDG_CACHE_HOME/bitwise`, by default `~/.cache/bitwise`; None where there is no home folder.

    A relative path in the variable is ignored, as the XDG specification requires.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        return Path(given) / "bitwise"
    try:
        return Path.home() / ".cache" / "bitwise"
    except RuntimeError:
        return None


def size_limit() -> int:
    """Return the maximum size of a folder of entries in bytes, from `BITWISE_CACHE_SIZE` or the default."""
    try:
        return max(int(os.environ.get(SIZE_VARIABLE, "")), 0) << 20
    except ValueError:
        return DEFAULT_MIB << 20


@dataclass(frozen=True, slots=True)
class Usage:
    """The number of entries of a folder and their size on disk in bytes."""

    entries: int
    size: int


@dataclass(frozen=True, slots=True)
class EntryFolder:
    """A folder of entries of one kind, `path`, which need not exist."""

    path: Path

    def read(self, key: str) -> bytes | None:
        """Return the content of the entry of a key, a SHA-256 in hexadecimal; None if there is none that may be used.

        The entry counts as used at this time.
        """
        try:
            # A link is not followed, and a pipe that somebody put there does not block.
            handle = os.open(self._file(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            status = os.fstat(handle)
            if not _written_by_this_user(status) or status.st_size > 2 * MAXIMUM_CONTENT:
                return None
            with os.fdopen(handle, "rb", closefd=False) as file:
                content = _content(file.read(), key)
            if content is not None:
                with contextlib.suppress(OSError):
                    os.utime(handle)
            return content
        except OSError:
            return None
        finally:
            os.close(handle)

    def write(self, key: str, content: bytes) -> None:
        """Write an entry as a whole: under another name first, which `mkstemp` makes writable by this user only.

        A content above `MAXIMUM_CONTENT` is not kept.  Raises OSError where the folder cannot be written.
        """
        if len(content) > MAXIMUM_CONTENT:
            return
        path = self._file(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_entry(key, content))
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _remove_oldest(path.parent, size_limit() // _SUBFOLDERS)

    def usage(self) -> Usage:
        """Return the number and the size of the entries."""
        sizes = [_size_on_disk(status) for _, status in _files(self.path)]
        return Usage(len(sizes), sum(sizes))

    def clear(self) -> None:
        """Remove all entries, and the folder if nothing else is in it.  Raises OSError."""
        for path, _ in _files(self.path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        with contextlib.suppress(OSError):
            for subfolder in list(self.path.iterdir()):
                if _SUBFOLDER.fullmatch(subfolder.name):
                    with contextlib.suppress(OSError):
                        subfolder.rmdir()
            self.path.rmdir()

    def _file(self, key: str) -> Path:
        assert _KEY.fullmatch(key)
        return self.path / key[:2] / key


def folders() -> dict[str, EntryFolder]:
    """Return the folders of the cache directory by name.  Raises OSError where the directory cannot be read."""
    directory = cache_directory()
    if directory is None:
        return {}
    try:
        with os.scandir(directory) as found:
            names = sorted(each.name for each in found if each.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {name: EntryFolder(directory / name) for name in names}


def _entry(key: str, content: bytes) -> bytes:
    checked = key.encode() + b"\n" + content
    return b"\n".join((_FORMAT, key.encode(), hashlib.sha256(checked).hexdigest().encode(), content))


def _content(entry: bytes, key: str) -> bytes | None:
    parts = entry.split(b"\n", 3)
    return parts[3] if len(parts) == 4 and entry == _entry(key, parts[3]) else None


def _written_by_this_user(status: os.stat_result) -> bool:
    others = stat.S_IWGRP | stat.S_IWOTH
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & others


def _size_on_disk(status: os.stat_result) -> int:
    return -(-status.st_size // _BLOCK) * _BLOCK


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path and the status of every entry, and of what an interrupted writer left."""
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for each in found:
            if _SUBFOLDER.fullmatch(each.name) and each.is_dir(follow_symlinks=False):
                yield from _files_of_subfolder(each.path)


def _files_of_subfolder(folder: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for each in found:
            # Another process may remove it meanwhile.
            with contextlib.suppress(OSError):
                if _OWN_FILE.fullmatch(each.name) and each.is_file(follow_symlinks=False):
                    yield each.path, each.stat(follow_symlinks=False)


def _remove_oldest(folder: Path, limit: int) -> None:
    """Remove the files that were not used for the longest time, where those of a subfolder exceed the limit."""
    found = sorted(_files_of_subfolder(folder), key=lambda each: each[1].st_mtime_ns)
    size = sum(_size_on_disk(status) for _, status in found)
    if size <= limit:
        return
    for path, status in found:
        if size <= _KEPT_SHARE * limit:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        size -= _size_on_disk(status)
