"""The domain of bits: every value is its bit pattern, so that a run returns the bytes that the hardware returns.

Values are plain arrays.  If nothing has written a register or a cell of memory in some lanes, the value is a
`SymbolicVector` that is constant in the other lanes.  A result of an undefined lane is undefined, and a launch that
stores one is Unsupported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeAlias

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.term_recorder import Recorder
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.floats.finiteness import makes_non_finite, mma_makes_non_finite
from bitwise_core.execution.values.floats.open_nans import other_nans
from bitwise_core.execution.values.matrix_steps.mma_steps import MmaStep, OperandVectors, same_in_blocks
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.numerics import FloatFormat, Operation, nan_of
from bitwise_core.numerics.mma import MatrixUnit, OpenArithmetic, step_results

PatternFunction = Callable[..., Array]
"""A function on bit patterns: one array for each operand, in the unsigned type of its width, to the results."""


class Contents(Protocol):
    """The memory from which the domain reads."""

    def read(self, address: Array, bits: int) -> Value:
        """Return the initial content at constant addresses; it is arbitrary at addresses outside every buffer."""


@dataclass(frozen=True, slots=True)
class PatternVectors:
    """Operand vectors as the patterns of their elements, shape (blocks, ..., k).

    `sticky` holds the sticky flags of undefined vectors, 0 if there are none.
    """

    elements: Array
    sticky: L.Flags

    def take(self, index: Array) -> PatternVectors:
        """See `OperandVectors.take`."""
        blocks, k = self.elements.shape[0], self.elements.shape[-1]
        sticky = (
            self.sticky if isinstance(self.sticky, int) else self.sticky.reshape(self.sticky.shape[0], -1)[:, index]
        )
        return PatternVectors(self.elements.reshape(blocks, -1, k)[:, index], sticky)

    def of_blocks(self, blocks: Array) -> PatternVectors:
        """See `OperandVectors.of_blocks`."""
        elements = self.elements if len(self.elements) == 1 else self.elements[blocks]
        sticky = self.sticky if isinstance(self.sticky, int) or len(self.sticky) == 1 else self.sticky[blocks]
        return PatternVectors(elements, sticky)

    def concatenated(self, others: Sequence[PatternVectors]) -> PatternVectors:
        """See `OperandVectors.concatenated`."""
        if not others:
            return self
        parts = (self, *others)
        blocks, k = max(each.elements.shape[0] for each in parts), self.elements.shape[-1]
        flat = [each.elements.reshape(each.elements.shape[0], -1, k) for each in parts]
        elements = np.concatenate([np.broadcast_to(each, (blocks, *each.shape[1:])) for each in flat], axis=1)
        if all(isinstance(each.sticky, int) and each.sticky == self.sticky for each in parts):
            return PatternVectors(elements, self.sticky)
        spread = [
            np.broadcast_to(np.asarray(part.sticky, dtype=np.uint32), part.elements.shape[:-1]).reshape(each.shape[:2])
            for part, each in zip(parts, flat, strict=True)
        ]
        flags = np.concatenate([np.broadcast_to(each, (blocks, each.shape[1])) for each in spread], axis=1)
        return PatternVectors(elements, flags)

    def same_in(self, blocks: Array, other: PatternVectors) -> bool:
        """See `OperandVectors.same_in`."""
        return same_in_blocks(blocks, self.elements, other.elements)


class BitsDomain:
    """See `domains.domain.Domain`.

    `approximations` maps full operation names (`ex2.approx.ftz.fp32@sm_90`) to the functions of operations whose bits
    the hardware defines; each must return the hardware's bits for every pattern.  `units` maps the name of a fused
    step, in one word, to the row of its matrix unit.  If `finite`, an operation that makes an infinity or a NaN from
    finite operands raises Unsupported.
    """

    name = "bits"
    recorder: Recorder | None = None

    def __init__(
        self,
        contents: Contents,
        approximations: Mapping[str, PatternFunction] | None = None,
        units: Mapping[str, MatrixUnit] | None = None,
        *,
        finite: bool = False,
    ) -> None:
        self.contents = contents
        self.approximations = approximations or {}
        self.units = units or {}
        self.finite = finite
        self.notes: dict[str, None] = {}
        """The assumptions of this run that are not established facts, in the order of occurrence."""

    def assumes(self, assumption: str) -> bool:
        """See `Domain.assumes`."""
        return True

    def assumed_finite(self, value: Value, form: FloatFormat) -> bool | Array:
        """See `Domain.assumed_finite`: a pattern is a constant."""
        return False

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """See `Domain.floating`.  Raises Unsupported for an operation whose bits are unknown here."""
        name = operation.name
        function = operation.function or self.approximations.get(name)
        if function is None:
            raise Unsupported(f"the operation {name} has no function here that is exact for every pattern")
        result = lanewise(function, operands, operation.bits)
        if self.finite and makes_non_finite(operation, operands, result):
            raise Unsupported(f"{name} makes an infinity or a NaN from finite numbers")
        if _nan_is_unspecified(operation) and isinstance(result, np.ndarray) and _has_nan(operation, result):
            self.notes[f"the pattern of a NaN from {name} is not specified; the canonical NaN is used"] = None
        return result

    def integer(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """See `Domain.integer`."""
        assert operation.function is not None
        return lanewise(operation.function, operands, operation.bits)

    def select(self, predicate: Value, if_true: Value, if_false: Value) -> Value:
        """See `Domain.select`: the result is undefined where the predicate is."""
        if isinstance(predicate, np.ndarray):
            return blend_values(predicate, if_true, if_false)
        condition = as_symbolic_vector(predicate)
        known = np.asarray(L.constant_mask(condition))
        chosen = as_symbolic_vector(blend_values(condition.words[0] != 0, if_true, if_false))
        return L.as_array_if_constant(
            L.blend(known, chosen, undefined_lanes(chosen.bits, L.sticky_flags(condition, chosen)))
        )

    def with_open_nans(self, value: Value, form: FloatFormat, note: str) -> Value:
        """See `Domain.with_open_nans`: a NaN keeps its bits."""
        lanes = as_symbolic_vector(value)
        if (np.asarray(L.constant_mask(lanes)) & other_nans(L.constants_of(lanes), form)).any():
            self.notes[note] = None
        return value

    def note_stored(self, value: Value) -> None:
        """See `Domain.note_stored`."""

    def recalled(self, value: Value, mask: Array | None) -> Value:
        """See `Domain.recalled`."""
        return value

    def operand_vectors(self, elements: SymbolicVector, form: str, parts: int = 1) -> OperandVectors:
        """See `Domain.operand_vectors`."""
        _require_known_or_sticky(elements)
        flags = elements.flags
        sticky = (
            flags & L.STICKY if isinstance(flags, int) else np.bitwise_or.reduce(flags & np.uint32(L.STICKY), axis=-1)
        )
        return PatternVectors(L.constants_of(elements), L.uniform_flags(sticky))

    def mma_step(
        self, step: MmaStep, accumulator: SymbolicVector, left: OperandVectors, right: OperandVectors
    ) -> SymbolicVector:
        """See `Domain.mma_step`.  Raises Unsupported for a unit whose arithmetic is unknown here."""
        assert isinstance(left, PatternVectors)
        assert isinstance(right, PatternVectors)
        unit = self.units.get("_".join(step.name.split()))
        if unit is None:
            raise Unsupported(f"the matrix step {step.name} has no matrix-unit row")
        if unit.status == "published only":
            self.notes[f"the matrix step {step.name} follows a published model that hardware has not confirmed"] = None
        _require_known_or_sticky(accumulator)
        try:
            result = matrix_step(unit, left.elements, right.elements, L.constants_of(accumulator))
        except OpenArithmetic as error:
            raise Unsupported(str(error)) from None
        if self.finite and mma_makes_non_finite(
            unit, left.elements, right.elements, L.constants_of(accumulator), result
        ):
            raise Unsupported(f"the matrix step {step.name} makes an infinity or a NaN from finite numbers")
        wide = result.astype(np.uint64)
        sticky = left.sticky | right.sticky | L.sticky_flags(accumulator)
        flags: L.Flags = L.CONST
        if not isinstance(sticky, int) or sticky:
            flags = np.broadcast_to(np.where(sticky != 0, L.TERM | sticky, L.CONST).astype(np.uint32), result.shape)
        return SymbolicVector(accumulator.bits, np.broadcast_to(wide[None], (2, *wide.shape)), L.uniform_flags(flags))

    def load(self, address: Array, bits: int) -> Value:
        """See `Domain.load`."""
        return self.contents.read(address, bits)

    def gather(self, address: Value, bits: int, mask: Array | None) -> Value:
        """See `Domain.gather`: here an address that is not constant is undefined, so this always raises."""
        raise Unsupported(
            "memory is read at an address that depends on a register or on memory that nothing has written"
        )


@cache
def _nan_is_unspecified(operation: Operation) -> bool:
    """Return whether no document specifies the NaN of an operation: sign changes, fp64 operands or results."""
    wide = "fp64" in (operation.operands[0].name, operation.result.name)
    return not operation.architecture and (operation.verb in ("neg", "abs") or wide)


def _has_nan(operation: Operation, result: Array) -> bool:
    form = operation.result
    return isinstance(form, FloatFormat) and bool(nan_of(result, form).any())


def undefined_lanes(bits: int, sticky: L.Flags) -> SymbolicVector:
    """Return lanes without a pattern; `sticky` holds the flags that say why."""
    return SymbolicVector(bits, np.zeros((2, 1, 1), dtype=np.uint64), sticky | L.TERM)


def lanewise(function: Callable[..., Array], operands: Sequence[Value], bits: int) -> Value:
    """Apply a function per lane; the result is undefined where an operand is.

    Raises Unsupported if an operand is neither constant nor marked as undefined.
    """
    for operand in operands:
        if not isinstance(operand, np.ndarray):
            break
    else:
        return function(*operands)
    numbers, known, sticky = _patterns_together([_patterns(operand) for operand in operands])
    result = function(*numbers)
    if known is True or L.every(np.asarray(known)):
        return result
    shape_of = np.broadcast_shapes(result.shape, np.shape(known))
    flags = np.broadcast_to(np.where(known, np.uint32(L.CONST), np.uint32(L.TERM) | sticky), shape_of)
    return SymbolicVector(bits, np.broadcast_to(L.both_words(result), (2, *shape_of)), L.uniform_flags(flags))


_Patterns: TypeAlias = tuple[Array, bool | Array, L.Flags]
"""Numbers, the lanes in which they are known, and the flags that say why others are not."""


def _patterns(value: Value) -> _Patterns:
    """Return the patterns of a value.  Raises Unsupported if a lane is neither constant nor marked as undefined."""
    if isinstance(value, np.ndarray):
        return value, True, 0
    if type(value) is L.PackedVector and value.bits in L.UNSIGNED:
        parts, known, sticky = _patterns_together([_patterns(part) for part in value.parts])
        kind, low = L.UNSIGNED[value.bits], 0
        joined: Array = np.zeros((1, 1), dtype=kind)
        for numbers, part in zip(parts, value.parts, strict=True):
            joined = joined | numbers.astype(kind) << kind(low)
            low += L.width(part)
        return joined, known, sticky
    lanes = as_symbolic_vector(value)
    known = L.constant_mask(lanes)
    if known is True:
        return L.constants_of(lanes), True, 0
    _require_known_or_sticky(lanes)
    return L.constants_of(lanes), known, L.sticky_flags(lanes)


def _patterns_together(found: Sequence[_Patterns]) -> tuple[list[Array], bool | Array, L.Flags]:
    """Return the numbers of several values, the lanes in which all are known, and the flags of all."""
    known: bool | Array = True
    sticky: L.Flags = 0
    for _, own, flags in found:
        if own is True:
            continue
        if own is not known:
            known = own if known is True else np.logical_and(known, own)
        if flags is not sticky:
            sticky = sticky | flags
    return [numbers for numbers, _, _ in found], known, sticky


def matrix_step(unit: MatrixUnit, rows: Array, columns: Array, accumulators: Array) -> Array:
    """Return one step of a unit, of shape (...), for rows (..., k), columns (..., k) and accumulators (...).

    The shapes broadcast.  An axis along which only `rows` varies is an axis of the product's rows; one along which only
    `columns` varies is an axis of its columns.
    """
    shape_of = np.broadcast_shapes(rows.shape[:-1], columns.shape[:-1], accumulators.shape)
    axes = range(len(shape_of))
    down = [axis for axis in axes if rows.shape[axis] > 1 == columns.shape[axis]]
    across = [axis for axis in axes if columns.shape[axis] > 1 == rows.shape[axis]]
    batch = [axis for axis in axes if axis not in (*down, *across)]
    order = (*batch, *down, *across)
    last = len(shape_of)
    outer = [shape_of[axis] for axis in batch]
    m, n = (math.prod(shape_of[axis] for axis in part) for part in (down, across))
    spread = [np.broadcast_to(each, (*_extents(each, batch, shape_of), each.shape[-1])) for each in (rows, columns)]
    a = spread[0].transpose(*order, last).reshape(*outer, m, -1)
    b = spread[1].transpose(*order, last).reshape(*outer, n, -1)
    c = np.broadcast_to(accumulators, shape_of).transpose(order).reshape(*outer, m, n)
    product = step_results(unit, a, b.swapaxes(-1, -2), c)
    found: Array = product.reshape([shape_of[axis] for axis in order]).transpose(np.argsort(order))
    return found


def _extents(vectors: Array, batch: Sequence[int], shape_of: Sequence[int]) -> list[int]:
    """Return the extents of the vectors' axes, with the batch axes at their full extent."""
    return [shape_of[axis] if axis in batch else extent for axis, extent in enumerate(vectors.shape[:-1])]


def _require_known_or_sticky(lanes: SymbolicVector) -> None:
    """Raise Unsupported unless every lane is constant or has a sticky flag."""
    reason = (lanes.flags & L.STICKY) != 0
    if not np.all(np.logical_or(L.constant_mask(lanes), reason)):
        raise Unsupported("a value without a bit pattern was computed")
