"""Greatest numbers of values, against all numbers of 8 bits."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.integers.bounds import maximum_of, maximum_of_result, without_mask
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import INTEGER, TERM, PackedVector, SymbolicVector, constant_vector
from bitwise_core.numerics import operation

NUMBERS = np.arange(256, dtype=np.uint8)
BOUNDS = (0, 1, 2, 7, 8, 15, 16, 100, 127, 128, 200, 254, 255)


def term(bits: int, name: str, maximum: int | None = None, threads: int = 1) -> SymbolicVector:
    words = np.repeat(hashing.constant(name).reshape(2, 1, 1), threads, axis=2)
    words[0, 0] += np.arange(threads, dtype=np.uint64)
    made = SymbolicVector(bits, words, TERM | INTEGER)
    made.maximum = maximum
    return made


@pytest.mark.parametrize("name", ["add.b8", "mul.b8", "and.b8"])
def test_no_result_exceeds_its_bound_and_wrapping_results_have_none(name: str) -> None:
    function = operation(name)
    left, right = np.meshgrid(NUMBERS, NUMBERS)
    found = function.evaluate(left.ravel(), right.ravel()).reshape(left.shape)
    for first in BOUNDS:
        for second in BOUNDS:
            within = found[(left <= first) & (right <= second)]
            given = [term(8, "left", first), term(8, "right", second)]
            bound = maximum_of_result(function, given)
            exact = {"add.b8": first + second, "mul.b8": first * second, "and.b8": min(first, second)}[name]
            assert bound == (exact if exact < 256 else None)
            assert bound is None or int(within.max()) <= bound


@pytest.mark.parametrize("name", ["or.b8", "xor.b8"])
def test_bitwise_results_have_no_bit_above_those_of_their_operands(name: str) -> None:
    left, right = np.meshgrid(NUMBERS, NUMBERS)
    found = operation(name).evaluate(left.ravel(), right.ravel()).reshape(left.shape)
    for first in BOUNDS:
        for second in BOUNDS:
            bound = maximum_of_result(operation(name), [term(8, "left", first), term(8, "right", second)])
            assert bound == (1 << max(first, second).bit_length()) - 1
            assert int(found[(left <= first) & (right <= second)].max()) <= bound


@pytest.mark.parametrize("name", ["shr.u8", "shr.s8"])
def test_a_shift_to_the_right_bounds_numbers_without_a_sign_bit(name: str) -> None:
    for count in (0, 1, 3, 7, 8, 40):
        by = np.full((1, 1), count, dtype=np.uint32)
        found = operation(name).evaluate(NUMBERS, np.full(NUMBERS.shape, count, dtype=np.uint32))
        for bound in BOUNDS:
            shifted = maximum_of_result(operation(name), [term(8, "left", bound), by])
            assert shifted == (bound >> count if bound < 128 else None)
            assert shifted is None or int(found[bound >= NUMBERS].max()) <= shifted
        assert maximum_of_result(operation(name), [term(8, "left"), by]) is None
    assert maximum_of_result(operation(name), [term(8, "left", 100), term(32, "by")]) == 100
    assert maximum_of_result(operation(name), [term(8, "left", 100), constant_vector(np.uint32([[2]]))]) == 25


def test_a_mask_of_low_bits_is_dropped_from_numbers_within_it() -> None:
    for mask in NUMBERS:
        number = np.full((1, 2), mask, dtype=np.uint8)
        for bound in BOUNDS:
            value = term(8, "value", bound)
            found = without_mask(operation("and.b8"), [value, number])
            assert found is (value if bound <= mask and mask in (0, 1, 3, 7, 15, 31, 63, 127, 255) else None)
            assert without_mask(operation("and.b8"), [number, value]) is found
    value = term(8, "value", 1)
    assert without_mask(operation("and.b8"), [value, np.uint8([[7, 3]])]) is None
    assert without_mask(operation("or.b8"), [value, np.uint8([[7]])]) is None
    assert without_mask(operation("and.b8"), [term(8, "value"), np.uint8([[7]])]) is None


def test_a_constant_is_its_own_bound_and_slices_are_bounded_by_their_bits() -> None:
    assert maximum_of(constant_vector(np.uint32([[70000]]))) == 70000
    value = term(32, "value", 70000)
    assert [maximum_of(extract(value, low, 16)) for low in (0, 16)] == [0xFFFF, 1]
    assert maximum_of(extract(extract(value, 0, 16), 8, 8)) == 0xFF
    assert maximum_of(extract(term(32, "value"), 0, 16)) is None


def test_a_value_of_which_nothing_is_known_bounds_only_an_and() -> None:
    unknown, small = term(8, "left"), term(8, "right", 3)
    assert maximum_of_result(operation("and.b8"), [unknown, small]) == 3
    assert maximum_of_result(operation("and.b8"), [unknown, unknown]) is None
    assert maximum_of_result(operation("add.b8"), [unknown, small]) is None
    assert maximum_of_result(operation("mul.b8"), [np.zeros((1, 1), np.uint8), unknown]) is None
    assert maximum_of_result(operation("popc.b8"), [unknown]) == 8


def test_zeros_at_the_top_bound_a_packed_value() -> None:
    zeros, ones = np.zeros((1, 1), np.uint16), np.ones((1, 1), np.uint16)
    low, small = term(16, "low"), term(16, "low", 9)
    assert maximum_of(PackedVector((low, zeros))) == 0xFFFF
    assert maximum_of(PackedVector((small, zeros, zeros))) == 9
    assert maximum_of(PackedVector((low, low, zeros, zeros))) == 0xFFFFFFFF
    assert maximum_of(PackedVector((low, ones))) is None
    assert maximum_of(PackedVector((zeros, low))) is None
    assert maximum_of(PackedVector((zeros, zeros))) == 0


@pytest.mark.parametrize(("maximum", "joined"), [(1, True), (0xFFFF, True), (0x10000, False), (None, False)])
def test_the_low_bits_of_a_small_number_beside_zeros_are_the_number(maximum: int | None, joined: bool) -> None:
    whole, zeros = term(32, "whole", maximum, threads=4), np.zeros((1, 1), np.uint16)
    index = np.array([[1, 0, 3, 2]])
    found = concat([extract(whole, 0, 16), zeros])
    moved = concat([take_threads(extract(whole, 0, 16), index), zeros])
    assert isinstance(found, SymbolicVector) is joined
    assert isinstance(moved, SymbolicVector) is joined
    if joined:
        assert isinstance(found, SymbolicVector)
        assert isinstance(moved, SymbolicVector)
        assert np.array_equal(found.words, whole.words)
        assert np.array_equal(moved.words, whole.words[:, :, index[0]])
    other = concat([extract(whole, 16, 16), zeros])
    assert isinstance(other, np.ndarray) is joined
    assert joined == (not np.any(other) if isinstance(other, np.ndarray) else False)
    assert isinstance(concat([extract(whole, 0, 16), np.ones((1, 1), np.uint16)]), PackedVector)
