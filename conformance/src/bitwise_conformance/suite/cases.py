"""Which cases a law has: one for every sample that it speaks of, and one that fails for a claim without a sample.

What is not claimed is one case that is skipped, with that reason, so that a report shows what was not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from bitwise_conformance.suite.expected import MATRIX_UNITS, Kernel
from bitwise_conformance.suite.known import known_failures
from bitwise_conformance.suite.suite import Suite
from bitwise_core.machine.arch import Arch


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a law, asked of `value`: `lacking` is why it fails at once, `skipped` why it is not run."""

    id: str
    value: Any = None
    lacking: str | None = None
    skipped: str | None = None


Collect: TypeAlias = Callable[[Suite], Iterator[Case]]
Law: TypeAlias = Callable[[Suite, Any], None]

LAWS: dict[str, Collect] = {}
"""The laws of the suite by the names of their tests."""


def over(collect: Collect) -> Callable[[Law], Callable[[Suite, Case], None]]:
    """Makes a law a test of every case that `collect` gives."""

    def decorate(law: Law) -> Callable[[Suite, Case], None]:
        def test(conformance_suite: Suite, conformance_case: Case) -> None:
            if conformance_case.lacking is not None:
                pytest.fail(conformance_case.lacking, pytrace=False)
            if conformance_case.skipped is not None:
                pytest.skip(conformance_case.skipped)
            law(conformance_suite, conformance_case.value)

        test.__name__ = test.__qualname__ = law.__name__
        test.__doc__, test.__module__ = law.__doc__, law.__module__
        LAWS[law.__name__] = collect
        return test

    return decorate


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrises the laws that a test module imports with the samples of its SUITE."""
    name = metafunc.function.__name__
    if name not in LAWS or "conformance_case" not in metafunc.fixturenames:
        return
    suite = getattr(metafunc.module, "SUITE", None)
    if not isinstance(suite, Suite):
        raise pytest.UsageError(f"{metafunc.module.__name__}: has no SUITE = Suite(plugin, samples)")
    failures = known_failures(suite)
    parameters = []
    for case in LAWS[name](suite):
        reason = failures.get(f"{name}[{case.id}]")
        marks = () if reason is None else (pytest.mark.xfail(reason=reason, strict=True),)
        parameters.append(pytest.param(suite, case, id=case.id, marks=marks))
    metafunc.parametrize(("conformance_suite", "conformance_case"), parameters)


def every_id(suite: Suite) -> list[str]:
    """The ids of all cases of all laws, as a file of known failures names them."""
    return [f"{law}[{case.id}]" for law, collect in LAWS.items() for case in collect(suite)]


def once(suite: Suite) -> Iterator[Case]:
    """The plugin as a whole."""
    yield Case("plugin", suite)


def arches(suite: Suite) -> Iterator[Case]:
    """Every architecture."""
    for arch in suite.arches:
        yield Case(arch.name, arch)
    if not suite.arches:
        yield _unclaimed(suite, "models no architecture")


def groups(suite: Suite) -> Iterator[Case]:
    """Every group of kernels; an architecture without one lacks it."""
    for arch in suite.arches:
        found = [each for each in suite.groups if each.arch == arch.name]
        for group in found:
            yield Case(group.id, group, lacking=group.fault)
        if not found:
            yield _lacking(arch, f"there are no kernels: put some into {suite.samples / arch.name}/<group>")
    if not suite.arches:
        yield _unclaimed(suite, "models no architecture")


def kernels(suite: Suite) -> Iterator[Case]:
    """Every kernel."""
    for kernel in suite.kernels:
        yield Case(kernel.id, kernel)
    if not suite.kernels:
        yield _unclaimed(suite, "has no sample of a kernel")


def claimed(claim: str, claims: Callable[[Arch], bool], sampled: Callable[[Kernel], bool], asked: str) -> Collect:
    """Every kernel with samples for a claim of its architecture; `asked` tells an author who has none what to do."""

    def collect(suite: Suite) -> Iterator[Case]:
        for arch in suite.arches:
            if not claims(arch):
                yield Case(f"{arch.name}-unclaimed", skipped=f"{arch.name} does not claim {claim}")
                continue
            found = [each for each in suite.kernels if each.group.arch == arch.name and sampled(each)]
            for kernel in found:
                yield Case(kernel.id, kernel)
            if not found:
                yield _lacking(arch, f"it claims {claim}, and no sample shows it: {asked}")
        if not suite.arches:
            yield _unclaimed(suite, "models no architecture")

    return collect


def optional(what: str, sampled: Callable[[Kernel], bool]) -> Collect:
    """Every kernel with samples for something that nobody need show."""

    def collect(suite: Suite) -> Iterator[Case]:
        found = [each for each in suite.kernels if sampled(each)]
        yield from (Case(each.id, each) for each in found)
        if not found:
            yield _unclaimed(suite, f"has no {what}")

    return collect


def matrix_units(suite: Suite) -> Iterator[Case]:
    """Every row of a matrix unit with the file of its vectors; those that are only published may have none."""
    published: Counter[str] = Counter()
    for unit in suite.matrix_units:
        path = suite.samples / unit.architecture / MATRIX_UNITS / f"{unit.name}.json"
        if path.is_file():
            yield Case(unit.name, (unit, path))
        elif unit.status == "published only":
            published[unit.architecture] += 1
        else:
            yield Case(unit.name, lacking=f"{unit.name} is said to be {unit.status}: put vectors into {path}")
    for arch, count in published.items():
        yield Case(f"{arch}-published", skipped=f"{count} rows of {arch} are published only, without vectors")
    if not suite.matrix_units:
        yield _unclaimed(suite, "hands over no matrix unit")


def named(hook: str, folder: str) -> Collect:
    """Everything that a hook hands over, each with the file of its samples."""

    def collect(suite: Suite) -> Iterator[Case]:
        found = getattr(suite, hook)
        for each in found:
            path: Path = suite.samples / folder / f"{each.name}.json"
            lacking = None if path.is_file() else f"{each.name} has no samples: put them into {path}"
            yield Case(each.name, (each, path), lacking)
        if not found:
            yield _unclaimed(suite, f"hands over no {hook}")

    return collect


def _lacking(arch: Arch, sentence: str) -> Case:
    return Case(f"{arch.name}-lacking", lacking=f"{arch.name}: {sentence}")


def _unclaimed(suite: Suite, sentence: str) -> Case:
    return Case("unclaimed", skipped=f"{suite.plugin.__name__} {sentence}")
