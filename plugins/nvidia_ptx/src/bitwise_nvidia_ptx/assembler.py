"""ptxas: its location, the options that Triton passes, and cached digests of the machine code that it generates.

This module follows Triton's choices.  The wheel contains `ptxas` and `ptxas-blackwell`; the latter is used for sm_100
and later, and from Triton 3.9 also for sm_90.  The options that can change the code are `--gpu-name` (with the suffix
`a` from sm_90), `--regAllocOptLevel=2` from Triton 3.7.1, and `--fmad=false` if `enable_fp_fusion` is off; in that case
Triton's PTX also has `.rn` on every add, sub and mul.  `-lineinfo` and `-v` do not change the code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from bitwise_core.execution.time_limit import check_time, remaining_seconds
from bitwise_nvidia_ptx import machine_code, machine_dataflow, object_file
from bitwise_nvidia_ptx.digest_cache import cached_digest
from bitwise_nvidia_ptx.machine_code import MachineFunction, only_padding, parse_listing
from bitwise_nvidia_ptx.machine_dataflow import equal_functions, rounds_exponentials
from bitwise_nvidia_ptx.object_file import Function, NotAnObjectFile

NO_FUSION = "--fmad=false"
_Listing: TypeAlias = tuple[list[bytes], Mapping[str, MachineFunction]]
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.S)


class PtxasNotFound(RuntimeError):
    """No ptxas was found, or it does not run; the message says what to install or set."""


class AssemblyFailed(RuntimeError):
    """ptxas or its disassembler failed on a text; the message contains its first line of output."""


class AssemblyInterrupted(AssemblyFailed):
    """ptxas or its disassembler did not finish or was killed, so that another run may succeed."""


@dataclass(frozen=True)
class Ptxas:
    """One assembler with fixed options.  `gpu` is the `--gpu-name`, `timeout` is in seconds."""

    path: str
    gpu: str
    options: tuple[str, ...] = ()
    timeout: float = 60.0

    @classmethod
    def locate(
        cls,
        arch: str,
        *,
        path: str | os.PathLike[str] | None = None,
        options: tuple[str, ...] | None = None,
        fp_fusion: bool = True,
    ) -> Ptxas:
        """Find the assembler for `arch` ("sm_90", "sm_90a").

        It is `path`, or else the first of: BITWISE_PTXAS, TRITON_PTXAS_PATH (TRITON_PTXAS_BLACKWELL_PATH where Triton
        uses that one), the installed Triton wheel, PATH.  `options` replaces the options that the installed Triton
        passes; `fp_fusion=False` adds `--fmad=false`, as Triton does.  The assembler must be the one that builds the
        launched kernels: another version may fuse other products.
        Raises PtxasNotFound, and ValueError for an `arch` that is not of the form sm_NN.
        """
        match = re.fullmatch(r"sm_(\d+)([af]?)", arch)
        if match is None:
            raise ValueError(f"the architecture {arch!r} is not of the form sm_90 or sm_90a; name one of these")
        number = int(match[1])
        gpu = f"sm_{number}{match[2] or ('a' if number >= 90 else '')}"
        version = _triton_version()
        name = "ptxas-blackwell" if number >= (90 if version >= (3, 9) else 100) else "ptxas"
        if options is None:
            options = ("--regAllocOptLevel=2",) if version >= (3, 7, 1) else ()
        if not fp_fusion:
            options = (*options, NO_FUSION)
        if path is not None:
            if not os.access(path, os.X_OK):
                raise PtxasNotFound(f"{path} is not an executable file; give the path of a ptxas")
            return cls(os.fspath(path), gpu, options)
        for found in _candidates(name):
            return cls(found, gpu, options)
        raise PtxasNotFound(
            f"no ptxas found for {arch}: install Triton or the CUDA toolkit, put ptxas on PATH, or set BITWISE_PTXAS"
        )

    @property
    def version(self) -> str:
        """The version, for example "12.8.93".  Raises PtxasNotFound if ptxas does not run."""
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise PtxasNotFound(f"{self.path} cannot be read ({error.strerror}); give the path of a ptxas") from None
        return _ptxas_version(self.path, status.st_mtime_ns, status.st_size)

    def digest(self, text: str, *, fuse: bool = True) -> str:
        """Return the digest of the machine code of a text, cached on disk (see `code_digest`).

        `fuse=False` adds `--fmad=false`.  Raises AssemblyFailed.
        """
        text = without_debug(text)
        flags = self._flags(fuse)
        key = ["machine code", _own_source(), *self._identity(), text, *flags]
        return cached_digest("ptxas", key, lambda: code_digest(self._assemble(text, flags)))

    def rounds_exponentials(self, original: str | bytes) -> bool:
        """Return whether it is proved that the machine code fuses no square of an exponential.

        `original` is a text or an object file.  Raises AssemblyFailed.
        """
        tool = next(_disassemblers(self.path), None)
        if tool is None:
            return False
        first = without_debug(original) if isinstance(original, str) else original

        def read() -> str:
            _, functions = _listing(tool, first if isinstance(first, bytes) else self._assemble(first, flags))
            return hashlib.sha256(str(all(map(rounds_exponentials, functions.values()))).encode()).hexdigest()

        flags, name = self._flags(True), first if isinstance(first, str) else hashlib.sha256(first).hexdigest()
        key = ["squares of exponentials", _own_source(), *self._identity(), _file_digest(tool), json.dumps(flags), name]
        return cached_digest("ptxas", key, read) == hashlib.sha256(b"True").hexdigest()

    def equal_dataflow(self, original: str | bytes, texts: Sequence[tuple[str, bool]]) -> Iterator[bool]:
        """Yield, for each text, whether its machine code is proved to compute what that of `original` computes.

        `original` is a text or an object file.  With each text comes whether ptxas may fuse products in it; if not, it
        is assembled with `--fmad=false`.  False also if `machine_dataflow` cannot prove it, or if no disassembler is
        found.  Raises AssemblyFailed.
        """
        tool = next(_disassemblers(self.path), None)
        if tool is None:
            yield from [False] * len(texts)
            return
        first = without_debug(original) if isinstance(original, str) else original
        own = self._flags(True)

        @functools.cache
        def listing() -> _Listing:
            return _listing(tool, first if isinstance(first, bytes) else self._assemble(first, own))

        name = first if isinstance(first, str) else hashlib.sha256(first).hexdigest()
        key = ["dataflow of machine code", _own_source(), *self._identity(), _file_digest(tool), json.dumps(own), name]
        for each, fuse in texts:
            text, flags = without_debug(each), self._flags(fuse)

            def compare(text: str = text, flags: list[str] = flags) -> str:
                code = self._assemble(text, flags)
                (rest, functions), (others, other_functions) = listing(), _listing(tool, code)
                alike = rest == others and functions.keys() == other_functions.keys()
                alike = alike and all(equal_functions(functions[f], other_functions[f]) for f in functions)
                return hashlib.sha256(str(alike).encode()).hexdigest()

            found = cached_digest("ptxas", [*key, text, *flags], compare)
            yield found == hashlib.sha256(b"True").hexdigest()

    def _identity(self) -> list[str]:
        """Return the version of the assembler and the digest of its file.  Raises PtxasNotFound."""
        return [self.version, _file_digest(self.path)]

    def assemble(self, text: str, *, fuse: bool = True) -> bytes:
        """Return the object file of a text, not cached.  Raises AssemblyFailed."""
        return self._assemble(without_debug(text), self._flags(fuse))

    def _flags(self, fuse: bool) -> list[str]:
        options = [*self.options] if fuse or NO_FUSION in self.options else [*self.options, NO_FUSION]
        return [*options, f"--gpu-name={self.gpu}"]

    def _assemble(self, text: str, flags: list[str]) -> bytes:
        with tempfile.TemporaryDirectory(prefix="bitwise-") as folder:
            source, target = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
            source.write_text(text, encoding="utf-8")
            done = _run([self.path, *flags, str(source), "-o", str(target)], self.timeout)
            if done.returncode or not target.exists():
                output = (done.stderr or done.stdout).strip().replace(str(source), "the text").splitlines()
                raise AssemblyFailed(f"ptxas rejects the text: {output[0] if output else f'exit {done.returncode}'}")
            return target.read_bytes()


def _run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a tool for at most some seconds, and no longer than the time limit of this context.

    Raises TimeLimitExceeded, and AssemblyInterrupted if the tool did not finish or was killed.
    """
    check_time()
    remaining = remaining_seconds()
    limit = seconds if remaining is None else min(seconds, remaining)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        check_time()
        raise AssemblyInterrupted(f"{command[0]} did not finish: {error}") from None
    if done.returncode < 0:
        raise AssemblyInterrupted(f"{command[0]} was ended by the signal {-done.returncode}")
    return done


