"""The rows of matrix units against published test vectors of the hardware."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bitwise_bench.matrix_units.published_vectors import VARIABLE, Vectors, differing, published
from bitwise_core.numerics.mma import FusedSum
from bitwise_core.numerics.mma.spec import MmaSpec
from bitwise_core.plugins import registry

UNITS = registry.load(["nvidia_earlier", "sm90", "sm100"]).matrix_units
SINCE_READ = pytest.mark.skipif(
    VARIABLE not in os.environ,
    reason=f"{VARIABLE} is not set; bitwise_bench.matrix_units.published_vectors describes the folder of vectors",
)


KEPT = Path(__file__).parents[2] / "records" / "matrix-vectors"
"""The vectors of a B200, under the licence beside them."""


def folder() -> Path:
    return Path(os.environ[VARIABLE])


def name_of(vectors: Vectors) -> str:
    return f"{vectors.gpu}-{vectors.format}-{vectors.result}"


@SINCE_READ
@pytest.mark.parametrize("vectors", published(), ids=name_of)
def test_every_result_has_the_bits_of_the_hardware(vectors: Vectors) -> None:
    assert differing(folder(), vectors, UNITS[vectors.row]) == (0, 5000)


@pytest.mark.parametrize("vectors", [each for each in published() if each.gpu == "B200"], ids=name_of)
def test_every_result_has_the_bits_of_a_b200(vectors: Vectors) -> None:
    assert differing(KEPT, vectors, UNITS[vectors.row]) == (0, 5000)


def test_the_vectors_of_a_b200_detect_wrong_rows() -> None:
    vectors = Vectors("B200", "e5m2", "fp32")
    different, count = differing(KEPT, vectors, wrong(UNITS[vectors.row], accumulator_last=False))
    assert count == 5000
    assert different > count // 20


def wrong(spec: MmaSpec, **changes: object) -> MmaSpec:
    from dataclasses import replace

    assert isinstance(spec.arithmetic, FusedSum)
    return replace(spec, arithmetic=replace(spec.arithmetic, **changes))  # type: ignore[arg-type]


@SINCE_READ
@pytest.mark.parametrize(
    ("vectors", "changes"),
    [
        (Vectors("H100", "fp16", "fp32"), {"products": 8}),
        (Vectors("H100", "fp16", "fp32"), {"fraction_bits": 24}),
        (Vectors("H100", "fp16", "fp32"), {"fraction_bits": 26}),
        (Vectors("H100", "bf16", "fp32"), {"rounding": "rn"}),
        (Vectors("A100", "fp16", "fp32"), {"products": 4}),
        (Vectors("A100", "fp16", "fp32"), {"fraction_bits": 25}),
        (Vectors("L40S", "e4m3", "fp32"), {"products": 32}),
        (Vectors("H100", "e4m3", "fp32"), {"products": 16}),
        (Vectors("H100", "e4m3", "fp32"), {"fraction_bits": 14}),
        (Vectors("H100", "e4m3", "fp16"), {"order": "ascending"}),
        (Vectors("B200", "e5m2", "fp32"), {"accumulator_last": False}),
    ],
)
def test_the_vectors_detect_wrong_rows(vectors: Vectors, changes: dict[str, object]) -> None:
    different, count = differing(folder(), vectors, wrong(UNITS[vectors.row], **changes))
    assert count == 5000
    assert different > count // 20


def test_there_is_a_row_for_every_published_vector() -> None:
    assert [(each.row, UNITS[each.row].status) for each in published()] == [
        (each.row, "checked on vectors") for each in published()
    ]
    assert len(published()) == 48
    named = {each.row for each in published()}
    assert {name for name, unit in UNITS.items() if unit.status == "checked on vectors"} == named
