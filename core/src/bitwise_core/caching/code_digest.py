"""A digest of the code that computes a result: of every file of the packages that take part.

A digest of files says what this process runs only if no file changed since the process started.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from bitwise_core.caching.recalled_digests import FileState, file_state, recalled
from bitwise_core.installed_distributions import installed_version


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
_IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+(\w+)[\w.]*[ \t]+import|import[ \t]+(\w+))", re.M)
_NUMPY_VERSION = re.compile(r"""^version\s*=\s*["']([^"'\n]+)["']""", re.M)
_USES = "bitwise_core"


def code_digest(modules: Iterable[ModuleType]) -> str | None:
    """Return a digest of the code of core, of these modules' packages, and of the packages that they import.

    A package that uses core counts with every file of it, another one by its version; so do Python and the machine.
    The digest does not depend on what this process has imported so far.  None if a file was changed since this process
    started, so that the process may run other code than the files hold.
    """
    start = {_USES, *(module.__name__.partition(".")[0] for module in modules)}
    parts: dict[str, str] = {}
    pending = sorted(start)
    while pending:
        name = pending.pop()
        if name in parts:
            continue
        folders = _folders(name)
        if name not in start and not any(_uses_core(folder) for folder in folders):
            parts[name] = _version(name) if folders else ""
            continue
        found = [_code_of(folder) for folder in folders]
        if None in found:
            return None
        known = [each for each in found if each is not None]
        parts[name] = " ".join(each.digest for each in known)
        pending += {imported for each in known for imported in each.imports} - parts.keys() - sys.stdlib_module_names
    text = "\0".join(f"{name} {parts[name]}" for name in sorted(parts))
    return hashlib.sha256(f"{_platform()!r}\0{text}".encode()).hexdigest()


def _platform() -> tuple[object, ...]:
    optimize = sys.flags.optimize
    return sys.version, sys.implementation.name, optimize, platform.machine(), sys.byteorder, _numpy_version()


def _numpy_version() -> str:
    """Return the version of NumPy, which is read from its module of versions as long as this process needs no NumPy."""
    if "numpy" not in sys.modules:
        for folder in _folders("numpy"):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                stated = _NUMPY_VERSION.findall((folder / "version.py").read_text(encoding="utf-8"))
                if len(stated) == 1:
                    return str(stated[0])
    import numpy as np

    return np.__version__


@dataclass(frozen=True, slots=True)
class _Code:
    """The digest of files, and the top-level names that their modules may import."""

    digest: str
    imports: frozenset[str]


def _folders(name: str) -> list[Path]:
    """Return the folders of a package, or the file of a module; none if it is not installed."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(each) for each in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.origin is not None and os.path.isfile(spec.origin) else []


def _uses_core(folder: Path) -> bool:
    """Return whether a module directly in the folder imports core.  A plugin of several modules has such a module."""
    path = str(folder)
    try:
        files = [path] if os.path.isfile(path) else [os.path.join(path, each) for each in os.listdir(path)]
        found = _code(path, _states(each for each in files if each.endswith(".py")))
    except OSError:
        return True
    return _USES in found.imports


def _version(name: str) -> str:
    """Return the version of the distribution of this name, empty if there is none."""
    return installed_version(name) or ""


def _code_of(folder: Path) -> _Code | None:
    """Return the code of all files; None if one cannot be read or is newer than this process."""
    try:
        states = _states(_walk(folder))
        newest = (_STARTED - _MARGIN) * 1e9
        if any(each.modified > newest or each.changed > newest for each in states):
            return None
        return _code(str(folder), states)
    except OSError:
        return None


def _states(paths: Iterable[str]) -> tuple[FileState, ...]:
    """Return the state of each file.  Raises OSError."""
    return tuple(map(file_state, sorted(paths)))


@lru_cache(maxsize=256)
def _code(folder: str, states: tuple[FileState, ...]) -> _Code:
    """Return the code of files in these states.  Raises OSError."""
    text = recalled(f"code of {folder}, 1", states, lambda: _read_code(folder, states)).decode()
    digest, *imports = text.split()
    return _Code(digest, frozenset(imports))


def _read_code(folder: str, states: tuple[FileState, ...]) -> bytes:
    """Return the digest of files and the names that they import, as words.  Raises OSError."""
    digest = hashlib.sha256()
    imports: set[str] = set()
    for each in states:
        content = Path(each.path).read_bytes()
        name = os.path.relpath(each.path, folder)
        digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
        digest.update(content)
        if each.path.endswith(".py"):
            imports.update((first or second).decode() for first, second in _IMPORT.findall(content))
    return " ".join((digest.hexdigest(), *sorted(imports))).encode()


def _walk(folder: Path) -> list[str]:
    if folder.is_file():
        return [str(folder)]
    found = []
    for parent, subfolders, files in os.walk(folder):
        subfolders[:] = [each for each in subfolders if each not in _IGNORED]
        found += [os.path.join(parent, each) for each in files]
    return found