def _listing(tool: str, cubin: bytes) -> _Listing:
    """Return everything that `code_digest` covers: what is not code of functions, and the instructions of each."""
    rest, functions = _split_code(cubin)
    with tempfile.TemporaryDirectory(prefix="bitwise-") as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        done = _run([tool, "-c", "-hex", "-plr", "-lrm", "narrow", str(file)], 60.0)
    try:
        found = parse_listing(done.stdout)
    except ValueError as error:
        raise AssemblyFailed(str(error)) from None
    relocated = {}
    for name, function in functions.items():
        code = b"".join(line.bits.to_bytes(16, "little") for line in found[name].instructions) if name in found else b""
        if not function.code.startswith(code) or not only_padding(function.code[len(code) :]):
            raise AssemblyFailed(f"the disassembler does not list the code of {name}")
        lines = [
            replace(line, text=" ".join([line.text, *function.relocations.get(line.address, ())]))
            for line in found[name].instructions
        ]
        relocated[name] = replace(found[name], instructions=tuple(lines))
    return rest, relocated


def without_debug(text: str) -> str:
    """Return the text without comments and debug information.  ptxas generates the same code for it."""
    text = re.sub(r"^[ \t]*\.(?:loc|file)\b[^\n]*", "", text, flags=re.M)
    text = re.sub(r"^[ \t]*\.section\b[^{]*\{[^}]*\}", "", text, flags=re.M)
    text = _COMMENT.sub(lambda match: match.group() if match.group().startswith('"') else " ", text)
    return re.sub(r"[ \t]*\n\s*", "\n", text)


