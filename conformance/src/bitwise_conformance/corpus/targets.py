"""What a plugin says of the corpus for its architecture: options of its compiler to try, and what it cannot compile.

A plugin's package may hold a module `corpus` beside the module that its entry point names, with any of
`PRODUCT_OPTIONS` and `OPTIONS` (compile options, for kernels with matrix products and for the others), and `LEFT_OUT`
(what its compiler does not take, with the reason: families, groups as `family/group`, or configurations by their id).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

from bitwise_conformance.cases import Case
from bitwise_core import registry

CompileOptions: TypeAlias = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class TargetCorpus:
    """See the module; empty where a plugin says nothing."""

    product_options: CompileOptions = ()
    options: CompileOptions = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    def takes(self, case: Case) -> bool:
        """Whether the compiler takes the case."""
        return not {case.family, f"{case.family}/{case.group}", case.id} & self.left_out.keys()


def package_of(target: str) -> str:
    """The package of the plugin that models `target`.  Raises UnknownArchError where no loaded plugin has it."""
    loaded = registry.default()
    owner = next((each for each in loaded.plugins if any(arch.name == target for arch in each.arches)), None)
    if owner is None:
        owner = next((p for p in loaded.plugins if any(u.architecture == target for u in p.matrix_units)), None)
    if owner is None:
        loaded.arch(target)
    return str(getattr(getattr(owner, "module", None), "__name__", "")).rpartition(".")[0]


@cache
def target_corpus(target: str) -> TargetCorpus:
    """What the plugin that models `target` says.  Raises UnknownArchError where no loaded plugin has it."""
    package = package_of(target)
    if not package or find_spec(f"{package}.corpus") is None:
        return TargetCorpus()
    module = import_module(f"{package}.corpus")
    return TargetCorpus(
        tuple(getattr(module, "PRODUCT_OPTIONS", ())),
        tuple(getattr(module, "OPTIONS", ())),
        dict(getattr(module, "LEFT_OUT", {})),
    )


def for_target(cases: Iterable[Case], target: str) -> Iterator[Case]:
    """The cases that the target's compiler takes, and after the first of each group that case with each option."""
    found = target_corpus(target)
    groups: set[tuple[str, str]] = set()
    for case in cases:
        if not found.takes(case):
            continue
        case = replace(case, target=target)
        yield case
        if (case.family, case.group) in groups:
            continue
        groups.add((case.family, case.group))
        for options in found.product_options if has_product(case) else found.options:
            label = ",".join(f"{name}={value}" for name, value in options.items())
            other = replace(case, name=f"{case.name},{label}", options={**case.options, **options})
            if found.takes(other):
                yield other


def has_product(case: Case) -> bool:
    """Whether the kernel's own text has a matrix product."""
    return "tl.dot" in str(getattr(case.function, "src", ""))
