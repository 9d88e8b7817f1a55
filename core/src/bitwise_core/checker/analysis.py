"""The reading of one kernel: what it is given, how it is read, and what is found."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import blake2b
from typing import TypeAlias

import numpy as np

from bitwise_core.assembly.module import AssemblyError, Module
from bitwise_core.checker.block_symmetry.grid import NotSymmetric
from bitwise_core.checker.block_symmetry.symmetry import Summary, check, summarise
from bitwise_core.checker.parametric.signature import parametric_signature
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.assumptions import ASSUMPTIONS
from bitwise_core.execution.buffers import element_types
from bitwise_core.execution.concrete import (
    PreparedLaunch,
    WorkLimitExceeded,
    checked_outputs,
    prepare_launch,
    run_blocks,
)
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import Launch, ManifestError
from bitwise_core.execution.memory.global_memory import Nondeterministic
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.values.symbolic_vector import NAN_BITS, SymbolicVector
from bitwise_core.execution.values.term_hash import nan_bits, with_architecture_nans
from bitwise_core.numerics import FloatFormat

MAXIMUM_LANES = 1 << 21
"""Launches of more threads are never run whole."""

MAXIMUM_WORK = 200_000_000
"""Launches of at most this many thread steps are run whole; larger ones are decided by block symmetry."""


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel to be read: its text, its name for messages, and its launch (None: every launch).

    `entry` names the entry of a kernel without a launch, where its text has several.  `target` names its architecture
    where that is not the one that kernels beside it are read for.
    """

    name: str
    text: str
    launch: Launch | None = None
    entry: str | None = None
    target: str | None = None

    def __repr__(self) -> str:
        launch = "every launch" if self.launch is None else f"grid {self.launch.grid}"
        return f"Source({self.name!r}, {len(self.text)} characters, {launch})"


@dataclass(frozen=True, slots=True)
class Options:
    """How kernels are read: for every launch or the given one, under which assumptions, and with which audit.

    `audit_contraction`: what the assembler may fuse is audited first; else the text is taken to state every rounding.
    `across`: kernels of several architectures are compared, whose NaNs have bits of their own.
    """

    every_launch: bool = False
    assume: frozenset[str] = frozenset()
    audit_contraction: bool = True
    cross_architecture: bool = False

    def __post_init__(self) -> None:
        unknown = sorted(self.assume - set(ASSUMPTIONS))
        if unknown:
            raise ValueError(f"nobody knows the assumption {unknown[0]!r}; there are: {', '.join(ASSUMPTIONS)}")

    @property
    def scope(self) -> str:
        """What a verdict speaks of: `launch` or `every launch`."""
        return "every launch" if self.every_launch else "launch"


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """What was read of one kernel.

    `signature` is 16 bytes, equal for two kernels exactly when their outputs' canonical trees are equal (up to
    hash collisions of about 2**-128 a pair); None where the reading stopped, with the reason in `unknown`, and for a
    large grid, which is compared block by block (`difference.compare_large`).  `undetermined` says that the kernel's
    own result is not determined, `malformed` that the text or its launch is wrong (`unknown` is then the sentence for
    whoever made it), `failed` that the reader broke down, which no text may cause.  `notes` names what the reading
    rests on beyond the text.  `program_only` is the reason why a reading for every launch compares the program text
    only, None where it compares what the kernel computes.

    `prepared` is the program that was run, None where there is none; `outputs` is what it leaves in each buffer, by the
    buffer's number, None where the reading stopped or the grid is large.  Both stay in this process: `portable` leaves
    them out.
    """

    name: str
    signature: bytes | None
    unknown: str | None = None
    nondeterministic: bool = False
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    malformed: bool = False
    failed: bool = False
    program_only: str | None = None
    prepared: PreparedLaunch | None = field(default=None, repr=False, compare=False)
    outputs: Mapping[int, Output] | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        found = f"unknown: {self.unknown[:200]}" if self.unknown is not None else "large grid"
        if self.signature is not None:
            found = f"signature {self.signature.hex()}"
        return f"AnalysisResult({self.name!r}, {found})"

    @property
    def large(self) -> bool:
        """Whether the kernel was read and has no signature: its grid is compared with another one block by block."""
        return self.signature is None and self.unknown is None

    def portable(self) -> AnalysisResult:
        """The result without its program and outputs, small enough to travel between processes."""
        return replace(self, prepared=None, outputs=None)


LARGE_GRID = "large grids are decided on few blocks, which the others are proved to be translations of"
"""The note of a reading that compares few blocks for all."""

