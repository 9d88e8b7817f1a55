"""One kernel's reading, and the verdict on two: Equal, Different or Unknown, with what it rests on."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import TypeAlias

import numpy as np

from bitwise_core import large
from bitwise_core.asm import AssemblyError, Module
from bitwise_core.buffers import forms
from bitwise_core.engine.grid import NotTranslations
from bitwise_core.engine.launch_exact import Ready, TooMuchWork, ready, results, run_blocks
from bitwise_core.engine.launch_free import launch_free_signature
from bitwise_core.engine.translation import Summary
from bitwise_core.machine.arch import Arch
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.global_memory import Undetermined
from bitwise_core.machine.lane_hash import own_nans, telling_nans
from bitwise_core.machine.launch import Launch, ManifestError
from bitwise_core.machine.outputs import Output
from bitwise_core.machine.terms import TermDomain
from bitwise_core.numeric import FloatFormat

MAXIMUM_LANES = 1 << 21
"""Launches of more threads are never run whole."""

MAXIMUM_WORK = 200_000_000
"""Launches whose threads together take up to this many steps are run whole; larger ones are decided by translation."""

ASSUMPTIONS = ("finite",)
"""What `assume` may name: finite - no input and no intermediate value is infinite or NaN."""


class Outcome(StrEnum):
    """What is known of two kernels."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


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


@dataclass(frozen=True, slots=True)
class Options:
    """How kernels are read: for every launch or the given one, under which assumptions, and with which audit.

    `audit_contraction`: what the assembler may fuse is audited first; else the text is taken to state every rounding.
    `across`: kernels of several architectures are compared, whose NaNs have bits of their own.
    """

    every_launch: bool = False
    assume: frozenset[str] = frozenset()
    audit_contraction: bool = True
    across: bool = False

    def __post_init__(self) -> None:
        unknown = sorted(self.assume - set(ASSUMPTIONS))
        if unknown:
            raise ValueError(f"nobody knows the assumption {unknown[0]!r}; there are: {', '.join(ASSUMPTIONS)}")

    @property
    def scope(self) -> str:
        """What a verdict speaks of: `launch` or `every launch`."""
        return "every launch" if self.every_launch else "launch"


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of one kernel.

    `signature` is 16 bytes, equal for two kernels exactly when their outputs' canonical trees are equal (up to
    hash collisions of about 2**-128 a pair); None where the reading stopped, with the reason in `unknown`.
    `notes` names what the reading rests on beyond the text.  `malformed` says that the text or its launch is wrong, so
    that there is nothing to be known: `unknown` is then the sentence for whoever made it.  `large` says that the kernel
    was read, but has no signature: two such kernels are compared with each other (`difference.compare_large`).
    """

    name: str
    signature: bytes | None
    unknown: str | None = None
    undetermined: bool = False
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    malformed: bool = False
    large: bool = False

    @property
    def textual(self) -> str | None:
        """Why the kernel was compared as a program only, in a reading for every launch that came no further."""
        found = (note.removeprefix(TEXTUAL).strip() for note in self.notes if note.startswith(TEXTUAL))
        return next(found, None)


@dataclass(frozen=True, slots=True)
class Side:
    """The first node that differs, on one side: as an expression, its operation, and the lines behind it."""

    node: str
    operation: str
    line: int | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Witness:
    """Where two kernels part: an output element, and the first node that differs, `depth` operations below it.

    `element` counts in elements of the stored `size` (bytes), `offset` in bytes of the buffer.  The sides are None
    where the trees could not be shown, for the reason in `why_not`.  `meaning` says in a sentence what parts them.
    """

    element: str
    buffer: str
    offset: int
    size: int
    left: Side | None = None
    right: Side | None = None
    depth: int = 0
    why_not: str | None = None
    meaning: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer on two kernels.

    `confirmed` is the path of an input on which the bytes differ, where one was found and run.
    """

    outcome: Outcome
    reason: str
    scope: str
    notes: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    witness: Witness | None = None
    confirmed: str | None = None


