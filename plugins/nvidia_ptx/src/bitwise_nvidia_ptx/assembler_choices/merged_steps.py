"""Steps of instructions that ptxas may merge with others: a result that may differ is one of this text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations
from typing import Any, Protocol, cast

import numpy as np

from bitwise_core.assembly.module import Instruction, Operand, Register, program_digest, registers_of
from bitwise_core.execution.architecture import Context
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values
from bitwise_core.execution.values.symbolic_vector import (
    AC_TERMS,
    CANONICAL_NAN,
    INTEGER,
    KIND,
    LOAD,
    TERM,
    Array,
    SymbolicVector,
    Value,
    constant_mask,
    with_flags,
)
from bitwise_core.execution.values.term_hash import term
from bitwise_core.numerics import FLOAT_FORMATS, nan_of
from bitwise_nvidia_ptx.assembler_choices.merge import Merge
from bitwise_nvidia_ptx.assembler_choices.selection_merges import MINUS_ONE, MINUS_ZERO


class _Noting(Protocol):
    """The domain of bit patterns, which keeps the assumptions of an execution."""

    notes: dict[str, None]


def apart(merges: Sequence[Merge], step: Step, instruction: Instruction, context: Context) -> Step:
    """Return the step of an instruction, whose result is one of this text in the lanes that some merges may change.

    An execution on bit patterns has a note.  Raises Unsupported in other analyses than the one of terms.
    """
    if not merges:
        return step
    name = f"{instruction.opcode} at line {instruction.line} of {program_digest(context.module, context.kernel)}"
    reasons = [f"ptxas may merge {each.what}: {instruction.opcode}" for each in merges]

    def run(machine: Machine) -> Control | None:
        domain = machine.domain.name
        if domain == "addresses":
            return step(machine)
        for merge, reason in zip(merges, reasons, strict=True):
            if merge.refused and domain != "bits":
                raise Unsupported(reason, instruction.line)
        changed = [_lanes(each, machine, instruction) for each in merges]
        control = step(machine)
        for merge, reason in zip(merges, reasons, strict=True):
            if merge.opens:
                _open_nans(machine, instruction.operands[0], f"{reason}: a NaN may be the canonical one")
        changed = [
            np.logical_and(lanes, _may_be_nan(merge, machine, instruction)) if lanes.any() else lanes
            for merge, lanes in zip(merges, changed, strict=True)
        ]
        found = [reason for reason, lanes in zip(reasons, changed, strict=True) if lanes.any()]
        if not found:
            return control
        if domain == "bits":
            for reason in found:
                note = f"{reason}: the bytes are those of the instructions one by one"
                cast(_Noting, machine.domain).notes[note] = None
            return control
        if domain != "terms":
            raise Unsupported(found[0], instruction.line)
        for merge, mine in zip(merges, changed, strict=True):
            if merge.moves and mine.any():
                _move_nans(machine, instruction.operands[0], mine)
        numbers = [
            mine & _are_known_nans(machine, instruction.operands[0]) if merge.moves else mine
            for merge, mine in zip(merges, changed, strict=True)
        ]
        lanes = np.any(np.broadcast_arrays(*numbers), axis=0)
        if not lanes.any():
            return control
        count = machine.memory.executions[instruction.line] = machine.memory.executions.get(instruction.line, 0) + 1
        for destination in map(Register, registers_of(instruction.operands[0])):
            value = as_symbolic_vector(machine.read(destination))
            parts = [value, as_symbolic_vector(machine.thread.astype(np.uint64))]
            own = term(value.bits, f"{name}, execution {count}", parts, recorder=machine.domain.recorder)
            machine.write(destination, blend_values(lanes, own, value))
        return control

    return run


def _may_be_nan(merge: Merge, machine: Machine, instruction: Instruction) -> Array:
    """Return the lanes in which the result of an instruction may be a NaN, if a merge changes no other."""
    destination = instruction.operands[0]
    if merge.makes_nan is None or not isinstance(destination, Register):
        return np.ones((1, 1), dtype=bool)
    form, count = merge.makes_nan
    vector = as_symbolic_vector(machine.read_bits(destination, form.bits * count))
    parts = [(vector.words[0] >> np.uint64(form.bits * place)).astype(f"u{form.bits // 8}") for place in range(count)]
    found: Array = ~np.asarray(constant_mask(vector)) | np.any([nan_of(each, form) for each in parts], axis=0)
    return found


def _move_nans(machine: Machine, destination: Operand, lanes: Array) -> None:
    """Replace a number of fp32 in some lanes by one whose NaN has bits that no document specifies."""
    vector = as_symbolic_vector(machine.read_bits(destination, 32))
    kinds = np.asarray(vector.flags, dtype=np.uint32) & np.uint32(KIND)
    computed = lanes & ((kinds == TERM) | (kinds == AC_TERMS))
    marks = np.where(computed, np.uint32(CANONICAL_NAN | INTEGER), np.uint32(0))
    marks = np.where(lanes & (kinds == LOAD), np.uint32(CANONICAL_NAN), marks)
    if marks.any():
        machine.write(destination, with_flags(vector, marks))


def _are_known_nans(machine: Machine, destination: Operand) -> Array:
    """Return the lanes in which a number of fp32 is known to be a NaN."""
    vector = as_symbolic_vector(machine.read_bits(destination, 32))
    found: Array = np.asarray(constant_mask(vector)) & nan_of(vector.words[0].astype(np.uint32), FLOAT_FORMATS["fp32"])
    return found


def _open_nans(machine: Machine, destination: Operand, note: str) -> None:
    """Replace a number of fp32 by one whose NaN may have become canonical."""
    if isinstance(destination, Register) and destination.name in machine.registers:
        value, form = machine.read_bits(destination, 32), FLOAT_FORMATS["fp32"]
        if not np.all(machine.domain.assumed_finite(value, form)):
            machine.write(destination, machine.domain.with_open_nans(value, form, note))


def _lanes(merge: Merge, machine: Machine, instruction: Instruction) -> Array:
    """Return the active lanes whose results may differ, but for the bits of a NaN that is open."""
    if merge.opens and merge.operand is None:
        return np.zeros((1, 1), dtype=bool)
    if merge.equal:
        values = [machine.read_bits(each, 32) for each in merge.equal]
        vectors = [as_symbolic_vector(each) for each in values if not isinstance(each, np.ndarray)]
        pairs = [_same(one, other) for one, other in combinations(vectors, 2)]
        found: Array = np.any(np.broadcast_arrays(*pairs), axis=0) if pairs else np.zeros((1, 1), dtype=bool)
        return np.logical_and(machine.active(), found) if found.any() else found
    active: Array = machine.active()
    if merge.form is not None and merge.operand is None:
        operands = instruction.operands[1:-1] if instruction.opcode.startswith("selp.") else instruction.operands[1:]
        sources, bits = [each for each in operands if isinstance(each, Register)], merge.form.bits
        differing = [_differing(machine.read_bits(each, bits), bits, merge, machine) for each in sources]
        return np.logical_and(active, np.any(np.broadcast_arrays(*differing), axis=0)) if differing else active
    if merge.unknown:
        known = [constant_mask(as_symbolic_vector(machine.read_bits(each, merge.bits))) for each in merge.unknown]
        every: Array = np.all(np.broadcast_arrays(*map(np.asarray, known)), axis=0)
        return np.logical_and(active, np.logical_not(every))
    if merge.between:
        return np.logical_and(active, _selects_between(merge.between, machine))
    if merge.operand is None:
        return active
    value = machine.read_bits(merge.operand, merge.bits)
    return np.logical_and(active, _differing(value, merge.bits, merge, machine))


def _selects_between(choices: Sequence[tuple[Operand, bool]], machine: Machine) -> Array:
    """Return the lanes in which two operands may be -0 and -1 of fp32 for ptxas, which must know both."""
    numbers = [(as_symbolic_vector(machine.read_bits(each, 32)), may_be_found) for each, may_be_found in choices]

    def holds(vector: SymbolicVector, may_be_found: bool, number: int) -> Array:
        known = np.asarray(constant_mask(vector))
        found: Array = np.where(known, vector.words[0] == number, may_be_found)
        return found

    pairs = [holds(*one, MINUS_ZERO) & holds(*other, MINUS_ONE) for one, other in permutations(numbers, 2)]
    found: Array = np.any(np.broadcast_arrays(*pairs), axis=0)
    return found


def _differing(value: Value, bits: int, merge: Merge, machine: Machine) -> Array:
    vector = as_symbolic_vector(value)
    known: Any = np.asarray(constant_mask(vector))
    if merge.form is not None:
        numbers = nan_of(vector.words[0].astype(f"u{bits // 8}"), merge.form)
        unknown: Any = ~np.asarray(machine.domain.assumed_finite(value, merge.form))
    else:
        assert merge.differs is not None
        numbers, unknown = merge.differs(vector.words[0]), np.True_
    found: Array = np.where(known, numbers, unknown)
    return found


def _same(one: SymbolicVector, other: SymbolicVector) -> Array:
    """Return the lanes in which two values are one that is no known number."""
    equal: Array = (one.words == other.words).all(axis=0) & ~np.asarray(constant_mask(one))
    return equal