NO_AUDIT = "contraction is not audited: the assembler may fuse products into sums"
"""The note of a reading without the audit."""


def buffer_numbers(names: set[str]) -> dict[str, int]:
    """The number of each buffer, the same for all kernels that are compared."""
    return {name: index + 1 for index, name in enumerate(sorted(names))}


Arches: TypeAlias = Arch | tuple[Arch, Arch]
"""The architecture of two kernels that are compared, or that of each."""


def arch_pair(arch: Arches) -> tuple[Arch, Arch]:
    """The architecture of each side."""
    return arch if isinstance(arch, tuple) else (arch, arch)


def with_cross_architecture(arch: Arches, options: Options) -> Options:
    """The options for two kernels, which say whether they are of several architectures."""
    left, right = arch_pair(arch)
    return options if left.name == right.name else replace(options, cross_architecture=True)


def prepare(source: Source, arch: Arch, options: Options) -> PreparedLaunch:
    """Parses and audits the text and builds its program.  Raises Unsupported, AssemblyError, ManifestError."""
    if source.launch is None:
        raise Unsupported("the manifest gives no launch of it")
    module, notes = resolved(source, source.launch.entry, arch, options)
    return prepare_launch(module, arch, source.launch, notes)


def resolved(source: Source, entry: str | None, arch: Arch, options: Options) -> tuple[Module, tuple[str, ...]]:
    """The text parsed, with every rounding stated, and how that was established.

    Raises Unsupported where it cannot be, AssemblyError and ManifestError for a text or an entry that makes no sense.
    """
    module: Module = arch.parse(source.text, source.name)
    if module.target not in arch.targets:
        raise ManifestError(f"is for the target {module.target}, and kernels are read for {arch.name} here")
    try:
        module.kernel(entry)
    except KeyError as error:
        raise ManifestError(str(error.args[0]).removeprefix(f"{source.name} ")) from None
    if not options.audit_contraction:
        return module, (NO_AUDIT,)
    if arch.audit_contraction is None:
        return module, ()
    audit = arch.audit_contraction(module, source.text, entry)
    return audit.module, (audit.method,)


KEPT = 6
"""So many summaries of large grids a session keeps."""


class Session:
    """Kernels read under one set of buffers and options.

    `buffers` holds the number of each buffer, the same for all kernels that are compared.  The summaries of the last
    large grids are kept for comparisons.  A session is used by one thread at a time.
    """

    def __init__(self, buffers: Mapping[str, int], options: Options) -> None:
        self.buffers, self.options = buffers, options
        self._summaries: OrderedDict[Hashable, Summary] = OrderedDict()

    def read(self, source: Source, arch: Arch) -> AnalysisResult:
        """Reads one kernel; never raises for what a text or a launch says."""
        start = time.perf_counter()
        steps = _Steps()

        def stopped(reason: str, nondeterministic: bool = False, malformed: bool = False) -> AnalysisResult:
            seconds = time.perf_counter() - start
            return AnalysisResult(
                source.name, None, reason, nondeterministic, (), seconds, malformed, prepared=steps.prepared
            )

        try:
            if self.options.every_launch:
                self._read_for_every_launch(source, arch, steps)
            else:
                self._read_for_its_launch(source, arch, steps)
        except NotSymmetric as error:
            return stopped(
                f"the grid is too large to be run whole, and its blocks are not proved to be translations: {error}"
            )
        except Nondeterministic as error:
            return stopped(f"the kernel's own result is not determined: {error}", nondeterministic=True)
        except AssemblyError as error:
            return stopped(str(error), malformed=True)
        except ManifestError as error:
            return stopped(f"{source.name}: {error}", malformed=True)
        except Unsupported as error:
            return stopped(str(error))
        except RecursionError:
            return stopped("the text nests too deeply to be read")
        except MemoryError:
            return stopped("the reading ran out of memory")
        except Exception as error:
            # A fault of the reader must not take down the readings of other kernels, and may never merge anything.
            return replace(
                stopped(f"the reader failed on it, which is a fault of the reader ({type(error).__name__}: {error})"),
                failed=True,
            )
        return AnalysisResult(
            source.name,
            steps.signature,
            notes=steps.notes,
            seconds=time.perf_counter() - start,
            program_only=steps.program_only,
            prepared=steps.prepared,
            outputs=steps.outputs,
        )

    def _read_for_its_launch(self, source: Source, arch: Arch, steps: _Steps) -> None:
        prepared = steps.prepared = prepare(source, arch, self.options)
        steps.notes = prepared.notes
        steps.outputs = concrete_outputs(prepared, self.buffers, self.options)
        if steps.outputs is None:
            if self.options.cross_architecture:
                raise Unsupported("the launch is too large to be compared across architectures")
            try:
                self.summary(source, arch, prepared)
            except NotSymmetric:
                if prepared.launch.blocks * prepared.threads > MAXIMUM_LANES:
                    raise
                memory, scratch = run_blocks(prepared, TermDomain(self.options.assume), self.buffers)
                steps.outputs = checked_outputs(memory, scratch)
            else:
                steps.notes = (*prepared.notes, LARGE_GRID)
                return
        steps.signature = sign(steps.outputs)

    def _read_for_every_launch(self, source: Source, arch: Arch, steps: _Steps) -> None:
        if self.options.cross_architecture:
            raise Unsupported(
                "kernels of several architectures are compared for one launch, not for every one: name their launches "
                "in a manifest"
            )
        entry = source.entry if source.launch is None else source.launch.entry
        module, notes = resolved(source, entry, arch, self.options)
        found = parametric_signature(module, module.kernel(entry), arch)
        steps.signature, steps.program_only = found.value, found.program_only
        steps.notes = (*notes, *found.notes)

    def summary(self, source: Source, arch: Arch, prepared: PreparedLaunch | None = None) -> Summary:
        """The checked summary of a kernel's grid, from the last ones or made anew.

        Raises NotSymmetric where the proof fails, Unsupported or Nondeterministic where the kernel has no result of its
        own, AssemblyError and ManifestError as `prepare` does.
        """
        key = source.text, source.launch, arch.name
        if key in self._summaries:
            self._summaries.move_to_end(key)
            return self._summaries[key]
        found = summarise(prepared or prepare(source, arch, self.options), self.buffers)
        check(found, terms_under(self.options.assume))
        self._summaries[key] = found
        while len(self._summaries) > KEPT:
            self._summaries.popitem(last=False)
        return found