TEXTUAL = "text:"
"""How the note of a reading for every launch begins that compares programs rather than what they compute."""

NO_AUDIT = "contraction is not audited: the assembler may fuse products into sums"
"""The note of a reading without the audit."""

STANDING_NOTES = (
    "the launch's buffers do not overlap and no access leaves its buffer",
    "an integer computed from the bits of a NaN is not told from one of another NaN",
)
"""What every verdict for a launch rests on."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A text brought to the state in which it is run."""

    ready: Ready
    notes: tuple[str, ...] = field(default=())


def buffer_numbers(names: set[str]) -> dict[str, int]:
    """The number of each buffer, the same for all kernels that are compared."""
    return {name: index + 1 for index, name in enumerate(sorted(names))}


Arches: TypeAlias = Arch | tuple[Arch, Arch]
"""The architecture of two kernels that are compared, or that of each."""


def of_both(arch: Arches) -> tuple[Arch, Arch]:
    """The architecture of each side."""
    return arch if isinstance(arch, tuple) else (arch, arch)


def across(arch: Arches, options: Options) -> Options:
    """The options for two kernels, which say whether they are of several architectures."""
    left, right = of_both(arch)
    return options if left.name == right.name else replace(options, across=True)


def prepare(source: Source, arch: Arch, options: Options) -> Prepared:
    """Parses and audits the text and builds its program.  Raises Unreadable, AssemblyError, ManifestError."""
    if source.launch is None:
        raise Unreadable("the manifest gives no launch of it")
    module, notes = resolved(source, source.launch.entry, arch, options)
    return Prepared(ready(module, arch, source.launch), notes)


def resolved(source: Source, entry: str | None, arch: Arch, options: Options) -> tuple[Module, tuple[str, ...]]:
    """The text parsed, with every rounding stated, and how that was established.

    Raises Unreadable where it cannot be, AssemblyError and ManifestError for a text or an entry that makes no sense.
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


def read(source: Source, arch: Arch, buffers: Mapping[str, int], options: Options) -> Reading:
    """Reads one kernel; never raises for what a text or a launch says."""
    start = time.perf_counter()

    def stopped(reason: str, undetermined: bool = False, malformed: bool = False) -> Reading:
        return Reading(source.name, None, reason, undetermined, (), time.perf_counter() - start, malformed)

    try:
        if options.every_launch and options.across:
            raise Unreadable(
                "kernels of several architectures are compared for one launch, not for every one: name their launches "
                "in a manifest"
            )
        if options.every_launch:
            signature, notes = _for_every_launch(source, arch, options)
        else:
            with _collecting_later():
                signature, notes = _for_its_launch(source, arch, buffers, options)
    except NotTranslations as error:
        return stopped(
            f"the grid is too large to be run whole, and its blocks are not proved to be translations: {error}"
        )
    except Undetermined as error:
        return stopped(f"the kernel's own result is not determined: {error}", undetermined=True)
    except AssemblyError as error:
        return stopped(str(error), malformed=True)
    except ManifestError as error:
        return stopped(f"{source.name}: {error}", malformed=True)
    except Unreadable as error:
        return stopped(str(error))
    except RecursionError:
        return stopped("the text nests too deeply to be read")
    except MemoryError:
        return stopped("the reading ran out of memory")
    except Exception as error:
        # A fault of the reader must not take down the readings of other kernels, and may never merge anything.
        return stopped(f"the reader failed on it, which is a fault of the reader ({type(error).__name__}: {error})")
    return Reading(source.name, signature, None, False, notes, time.perf_counter() - start, large=signature is None)


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Without the collector of cycles: a reading makes many objects, next to none of them in cycles."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _for_its_launch(
    source: Source, arch: Arch, buffers: Mapping[str, int], options: Options
) -> tuple[bytes | None, tuple[str, ...]]:
    prepared = prepare(source, arch, options)
    outputs = small_outputs(prepared.ready, buffers, options)
    if outputs is not None:
        return sign(outputs), prepared.notes
    if options.across:
        raise Unreadable("the launch is too large to be compared across architectures")
    try:
        large.summary_of(_key(source, arch, options), lambda: prepared.ready, buffers, options.assume)
    except NotTranslations:
        if prepared.ready.launch.blocks * prepared.ready.threads > MAXIMUM_LANES:
            raise
        memory, scratch = run_blocks(prepared.ready, TermDomain(options.assume), buffers)
        return sign(results(memory, scratch)), prepared.notes
    return None, (*prepared.notes, large.NOTE)


def small_outputs(ready: Ready, buffers: Mapping[str, int], options: Options) -> dict[int, Output] | None:
    """What a launch leaves in every buffer, or None where it is too large to be run whole.  Raises Unreadable."""
    if ready.launch.blocks * ready.threads > MAXIMUM_LANES:
        return None
    with telling_nans(ready.arch.name if options.across else None):
        try:
            memory, scratch = run_blocks(ready, TermDomain(options.assume), buffers, work=MAXIMUM_WORK)
        except TooMuchWork:
            return None
        outputs = results(memory, scratch)
    if not options.across:
        return outputs
    floating = {buffers[name]: each.format for name, each in forms([ready.launch]).items() if name in buffers}
    return {number: _across(each, floating.get(number), ready.arch.name) for number, each in outputs.items()}


def _across(output: Output, form: FloatFormat | None, architecture: str) -> Output:
    """Stored elements as they are compared across architectures: only of floating-point elements NaNs are one value."""
    own = own_nans(output.words, output.meta, architecture)
    if form is None:
        return replace(output, words=own)
    return replace(output, words=np.where(output.size == form.bits // 8, output.words, own))


def summary(source: Source, arch: Arch, buffers: Mapping[str, int], options: Options) -> Summary:
    """The checked summary of a kernel's grid.  Raises NotTranslations, Unreadable."""

    def ready_again() -> Ready:
        return prepare(source, arch, options).ready

    return large.summary_of(_key(source, arch, options), ready_again, buffers, options.assume)


