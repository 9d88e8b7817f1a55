"""The corpus for one architecture: which configurations its compiler takes, and which further options are tried."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    id).  `replaced` maps a compile-time constant and its value to the value for this architecture.
    """

    matmul_options: CompileOptions = ()
    options: CompileOptions = ()
    unsupported: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[tuple[str, Any], Any] = field(default_factory=dict)

    def supports(self, case: Case) -> bool:
        """Whether the compiler takes the configuration."""
        return not {case.family, f"{case.family}/{case.group}", case.id} & self.unsupported.keys()

    def compiled(self, case: Case, target: str) -> Case:
        """Return the configuration for this architecture, whose name is `target`."""
        constants = {name: self.replaced.get((name, value), value) for name, value in case.constants.items()}
        return replace(case, constants=constants, target=target)


_WITHOUT_FP8 = MappingProxyType(
    {"gemm_fp8e4nv": "the type needs sm_89", "cast/fp32-fp8e4nv-2048": "the type needs sm_89"}
)

_WITHOUT_TF32 = MappingProxyType({(name, "tf32"): "ieee" for name in ("PRECISION", "P")})
_UNSUPPORTED_ON_GFX950 = MappingProxyType(
    {
        **{family: gfx942_options.UNSUPPORTED[family] for family in ("gemm_tf32x3", "quantise_row")},
        **dict.fromkeys(("gemm_bias_relu", "gemm_bias_gelu", "gemm_bias_leaky"), "their sources ask for tf32 products"),
    }
)
_WITHOUT_SPECIALISED_WARPS = MappingProxyType(
    {
        f"gemm_persistent_map/fp16-192x256x160/gemm_persistent_map,{tile},programs=3,flatten=false,specialised=true,"
        f"out=fp16,{options}": "the backend specialises no warps for mma.sync in a persistent loop"
        for tile, options in (
            ("bm=64,bn=64,bk=32", "warps=4,stages=3"),
            ("bm=64,bn=64,bk=64", "warps=4,stages=3"),
            ("bm=64,bn=128,bk=32", "warps=4,stages=2"),
            ("bm=128,bn=128,bk=32", "warps=8,stages=3"),
        )
    }
)

TARGETS: Mapping[str, TargetOptions] = MappingProxyType(
    {
        "gfx942": TargetOptions(gfx942_options.MATMUL_OPTIONS, gfx942_options.OPTIONS, gfx942_options.UNSUPPORTED),
        "gfx950": TargetOptions(
            gfx942_options.MATMUL_OPTIONS, gfx942_options.OPTIONS, _UNSUPPORTED_ON_GFX950, _WITHOUT_TF32
        ),
        "sm_80": TargetOptions(unsupported=_WITHOUT_FP8),
        "sm_86": TargetOptions(unsupported=_WITHOUT_FP8),
        "sm_120": TargetOptions(unsupported=_WITHOUT_SPECIALISED_WARPS),
    }
)
"""The architectures whose compiler has options of its own, or does not take every configuration."""


def target_options(target: str) -> TargetOptions:
    """Return what is particular to `target`.  Raises UnknownArchError where no loaded plugin models it."""
    loaded = registry.default()
    if not any(unit.architecture == target for unit in loaded.matrix_units.values()):
        loaded.arch(target)
    return TARGETS.get(target, TargetOptions())


def sampled(cases: Iterable[Case], count: int, whole: Collection[str] = ()) -> Sequence[Case]:
    """Return at most `count` configurations of each family, see `evenly`; all for 0, and for the families `whole`."""
    listed = list(cases)
    if not count:
        return listed
    families: dict[str, list[Case]] = {}
    for case in listed:
        families.setdefault(case.family, []).append(case)
    return [
        case
        for family, members in families.items()
        for case in (members if family in whole else evenly(members, count))
    ]


def evenly(members: Sequence[Case], count: int) -> Sequence[Case]:
    """Return at most `count` configurations of a family: of its first groups, spread evenly over each group."""
    groups: dict[str, list[Case]] = {}
    for case in members:
        groups.setdefault(case.group, []).append(case)
    found: list[Case] = []
    for group in groups.values():
        left = count - len(found)
        if left > 0:
            found += group[:: max(1, len(group) // left)][:left]
    return found


def for_target(cases: Iterable[Case], target: str) -> Iterator[Case]:
    """Yield the supported configurations; the first of each group is repeated with each further option."""
    particular = target_options(target)
    groups: set[tuple[str, str]] = set()
    for case in cases:
        if not particular.supports(case):
            continue
        case = particular.compiled(case, target)
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
