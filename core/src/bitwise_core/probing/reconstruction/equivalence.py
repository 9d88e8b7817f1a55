"""What a descriptor computes, down to every rounding: two that compute the same return the same bits."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import reduce

from bitwise_core.descriptors import Cut, GEMMDesc
from bitwise_core.descriptors.evaluation.matrix_units import unit_of
from bitwise_core.descriptors.hardware import Units
from bitwise_core.descriptors.k_axis import FILL, Part, instructions, parts_of
from bitwise_core.descriptors.record import wider
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.numerics.mma import FlooredSum, FusedSum, MmaSpec

ZERO = -1
"""The value +0."""

_EXACT = {"fp16", "e4m3", "e5m2"}
"""Types whose every product is a number of fp32."""


@dataclass
class Table:
    """Values by what they are made of: equal numbers are equal computations."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    signed: set[int] = field(default_factory=set)
    """Those that may be -0: sums from +0 are not, but what is rounded to a narrower type may be."""
    without: dict[int, int] = field(default_factory=dict)
    """Of what +0 was added to: the value before that."""

    def number(self, content: Hashable, signed: bool = False) -> int:
        """The number of a value, a new one for a new value."""
        found = self.numbers.setdefault(content, len(self.numbers))
        if signed:
            self.signed.add(found)
        return found


def same(one: GEMMDesc, other: GEMMDesc, units: Units) -> bool:
    """Whether two descriptors make the same roundings of the same sums, so that they return the same bits.

    `units` holds the rows of their matrix units.  False says nothing about bits.  Raises DescriptorError for an
    instruction without a row.
    """
    table = Table()
    return structure(one, table, unit_of(one, units)) == structure(other, table, unit_of(other, units))


def structure(desc: GEMMDesc, table: Table, spec: MmaSpec | None) -> Hashable:
    """What an output element is, by numbers of a table."""
    dtype, value = _part(_Case(desc, table, spec), parts_of(desc))
    value = _Case(desc, table, spec).converted(value, dtype, desc.output_dtype)
    rotation = desc.iteration_rotation
    return (
        value, desc.left_dtype, desc.right_dtype, desc.output_dtype, desc.alpha, desc.operand_scales,
        desc.output_satfinite, (rotation, desc.k_loop_step) if rotation is not None else None,
    )  # fmt: skip


@dataclass
class _Case:
    desc: GEMMDesc
    table: Table
    spec: MmaSpec | None

    @property
    def exact(self) -> bool:
        """Whether a product on the scalar path is a number of the accumulator's type."""
        desc = self.desc
        narrow = {desc.left_dtype, desc.right_dtype} <= _EXACT and desc.accumulator_dtype in ("fp32", "fp64")
        return narrow or ({desc.left_dtype, desc.right_dtype} <= {"fp32", "bf16"} and desc.accumulator_dtype == "fp64")

    def converted(self, value: int, source: str, target: str) -> int:
        if value == ZERO or FLOAT_FORMATS[target].holds(FLOAT_FORMATS[source]):
            return value
        return self.table.number(("convert", target, value), signed=True)

    def added(self, left: tuple[str, int], right: tuple[str, int], target: str) -> int:
        """left + right in the wider of their types, then rounded; adding +0 to what is never -0 changes nothing."""
        for zero, (dtype, value) in ((left[1], right), (right[1], left)):
            if zero == ZERO and value not in self.table.signed:
                return self.converted(value, dtype, target)
        wide = wider(left[0], right[0])
        return self.converted(self.sum(wide, left[1], right[1]), wide, target)

    def sum(self, dtype: str, one: int, other: int) -> int:
        """An addition in one type; the order of its operands decides nothing, nor where in nested ones +0 is added."""
        table = self.table
        for value, beside in ((one, other), (other, one)):
            if value in table.without and beside != ZERO:
                # (x + 0) + y is (x + y) + 0: no addition rounds to zero, and both are +0 where x and y are -0.
                inner = self.sum(dtype, table.without[value], beside)
                return self.sum(dtype, inner, ZERO) if inner in table.signed else inner
        found = table.number(("add", dtype, *sorted((one, other))), signed={one, other} <= table.signed)
        if ZERO in (one, other):
            table.without[found] = one if other == ZERO else other
        return found


def _walk(case: _Case, part: Part) -> int:
    desc, table, spec = case.desc, case.table, case.spec
    total, dtype = ZERO, desc.accumulator_dtype
    for row in instructions(desc, part.positions).tolist():
        if spec is None:
            (position,) = row
            if case.exact:
                product = table.number(("product", position))
                total = product if total == ZERO else case.sum(dtype, total, product)
            elif desc.path == "fma":
                # Of a product that is lost, an fma keeps the sign.
                total = table.number(("fma", dtype, position, total), signed=True)
            else:
                # A rounded product is what an fma onto +0 returns, but for a zero's sign, which a sum from +0 loses.
                total = case.sum(dtype, total, table.number(("fma", dtype, position, ZERO), signed=True))
            continue
        step = ZERO if not desc.use_fast_accum else total
        step = _instruction(case, spec, row, step)
        total = step if desc.use_fast_accum or total == ZERO else case.sum(dtype, total, step)
    return total


def _instruction(case: _Case, spec: MmaSpec, row: list[int], start: int) -> int:
    rule, table = spec.arithmetic, case.table
    last = isinstance(rule, FusedSum) and rule.accumulator_last
    # How many products a unit could take makes no difference to those that it takes: zeros fill it up.
    key: object = rule
    if isinstance(rule, FusedSum) and not rule.zero_products:
        key = replace(rule, products=1, order="ascending")
    elif isinstance(rule, FlooredSum) and not rule.parity_split:
        key = replace(rule, products=1)
    total = ZERO if last else start
    for group in spec.groups:
        taken = tuple(row[place] for place in group if row[place] != FILL)
        if len(taken) == 1 and total == ZERO and isinstance(rule, FusedSum) and case.exact:
            total = table.number(("product", *taken))  # one product is cut nowhere
        elif taken:
            total = table.number((key, spec.left, spec.right, spec.result, total, tuple(sorted(taken))))
    if last and start != ZERO:
        total = case.sum(spec.result, start, total)
    return total


def _part(case: _Case, part: Part) -> tuple[str, int]:
    dtype = case.desc.accumulator_dtype
    if not len(part.positions) and part.cut is None:
        return dtype, ZERO
    if part.cut is None:
        return dtype, _walk(case, part)
    cut = part.cut
    found = []
    for each in part.parts:
        kind, value = _part(case, each)
        found.append((cut.partial_dtype, case.converted(value, kind, cut.partial_dtype)))
    return cut.merge_dtype, _merged(case, cut, found)


def _merged(case: _Case, cut: Cut, parts: list[tuple[str, int]]) -> int:
    target, zero = cut.merge_dtype, (cut.partial_dtype, ZERO)
    steps = cut.merge_steps(len(parts))

    def plus(left: tuple[str, int], right: tuple[str, int]) -> tuple[str, int]:
        total = case.converted(left[1], left[0], target)
        return target, case.added((target, total), right, target)

    if cut.running_sum and wider(cut.partial_dtype, target) == target:
        # An addition alone rounds nothing to -0: +0 anywhere in its chain turns a sum of -0 to +0, and no more.
        values = [*parts, zero]
        order = [values[part] for part in steps.sequence]
        if any(value == ZERO for _, value in order):
            order = [(target, ZERO), *(each for each in order if each[1] != ZERO)]
        dtype, value = reduce(plus, order)
    else:
        dtype, value = steps.run(parts, zero, plus)
    return case.converted(value, dtype, target)