@dataclass(slots=True)
class _Steps:
    """How far a reading came."""

    signature: bytes | None = None
    notes: tuple[str, ...] = ()
    program_only: str | None = None
    prepared: PreparedLaunch | None = None
    outputs: dict[int, Output] | None = None


def read(source: Source, arch: Arch, buffers: Mapping[str, int], options: Options) -> AnalysisResult:
    """Reads one kernel in a session of its own; never raises for what a text or a launch says."""
    return Session(buffers, options).read(source, arch)


@cache
def terms_under(assume: frozenset[str]) -> Callable[[], TermDomain]:
    """What makes a domain of terms under those assumptions; the same callable each time, for it names the domain."""
    return partial(TermDomain, assume)


def concrete_outputs(ready: PreparedLaunch, buffers: Mapping[str, int], options: Options) -> dict[int, Output] | None:
    """What a launch leaves in every buffer, or None where it is too large to be run whole.  Raises Unsupported."""
    if ready.launch.blocks * ready.threads > MAXIMUM_LANES:
        return None
    try:
        memory, scratch = run_blocks(ready, TermDomain(options.assume), buffers, work=MAXIMUM_WORK)
    except WorkLimitExceeded:
        return None
    outputs = checked_outputs(memory, scratch)
    if not options.cross_architecture:
        return outputs
    floating = {buffers[name]: each.format for name, each in element_types([ready.launch]).items() if name in buffers}
    return {number: _across(each, floating.get(number), ready.arch.name) for number, each in outputs.items()}


def _across(output: Output, form: FloatFormat | None, architecture: str) -> Output:
    """Stored elements as they are compared across architectures.

    The bits of a NaN that arithmetic made are the architecture's own wherever an operation read them, and wherever they
    are stored, but in a floating-point element of the buffer's type: there all NaNs are one value.
    """
    stored = nan_bits(SymbolicVector(64, output.words, output.flags))
    if form is not None:
        stored = np.where(output.size == form.bits // 8, np.uint32(0), stored)
    own = ((output.flags | stored) & np.uint32(NAN_BITS)) != 0
    return replace(output, words=with_architecture_nans(output.words, own, architecture))


def sign(outputs: Mapping[int, Output]) -> bytes:
    """The signature of a launch's outputs: every element's buffer, address, width and term."""
    digest = blake2b(digest_size=16)
    for buffer in sorted(outputs):
        output = outputs[buffer]
        digest.update(buffer.to_bytes(8, "little"))
        for column in (output.address, output.size, output.words):
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.digest()
