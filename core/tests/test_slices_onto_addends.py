"""Slices that are added one after the other to an addend, in the type of the output."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.descriptors import Cut, DescriptorError, Epilogue, GEMMDesc, Step
from bitwise_core.descriptors.evaluation import evaluate_finished
from bitwise_core.descriptors.problem import BiasedGEMM, FinishedGEMM

SLICED = GEMMDesc(
    k=10, left_dtype="fp16", right_dtype="fp16", output_dtype="fp32", path="fma",
    k_cuts=(Cut(span=4, partial_dtype="fp32", merge_dtype="fp16"), Cut(span=2)),
)  # fmt: skip
STEPS = Epilogue.of(
    Step(name="axpby", value=0.3, operand_value=-2.0, fused="operand", operand_dtype="fp16"),
    "relu",
    Step(name="convert", dtype="fp16"),
)


def test_every_slice_is_rounded_with_the_sum_before_it() -> None:
    rng = np.random.default_rng(4)
    a, b, c = (rng.standard_normal(shape).astype(np.float16) for shape in ((5, 10), (10, 7), (5, 7)))
    total, relu = c, [False, False, True]
    for place, (low, high) in enumerate(((0, 4), (4, 8), (8, 10))):
        sums = np.zeros((5, 7), np.float32)
        for start in range(low, high, 2):
            part = np.zeros((5, 7), np.float32)
            for k in range(start, start + 2):
                # Products of fp16 have 22 bits, and each sum is rounded to fp32 once.
                part = (a[:, k, None].astype(np.float64) * b[None, k].astype(np.float64) + part).astype(np.float32)
            sums = part if start == low else sums + part
        factor = np.float32(-2.0 if place == 0 else 1.0)
        found = factor * total.astype(np.float64) + (np.float32(0.3) * sums).astype(np.float64)
        found = found.astype(np.float32)
        total = (np.maximum(found, 0) if relu[place] else found).astype(np.float16)
    desc = FinishedGEMM(product=SLICED, steps=STEPS, onto_addend=True)
    operands = [each.view(np.uint16) for each in (a, b, c)]
    np.testing.assert_array_equal(evaluate_finished(desc, *operands[:2], operands[2:]), total.view(np.uint16))
    summed = FinishedGEMM(product=SLICED, steps=STEPS)
    assert (evaluate_finished(summed, *operands[:2], operands[2:]) != total.view(np.uint16)).any()
    assert [(low, each.k) for low, each, _ in desc.slices] == [(0, 4), (4, 4), (8, 2)]


@pytest.mark.parametrize(
    ("product", "steps", "why"),
    [
        (SLICED, Epilogue.of("add", Step(name="convert", dtype="fp16")), "the first step is axpby"),
        (SLICED.model_copy(update={"k_cuts": ()}), STEPS, "a contiguous first cut"),
        (SLICED.model_copy(update={"k_cuts": (Cut(count=4, merge="halves"),)}), STEPS, "added in order"),
        (SLICED.model_copy(update={"k_cuts": (Cut(layout="strided", count=2),)}), STEPS, "a contiguous first cut"),
    ],
)
def test_other_products_are_refused(product: GEMMDesc, steps: Epilogue, why: str) -> None:
    with pytest.raises(DescriptorError, match=why):
        FinishedGEMM(product=product, steps=steps, onto_addend=True)


def test_a_bias_is_an_addend_with_equal_rows() -> None:
    product = GEMMDesc(**{name: getattr(SLICED, name) for name in type(SLICED).model_fields} | {"output_dtype": "fp16"})
    found = BiasedGEMM(product=product, onto_bias=True).finished()
    step = Step(name="axpby", value=1.0, operand_value=1.0, fused="operand", operand_dtype="fp16")
    other = FinishedGEMM(product=SLICED, steps=Epilogue.of(step, Step(name="convert", dtype="fp16")), onto_addend=True)
    rng = np.random.default_rng(5)
    a, b, c = (rng.standard_normal(shape).astype(np.float16).view(np.uint16) for shape in ((5, 10), (10, 7), (1, 7)))
    rows = [np.broadcast_to(c, (5, 7))]
    result = evaluate_finished(found, a, b, rows)
    np.testing.assert_array_equal(result, evaluate_finished(other, a, b, rows))
    for rounded in (False, True):
        summed = BiasedGEMM(product=product, rounded_first=rounded).finished()
        assert (evaluate_finished(summed, a, b, rows) != result).any()
    with pytest.raises(DescriptorError, match="rounded_first is out"):
        BiasedGEMM(product=product, rounded_first=True, onto_bias=True)
