"""The assemblers and disassemblers of this machine: where they are, their versions, and what identifies them."""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from bitwise_core.caching.recalled_digests import FileState, file_state, recalled
from bitwise_core.errors import InputError
from bitwise_core.installed_distributions import installed_version

NAMED = "BITWISE_PTXAS"
"""The variable with the path of the assembler that a user chooses."""


class PtxasNotFound(RuntimeError):
    """No ptxas was found, or it does not run; the message says what to install or set."""


def audit_tools() -> tuple[str, ...]:
    """Identify every assembler that may be chosen, with its disassembler, and the options of the installed Triton.

    The environment variables and PATH decide only by the files that they lead to, and by the words for them.
    """
    found = [f"Triton {triton_version()}"]
    for name in ("ptxas", "ptxas-blackwell"):
        for path, origin in candidates(name):
            tools = [path, *disassemblers(path)]
            found.append(" ".join([name, origin, *map(_identity_of_tool, tools)]))
    return tuple(found)


@dataclass(frozen=True)
class InstalledAssembler:
    """An assembler of this machine: its path, its origin in words, and the disassembler that goes with it, or None."""

    path: str
    origin: str
    disassembler: str | None

    @property
    def version(self) -> str | None:
        """Its version, None where it does not run."""
        return version_of(self.path)


def installed_assemblers(name: str = "ptxas") -> Iterator[InstalledAssembler]:
    """Yield the assemblers of a name ("ptxas", "ptxas-blackwell"), in the order in which they are tried."""
    for path, origin in candidates(name):
        yield InstalledAssembler(path, origin, next(iter(disassemblers(path)), None))


def version_of(path: str) -> str | None:
    """Return the version that a tool of the toolkit prints, None where it does not run."""
    try:
        status = os.stat(path)
        return version_of_file(path, status.st_mtime_ns, status.st_size)
    except (OSError, PtxasNotFound):
        return None


def _identity_of_tool(path: str) -> str:
    try:
        return file_digest(path)
    except PtxasNotFound as error:
        return str(error)


def check_named_assembler() -> None:
    """Raise InputError where BITWISE_PTXAS names no file, one that is not executable, or one that does not run.

    Another assembler may fuse other products, so none replaces it.  TRITON_PTXAS_PATH is passed over, as by Triton.
    """
    path = os.environ.get(NAMED)
    if not path:
        return
    if not os.path.exists(path):
        wrong = "does not exist"
    elif not _is_executable(path):
        wrong = "is not an executable file"
    elif version_of(path) is None:
        wrong = "does not run or does not print its version"
    else:
        return
    raise InputError(f"{NAMED}: {path} {wrong}; set {NAMED} to the path of a ptxas, or unset it")


def _in_environment(name: str) -> list[tuple[str | None, str]]:
    """Return the paths that environment variables give of the assembler of this name, and their origins."""
    variables = (NAMED, f"TRITON_{name.upper().replace('-', '_')}_PATH")
    return [(os.environ.get(variable), f"of {variable}") for variable in variables]


def _is_executable(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)


def unusable(name: str) -> list[tuple[str, str]]:
    """Return the paths of an assembler in environment variables that are no executable files, and their origins."""
    return [(path, origin) for path, origin in _in_environment(name) if path and not _is_executable(path)]


def candidates(name: str) -> Iterator[tuple[str, str]]:
    """Yield the executable files that may be the assembler of this name, the preferred one first, and their origins."""
    triton = ".".join(map(str, triton_version()))
    other = "ptxas" if name == "ptxas-blackwell" else "ptxas-blackwell"
    found: list[tuple[str | None, str]] = [
        *_in_environment(name),
        *((path, f"of Triton {triton}") for path in _in_triton_wheel(name)),
        *((path, f"({other}) of Triton {triton}") for path in _in_triton_wheel(other)),
        (shutil.which("ptxas"), "on PATH"),
    ]
    homes = filter(None, (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), *_toolkits()))
    found += [(os.path.join(home, "bin", "ptxas"), "of the CUDA toolkit") for home in homes]
    found += [(path, "of the wheel of nvcc") for path in _in_nvidia_wheels()]
    files: set[tuple[int, int]] = set()
    for path, origin in found:
        if path and _is_executable(path):
            status = os.stat(path)
            if (file := (status.st_dev, status.st_ino)) not in files:
                files.add(file)
                yield path, origin


def _toolkits() -> list[str]:
    """Return the folders of installed CUDA toolkits, the newest first."""

    def version(path: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", os.path.basename(path))]

    return ["/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"), key=version, reverse=True)]


def _in_nvidia_wheels() -> Iterator[str]:
    """Yield the assemblers of installed wheels of nvcc, without importing them, the newest CUDA release first."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("nvidia")
        for package in (spec.submodule_search_locations or ()) if spec else ():
            yield from sorted(glob.glob(os.path.join(glob.escape(package), "*", "bin", "ptxas")), reverse=True)


def _in_triton_wheel(name: str) -> Iterator[str]:
    """Yield the path of a tool inside an installed Triton wheel, without importing Triton."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("triton")
        for package in (spec.submodule_search_locations or ()) if spec else ():
            yield os.path.join(package, "backends", "nvidia", "bin", name)


def disassemblers(path: str) -> tuple[str, ...]:
    """Return the paths of nvdisasm: next to an assembler, on PATH, and in the Triton wheel."""
    found = (
        os.path.join(os.path.dirname(path), "nvdisasm"),
        shutil.which("nvdisasm"),
        *_in_triton_wheel("nvdisasm"),
    )
    usable = [each for each in found if each and _is_executable(each)]
    return tuple({os.path.realpath(each): each for each in reversed(usable)}.values())[::-1]


def file_digest(path: str) -> str:
    """Return the SHA-256 of a tool's file.  Raises PtxasNotFound."""
    try:
        return _digest_of_file(file_state(path))
    except OSError as error:
        raise PtxasNotFound(f"{path} cannot be read ({error.strerror}); give the path of a ptxas") from None


@functools.lru_cache(maxsize=32)
def _digest_of_file(state: FileState) -> str:
    def read() -> bytes:
        with open(state.path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest().encode()

    return recalled("content", (state,), read).decode()


def triton_version() -> tuple[int, ...]:
    """Return the version of the installed Triton, (0,) without one."""
    version = installed_version("triton")
    return (0,) if version is None else tuple(int(part) for part in re.findall(r"\d+", version)[:3])


@functools.lru_cache(maxsize=32)
def version_of_file(path: str, modified: int, size: int) -> str:
    """Return the version that a file of this time and size prints.  Raises PtxasNotFound."""
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PtxasNotFound(f"{path} does not run ({error}); give the path of a ptxas") from None
    match = re.search(r"\bV(\d+(?:\.\d+)+)", output)
    if match is None:
        raise PtxasNotFound(f"{path} does not print its version; give the path of a ptxas")
    return match[1]
