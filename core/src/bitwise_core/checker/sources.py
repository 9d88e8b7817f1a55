"""Kernels to analyse, and the options of an analysis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from bitwise_core.execution.assumptions import ASSUMPTIONS, contradiction_in

if TYPE_CHECKING:
    from bitwise_core.execution.architecture import Arch
    from bitwise_core.execution.launch import Launch


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel to analyse: its text, its name in messages, and its launch (None: every launch).

    `entry` names the entry of a kernel without a launch where the text has several.  `target` names the architecture
    of this kernel where it differs from that of the other kernels.
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
    """The options of an analysis.  Raises ValueError for an unknown assumption, and for two that exclude each other.

    `every_launch`: the launch-parametric analysis instead of the concrete one.  `assume`: names of assumptions about
    values.  `audit_contraction`: audit which operations the assembler fuses; without the audit, the text is assumed to
    state every rounding.  `cross_architecture`: kernels of several architectures are compared, whose NaN bit patterns
    differ.  `time_limit`: the wall-clock time in which one kernel is read, in seconds (None: no limit); a kernel that
    takes longer is Unknown.
    """

    every_launch: bool = False
    assume: frozenset[str] = frozenset()
    audit_contraction: bool = True
    cross_architecture: bool = False
    time_limit: float | None = None

    def __post_init__(self) -> None:
        unknown = sorted(self.assume - set(ASSUMPTIONS))
        if unknown:
            raise ValueError(f"unknown assumption {unknown[0]!r}; the known ones are: {', '.join(ASSUMPTIONS)}")
        contradiction = contradiction_in(self.assume)
        if contradiction is not None:
            raise ValueError(contradiction)
        if self.time_limit is not None and not self.time_limit > 0:
            raise ValueError(f"the time limit must be above 0 s, not {self.time_limit}; None sets no limit")

    @property
    def scope(self) -> str:
        """The scope of a verdict: `launch` or `every launch`."""
        return "every launch" if self.every_launch else "launch"


def buffer_numbers(names: set[str]) -> dict[str, int]:
    """Number the buffers from 1 in the order of their names, for all kernels that are compared."""
    return {name: index + 1 for index, name in enumerate(sorted(names))}


def buffers_of(sources: Iterable[Source]) -> dict[str, int]:
    """Number the buffers of the launches of all kernels that are compared."""
    launches = [source.launch for source in sources if source.launch is not None]
    return buffer_numbers({name for launch in launches for name in launch.buffers()})


Arches: TypeAlias = "Arch | tuple[Arch, Arch]"
"""The common architecture of two kernels, or one architecture for each."""


def arch_pair(arch: Arches) -> tuple[Arch, Arch]:
    """The architecture of each of the two kernels."""
    return arch if isinstance(arch, tuple) else (arch, arch)


def with_cross_architecture(arch: Arches, options: Options) -> Options:
    """The options with `cross_architecture` set where the two kernels have different architectures."""
    left, right = arch_pair(arch)
    return options if left.name == right.name else replace(options, cross_architecture=True)
