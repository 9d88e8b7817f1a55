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
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bitwise_core.execution.time_limit import check_time, remaining_seconds
from bitwise_nvidia_ptx import machine_code
from bitwise_nvidia_ptx.digest_cache import cached_digest
from bitwise_nvidia_ptx.machine_code import MachineInstruction, equal_up_to_predicates, parse_listing

NO_FUSION = "--fmad=false"
_SECTIONS = (".text", ".nv.constant", ".nv.global", ".nv.shared", ".rel", ".nv.local")
_IGNORED_RELOCATIONS = ("debug", "eh_frame")
_FUNCTION = ".text."
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

    def equal_up_to_predicates(self, original: str | bytes, text: str, *, fuse: bool = True) -> bool:
        """Return whether the machine code of `text` equals that of `original` up to the names of predicate registers.

        `original` is a text or an object file; `fuse=False` adds `--fmad=false` for `text`.  False also if
        `machine_code` cannot prove it, or if no disassembler is found next to the assembler or on PATH.  Raises
        AssemblyFailed.
        """
        tool = self._disassembler()
        if tool is None:
            return False
        text, flags = without_debug(text), self._flags(fuse)
        if isinstance(original, bytes):
            return _equal_up_to_predicates(tool, original, self._assemble(text, flags))
        first, own = without_debug(original), self._flags(True)

        def compare() -> str:
            alike = _equal_up_to_predicates(tool, self._assemble(first, own), self._assemble(text, flags))
            return hashlib.sha256(str(alike).encode()).hexdigest()

        tools = [_file_digest(each) for each in (tool, *_neighbours(tool, "nvdisasm"))]
        key = ["names of predicates aside", _own_source(), *self._identity(), json.dumps([tools, own, flags])]
        found = cached_digest("ptxas", [*key, first, text], compare)
        return found == hashlib.sha256(b"True").hexdigest()

    def _identity(self) -> list[str]:
        """Return the version of the assembler and the digest of its file.  Raises PtxasNotFound."""
        return [self.version, _file_digest(self.path)]

    def _disassembler(self) -> str | None:
        return next(_neighbours(self.path, "cuobjdump"), None)

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


def _equal_up_to_predicates(tool: str, first: bytes, second: bytes) -> bool:
    """Return whether two object files agree in everything that `code_digest` covers, up to the names of predicates."""
    (rest, sizes), (others, other_sizes) = _split_code(first), _split_code(second)
    if rest != others or sizes != other_sizes:
        return False
    listings = [_listing(tool, each) for each in (first, second)]
    if any({name: 16 * len(lines) for name, lines in each.items()} != sizes for each in listings):
        return False
    return all(equal_up_to_predicates(lines, listings[1][name]) for name, lines in listings[0].items())


def _listing(tool: str, cubin: bytes) -> Mapping[str, tuple[MachineInstruction, ...]]:
    with tempfile.TemporaryDirectory(prefix="bitwise-") as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        done = _run([tool, "-sass", str(file)], 60.0)
    try:
        return parse_listing(done.stdout)
    except ValueError as error:
        raise AssemblyFailed(str(error)) from None


def without_debug(text: str) -> str:
    """Return the text without comments and debug information.  ptxas generates the same code for it."""
    text = re.sub(r"^[ \t]*\.(?:loc|file)\b[^\n]*", "", text, flags=re.M)
    text = re.sub(r"^[ \t]*\.section\b[^{]*\{[^}]*\}", "", text, flags=re.M)
    text = _COMMENT.sub(lambda match: match.group() if match.group().startswith('"') else " ", text)
    return re.sub(r"[ \t]*\n\s*", "\n", text)


def code_digest(cubin: bytes) -> str:
    """Return the SHA-256 of everything in an object file that determines what the GPU executes.

    That is code, constant banks, initialised memory, sizes of shared memory, and the relocations of these with the
    names of their symbols.  Debug sections, notes, and tables that only describe the kernel are excluded.  Raises
    AssemblyFailed if the bytes are not a 64-bit ELF file.
    """
    digest = hashlib.sha256()
    for part in sorted(part for _, part in _significant_sections(cubin)):
        digest.update(part)
    return digest.hexdigest()


def _split_code(cubin: bytes) -> tuple[list[bytes], Mapping[str, int]]:
    """Return what `code_digest` covers except the code of functions, and the size in bytes of each function's code."""
    sizes: dict[str, int] = {}
    rest: list[bytes] = []
    for name, part in _significant_sections(cubin):
        if name.startswith(_FUNCTION):
            sizes[name.removeprefix(_FUNCTION)] = len(part[part.index(b"\0", len(name) + 1) + 1 :])
            rest.append(name.encode())
        else:
            rest.append(part)
    return sorted(rest), sizes


def _significant_sections(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each section that determines what the GPU executes.  Raises AssemblyFailed."""
    if data[:5] != b"\x7fELF\x02":
        raise AssemblyFailed("the object file is not a 64-bit ELF file; give the output of ptxas")
    start = struct.unpack_from("<Q", data, 0x28)[0]
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]

    def string(table: int, offset: int) -> str:
        begin = headers[table][4] + offset
        return data[begin : data.index(b"\0", begin)].decode()

    for header in headers:
        name = string(names, header[0])
        content = b"" if header[1] == 8 else data[header[4] : header[4] + header[5]]
        if not name.startswith(_SECTIONS) or any(word in name for word in _IGNORED_RELOCATIONS):
            continue
        if header[1] in (4, 9):
            symbols = headers[header[6]]

            def symbol(index: int, symbols: tuple[int, ...] = symbols) -> str:
                entry = struct.unpack_from("<IBBHQQ", data, symbols[4] + 24 * index)
                section = string(names, headers[entry[3]][0]) if entry[3] < count else str(entry[3])
                return string(symbols[6], entry[0]) or f"{section}+{entry[4]}"

            content = b"\0".join(sorted(_relocations(content, header[1] == 4, symbol)))
        yield name, f"{name}\0{header[5]}\0".encode() + content


def _relocations(content: bytes, addends: bool, symbol: Callable[[int], str]) -> Iterator[bytes]:
    """Yield each relocation as offset, type, symbol name and addend."""
    step = 24 if addends else 16
    for at in range(0, len(content) - step + 1, step):
        offset, info = struct.unpack_from("<QQ", content, at)
        addend = struct.unpack_from("<q", content, at + 16)[0] if addends else 0
        yield f"{offset},{info & 0xFFFFFFFF},{symbol(info >> 32)},{addend}".encode()


def audit_tools() -> tuple[str, ...]:
    """Identify every assembler that may be chosen, with its disassemblers, and the options of the installed Triton.

    The environment variables and PATH decide only by the files that they lead to.
    """
    found = [f"Triton {_triton_version()}"]
    for name in ("ptxas", "ptxas-blackwell"):
        for path in _candidates(name):
            tools = [path, *_neighbours(path, "cuobjdump"), *_neighbours(path, "nvdisasm")]
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


def _neighbours(path: str, name: str) -> Iterator[str]:
    """Yield the path of another tool, which is next to a tool or on PATH, if there is one."""
    neighbour = os.path.join(os.path.dirname(path), name)
    found = neighbour if os.access(neighbour, os.X_OK) else shutil.which(name)
    if found:
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
    paths = (Path(__file__), Path(machine_code.__file__))
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
