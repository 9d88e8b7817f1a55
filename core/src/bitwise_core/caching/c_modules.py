"""Modules in C that make calls cheaper, compiled by the C compiler of the machine on which they run, and kept.

Such a module decides nothing: the same is written in Python, which runs where there is no compiler.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from bitwise_core.caching.entry_files import EntryFolder, cache_directory

OFF_VARIABLE = "BITWISE_NO_C_MODULES"
"""The environment variable that leaves all of them out, if it is neither empty nor 0."""

_OPTIONS = ("-O2", "-shared", "-fPIC")
_SECONDS = 60


def c_module(source: Path) -> ModuleType | None:
    """Return the module of a file in C, whose name is that of the file; None where it cannot be compiled."""
    if os.environ.get(OFF_VARIABLE, "0") not in ("", "0") or not hasattr(os, "memfd_create"):
        return None
    try:
        return _loaded(source.stem, _code(source))
    except (ImportError, OSError, subprocess.SubprocessError):
        return None


def _code(source: Path) -> bytes:
    """Return the object file of a module, compiled where it is not kept.  Raises OSError and SubprocessError."""
    text = source.read_bytes()
    about = (sys.version, platform.machine(), *_OPTIONS, source.stem)
    key = hashlib.sha256("\n".join(about).encode() + b"\n" + text).hexdigest()
    directory = cache_directory()
    kept = None if directory is None else EntryFolder(directory / "modules")
    found = None if kept is None else kept.read(key)
    if found is None:
        found = _compiled(source)
        if kept is not None:
            with contextlib.suppress(OSError):  # the next process compiles it again
                kept.write(key, found)
    return found


def c_compiler() -> str | None:
    """Return the path of the C compiler that is used: that of CC, else cc, gcc or clang on PATH; None without one."""
    return shutil.which(os.environ.get("CC", "") or "cc") or shutil.which("gcc") or shutil.which("clang")


def _compiled(source: Path) -> bytes:
    """Return the object file that the compiler makes.  Raises OSError and SubprocessError."""
    compiler = c_compiler()
    if compiler is None:
        raise FileNotFoundError("there is no C compiler")
    include = sysconfig.get_paths()["include"]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "module.so"
        command = [compiler, *_OPTIONS, f"-I{include}", str(source), "-o", str(target)]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
        return target.read_bytes()


def _loaded(name: str, code: bytes) -> ModuleType:
    """Return the module of an object file, which nobody can change in between.  Raises ImportError and OSError."""
    handle = os.memfd_create(name)  # stays open: libraries are known by their paths, and its number is in the path
    with os.fdopen(os.dup(handle), "wb") as file:
        file.write(code)
    loader = ExtensionFileLoader(name, f"/proc/self/fd/{handle}")
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
