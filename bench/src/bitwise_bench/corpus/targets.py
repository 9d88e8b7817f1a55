"""The corpus for one architecture: which configurations its compiler takes, and which further options are tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from bitwise_bench.corpus import gfx942_options
from bitwise_bench.corpus.cases import Case
from bitwise_core.plugins import registry

CompileOptions: TypeAlias = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What is particular to one architecture.

    `matmul_options` are compile options tried on kernels with matrix products, `options` those tried on all others.
    `unsupported` gives the reason why the compiler rejects a family, a group (`family/group`) or a configuration (its
    id).
    """

    matmul_options: CompileOptions = ()
    options: CompileOptions = ()
    unsupported: Mapping[str, str] = field(default_factory=dict)

    def supports(self, case: Case) -> bool:
        """Whether the compiler takes the configuration."""
        return not {case.family, f"{case.family}/{case.group}", case.id} & self.unsupported.keys()


TARGETS: Mapping[str, TargetOptions] = MappingProxyType(
    {
        "gfx942": TargetOptions(gfx942_options.MATMUL_OPTIONS, gfx942_options.OPTIONS, gfx942_options.UNSUPPORTED),
    }
)
"""The architectures whose compiler has options of its own, or does not take every configuration."""


def target_options(target: str) -> TargetOptions:
    """Return what is particular to `target`.  Raises UnknownArchError where no loaded plugin models it."""
    loaded = registry.default()
    if not any(unit.architecture == target for unit in loaded.matrix_units.values()):
        loaded.arch(target)
    return TARGETS.get(target, TargetOptions())


def for_target(cases: Iterable[Case], target: str) -> Iterator[Case]:
    """Yield the supported configurations; the first of each group is repeated with each further option."""
    particular = target_options(target)
    groups: set[tuple[str, str]] = set()
    for case in cases:
        if not particular.supports(case):
            continue
        case = replace(case, target=target)
        yield case
        if (case.family, case.group) in groups:
            continue
        groups.add((case.family, case.group))
        for options in particular.matmul_options if has_matrix_product(case) else particular.options:
            label = ",".join(f"{name}={value}" for name, value in options.items())
            variant = replace(case, name=f"{case.name},{label}", options={**case.options, **options})
            if particular.supports(variant):
                yield variant


def has_matrix_product(case: Case) -> bool:
    """Whether the source of the kernel calls `tl.dot`."""
    return "tl.dot" in str(getattr(case.function, "src", ""))
