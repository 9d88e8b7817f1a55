"""Lanes under a mask: each lane of a result is what the same operations return for that lane alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from bitwise_core.execution.domains import term_arithmetic
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.values.constant_lanes import without_constant_lanes
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values
from bitwise_core.execution.values.symbolic_vector import VALUE, Array, Origin, Value, flags_of_lanes
from bitwise_core.execution.values.term_hash import exact_hash
from bitwise_core.numerics import operation

LANES = 6
NUMBERS = np.array([0, 1 << 31, 0x3F800000, 0xBF800000, 0x40200000, 0x7F800000, 0x7FC00001], dtype=np.uint32)
BINARY = ("add.rn.fp32", "sub.rn.fp32", "mul.rn.fp32", "div.rn.fp32", "max.fp32", "min.fp32")

Program = Callable[[TermDomain, slice], list[Value]]


def program(seed: int, binary: tuple[str, ...] = BINARY) -> Program:
    """Return a random program on loads that are numbers in some lanes; it returns its values in a range of lanes."""
    drawn = random.Random(seed)
    masks = [np.array([[drawn.random() < 0.5 for _ in range(LANES)]]) for _ in range(2)]
    one_number = drawn.random() < 0.7
    leaves = []
    for number in range(4):
        numbers = np.array([[drawn.choice(NUMBERS) for _ in range(LANES)]], dtype=np.uint32)
        leaves.append(
            (number, masks[drawn.random() < 0.2], numbers[:, :1].repeat(LANES, axis=1) if one_number else numbers)
        )
    steps = [
        (drawn.choice((*binary, "fma.rn.fp32", "fp16")), [drawn.randrange(4 + each) for _ in range(3)])
        for each in range(9)
    ]

    def run(domain: TermDomain, lanes: slice) -> list[Value]:
        values: list[Value] = []
        for number, mask, numbers in leaves:
            places = (number + 1 << 40) + 4 * np.arange(LANES, dtype=np.uint64)[None, lanes]
            values.append(blend_values(mask[:, lanes], numbers[:, lanes], domain.load(places, 32)))
        for name, places in steps:
            if name == "fp16":
                half = domain.floating(operation("convert.rn.fp16.fp32"), [values[places[0]]])
                values.append(domain.floating(operation("convert.fp32.fp16"), [half]))
            else:
                operands = [values[each] for each in places[: 3 if name.startswith("fma") else 2]]
                values.append(domain.floating(operation(name), operands))
        return values

    return run


def described(value: Value) -> tuple[Array, Array]:
    vector = as_symbolic_vector(value)
    words = exact_hash(vector)
    return words, flags_of_lanes(vector.flags, words.shape[1:]) & np.uint32(VALUE)


@pytest.mark.parametrize("seed", range(24))
def test_each_lane_alone(seed: int) -> None:
    run = program(seed, ("add.rn.fp32", "mul.rn.fp32", "div.rn.fp32"))
    together = [described(value) for value in run(TermDomain(), slice(None))]
    for lane in range(LANES):
        alone = [described(value) for value in run(TermDomain(), slice(lane, lane + 1))]
        for (words, flags), (own_words, own_flags) in zip(together, alone, strict=True):
            place = lane if words.shape[2] > 1 else 0
            assert (words[:, :, place] == own_words[:, :, 0]).all()
            place = lane if flags.shape[1] > 1 else 0
            assert (flags[:, place] == own_flags[:, 0]).all()


def test_results_are_those_of_all_lanes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [program(seed) for seed in range(24)]
    apart = [[described(value) for value in run(TermDomain(), slice(None))] for run in runs]
    used = []

    def never(*_: object) -> None:
        used.append(True)

    monkeypatch.setattr(term_arithmetic, "without_constant_lanes", never)
    for run, found in zip(runs, apart, strict=True):
        for (words, flags), value in zip(found, run(TermDomain(), slice(None)), strict=True):
            other_words, other_flags = described(value)
            assert (words == other_words).all()
            assert (flags == other_flags).all()
    assert used


def test_operands_whose_lanes_decide() -> None:
    domain, mask = TermDomain(), np.array([[True, False, True, False]])
    zero, places = np.zeros((1, 4), dtype=np.uint32), (1 << 40) + 4 * np.arange(4, dtype=np.uint64)[None]
    load = as_symbolic_vector(domain.load(places, 32))
    masked, other = (as_symbolic_vector(blend_values(each, zero, load)) for each in (mask, ~mask))
    add = operation("add.rn.fp32")
    found = without_constant_lanes(add, [masked, masked])
    assert found is not None
    assert found[0] is found[1]
    assert found[0].flags == load.flags
    assert without_constant_lanes(add, [masked, other]) is None
    assert without_constant_lanes(add, [masked, load]) is None
    assert without_constant_lanes(add, [load, load]) is None
    assert without_constant_lanes(operation("max.fp32"), [masked, masked]) is None
    assert without_constant_lanes(add, [masked, as_symbolic_vector(zero[:, :1])]) is not None


def test_operations_that_made_some_of_the_other_lanes() -> None:
    mask = np.array([[True, False, True, False]])
    places = (1 << 40) + 4 * np.arange(4, dtype=np.uint64)[None]
    load = as_symbolic_vector(TermDomain().load(places, 32))
    masked = as_symbolic_vector(blend_values(mask, np.zeros((1, 4), dtype=np.uint32), load))
    some = np.array([[False, True, False, False]])
    masked.origins = (Origin("one", (load,), ~mask), Origin("other", (load,), some), Origin("every", (load,)))
    found = without_constant_lanes(operation("add.rn.fp32"), [masked, masked])
    assert found is not None
    one, other, every = found[0].origins
    assert one.lanes is True
    assert other.lanes is some
    assert every.lanes is True
    assert masked.origins[0].lanes is not True
