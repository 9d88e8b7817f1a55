"""ptxas: the one that fits a text, the options that Triton passes, and cached digests of its machine code.

This module follows Triton's choices, and takes another assembler only for a text that Triton's rejects.  The wheel
contains `ptxas` and `ptxas-blackwell`; the latter is used from sm_100 on, and from Triton 3.9 also for sm_90.  The
options that can change the code are `--gpu-name` (with the suffix `a` from sm_90), `--regAllocOptLevel=2` from Triton
3.7.1, and `--fmad=false` if `enable_fp_fusion` is off; in that case Triton's PTX also has `.rn` on every add, sub and
mul.  `-lineinfo` and `-v` do not change the code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import subprocess
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from bitwise_core.execution.time_limit import check_time, remaining_seconds
from bitwise_nvidia_ptx.assembler import installed
from bitwise_nvidia_ptx.assembler.digest_cache import cached_bytes, cached_digest, cached_text, keep_bytes, kept_bytes
from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound, file_digest, version_of_file
from bitwise_nvidia_ptx.machine_code import blocks, dataflow, object_file, registers, stack, steps, terms
from bitwise_nvidia_ptx.machine_code.dataflow import equal_functions, rounds_exponentials
from bitwise_nvidia_ptx.machine_code.object_file import Function, NotAnObjectFile
from bitwise_nvidia_ptx.machine_code.registers import (
    ArithmeticLines,
    MachineFunction,
    arithmetic_lines,
    only_padding,
    parse_listing,
)

NO_FUSION = "--fmad=false"
_Listing: TypeAlias = tuple[list[bytes], Mapping[str, MachineFunction]]
_ARITHMETIC_FORMS = frozenset({0x20, 0x21, 0x23, 0x28, 0x29, 0x2B, 0x108})
"""The lowest nine bits of FMUL, FADD, FFMA, DMUL, DADD, DFMA and MUFU."""
_FADD = 0x21
_FFMA_BY_LITERAL = 0x823
_FMUL_BY_LITERAL = 0x820
_ONE = 0x3F800000
_UNITS = frozenset({0x3F800000, 0xBF800000})
_HEADER_SIZE = 1 << 16
_OBJECT_FILE_START = b"\x7fELF"
_LINES = re.compile(r"[\d ]*/[\d ]*")
_LISTING = re.compile(r"[\x00-\x7f]*")
_DEBUG_LINE = re.compile(r"^[ \t]*\.(?:loc|file)\b[^\n]*", re.M)
_DEBUG_SECTION = re.compile(r"^[ \t]*\.section\b[^{]*\{[^}]*\}", re.M)
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.S)


class AssemblyFailed(RuntimeError):
    """ptxas or its disassembler failed on a text; the message contains its first line of output."""


class NotDisassembled(AssemblyFailed):
    """The disassembler does not know an object file."""


class AssemblyInterrupted(AssemblyFailed):
    """ptxas or its disassembler did not finish or was killed, so that another run may succeed."""


@dataclass(frozen=True)
class Ptxas:
    """One assembler with fixed options.

    `gpu` is the `--gpu-name`, `timeout` is in seconds.  `origin` says in words where the assembler was found, and
    `preferred` which one would have been taken if it accepted the text ("" for this one).
    """

    path: str
    gpu: str
    options: tuple[str, ...] = ()
    timeout: float = 60.0
    origin: str = "of the given path"
    preferred: str = ""

    @classmethod
    def locate(
        cls,
        arch: str,
        *,
        path: str | os.PathLike[str] | None = None,
        options: tuple[str, ...] | None = None,
        fp_fusion: bool = True,
        text: str | None = None,
    ) -> Ptxas:
        """Find the assembler for `arch` ("sm_90", "sm_90a").

        It is `path`, or else the first of these that accepts the `.version` and the `.target` of `text`, if given:
        BITWISE_PTXAS, TRITON_PTXAS_PATH (TRITON_PTXAS_BLACKWELL_PATH where Triton uses that one), both assemblers of
        the installed Triton wheel, PATH, the CUDA toolkit (CUDA_HOME, CUDA_PATH, /usr/local/cuda*), the wheels of nvcc.
        `options` replaces the options that the installed Triton passes; `fp_fusion=False` adds `--fmad=false`, as
        Triton does.  The assembler must be the one that builds the launched kernels: another version may fuse others.
        Raises PtxasNotFound, InputError for a BITWISE_PTXAS that does not run, ValueError for an `arch` that is not of
        the form sm_NN, and AssemblyInterrupted.
        """
        match = re.fullmatch(r"sm_(\d+)([af]?)", arch)
        if match is None:
            raise ValueError(f"the architecture {arch!r} is not of the form sm_90 or sm_90a; name one of these")
        number = int(match[1])
        gpu = f"sm_{number}{match[2] or ('a' if number >= 90 else '')}"
        version = installed.triton_version()
        name = "ptxas-blackwell" if number >= (90 if version >= (3, 9) else 100) else "ptxas"
        if options is None:
            options = ("--regAllocOptLevel=2",) if version >= (3, 7, 1) else ()
        if not fp_fusion:
            options = (*options, NO_FUSION)
        if path is not None:
            if not os.access(path, os.X_OK):
                raise PtxasNotFound(f"{path} is not an executable file; give the path of a ptxas")
            return cls(os.fspath(path), gpu, options)
        installed.check_named_assembler()
        rejections: list[str] = []
        for found, origin in installed.candidates(name):
            ptxas = cls(found, gpu, options, origin=origin, preferred=rejections[0] if rejections else "")
            try:
                rejection = ptxas._rejection(_header(text)) if text is not None else ""
                if not rejection:
                    return ptxas
                rejections.append(f"ptxas {ptxas.version} {origin} rejects the text: {rejection}")
            except PtxasNotFound:
                if text is None:
                    raise
        if rejections:
            raise PtxasNotFound(
                f"no ptxas accepts the text ({'; '.join(rejections)}): install a newer CUDA toolkit or the wheel "
                "nvidia-cuda-nvcc, or set BITWISE_PTXAS to the path of the ptxas that builds the kernel"
            )
        raise PtxasNotFound(
            f"no ptxas found for {arch}: install Triton or the CUDA toolkit, put ptxas on PATH, or set BITWISE_PTXAS"
        )

    @property
    def description(self) -> str:
        """The assembler in words: its version, where it was found, and why it is not the preferred one."""
        found = f"ptxas {self.version} {self.origin}"
        if not self.preferred:
            return found
        return f"{found}, because {self.preferred}; another ptxas may fuse other products"

    def _rejection(self, header: str) -> str:
        """Return why this assembler does not accept the directives at the start of a text, "" if it does."""
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise PtxasNotFound(f"{self.path} cannot be read ({error.strerror}); give the path of a ptxas") from None
        return _rejection(self, header, status.st_mtime_ns, status.st_size)

    @property
    def version(self) -> str:
        """The version, for example "12.8.93".  Raises PtxasNotFound if ptxas does not run."""
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise PtxasNotFound(f"{self.path} cannot be read ({error.strerror}); give the path of a ptxas") from None
        return version_of_file(self.path, status.st_mtime_ns, status.st_size)

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
        tools = installed.disassemblers(self.path)
        if not tools:
            return False
        first = without_debug(original) if isinstance(original, str) else original

        def read() -> str:
            code = first if isinstance(first, bytes) else self._assemble(first, flags)
            try:
                found = all(map(rounds_exponentials, _first_listing(tools, code)[1][1].values()))
            except NotDisassembled:
                found = False
            return _digest_of(found)

        flags, name = self._flags(True), first if isinstance(first, str) else hashlib.sha256(first).hexdigest()
        identity = [*self._identity(), *map(file_digest, tools)]
        key = ["squares of exponentials", _own_source(), *identity, json.dumps(flags), name]
        return cached_digest("ptxas", key, read) == _digest_of(True)

    def equal_dataflow(self, original: str | bytes, texts: Sequence[tuple[str, bool]]) -> Iterator[bool]:
        """Yield, for each text, whether its machine code is proved to compute what that of `original` computes.

        `original` is a text or an object file.  With each text comes whether ptxas may fuse products in it; if not, it
        is assembled with `--fmad=false`.  False also if `machine_code.dataflow` cannot prove it, or if no disassembler
        is found.  Raises AssemblyFailed.
        """
        tools = installed.disassemblers(self.path)
        if not tools:
            yield from [False] * len(texts)
            return
        first = without_debug(original) if isinstance(original, str) else original
        own = self._flags(True)

        @functools.cache
        def expected() -> bytes:
            return first if isinstance(first, bytes) else self._assemble(first, own)

        @functools.cache
        def listing() -> tuple[str, _Listing]:
            return _first_listing(tools, expected())

        name = first if isinstance(first, str) else hashlib.sha256(first).hexdigest()
        identity = [*self._identity(), *map(file_digest, tools)]
        key = ["dataflow of machine code", _own_source(), *identity, json.dumps(own), name]
        for each, fuse in texts:
            text, flags = without_debug(each), self._flags(fuse)

            def compare(text: str = text, flags: list[str] = flags) -> str:
                code = self._assemble(text, flags)
                if _arithmetic(code) != _arithmetic(expected()):
                    return _digest_of(False)  # disassembling takes ten times as long as assembling
                try:
                    tool, listed = listing()
                    return _digest_of(_equal_listings(listed, _listing(tool, code)))
                except NotDisassembled:
                    return _digest_of(False)

            yield cached_digest("ptxas", [*key, text, *flags], compare) == _digest_of(True)

    def kept_match(self, original: str | bytes, search: str) -> str | None:
        """Return the answer that `keep_match` stored of a text or an object file, None if there is none.

        It is where to look first, and proves nothing: `search` names what else decides what is found.
        """
        stored = kept_bytes("ptxas", self._match_key(original, search), lambda content: content.isascii())
        return None if stored is None else stored.decode("ascii")

    def keep_match(self, original: str | bytes, search: str, answer: str) -> None:
        """Store the answer of a search, in ASCII, for `kept_match`."""
        keep_bytes("ptxas", self._match_key(original, search), answer.encode("ascii"))

    def _match_key(self, original: str | bytes, search: str) -> list[str]:
        name = original if isinstance(original, str) else hashlib.sha256(original).hexdigest()
        identity = [*self._identity(), *map(file_digest, installed.disassemblers(self.path))]
        return ["match", _own_source(), search, *identity, json.dumps(self._flags(True)), name]

    def arithmetic_lines(self, text: str) -> ArithmeticLines | None:
        """Return for which lines of a text its machine code multiplies and fuses, as its line information says.

        None if no disassembler is found, and no lines if it fails.  Raises AssemblyFailed.
        """
        tools = installed.disassemblers(self.path)
        if not tools:
            return None
        lines = _DEBUG_SECTION.sub("", _DEBUG_LINE.sub("", text))  # sections follow the code, whose lines are kept

        def read() -> str:
            with tempfile.TemporaryDirectory(prefix="bitwise-") as folder:
                file = Path(folder, "kernel.cubin")
                file.write_bytes(self._assemble(lines, [*self._flags(True), "-lineinfo"]))
                listed = (_run([tool, "-c", "-gp", str(file)], 60.0) for tool in tools)
                listing = next((each.stdout for each in listed if each.returncode == 0), "")
            try:
                found = arithmetic_lines(listing)
            except ValueError:
                found = ArithmeticLines(frozenset(), frozenset())
            return "/".join(" ".join(map(str, sorted(each))) for each in (found.fused, found.multiplied))

        identity = [*self._identity(), *map(file_digest, tools)]
        key = ["arithmetic by line", _own_source(), *identity, *self._flags(True), lines]
        fused, multiplied = cached_text("ptxas", key, _LINES, read).split("/")
        return ArithmeticLines(*(frozenset(map(int, each.split())) for each in (fused, multiplied)))

    def access_listing(self, text: str) -> str | None:
        """Return a listing of the machine code of a text, with the lines of the text (`nvdisasm -c -gp`).

        None if no disassembler lists it, or if the code with line information is not that without.  Raises
        AssemblyFailed.
        """
        lines = _DEBUG_SECTION.sub("", _DEBUG_LINE.sub("", text))
        tools = installed.disassemblers(self.path)

        def read() -> str:
            code = self._assemble(lines, [*self._flags(True), "-lineinfo"])
            if code_digest(code) != self.digest(text):
                return ""
            with tempfile.TemporaryDirectory(prefix="bitwise-") as folder:
                file = Path(folder, "kernel.cubin")
                file.write_bytes(code)
                listed = (_run([tool, "-c", "-gp", str(file)], 60.0) for tool in tools)
                found = next((each.stdout for each in listed if each.returncode == 0), "")
            return found.encode("ascii", "replace").decode("ascii")

        identity = [*self._identity(), *map(file_digest, tools)]
        key = ["listing by line", _own_source(), *identity, *self._flags(True), lines]
        return cached_text("ptxas", key, _LISTING, read) or None

    def _identity(self) -> list[str]:
        """Return the version of the assembler and the digest of its file.  Raises PtxasNotFound."""
        return [self.version, file_digest(self.path)]

    def assemble(self, text: str, *, fuse: bool = True) -> bytes:
        """Return the object file of a text, not cached.  Raises AssemblyFailed."""
        return self._assemble(without_debug(text), self._flags(fuse))

    def cached_assembly(self, text: str) -> bytes:
        """Return the object file of a text, cached on disk.  Raises AssemblyFailed."""
        text, flags = without_debug(text), self._flags(True)
        key = ["object file", *self._identity(), text, *flags]

        def is_object_file(stored: bytes) -> bool:
            return stored.startswith(_OBJECT_FILE_START)

        return cached_bytes("ptxas", key, is_object_file, lambda: self._assemble(text, flags))

    def _flags(self, fuse: bool) -> list[str]:
        options = [*self.options] if fuse or NO_FUSION in self.options else [*self.options, NO_FUSION]
        return [*options, f"--gpu-name={self.gpu}"]

    def _assemble(self, text: str, flags: list[str]) -> bytes:
        """Return the object file of a text; one of the last few texts is not assembled again."""
        key = hashlib.sha256("\0".join([*self._identity(), *flags, text]).encode()).digest()
        found = _RECENT.get(key)
        if found is None:
            found = self._assembled(text, flags)
            _RECENT.add(key, found)
        return found

    def _assembled(self, text: str, flags: list[str]) -> bytes:
        with tempfile.TemporaryDirectory(prefix="bitwise-") as folder:
            source, target = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
            source.write_text(text, encoding="utf-8")
            done = _run([self.path, *flags, str(source), "-o", str(target)], self.timeout)
            if done.returncode or not target.exists():
                output = (done.stderr or done.stdout).strip().replace(str(source), "the text").splitlines()
                raise AssemblyFailed(f"ptxas rejects the text: {output[0] if output else f'exit {done.returncode}'}")
            return target.read_bytes()


class _RecentFiles:
    """The object files of the last few texts, by the digests of what decides them.

    A search first compares digests, which are cached on disk, and then the code of the same texts.
    """

    def __init__(self, most: int) -> None:
        self._files: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._most, self._size = most, 0

    def get(self, key: bytes) -> bytes | None:
        """Return an object file, None for one that is not held."""
        with self._lock:
            return self._files.get(key)

    def add(self, key: bytes, file: bytes) -> None:
        """Hold an object file in the place of the oldest ones; all together have at most `most` bytes."""
        with self._lock:
            self._size += len(file) - len(self._files.pop(key, b""))
            self._files[key] = file
            while self._size > self._most:
                self._size -= len(self._files.popitem(last=False)[1])


_RECENT = _RecentFiles(1 << 23)


def _header(text: str) -> str:
    """Return the directives of a text that decide whether an assembler accepts it."""
    plain = _COMMENT.sub(" ", text[:_HEADER_SIZE])
    found = [re.search(rf"^\s*\.{each}\s[^\n]*", plain, re.M) for each in ("version", "target", "address_size")]
    return "".join(f"{match[0].strip()}\n" for match in found if match is not None)


@functools.lru_cache(maxsize=64)
def _rejection(ptxas: Ptxas, header: str, modified: int, size: int) -> str:
    """Return the complaint of an assembler, cached for the file with this time and size."""
    flags = ptxas._flags(True)
    complaints: list[str] = []

    def accepts() -> str:
        try:
            ptxas._assemble(header, flags)
        except AssemblyInterrupted:
            raise
        except AssemblyFailed as error:
            complaints.append(str(error).rpartition("fatal   : ")[2].removeprefix("ptxas rejects the text: "))
        return _digest_of(not complaints)

    key = ["accepts", _own_source(), *ptxas._identity(), header, *flags]
    if cached_digest("ptxas", key, accepts) == _digest_of(True):
        return ""
    if not complaints:
        accepts()
    return complaints[0] if complaints else ""


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


def _arithmetic(cubin: bytes) -> Counter[int]:
    """Return how often the code has each form of the instructions that add, multiply, or fuse fp32 and fp64 numbers.

    An FFMA with a literal factor of 1 or -1 counts as an FADD, and an FMUL with a literal factor of 1 does not count.
    """
    found = Counter[int]()
    for function in _split_code(cubin)[1].values():
        for at in range(0, len(function.code), 16):
            word = int.from_bytes(function.code[at : at + 8], "little")
            if word & 0xFFF == _FMUL_BY_LITERAL and word >> 32 == _ONE:
                continue
            by_one = word & 0xFFF == _FFMA_BY_LITERAL and word >> 32 in _UNITS
            found[_FADD if by_one else word & 0x1FF] += 1
    return Counter({form: count for form, count in found.items() if form in _ARITHMETIC_FORMS})


def _digest_of(found: bool) -> str:
    """Return the digest that stands for an answer in the cache of digests."""
    return hashlib.sha256(str(found).encode()).hexdigest()


def _equal_listings(left: _Listing, right: _Listing) -> bool:
    """Return whether two object files agree in everything but code, and each function is proved to compute the same."""
    (rest, functions), (others, other_functions) = left, right
    if rest != others or functions.keys() != other_functions.keys():
        return False
    return all(equal_functions(function, other_functions[name]) for name, function in functions.items())


def _first_listing(tools: Sequence[str], cubin: bytes) -> tuple[str, _Listing]:
    """Return the first disassembler that lists an object file, and its listing.  An old one lacks later architectures.

    Raises NotDisassembled.
    """
    for tool in tools[:-1]:
        with contextlib.suppress(NotDisassembled):
            return tool, _listing(tool, cubin)
    return tools[-1], _listing(tools[-1], cubin)


def _listing(tool: str, cubin: bytes) -> _Listing:
    """Return everything that `code_digest` covers: what is not code of functions, and the instructions of each.

    Raises NotDisassembled.
    """
    rest, functions = _split_code(cubin)
    listed: dict[str, MachineFunction] = {}
    for data in _equivalent_files(cubin):
        if not listed:
            listed = _listed(tool, data, functions)
    if listed.keys() != functions.keys():
        raise NotDisassembled(f"{os.path.basename(tool)} does not list the machine code")
    return rest, listed


def _equivalent_files(cubin: bytes) -> Iterator[bytes]:
    """Yield object files with the code of one, which a disassembler may list if it does not list that one."""
    older = object_file.with_older_header(cubin)
    for data in (cubin, older, object_file.with_fewer_registers(cubin if older is None else older)):
        if data is not None:
            yield data


def _listed(tool: str, cubin: bytes, functions: Mapping[str, Function]) -> dict[str, MachineFunction]:
    """Return what the disassembler lists of these functions, with the relocations of each instruction in its text."""
    with tempfile.TemporaryDirectory(prefix="bitwise-") as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        done = _run([tool, "-c", "-hex", "-plr", "-lrm", "narrow", str(file)], 60.0)
    try:
        found = parse_listing(done.stdout)
    except ValueError:
        return {}
    listed = {}
    for name, function in functions.items():
        if name not in found:
            continue
        lines = found[name].instructions
        code = b"".join(line.bits.to_bytes(16, "little") for line in lines)
        if function.code.startswith(code) and only_padding(function.code[len(code) :]):
            moved = [replace(line, moved=function.relocations.get(line.address, ())) for line in lines]
            listed[name] = replace(found[name], instructions=tuple(moved), imports=function.imports)
    return listed


def without_debug(text: str) -> str:
    """Return the text without comments and debug information.  ptxas generates the same code for it."""
    text = _DEBUG_SECTION.sub("", _DEBUG_LINE.sub("", text))
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


@functools.cache
def _own_source() -> str:
    """Return a digest of the modules that derive a cached digest from machine code."""
    modules = (
        blocks, dataflow, object_file, registers, stack, steps, terms,
    )  # fmt: skip
    paths = (Path(__file__), *(Path(str(each.__file__)) for each in modules))
    return hashlib.sha256(b"\0".join(each.read_bytes() for each in paths)).hexdigest()
