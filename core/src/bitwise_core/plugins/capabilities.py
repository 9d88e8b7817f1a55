"""What the loaded plugins support for each architecture, and on what evidence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.numerics.mma.spec import STATUSES, MmaSpec
from bitwise_core.plugins.references import ArchReference
from bitwise_core.plugins.registry import Plugin, Registry

TITLES = ("architecture", "plugin", "reads", "executes on a CPU", "matrix rows", "launches", "evidence")
"""The titles of the fields of a `Capability`."""


@dataclass(frozen=True, slots=True)
class Capability:
    """What a plugin supports for one architecture, in words for a table; `-` where it does not.

    `reads`: kernels are analysed for one launch, or for every launch too.  `executes`: kernels run on bit patterns,
    with or without approximate instructions.  `evaluates`: the number of matrix-unit rows by their status.
    `launches`: its launchers, whose names end with the name of the architecture.  `evidence`: whether matrix rows of
    floating point were measured here, are published, or do not exist, so that such kernels are executed with surrogates
    only.
    """

    architecture: str
    plugin: str
    reads: str
    executes: str
    evaluates: str
    launches: str
    evidence: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The fields, in the order of `TITLES`."""
        return (
            self.architecture, self.plugin, self.reads, self.executes, self.evaluates, self.launches, self.evidence,
        )  # fmt: skip


def capabilities(loaded: Registry) -> tuple[Capability, ...]:
    """Return what the plugins support, by plugin and architecture, in the order in which they state them."""
    found = []
    for plugin in loaded.plugins:
        arches = {arch.name: arch for arch in plugin.arches}
        names = dict.fromkeys([*arches, *(row.architecture for row in plugin.matrix_units)])
        found += [_capability(plugin, name, arches.get(name)) for name in names]
    return tuple(found)


def _capability(plugin: Plugin, name: str, arch: ArchReference | None) -> Capability:
    rows = [row for row in plugin.matrix_units if row.architecture == name]
    launchers = [each.name for each in plugin.launchers if each.name.endswith(name)]
    reads = "-" if arch is None else "one or every launch" if arch.every_launch else "one launch"
    return Capability(
        name, plugin.name, reads, _executes(arch), _counts(rows), ", ".join(launchers) or "-", _evidence(rows)
    )


def _executes(arch: ArchReference | None) -> str:
    if arch is None or not arch.bits:
        return "-"
    return "yes" if arch.approximations else "without approximations"


def _counts(rows: list[MmaSpec]) -> str:
    counts = Counter(row.status for row in rows)
    return ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status]) or "-"


def _evidence(rows: list[MmaSpec]) -> str:
    statuses = {row.status for row in rows if row.result in FLOAT_FORMATS}
    if "measured by us" in statuses:
        return "measured"
    return "published" if statuses else "simulated only"
