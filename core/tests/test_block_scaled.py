"""Matrix instructions with block scales against sums of fractions, and the records that describe them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.numerics.mma import BlockScaledSpec, MatrixError, OpenArithmetic, scaled_multiply_accumulate
from bitwise_core.numerics.mma.block_scaled import unpacked

FORMS = {"e2m1": (2, 1, 1), "e2m3": (2, 3, 1), "e3m2": (3, 2, 3), "e4m3": (4, 3, 7), "e5m2": (5, 2, 15)}
"""The bits of exponent and significand, and the bias."""
URL = "https://example.org"
SINGLE = BlockScaledSpec("a", "f.mx8", "e4m3", "e5m2", 32, 32, "ue8m0", 1, 25, "published only", URL)
GROUPS = BlockScaledSpec("a", "f.nv4", "e2m1", "e2m1", 64, 16, "ue4m3", 16, 35, "published only", URL)
NAN, INFINITY = 0x7FFFFFFF, 0x7F800000
Number = tuple[Fraction, int]
"""A value, and the exponent that takes part in an alignment."""


def element(pattern: int, form: str) -> Number:
    """Return the value and exponent of a finite element."""
    exponent_bits, fraction_bits, bias = FORMS[form]
    field, fraction = pattern >> fraction_bits & (1 << exponent_bits) - 1, pattern & (1 << fraction_bits) - 1
    exponent = max(field, 1) - bias
    sign = -1 if pattern >> exponent_bits + fraction_bits else 1
    whole = fraction + (1 << fraction_bits if field else 0)
    return sign * whole * Fraction(2) ** (exponent - fraction_bits), exponent


def scale(pattern: int, form: str) -> Number:
    """Return the value and exponent of a scale."""
    return (Fraction(2) ** (pattern - 127), pattern - 127) if form == "ue8m0" else element(pattern & 127, "e4m3")


def single(pattern: int) -> Number:
    """Return the value and exponent of a finite fp32 number."""
    field, fraction = pattern >> 23 & 255, pattern & (1 << 23) - 1
    exponent = max(field, 1) - 127
    whole = fraction + (1 << 23 if field else 0)
    return (-1 if pattern >> 31 else 1) * whole * Fraction(2) ** (exponent - 23), exponent


def towards_zero(value: Fraction) -> int:
    """Return the fp32 pattern of a number that is cut."""
    if not value:
        return 0
    sign, size, exponent = value < 0, abs(value), -126
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    if exponent > 127:
        return sign << 31 | INFINITY
    whole = math.floor(size / Fraction(2) ** (exponent - 23))
    return sign << 31 | whole + (exponent + 126 << 23)


def expected(spec: BlockScaledSpec, a: npt.NDArray[np.uint8], b: npt.NDArray[np.uint8], c: int) -> int:
    """Return the result for one row and one column of bytes, all of them finite."""
    sides = []
    for vector, form in ((a, spec.left), (b, spec.right)):
        bits = 1 + sum(FORMS[form][:2])
        whole = int.from_bytes(vector[: -spec.scales].tobytes(), "little")
        found = [element(whole >> bits * k & (1 << bits) - 1, form) for k in range(spec.k)]
        sides.append((found, [scale(int(each), spec.scale) for each in vector[-spec.scales :]]))
    (left, left_scales), (right, right_scales) = sides
    terms = [single(c)]
    for start in range(0, spec.k, spec.group):
        products = sum(left[k][0] * right[k][0] for k in range(start, start + spec.group))
        one, other = left_scales[start // spec.block], right_scales[start // spec.block]
        exponent = one[1] + other[1] + (left[start][1] + right[start][1] if spec.group == 1 else 0)
        terms.append((products * one[0] * other[0], exponent))
    terms = [each for each in terms if each[0]]
    if not terms:
        return 0
    unit = Fraction(2) ** (max(exponent for _, exponent in terms) - spec.fraction_bits)
    return towards_zero(sum((math.trunc(value / unit) for value, _ in terms), 0) * unit)


def operands(spec: BlockScaledSpec, count: int, spread: int = 6) -> list[npt.NDArray[np.unsignedinteger]]:
    """Return random vectors of shape (count, bytes) without NaN or infinity, and accumulators."""
    random = np.random.default_rng(count + spread)
    found: list[npt.NDArray[np.unsignedinteger]] = []
    for form, size in ((spec.left, spec.operand_bytes("left")), (spec.right, spec.operand_bytes("right"))):
        vectors = random.integers(0, 256, (count, size)).astype(np.uint8)
        if form in ("e4m3", "e5m2"):
            vectors &= np.uint8(0xBF)
        vectors[random.random(vectors.shape) < 0.1] = 0
        middle = 127 if spec.scale == "ue8m0" else 56
        vectors[:, -spec.scales :] = random.integers(middle - spread, middle + spread, (count, spec.scales))
        found.append(vectors)
    exponent = random.integers(127 - 3 * spread, 127 + 3 * spread, count)
    found.append((random.integers(0, 1 << 24, count) & 0x80FFFFFF | exponent << 23).astype(np.uint32))
    return found


def results(spec: BlockScaledSpec, a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> list[int]:
    rows, columns, start = (np.asarray(each) for each in (a, b, c))
    found = scaled_multiply_accumulate(spec, rows[:, None], columns[..., None], start[:, None, None])
    return [int(each) for each in found.ravel()]


PAIRS = [
    *(replace(SINGLE, left=left, right=right) for left in FORMS for right in ("e4m3", "e2m1", "e3m2")),
    GROUPS,
    replace(GROUPS, scale="ue8m0"),
    replace(GROUPS, scale="ue8m0", block=32),
]


@pytest.mark.parametrize("spread", [2, 6, 25])
@pytest.mark.parametrize("spec", PAIRS, ids=lambda spec: spec.name)
def test_results_are_exact_sums_of_cut_terms(spec: BlockScaledSpec, spread: int) -> None:
    a, b, c = operands(spec, 40, spread)
    assert results(spec, a, b, c) == [expected(spec, *each) for each in zip(a, b, c.tolist(), strict=True)]


@pytest.mark.parametrize("change", [{"fraction_bits": 24}, {"fraction_bits": 26}, {"block": 16}])
def test_another_row_has_other_results(change: dict[str, int]) -> None:
    """The reference tells rows apart, so that it can refute a wrong one."""
    spec = replace(SINGLE, left="e4m3", right="e4m3")
    a, b, c = operands(spec, 300, 6)
    other = replace(spec, **change)  # type: ignore[arg-type]
    size = spec.operand_bytes("left") - spec.scales
    wide = [np.concatenate([each[:, :size], *[each[:, size:]] * other.scales], axis=1) for each in (a, b)]
    same = results(spec, a, b, c) == results(other, *wide, c)
    assert same == ("block" in change)  # equal scales of smaller blocks are one scale


def test_a_matrix_product_is_its_rows_by_its_columns() -> None:
    a, b, c = operands(GROUPS, 12)
    tile = scaled_multiply_accumulate(GROUPS, a[:5], b[5:].T, np.resize(c, (5, 7)))
    pairs = [(m, n) for m in range(5) for n in range(7)]
    start = np.resize(c, (5, 7))
    assert tile.ravel().tolist() == [expected(GROUPS, a[m], b[5 + n], int(start[m, n])) for m, n in pairs]


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_elements_are_packed_from_the_lowest_bit(bits: int) -> None:
    numbers = (np.arange(32) * 5 % (1 << bits)).astype(np.uint8)
    whole = sum(int(number) << bits * k for k, number in enumerate(numbers))
    packed = np.frombuffer(whole.to_bytes(4 * bits, "little"), dtype=np.uint8)
    assert unpacked(packed[None], bits).tolist() == [numbers.tolist()]


def _one(spec: BlockScaledSpec, left: int, right: int, scales: tuple[int, int], c: int) -> int:
    vectors = []
    for size, byte, each in zip(
        (spec.operand_bytes("left"), spec.operand_bytes("right")), (left, right), scales, strict=True
    ):
        vector = np.zeros((1, size), dtype=np.uint8)
        vector[:, 0], vector[:, -spec.scales :] = byte, each
        vectors.append(vector)
    return results(spec, *vectors, np.array([c], dtype=np.uint32))[0]


E4M3 = replace(SINGLE, right="e4m3")
E5M2 = replace(SINGLE, left="e5m2", right="e5m2")
ONE, ONE4 = 0x38, 0x02


@pytest.mark.parametrize(
    ("spec", "left", "right", "scales", "c", "result"),
    [
        (E4M3, ONE, ONE, (127, 127), 0, 0x3F800000),
        (E4M3, ONE, ONE, (130, 126), 0, 0x40800000),
        (E4M3, ONE, ONE, (255, 127), 0, NAN),
        (E4M3, 0, 0, (255, 0), 0, NAN),
        (E4M3, 0x7F, ONE, (127, 127), 0, NAN),
        (E4M3, 0, 0, (254, 254), 0x80000000, 0),
        (E4M3, ONE, ONE, (254, 129), 0, INFINITY),
        (E4M3, ONE, ONE, (0, 105), 0, 1),
        (E4M3, ONE, ONE, (0, 104), 0, 0),
        (E4M3, ONE, ONE, (127, 127), 0xFF800000, 0xFF800000),
        (E5M2, 0x7C, 0x3C, (127, 127), 0, INFINITY),
        (E5M2, 0x7C, 0x3C, (127, 127), 0xFF800000, NAN),
        (GROUPS, ONE4, ONE4, (0x38, 0x38), 0, 0x3F800000),
        (GROUPS, ONE4, ONE4, (0xB8, 0x38), 0, 0x3F800000),
        (GROUPS, ONE4, ONE4, (0x7F, 0x38), 0, NAN),
        (GROUPS, ONE4, ONE4, (0x00, 0x38), 0x40000000, 0x40000000),
        (GROUPS, ONE4, ONE4, (0x38, 0x38), NAN, NAN),
    ],
)  # fmt: skip
def test_special_values(
    spec: BlockScaledSpec, left: int, right: int, scales: tuple[int, int], c: int, result: int
) -> None:
    assert _one(spec, left, right, scales, c) == result


def test_where_published_models_disagree_there_is_no_result() -> None:
    """A group of zeros with large scales: it decides the alignment in one model, and has no part in the other."""
    spec = replace(GROUPS, scale="ue8m0")
    a, b, c = (each[:1].copy() for each in operands(spec, 2, 1))
    a[:, :8] = 0
    a[:, -4:], b[:, -4:] = 127, 127
    assert results(spec, a, b, c)
    a[:, -4], b[:, -4] = 200, 200
    with pytest.raises(OpenArithmetic, match="published models of this instruction disagree"):
        results(spec, a, b, c)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"left": "fp16"}, "at most 8 bits"),
        ({"left": "ue8m0"}, "signed formats"),
        ({"scale": "fp32"}, "scales are ue8m0 or ue4m3"),
        ({"status": "guessed"}, "is not one of"),
        ({"block": 5}, "multiple of the block"),
        ({"group": 16}, "only groups of at most 16 products of e2m1"),
        ({"scale": "ue4m3"}, "powers of two only"),
        ({"left": "e2m1", "right": "e2m1", "k": 33, "block": 33}, "do not fill bytes"),
        ({"fraction_bits": 50}, "needs more than 53 bits"),
    ],
)
def test_inconsistent_rows_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(MatrixError, match=message):
        replace(SINGLE, **change)  # type: ignore[arg-type]


def test_operands_that_do_not_fit_are_refused() -> None:
    a, b, c = operands(GROUPS, 3)
    tile = np.resize(c, (3, 3))
    for left, right, start in ((a[:, 1:], b.T, tile), (a, b, tile), (a, b.T, c), (a[0], b.T, tile)):
        with pytest.raises(MatrixError, match="do not fit"):
            scaled_multiply_accumulate(GROUPS, left, right, start)
    for left, right, start in ((a.astype(int), b.T, tile), (a, b.T, tile.astype(np.float32))):
        with pytest.raises(MatrixError, match="arrays of uint8"):
            scaled_multiply_accumulate(GROUPS, left, right, start)