def _key(source: Source, arch: Arch, options: Options) -> tuple[object, ...]:
    """All that decides what is read: the audit may give another module than the one that was parsed."""
    return source.text, source.launch, arch.name, options


def _for_every_launch(source: Source, arch: Arch, options: Options) -> tuple[bytes | None, tuple[str, ...]]:
    entry = source.entry if source.launch is None else source.launch.entry
    module, notes = resolved(source, entry, arch, options)
    found = launch_free_signature(module, module.kernel(entry), arch)
    return found.value, (*notes, *found.notes)


def sign(outputs: Mapping[int, Output]) -> bytes:
    """The signature of a launch's outputs: every element's buffer, address, width and term."""
    digest = blake2b(digest_size=16)
    for buffer in sorted(outputs):
        output = outputs[buffer]
        digest.update(buffer.to_bytes(8, "little"))
        for column in (output.address, output.size, output.words):
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.digest()


def verdict(left: Reading, right: Reading, options: Options) -> Verdict:
    """The verdict on two readings made with the same buffers and options."""
    notes = tuple(dict.fromkeys((*left.notes, *right.notes, *STANDING_NOTES)))
    conditions = tuple(sorted(options.assume))
    for each in (left, right):
        if each.unknown is not None:
            return Verdict(Outcome.UNKNOWN, f"{each.name}: {each.unknown}", options.scope, notes, conditions)
    if left.large or right.large:
        reason = "their grids are too large to be told apart by signatures; compare them with each other"
        return Verdict(Outcome.UNKNOWN, reason, options.scope, notes, conditions)
    if left.signature == right.signature:
        reason = "every output element has the same canonical dependence tree"
        return Verdict(Outcome.EQUAL, reason, options.scope, notes, conditions)
    for each in (left, right):
        if each.textual is not None:
            return Verdict(Outcome.UNKNOWN, f"{each.name}: {each.textual}", options.scope, notes, conditions)
    return Verdict(Outcome.DIFFERENT, "the canonical dependence trees part", options.scope, notes, conditions)
