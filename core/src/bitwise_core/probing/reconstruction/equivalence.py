"""Value numbering of descriptors: two descriptors with the same roundings of the same sums return the same bits."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, reduce

from bitwise_core.descriptors import Cut, GEMMDesc
from bitwise_core.descriptors.evaluation.matrix_units import unit_of
from bitwise_core.descriptors.hardware import Units
from bitwise_core.descriptors.k_axis import FILL, Part, instructions, parts_of
from bitwise_core.descriptors.record import wider
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.numerics.mma import FlooredSum, FusedSum, MmaSpec

ZERO = -1
"""The number of the value +0."""

_EXACT_PRODUCT_TYPES = {"fp16", "e4m3", "e5m2"}
"""Types whose products are exact in fp32."""


@dataclass
class ValueTable:
    """Value numbers: equal numbers are equal computations."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    signed: set[int] = field(default_factory=set)
    """The values that may be -0: a sum that starts from +0 cannot, its rounding to a narrower type can."""
    before_zero: dict[int, int] = field(default_factory=dict)
    """For each value of the form x + 0 the value x."""

    def number(self, content: Hashable, signed: bool = False) -> int:
        """Return the number of a value; a new value gets a new number."""
        found = self.numbers.setdefault(content, len(self.numbers))
        if signed:
            self.signed.add(found)
        return found


def same_computation(one: GEMMDesc, other: GEMMDesc, units: Units) -> bool:
    """Return whether two descriptors make the same roundings of the same sums, so that they return the same bits.

    `units` holds the rows of their matrix units.  False does not imply different bits.  Raises DescriptorError for an
    instruction without a row.
    """
    table = ValueTable()
    return structure(one, table, unit_of(one, units)) == structure(other, table, unit_of(other, units))


def structure(desc: GEMMDesc, table: ValueTable, spec: MmaSpec | None) -> Hashable:
    """Return the value of an output element by numbers of a table; equal results are equal computations."""
    dtype, value = _part(_ValueNumbering(desc, table, spec), parts_of(desc))
    value = _ValueNumbering(desc, table, spec).converted(value, dtype, desc.output_dtype)
    rotation = desc.iteration_rotation
    return (
        value, desc.left_dtype, desc.right_dtype, desc.output_dtype, desc.alpha, desc.operand_scales,
        desc.output_satfinite, desc.output_nan_for_infinity,
        (rotation, desc.k_loop_step, desc.tail) if rotation is not None else None,
    )  # fmt: skip


@cache
def _holds(target: str, source: str) -> bool:
    """Return whether a type has every value of another."""
    return FLOAT_FORMATS[target].holds(FLOAT_FORMATS[source])


@dataclass
class _ValueNumbering:
    desc: GEMMDesc
    table: ValueTable
    spec: MmaSpec | None

    @cached_property
    def exact(self) -> bool:
        """Whether every product on the scalar path is exact in the accumulator's type."""
        desc = self.desc
        narrow = {desc.left_dtype, desc.right_dtype} <= _EXACT_PRODUCT_TYPES and desc.accumulator_dtype in (
            "fp32",
            "fp64",
        )
        return narrow or ({desc.left_dtype, desc.right_dtype} <= {"fp32", "bf16"} and desc.accumulator_dtype == "fp64")

    @cached_property
    def rule(self) -> Hashable:
        """The arithmetic of the unit without its number of products: missing products are zeros."""
        rule = None if self.spec is None else self.spec.arithmetic
        if isinstance(rule, FusedSum) and not rule.zero_products:
            return replace(rule, products=1, order="ascending")
        if isinstance(rule, FlooredSum) and not rule.parity_split:
            return replace(rule, products=1)
        return rule

    def converted(self, value: int, source: str, target: str) -> int:
        if value == ZERO or source == target or _holds(target, source):
            return value
        return self.table.number(("convert", target, value), signed=True)

    def added(self, left: tuple[str, int], right: tuple[str, int], target: str) -> int:
        """Return left + right in the wider of their types, rounded to `target`.

        Adding +0 to a value that is never -0 does not change it.
        """
        for zero, (dtype, value) in ((left[1], right), (right[1], left)):
            if zero == ZERO and value not in self.table.signed:
                return self.converted(value, dtype, target)
        wide = wider(left[0], right[0])
        return self.converted(self.sum(wide, left[1], right[1]), wide, target)

    def sum(self, dtype: str, one: int, other: int) -> int:
        """Return an addition in one type, independent of the order of its operands and of where +0 is added."""
        table = self.table
        for value, addend in ((one, other), (other, one)):
            if value in table.before_zero and addend != ZERO:
                # (x + 0) + y is (x + y) + 0: a nonzero sum never rounds to zero, and both are +0 where x and y are -0.
                inner = self.sum(dtype, table.before_zero[value], addend)
                return self.sum(dtype, inner, ZERO) if inner in table.signed else inner
        found = table.number(("add", dtype, *sorted((one, other))), signed={one, other} <= table.signed)
        if ZERO in (one, other):
            table.before_zero[found] = one if other == ZERO else other
        return found


