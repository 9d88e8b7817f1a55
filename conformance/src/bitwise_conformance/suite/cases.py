"""The cases of each law: one for every sample that it applies to, and one that fails for a claim without a sample.

What a plugin does not claim is one skipped case with that reason, so that a report shows what was not tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from bitwise_conformance.suite.known_failures import known_failures
from bitwise_conformance.suite.samples import MATRIX_UNITS, Kernel
from bitwise_conformance.suite.suite import Suite
from bitwise_core.execution.architecture import Arch


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a law with its argument `value`.

    `missing` is the reason why the case fails without a run, `skipped` the reason why it is not run.
    """

    id: str
    value: Any = None
    missing: str | None = None
    skipped: str | None = None


Collect: TypeAlias = Callable[[Suite], Iterator[Case]]
Law: TypeAlias = Callable[[Suite, Any], None]

LAWS: dict[str, Collect] = {}
"""The laws of the suite by the names of their tests."""


def over(collect: Collect) -> Callable[[Law], Callable[[Suite, Case], None]]:
    """Turn a law into a test of every case that `collect` yields."""

    def decorate(law: Law) -> Callable[[Suite, Case], None]:
        def test(conformance_suite: Suite, conformance_case: Case) -> None:
            if conformance_case.missing is not None:
                pytest.fail(conformance_case.missing, pytrace=False)
            if conformance_case.skipped is not None:
                pytest.skip(conformance_case.skipped)
            law(conformance_suite, conformance_case.value)

        test.__name__ = test.__qualname__ = law.__name__
        test.__doc__, test.__module__ = law.__doc__, law.__module__
        LAWS[law.__name__] = collect
        return test

    return decorate


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise the laws that a test module imports with the samples of its SUITE."""
    name = metafunc.function.__name__
    if name not in LAWS or "conformance_case" not in metafunc.fixturenames:
        return
    suite = getattr(metafunc.module, "SUITE", None)
    if not isinstance(suite, Suite):
        raise pytest.UsageError(f"{metafunc.module.__name__}: defines no SUITE; add SUITE = Suite(plugin, samples)")
    failures = known_failures(suite)
    parameters = []
    for case in LAWS[name](suite):
        reason = failures.get(f"{name}[{case.id}]")
        marks = () if reason is None else (pytest.mark.xfail(reason=reason, strict=True),)
        parameters.append(pytest.param(suite, case, id=case.id, marks=marks))
    metafunc.parametrize(("conformance_suite", "conformance_case"), parameters)


def every_id(suite: Suite) -> list[str]:
    """Return the ids of all cases of all laws, as a file of known failures names them."""
    return [f"{law}[{case.id}]" for law, collect in LAWS.items() for case in collect(suite)]


def once(suite: Suite) -> Iterator[Case]:
    """Yield the plugin as a whole."""
    yield Case("plugin", suite)


def arches(suite: Suite) -> Iterator[Case]:
    """Yield every architecture."""
    for arch in suite.arches:
        yield Case(arch.name, arch)
    if not suite.arches:
        yield _unclaimed(suite, "models no architecture")


def groups(suite: Suite) -> Iterator[Case]:
    """Yield every group of kernels; an architecture without a group fails."""
    for arch in suite.arches:
        found = [each for each in suite.groups if each.arch == arch.name]
        for group in found:
            yield Case(group.id, group, missing=group.fault)
        if not found:
            yield _missing(arch, f"it has no samples; add kernels to {suite.samples / arch.name}/<group>")
    if not suite.arches:
        yield _unclaimed(suite, "models no architecture")


def kernels(suite: Suite) -> Iterator[Case]:
    """Yield every kernel."""
    for kernel in suite.kernels:
        yield Case(kernel.id, kernel)
    if not suite.kernels:
        yield _unclaimed(suite, "has no sample of a kernel")


def claimed(claim: str, claims: Callable[[Arch], bool], sampled: Callable[[Kernel], bool], remedy: str) -> Collect:
    """Collect the kernels with samples for a claim of their architecture; `remedy` says how to add such a sample."""

    def collect(suite: Suite) -> Iterator[Case]:
        for arch in suite.arches:
            if not claims(arch):
                yield Case(f"{arch.name}-unclaimed", skipped=f"{arch.name} does not claim {claim}")
                continue
            found = [each for each in suite.kernels if each.group.arch == arch.name and sampled(each)]
            for kernel in found:
                yield Case(kernel.id, kernel)
            if not found:
                yield _missing(arch, f"it claims {claim}, but has no sample of it: {remedy}")
        if not suite.arches:
            yield _unclaimed(suite, "models no architecture")

    return collect


def optional(what: str, sampled: Callable[[Kernel], bool]) -> Collect:
    """Collect the kernels with samples of something optional."""

    def collect(suite: Suite) -> Iterator[Case]:
        found = [each for each in suite.kernels if sampled(each)]
        yield from (Case(each.id, each) for each in found)
        if not found:
            yield _unclaimed(suite, f"has no {what}")

    return collect


def matrix_units(suite: Suite) -> Iterator[Case]:
    """Yield every matrix row with the file of its vectors; rows with the status `published only` may have none."""
    published: Counter[str] = Counter()
    for unit in suite.matrix_units:
        path = suite.samples / unit.architecture / MATRIX_UNITS / f"{unit.name}.json"
        if path.is_file():
            yield Case(unit.name, (unit, path))
        elif unit.status == "published only":
            published[unit.architecture] += 1
        else:
            yield Case(
                unit.name, missing=f"{unit.name} has the status {unit.status!r}, but no vectors; add them to {path}"
            )
    for arch, count in published.items():
        yield Case(f"{arch}-published", skipped=f"{count} rows of {arch} are published only, without vectors")
    if not suite.matrix_units:
        yield _unclaimed(suite, "provides no matrix unit")


def named(hook: str, folder: str) -> Collect:
    """Collect everything that a hook returns, each with the file of its samples."""

    def collect(suite: Suite) -> Iterator[Case]:
        found = getattr(suite, hook)
        for each in found:
            path: Path = suite.samples / folder / f"{each.name}.json"
            missing = None if path.is_file() else f"{each.name} has no samples; add them to {path}"
            yield Case(each.name, (each, path), missing)
        if not found:
            yield _unclaimed(suite, f"provides no {hook}")

    return collect


def _missing(arch: Arch, sentence: str) -> Case:
    return Case(f"{arch.name}-missing", missing=f"{arch.name}: {sentence}")


def _unclaimed(suite: Suite, sentence: str) -> Case:
    return Case("unclaimed", skipped=f"{suite.plugin.__name__} {sentence}")
