"""Laws of matrix units, profiles and launchers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitwise_conformance.suite import cases
from bitwise_conformance.suite.cases import over
from bitwise_conformance.suite.samples import (
    LAUNCHERS,
    PROFILES,
    LauncherRun,
    LauncherRuns,
    ProfileQueries,
    Vectors,
    read_record,
)
from bitwise_conformance.suite.suite import Suite
from bitwise_core.descriptors import read, write
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import FLOAT_FORMATS, storage
from bitwise_core.numerics.mma import MmaSpec, multiply_accumulate
from bitwise_core.plugins.installed import evaluate
from bitwise_core.plugins.launchers import Launcher
from bitwise_core.plugins.profiles import Profile


@over(cases.matrix_units)
def test_matrix_unit_vectors(suite: Suite, sample: tuple[MmaSpec, Path]) -> None:
    """A row gives the results of its vectors."""
    unit, path = sample
    vectors = read_record(Vectors, path)
    a, b = (_patterns(values, unit, side) for values, side in ((vectors.a, unit.left), (vectors.b, unit.right)))
    c, result = (_patterns(values, unit, unit.result) for values in (vectors.c, vectors.result))
    assert a.shape[1] % unit.k == 0, (
        f"{path}: the length of a and b must be a multiple of {unit.k}, the products of one {unit.name}"
    )
    found = multiply_accumulate(unit, a[:, None, :], b[:, :, None], c[:, None, None])[:, 0, 0]
    wrong = [f"vector {n}: {int(found[n]):x}, expected {int(result[n]):x}" for n in np.flatnonzero(found != result)]
    assert wrong == [], vectors.source


def _patterns(values: object, unit: MmaSpec, form: str) -> Array:
    bits = {unit.left: unit.form("left"), unit.right: unit.form("right"), unit.result: unit.form("result")}[form].bits
    return np.array(values, dtype=storage(bits))


@over(cases.named("profiles", PROFILES))
def test_profiles_decline_unknown_configurations(suite: Suite, sample: tuple[Profile, Path]) -> None:
    """A profile describes known configurations, and declines missing keys, unknown keys and unknown values."""
    profile, path = sample
    for query in read_record(ProfileQueries, path).known:
        found = profile.describe(query.configuration)
        assert found is not None, f"{query.configuration} is declined"
        assert write(found) == query.descriptor
        answered = [each for each in _unknown(query.configuration) if profile.describe(each) is not None]
        assert answered == [], f"described, although unknown; close to {query.configuration}"


def _unknown(key: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**key, "unknown key": 1}
    for name, value in key.items():
        yield {each: other for each, other in key.items() if each != name}
        yield {**key, name: None}
        yield {**key, name: f"{value}, unknown" if isinstance(value, str) else -987654321}


@over(cases.named("launchers", LAUNCHERS))
def test_launchers_match_the_evaluation(suite: Suite, sample: tuple[Launcher, Path]) -> None:
    """A launcher returns the bytes of the evaluation; skipped with the reason where the device is missing."""
    launcher, path = sample
    runs = read_record(LauncherRuns, path).runs
    missing = launcher.missing()
    if missing is not None:
        pytest.skip(f"{launcher.name} cannot run here: {missing}")
    for run in runs:
        desc = read(run.descriptor)
        operands = _drawn(run)
        assert launcher.launch(desc, *operands).tobytes() == evaluate(desc, *operands).tobytes(), run.descriptor


def _drawn(run: LauncherRun) -> list[Array]:
    """Return operands of both signs between 1/16 and 16: sums of some hundred products round and do not overflow."""
    generator = np.random.default_rng(run.seed)
    operands = []
    for each in run.operands:
        form = FLOAT_FORMATS[each.dtype]
        exponent = generator.integers(form.bias - 4, form.bias + 4, each.shape, dtype=np.uint64)
        mantissa = generator.integers(0, 1 << form.mantissa_bits, each.shape, dtype=np.uint64)
        sign = generator.integers(0, 2, each.shape, dtype=np.uint64) << np.uint64(form.magnitude_bits)
        value = sign | exponent << np.uint64(form.mantissa_bits) | mantissa
        operands.append((value << np.uint64(form.padding)).astype(storage(form.bits)))
    return operands
