"""Laws of matrix units, profiles and launchers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitwise_conformance.suite import cases
from bitwise_conformance.suite.cases import over
from bitwise_conformance.suite.expected import (
    LAUNCHERS,
    PROFILES,
    Descriptors,
    Launched,
    Questions,
    Vectors,
    read_record,
)
from bitwise_conformance.suite.suite import Suite
from bitwise_core.descriptors import read, write
from bitwise_core.installed import evaluate
from bitwise_core.launchers import Launcher
from bitwise_core.machine.lanes import Array
from bitwise_core.mma import MmaSpec, multiply_accumulate
from bitwise_core.numeric import FLOAT_FORMATS, storage
from bitwise_core.profiles import Profile


@over(cases.matrix_units)
def test_a_matrix_unit_has_the_bits_of_its_vectors(suite: Suite, sample: tuple[MmaSpec, Path]) -> None:
    """A row gives every result that its vectors record."""
    unit, path = sample
    vectors = read_record(Vectors, path)
    a, b = (_patterns(values, unit, side) for values, side in ((vectors.a, unit.left), (vectors.b, unit.right)))
    c, result = (_patterns(values, unit, unit.result) for values in (vectors.c, vectors.result))
    assert a.shape[1] % unit.k == 0, f"{path}: every step of {unit.name} takes {unit.k} products"
    found = multiply_accumulate(unit, a[:, None, :], b[:, :, None], c[:, None, None])[:, 0, 0]
    wrong = [f"vector {n}: {int(found[n]):x} and not {int(result[n]):x}" for n in np.flatnonzero(found != result)]
    assert wrong == [], vectors.source


def _patterns(values: object, unit: MmaSpec, form: str) -> Array:
    bits = {unit.left: unit.form("left"), unit.right: unit.form("right"), unit.result: unit.form("result")}[form].bits
    return np.array(values, dtype=storage(bits))


@over(cases.named("profiles", PROFILES))
def test_a_profile_declines_what_it_does_not_know(suite: Suite, sample: tuple[Profile, Path]) -> None:
    """A profile answers what it knows, and nothing where a key is missing, unknown, or of an unknown value."""
    profile, path = sample
    for question in read_record(Questions, path).known:
        found = profile.describe(question.configuration)
        assert found is not None, f"{question.configuration} is not known"
        assert write(found) == question.descriptor
        answered = [each for each in _unknown(question.configuration) if profile.describe(each) is not None]
        assert answered == [], f"near {question.configuration}"


def _unknown(key: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**key, "a key that nobody knows": 1}
    for name, value in key.items():
        yield {each: other for each, other in key.items() if each != name}
        yield {**key, name: None}
        yield {**key, name: f"{value}, which nobody knows" if isinstance(value, str) else -987654321}


@over(cases.named("launchers", LAUNCHERS))
def test_a_launcher_returns_what_is_evaluated(suite: Suite, sample: tuple[Launcher, Path]) -> None:
    """A device returns the bytes of the evaluation; without the device this is not run, and says what is missing."""
    launcher, path = sample
    runs = read_record(Descriptors, path).runs
    missing = launcher.missing()
    if missing is not None:
        pytest.skip(f"{launcher.name} cannot run here: {missing}")
    for run in runs:
        desc = read(run.descriptor)
        operands = _drawn(run)
        assert launcher.launch(desc, *operands).tobytes() == evaluate(desc, *operands).tobytes(), run.descriptor


def _drawn(run: Launched) -> list[Array]:
    """Operands of both signs between 1/16 and 16: sums of a few hundred products round, and do not overflow."""
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