def _k_loop(numbering: _ValueNumbering, part: Part) -> int:
    desc, table, spec = numbering.desc, numbering.table, numbering.spec
    total, dtype = ZERO, desc.accumulator_dtype
    if desc.accumulator_start == "negative-zero":
        total = table.number(("-0", dtype), signed=True)
    for row in instructions(desc, part).tolist():
        if spec is None:
            (position,) = row
            if numbering.exact:
                product = table.number(("product", position))
                total = product if total == ZERO else numbering.sum(dtype, total, product)
            elif desc.path == "fma":
                # An fma whose product underflows keeps the product's sign, so the result may be -0.
                total = table.number(("fma", dtype, position, total), signed=True)
            else:
                # A rounded product equals an fma with +0 except for the sign of a zero, which a sum from +0 loses.
                total = numbering.sum(dtype, total, table.number(("fma", dtype, position, ZERO), signed=True))
            continue
        step = ZERO if not desc.use_fast_accum else total
        step = _instruction(numbering, spec, row, step)
        total = step if desc.use_fast_accum or total == ZERO else numbering.sum(dtype, total, step)
    return total


def _instruction(numbering: _ValueNumbering, spec: MmaSpec, row: list[int], start: int) -> int:
    rule, table, key = spec.arithmetic, numbering.table, numbering.rule
    last = isinstance(rule, FusedSum) and rule.accumulator_last
    total = ZERO if last else start
    for group in spec.groups:
        taken = tuple(row[place] for place in group if row[place] != FILL)
        if len(taken) == 1 and total == ZERO and isinstance(rule, FusedSum) and numbering.exact:
            total = table.number(("product", *taken))  # a single exact product is not truncated
        elif taken:
            total = table.number((key, spec.left, spec.right, spec.result, total, tuple(sorted(taken))))
    if last and start != ZERO:
        total = numbering.sum(spec.result, start, total)
    return total


def _part(numbering: _ValueNumbering, part: Part) -> tuple[str, int]:
    dtype = numbering.desc.accumulator_dtype
    if not len(part.positions) and part.cut is None:
        return dtype, ZERO
    if part.cut is None:
        return dtype, _k_loop(numbering, part)
    cut = part.cut
    found = []
    for each in part.parts:
        kind, value = _part(numbering, each)
        found.append((cut.partial_dtype, numbering.converted(value, kind, cut.partial_dtype)))
    return cut.merge_dtype, _merged(numbering, cut, found)


def _merged(numbering: _ValueNumbering, cut: Cut, parts: list[tuple[str, int]]) -> int:
    target, zero = cut.merge_dtype, (cut.partial_dtype, ZERO)
    steps = cut.merge_steps(len(parts))

    def plus(left: tuple[str, int], right: tuple[str, int]) -> tuple[str, int]:
        total = numbering.converted(left[1], left[0], target)
        return target, numbering.added((target, total), right, target)

    if cut.running_sum and wider(cut.partial_dtype, target) == target:
        # Additions without narrowing return -0 only if all terms are -0: +0 anywhere in the chain has the same effect.
        values = [*parts, zero]
        order = [values[part] for part in steps.sequence]
        if any(value == ZERO for _, value in order):
            order = [(target, ZERO), *(each for each in order if each[1] != ZERO)]
        dtype, value = reduce(plus, order)
    else:
        dtype, value = steps.run(parts, zero, plus)
    return numbering.converted(value, dtype, target)
