"""The result of the analysis of one kernel, which is kept and passed between processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bitwise_core.assembly.module import Module, SourceLine
    from bitwise_core.checker.sources import Options, Source
    from bitwise_core.execution.concrete import PreparedLaunch
    from bitwise_core.execution.launch import Launch
    from bitwise_core.execution.memory.outputs import Output
    from bitwise_core.execution.races.undetermined import Cause


@dataclass(frozen=True, slots=True)
class Place:
    """An access whose result depends on the order of threads, or is undefined: its kind and a sentence.

    `line` is its line in the assembly and `source` in the kernel's source; `other_line` and `other_source` are those of
    the access with which it conflicts.  None where they are not known.
    """

    kind: str
    reason: str
    line: int | None = None
    source: str | None = None
    other_line: int | None = None
    other_source: str | None = None

    def __str__(self) -> str:
        own, other = _where(self.line, self.source), _where(self.other_line, self.other_source)
        found = f"{self.kind}: {self.reason}" + (f", at {own}" if own else "")
        return f"{found}, with {other}" if other and other != own else found


def _where(line: int | None, source: str | None) -> str:
    """The place of an access in words: its line of the source, if known, and of the assembly."""
    parts = [source, None if line is None else f"line {line} of the assembly"]
    return ", ".join(each for each in parts if each is not None)


def places_of(causes: Iterable[Cause], module: Module | None) -> tuple[Place, ...]:
    """The causes with their lines in the kernel's source, where the text of the module states them."""
    sources = {} if module is None else _sources(module)

    def source(line: int | None) -> str | None:
        found = None if line is None else sources.get(line)
        return None if found is None else str(found)

    return tuple(
        Place(each.kind.value, each.reason, each.line, source(each.line), each.other, source(each.other))
        for each in causes
    )


def _sources(module: Module) -> dict[int, SourceLine]:
    kernels = [*module.kernels, *module.functions.values()]
    return {each.line: each.source for kernel in kernels for each in kernel.instructions if each.source is not None}


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """The result of the analysis of one kernel.

    `signature` is 16 bytes, equal for two kernels exactly when the canonical trees of their outputs are equal (up to
    hash collisions, with probability at most 2**-62 per pair).  It is None where the analysis stopped, with the reason
    in `unknown`, and for a large grid, which is compared block by block (`comparison.compare_large`).
    `nondeterministic`: the kernel's own result is not determined.  `places` are the accesses that make it so, or that
    stopped the analysis; `proved`: two orders of threads are known to leave different values there.  `malformed`: the
    text or the launch is wrong, and `unknown` is the message for its author.  `failed`: the analysis raised an internal
    error, which is a bug.  `interrupted`: the analysis stopped for a reason outside of the kernel, such as the time
    limit or the memory, so that another run may go further.  `notes` are the assumptions of the analysis.
    `program_only` is the reason why the launch-parametric analysis compares the program text only, None where it
    compares the function that the kernel computes.  `tensors` holds, for each buffer of the launch, the digest of the
    contents that the launch gives, None where it gives none: results are compared only where they agree
    (`conflicting_tensors`).

    `prepared` is the program that was executed, None where there is none.  `outputs` are the final contents of each
    buffer, by buffer number, None where the analysis stopped or the grid is large.  Neither is passed between
    processes: `portable` drops them.
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
    tensors: Mapping[str, str | None] = field(default_factory=dict)
    interrupted: bool = False
    places: tuple[Place, ...] = ()
    proved: bool = False
    prepared: PreparedLaunch | None = field(default=None, repr=False, compare=False)
    outputs: Mapping[int, Output] | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        found = f"unknown: {self.unknown[:200]}" if self.unknown is not None else "large grid"
        if self.signature is not None:
            found = f"signature {self.signature.hex()}"
        return f"AnalysisResult({self.name!r}, {found})"

    @property
    def large(self) -> bool:
        """Whether the analysis succeeded without a signature: the grid is large and is compared block by block."""
        return self.signature is None and self.unknown is None

    def portable(self) -> AnalysisResult:
        """The result without program and outputs, small enough to pass between processes."""
        return replace(self, prepared=None, outputs=None)


def given_digests(source: Source, options: Options) -> dict[str, str | None]:
    """The digests of the contents that a kernel's launch gives, by buffer; empty for a result for every launch."""
    if options.every_launch or source.launch is None:
        return {}
    given = source.launch.given()
    return {name: given[name].digest if name in given else None for name in source.launch.buffers()}


def conflicting_tensors(left: Mapping[str, str | None], right: Mapping[str, str | None]) -> str | None:
    """A sentence if two launches do not give the same contents to a buffer that both have, else None."""
    for name in sorted(left.keys() & right.keys()):
        if left[name] != right[name]:
            what = "different contents" if left[name] and right[name] else "contents in one of the launches only"
            return f"the buffer {name} has {what}; give the same contents for both kernels, or for none"
    return None


def given_note(launch: Launch) -> tuple[str, ...]:
    """The note that names the tensors whose contents are part of the launch; empty if there are none."""
    given = launch.given()
    if not given:
        return ()
    named = ", ".join(f"{name} ({len(each)} {each.dtype}, digest {each.digest[:12]})" for name, each in given.items())
    return (f"the verdict holds for the contents that the launch gives of {named}",)


LARGE_GRID = "large grids are decided on a few blocks; all others are proved to be translations of these"
"""The note of an analysis by block symmetry."""

NO_AUDIT = "contraction is not audited: the assembler may fuse products into sums"
"""The note of an analysis without the contraction audit."""
