"""A digest of the code that computes a result: of every file of the packages that take part.

A digest of files says what this process runs only if no file changed since the process started.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import numpy as np


def _process_start() -> float:
    """Return when this process started, in seconds since the epoch; the present time where that is unknown."""
    now = time.time()
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return now - time.clock_gettime(time.CLOCK_BOOTTIME) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return now


_STARTED = min(_process_start(), time.time())
"""Set at the import, so that a forked process has the time of the process that loaded the code."""

_MARGIN = 1.0
"""The files must be older than the process by this number of seconds: clocks of file systems are coarse."""

_IGNORED = ("__pycache__",)
_USES = "bitwise_core"


def code_digest(modules: Iterable[ModuleType]) -> str | None:
    """Return a digest of the code of core, of these modules' packages, and of the packages that they import.

    A package that uses core counts with every file of it, another one by its version; so do Python and the machine.
    None if a file was changed since this process started, so that the process may run other code than the files hold.
    """
    packages = _packages({_top_level(module.__name__) for module in modules} | {_USES})
    digest = hashlib.sha256(repr(_platform()).encode())
    for name in sorted(packages):
        digest.update(f"\0{name}\0".encode())
        if not packages[name]:
            digest.update(_version(name).encode())
            continue
        for folder in _folders(name):
            content = _digest_of_files(folder)
            if content is None:
                return None
            digest.update(content.encode())
    return digest.hexdigest()


def _platform() -> tuple[object, ...]:
    optimize = sys.flags.optimize
    return sys.version, sys.implementation.name, optimize, platform.machine(), sys.byteorder, np.__version__


def _top_level(name: str) -> str:
    return name.partition(".")[0]


def _packages(start: set[str]) -> dict[str, bool]:
    """Return the top-level packages that these import at the level of modules, and whether each uses core."""
    loaded: dict[str, list[ModuleType]] = {}
    for name, module in list(sys.modules.items()):
        if module is not None:
            loaded.setdefault(_top_level(name), []).append(module)
    found: dict[str, bool] = {}
    pending = sorted(start)
    while pending:
        name = pending.pop()
        if name in found:
            continue
        imported = {each for module in loaded.get(name, ()) for each in _imported(module)}
        found[name] = name == _USES or _USES in imported
        if found[name]:
            pending += sorted(imported - found.keys() - sys.stdlib_module_names)
    return found


def _imported(module: ModuleType) -> set[str]:
    """Return the top-level names of the modules that the globals of a module come from."""
    found = set()
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str) and name:
            found.add(_top_level(name))
    return found


def _version(name: str) -> str:
    found = getattr(sys.modules.get(name), "__version__", None)
    if isinstance(found, str):
        return found
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _folders(name: str) -> list[Path]:
    """Return the folders of a package, or the file of a module."""
    module = sys.modules.get(name)
    if module is None:
        return []
    paths = getattr(module, "__path__", None)
    if paths is not None:
        return [Path(path) for path in paths]
    return [Path(module.__file__)] if module.__file__ else []


def _digest_of_files(folder: Path) -> str | None:
    """Return a digest of the names and contents of all files; None if one is newer than this process."""
    try:
        found = [(path, os.stat(path)) for path in sorted(_walk(folder))]
        if any(max(status.st_mtime, status.st_ctime) > _STARTED - _MARGIN for _, status in found):
            return None
        states = ((path, status.st_mtime_ns, status.st_ctime_ns, status.st_size) for path, status in found)
        return _digest_of_states(str(folder), tuple(states))
    except OSError:
        return None


@lru_cache(maxsize=64)
def _digest_of_states(folder: str, states: tuple[tuple[str, int, int, int], ...]) -> str:
    """Return the digest of files in these states: path, times of modification and change, size.  Raises OSError."""
    digest = hashlib.sha256()
    for path, *_ in states:
        content = Path(path).read_bytes()
        digest.update(f"{os.path.relpath(path, folder)}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def _walk(folder: Path) -> list[str]:
    if folder.is_file():
        return [str(folder)]
    found = []
    for parent, subfolders, files in os.walk(folder):
        subfolders[:] = [each for each in subfolders if each not in _IGNORED]
        found += [os.path.join(parent, each) for each in files]
    return found