def code_digest(cubin: bytes) -> str:
    """Return the digest of an object file, see `object_file.code_digest`.  Raises AssemblyFailed."""
    try:
        return object_file.code_digest(cubin)
    except NotAnObjectFile as error:
        raise AssemblyFailed(str(error)) from None


def _split_code(cubin: bytes) -> tuple[list[bytes], Mapping[str, Function]]:
    try:
        return object_file.split_code(cubin)
    except NotAnObjectFile as error:
        raise AssemblyFailed(str(error)) from None


def audit_tools() -> tuple[str, ...]:
    """Identify every assembler that may be chosen, with its disassemblers, and the options of the installed Triton.

    The environment variables and PATH decide only by the files that they lead to.
    """
    found = [f"Triton {_triton_version()}"]
    for name in ("ptxas", "ptxas-blackwell"):
        for path in _candidates(name):
            tools = [path, *itertools.islice(_disassemblers(path), 1)]
            found.append(" ".join([name, *map(_identity_of_tool, tools)]))
    return tuple(found)


def _identity_of_tool(path: str) -> str:
    try:
        return _file_digest(path)
    except PtxasNotFound as error:
        return str(error)


def _candidates(name: str) -> Iterator[str]:
    """Yield the executable files that may be the assembler of this name, the preferred one first."""
    variable = f"TRITON_{name.upper().replace('-', '_')}_PATH"
    for found in (
        os.environ.get("BITWISE_PTXAS"),
        os.environ.get(variable),
        *_in_triton_wheel(name),
        shutil.which("ptxas"),
    ):
        if found and os.access(found, os.X_OK) and not os.path.isdir(found):
            yield found


def _in_triton_wheel(name: str) -> Iterator[str]:
    """Yield the path of a tool inside an installed Triton wheel, without importing Triton."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("triton")
        for package in (spec.submodule_search_locations or ()) if spec else ():
            yield os.path.join(package, "backends", "nvidia", "bin", name)


def _disassemblers(path: str) -> Iterator[str]:
    """Yield the paths of nvdisasm: next to an assembler, on PATH, or in the Triton wheel."""
    for found in (
        os.path.join(os.path.dirname(path), "nvdisasm"),
        shutil.which("nvdisasm"),
        *_in_triton_wheel("nvdisasm"),
    ):
        if found and os.access(found, os.X_OK) and not os.path.isdir(found):
            yield found


def _file_digest(path: str) -> str:
    """Return the SHA-256 of a tool's file.  Raises PtxasNotFound."""
    try:
        status = os.stat(path)
        return _digest_of_file(path, status.st_mtime_ns, status.st_size, status.st_ino)
    except OSError as error:
        raise PtxasNotFound(f"{path} cannot be read ({error.strerror}); give the path of a ptxas") from None


@functools.lru_cache(maxsize=32)
def _digest_of_file(path: str, modified: int, size: int, inode: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.cache
def _own_source() -> str:
    """Return a digest of the modules that derive a cached digest from machine code."""
    modules = (machine_code, machine_dataflow, object_file)
    paths = (Path(__file__), *(Path(str(each.__file__)) for each in modules))
    return hashlib.sha256(b"\0".join(each.read_bytes() for each in paths)).hexdigest()


def _triton_version() -> tuple[int, ...]:
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return (0,)
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


@functools.lru_cache(maxsize=32)
def _ptxas_version(path: str, modified: int, size: int) -> str:
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PtxasNotFound(f"{path} does not run ({error}); give the path of a ptxas") from None
    match = re.search(r"\bV(\d+(?:\.\d+)+)", output)
    if match is None:
        raise PtxasNotFound(f"{path} does not print its version; give the path of a ptxas")
    return match[1]
