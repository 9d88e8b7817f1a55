"""Products with a finish: the records, and values against exact arithmetic in fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bitwise_core.descriptors import Cut, DescriptorError, Epilogue, GEMMDesc, Step
from bitwise_core.descriptors.evaluation import evaluate_finished
from bitwise_core.descriptors.problem import Finish, FinishedGEMM, GEMMProblem
from bitwise_core.numerics import Bits

ALPHA, BETA = 1.3, -0.7
CONVERT = Step(name="convert", dtype="fp16")


def product(k: int, dtype: str = "fp16") -> GEMMDesc:
    return GEMMDesc(k=k, left_dtype=dtype, right_dtype=dtype, output_dtype="fp32", path="fma")


def axpby(fused: str, **fields: Any) -> Step:
    given = {"value": ALPHA, "operand_value": BETA, "operand_dtype": "fp16", **fields}
    return Step(name="axpby", fused=fused, **given)


def rounded(value: Fraction, dtype: type[np.floating[Any]]) -> Fraction:
    """Return a number rounded to nearest even: of the two neighbours of a quotient, the one that is nearer."""
    near = dtype(float(value))
    choices = [near, np.nextafter(near, dtype(np.inf)), np.nextafter(near, dtype(-np.inf))]
    bits = np.uint16 if dtype is np.float16 else np.uint32
    best = min(choices, key=lambda each: (abs(Fraction(float(each)) - value), int(each.view(bits)) & 1))
    return Fraction(float(best))


def fp32(value: Fraction) -> Fraction:
    return rounded(value, np.float32)


def halves(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def cancelling(sums: list[list[Fraction]]) -> Any:
    """Return an addend that cancels the product, so that the result consists of the roundings."""
    return np.array([[float(-Fraction(ALPHA) / Fraction(BETA) * each) for each in row] for row in sums]).astype(
        np.float16
    )


def exact_sums(a: Any, b: Any) -> list[list[Fraction]]:
    """Return the sums of chains of fused multiply-adds in fp32."""
    found = []
    for row in a:
        found.append([])
        for column in b.T:
            total = Fraction(0)
            for x, y in zip(row, column, strict=True):
                total = fp32(total + Fraction(float(x)) * Fraction(float(y)))
            found[-1].append(total)
    return found


def expected(sums: list[list[Fraction]], c: Any, order: str) -> list[list[float]]:
    alpha, beta = Fraction(float(np.float32(ALPHA))), Fraction(float(np.float32(BETA)))
    found = []
    for row, others in zip(sums, c, strict=True):
        found.append([])
        for x, y in zip(row, (Fraction(float(each)) for each in others), strict=True):
            if order == "x":
                total = fp32(alpha * x + fp32(beta * y))
            elif order == "operand":
                total = fp32(beta * y + fp32(alpha * x))
            elif order == "none":
                total = fp32(fp32(alpha * x) + fp32(beta * y))
            else:
                total = fp32(rounded(fp32(alpha * x), np.float16) + y)
            found[-1].append(float(rounded(total, np.float16)))
    return found


def values(bits: Bits) -> list[list[float]]:
    return [[float(each) for each in row] for row in bits.view(np.float16)]


@pytest.mark.parametrize("order", ["x", "operand", "none", "rounded"])
def test_an_addend_rounds_where_the_order_says(order: str) -> None:
    a, b = halves(1, 6, 9), halves(2, 9, 7)
    sums = exact_sums(a, b)
    c = cancelling(sums) if order != "rounded" else (cancelling(sums) * np.float16(BETA)).astype(np.float16)
    steps: tuple[Step | str, ...] = (Step(name="scale", value=ALPHA), CONVERT, "add")
    if order != "rounded":
        steps = (axpby(order), CONVERT)
    desc = FinishedGEMM(product=product(9), steps=Epilogue.of(*steps))
    found = values(evaluate_finished(desc, a, b, [c]))
    assert found == expected(sums, c, order)
    others = [expected(sums, c, each) for each in ("x", "operand", "none", "rounded") if each != order]
    assert all(found != each for each in others)


@pytest.mark.parametrize("order", ["x", "operand", "none"])
def test_a_step_of_fp16_rounds_each_operation_once_to_fp16(order: str) -> None:
    a, b = halves(1, 23, 9), halves(2, 9, 17)
    sums = [[rounded(each, np.float16) for each in row] for row in exact_sums(a, b)]
    c, alpha, beta = cancelling(sums), float(np.float16(ALPHA)), float(np.float16(BETA))
    step = axpby(order, value=alpha, operand_value=beta, arithmetic="fp16")
    desc = FinishedGEMM(product=product(9), steps=Epilogue.of(step, CONVERT))
    wanted: dict[str, list[list[float]]] = {"x": [], "operand": [], "none": []}
    for row, others in zip(sums, c, strict=True):
        for each in wanted.values():
            each.append([])
        for x, y in zip(row, others, strict=True):
            own, other = Fraction(alpha) * x, Fraction(beta) * Fraction(float(y))
            own_once, other_once = rounded(own, np.float16), rounded(other, np.float16)
            for name, total in (
                ("x", own + other_once),
                ("operand", own_once + other),
                ("none", own_once + other_once),
            ):
                wanted[name][-1].append(float(rounded(total, np.float16)))
    found = values(evaluate_finished(desc, a, b, [c]))
    assert found == wanted.pop(order)
    assert found not in wanted.values()
    in_fp32 = FinishedGEMM(
        product=product(9), steps=Epilogue.of(step.model_copy(update={"arithmetic": "fp32"}), CONVERT)
    )
    assert found != values(evaluate_finished(in_fp32, a, b, [c]))
    assert Epilogue.from_text(desc.steps.to_text()) == desc.steps


def test_a_sum_in_fp16_differs_from_one_that_is_rounded_to_fp32_first() -> None:
    # 1366 times 3 is the middle of 4096 and 4100, the neighbours in fp16; fp32 does not hold what is added.
    step = Step(
        name="axpby", value=1366.0, operand_value=1.0, fused="x", operand_dtype="fp16", arithmetic="fp16"
    )  # fmt: skip
    for arithmetic, wanted in (("fp16", 4100.0), ("fp32", 4096.0)):
        steps = Epilogue.of(step.model_copy(update={"arithmetic": arithmetic}), CONVERT)
        desc = FinishedGEMM(product=product(1), steps=steps)
        given = [np.array([[each]], np.float16) for each in (3.0, 1.0, 2.0**-24)]
        assert values(evaluate_finished(desc, given[0], given[1], [given[2]])) == [[wanted]]


def test_a_scaled_operand_is_rounded_before_the_product() -> None:
    a, b = halves(3, 4, 5), halves(4, 5, 3)
    scale = Fraction(float(np.float32(ALPHA)))
    for side in ("a", "b"):
        desc = FinishedGEMM(
            product=product(5, "fp32"), steps=Epilogue.of(CONVERT), scaled=side, scale=ALPHA, widened_from="fp16"
        )
        left, right = (
            np.array([[float(fp32(scale * Fraction(float(each)))) for each in row] for row in matrix])
            if name == side else matrix.astype(np.float64)
            for name, matrix in (("a", a), ("b", b))
        )  # fmt: skip
        wanted = [[float(rounded(each, np.float16)) for each in row] for row in exact_sums(left, right)]
        assert values(evaluate_finished(desc, a, b)) == wanted


def test_slices_that_are_added_in_place_are_scaled_one_by_one() -> None:
    a, b, vector = halves(1, 3, 50), halves(2, 50, 4), halves(3, 4)
    sums = product(50).model_copy(update={"k_cuts": (Cut(span=20),)})
    steps = Epilogue.of(axpby("operand", operand_value=0.0), Step(name="add", operand_dtype="fp16"), CONVERT)
    desc = FinishedGEMM(product=sums, steps=steps, onto_addend=True)
    bias = np.broadcast_to(vector, (3, 4)).copy()
    found = evaluate_finished(desc, a.view(np.uint16), b.view(np.uint16), [bias.view(np.uint16)])
    total = None
    for low in (0, 20, 40):
        part = FinishedGEMM(product=product(min(20, 50 - low)), steps=Epilogue.of(Step(name="scale", value=ALPHA)))
        each = evaluate_finished(part, a[:, low : low + 20].view(np.uint16), b[low : low + 20].view(np.uint16))
        scaled = each.view(np.float32)
        total = scaled.astype(np.float16) if total is None else total.astype(np.float32) + scaled
        total = total if low == 40 else total.astype(np.float16)
    expected = (total + bias.astype(np.float32)).astype(np.float16)
    assert (found.view(np.float16) == expected).all()


def test_a_step_without_an_addend_takes_the_sums_alone() -> None:
    a, b = halves(5, 3, 4), halves(6, 4, 2)
    desc = FinishedGEMM(product=product(4), steps=Epilogue.of(Step(name="convert", dtype="fp32")))
    found = evaluate_finished(desc, a, b)
    assert [[Fraction(float(each)) for each in row] for row in found.view(np.float32)] == exact_sums(a, b)


@pytest.mark.parametrize(
    ("sentence", "make"),
    [
        ("beta = 0.0 with addend = matrix", lambda: Finish(addend="matrix")),
        ("beta = 2.0 with addend = none", lambda: Finish(beta=2)),
        ("leave alpha out", lambda: Finish(alpha=2, scales="tensor")),
        ("is not a finite number of fp32", lambda: Finish(alpha=1e39)),
        ("leave epilogue out", lambda: GEMMProblem(m=1, n=2, k=3, a="fp16", b="fp16", out="fp16", epilogue="bias",
                                                   finish=Finish(alpha=2))),
        ("the steps take sums of fp32", lambda: FinishedGEMM(
            product=product(3).model_copy(update={"output_dtype": "fp16"}), steps=Epilogue.of(CONVERT))),
        ("belong together", lambda: FinishedGEMM(product=product(3), steps=Epilogue.of(CONVERT), scaled="a")),
        ("operands are fp32, too", lambda: FinishedGEMM(
            product=product(3), steps=Epilogue.of(CONVERT), scaled="a", scale=2, widened_from="fp16")),
        ("axpby needs operand_value", lambda: Step(name="axpby", value=1.0, fused="x")),
        ("relu has no fused", lambda: Step(name="relu", fused="x")),
        ("relu has no operand", lambda: Step(name="relu", operand_dtype="fp16")),
        ("does not hold every fp64", lambda: Step(name="add", operand_dtype="fp64")),
        ("arithmetic of fp16 is that of axpby", lambda: Step(name="add", operand_dtype="fp16", arithmetic="fp16")),
        ("an operand_dtype of fp16", lambda: axpby("x", operand_dtype="bf16", arithmetic="fp16")),
        ("is not a finite number of fp16", lambda: axpby("x", value=1.3, arithmetic="fp16")),
        ("is not a finite number of fp16", lambda: axpby("x", value=1.0, operand_value=1e6, arithmetic="fp16")),
    ],
)  # fmt: skip
def test_records_that_do_not_fit_are_refused(sentence: str, make: Any) -> None:
    with pytest.raises(DescriptorError, match=sentence):
        make()


def test_the_words_of_a_problem_name_its_finish() -> None:
    def words(**fields: Any) -> str:
        return GEMMProblem(m=1, n=2, k=3, a="fp16", b="fp16", out="fp16", finish=Finish(**fields)).words

    start = "1x2x3 fp16 NN to fp16"
    assert words() == start
    assert words(alpha=0.5, beta=2, addend="matrix") == f"{start} with alpha 0.5, 2.0 times a matrix added"
    assert words(beta=1, addend="vector", activation="relu") == f"{start} with a vector added, relu"
    assert words(scales="row", fast_accumulation=True) == (
        f"{start} with a scale for each row and column, fast accumulation"
    )
    assert words(scales="tensor") == f"{start} with a scale for each operand"
