"""Functions of one or two bytes: long integer arithmetic on loaded bytes, executed as one look-up in a table.

An instruction set without conversions of a narrow format emulates them: for each byte some thirty instructions compare
it with constants and select.  A cone (`instruction_cones`) is such a computation within a basic block.

The value of a cone is a term of its table.  Two facts make this sound.  The result depends on the bytes named in the
table and on nothing else: the cone is executed once on terms, in lanes that differ in one byte of its inputs each, and
a byte without an effect on the hash of the result does not occur in it.  The table is the result of the instructions'
own steps on every value of these bytes.  So two cones with one table are one function, whatever their instructions.

Where each part of a result depends on one byte at most, the result is looked up when something reads it, together with
those of the same function that wait in the block.

A cone whose result depends on more bytes than `byte_tables.MAXIMUM_BYTES` is executed as it is.  The result of a
sequence that an architecture knows (`known_sequences.py`) is computed by the operation that the architecture names,
also where only some lanes are active.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.alternatives import SharedByWays
from bitwise_core.execution.byte_tables import Function, cached_function
from bitwise_core.execution.cone_execution import Writes, executed
from bitwise_core.execution.deferred_blends import deferred_blend
from bitwise_core.execution.instruction_cones import BlockCones, Cone, Shape, blocks_of, cones_of_block
from bitwise_core.execution.known_sequences import Definition, KnownSequence
from bitwise_core.execution.machine import Branch, Control, Machine, Step
from bitwise_core.execution.program import Program
from bitwise_core.execution.table_look_ups import DeferredLookUp, LookUps, may_be_deferred, of_numbers, part_value
from bitwise_core.execution.term_recorder import SAME
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value, width
from bitwise_core.execution.values.term_hash import poison


def steps_with_byte_functions(program: Program) -> tuple[Step, ...]:
    """Return the steps of a program for the domain of terms, with its cones replaced by look-ups."""
    found: tuple[Step, ...] | None = program.analyses.get("steps with byte functions")
    if found is None:
        found = program.analyses["steps with byte functions"] = _replaced_steps(program)
    return found


def _replaced_steps(program: Program) -> tuple[Step, ...]:
    steps = list(program.steps)
    for first, end in blocks_of(program):
        found = cones_of_block(program, first, end)
        cones = found.cones
        if not cones:
            continue
        inputs: dict[tuple[Definition, tuple[str, ...]], int] = {}
        """The number of each input of the block's cones, by its definition and the registers that may hold it."""
        first_reads: dict[int, int] = {}
        functions: dict[Shape, dict[Hashable, Function | None]] = {}
        for index, root in found.skipped.items():
            steps[index] = _skipping(steps[index], root, found.skipped_in_some_lanes.get(index))
        for cone in cones:
            own = []
            for definition, names, place in zip(cone.definitions, cone.inputs, cone.captured, strict=True):
                number = inputs.setdefault((definition, names), len(inputs))
                first_reads[number] = min(place, first_reads.get(number, place))
                own.append(number)
            root = cone.members[-1]
            known = functions.setdefault(cone.shape, {})
            steps[root] = _looking_up(steps[root], cone, program, tuple(own), known)
        captures: dict[int, list[tuple[int, tuple[str, ...]]]] = {}
        for (_, names), number in inputs.items():
            captures.setdefault(first_reads[number], []).append((number, names))
        for index, wanted in captures.items():
            steps[index] = _capturing(steps[index], wanted)
        for start, after in _runs_of(found.skipped, captures):
            steps[start] = _passing(steps[start], found.skipped[start], after)
        steps[first] = _entering(steps[first], found, program.execution_mask)
    return tuple(steps)


def _runs_of(skipped: Mapping[int, int], captures: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each run of several instructions that are skipped and capture nothing."""
    passed = sorted(index for index in skipped if index not in captures)
    start = 0
    for place in range(1, len(passed) + 1):
        if place == len(passed) or passed[place] != passed[place - 1] + 1:
            if place - start > 1:
                yield passed[start], passed[place - 1] + 1
            start = place


@dataclass(slots=True)
class _Input:
    """What the registers of an input hold, by name; `names` are all that may."""

    names: tuple[str, ...]
    held: dict[str, Value]
    constants: tuple[tuple[int, str, int], ...] | None = None
    """The place of each register in `names`, the type and the number, where each of them is one number."""
    varying: Value | None = None
    """The content of the only register, where it is whole bytes of terms, or of numbers that differ between lanes."""
    bits: int = 0

    def __post_init__(self) -> None:
        if all(isinstance(each, np.ndarray) and each.size == 1 for each in self.held.values()):
            numbers = ((name, each) for name, each in self.held.items() if isinstance(each, np.ndarray))
            self.constants = tuple(
                (self.names.index(name), each.dtype.str, int(each.flat[0])) for name, each in numbers
            )
        elif len(self.held) == 1:
            (value,) = self.held.values()
            is_whole = isinstance(value, SymbolicVector | PackedVector) or type(value) is np.ndarray
            if is_whole and width(value) % 8 == 0:
                self.varying, self.bits = value, width(value)


@dataclass(slots=True, eq=False)
class _OpenCones(SharedByWays):
    """The cones of a block that were entered and not yet computed, by root, and the inputs so far by number.

    `lanes`: those in which they are computed; None: all.  `waiting` are the results that were not yet read.  `done` is
    what members of cones wrote that were executed, by their index: all cones of a block read the same definitions, so
    that an instruction of several cones has one result.
    """

    roots: set[int]
    lanes: Array | None
    inputs: dict[int, _Input]
    waiting: dict[int, LookUps]
    """By the identity of the function."""
    done: dict[int, Writes]


_OPEN = "cones that were entered"
"""The key of `machine.extra` for `_OpenCones`; none while no cone is open."""


def _entering(step: Step, found: BlockCones, execution_mask: str | None) -> Step:
    """Return the first step of a block, which opens its cones if its lanes are known, under no condition on data.

    Until the end of the block, neither the lanes nor the condition can change.
    """
    every = frozenset(cone.members[-1] for cone in found.cones)

    def run(machine: Machine) -> Control | None:
        roots, lanes = every, None
        if machine.condition is not None:
            roots = _NO_ROOTS
        elif execution_mask is None:
            roots = every if machine.written_lanes is None else _NO_ROOTS
        else:
            mask = machine.registers.get(execution_mask)
            if not isinstance(mask, np.ndarray):
                roots = _NO_ROOTS
            elif machine.written_lanes is not None or mask.size > 1 or not mask.all():
                roots = found.in_some_lanes
                lanes = mask if machine.mask is None else mask & machine.mask
                if not lanes.any():
                    roots = _NO_ROOTS
        if roots:
            machine.extra[_OPEN] = _OpenCones(set(roots), lanes, {}, {}, {})
        else:
            machine.extra.pop(_OPEN, None)
        return step(machine)

    return run


_NO_ROOTS: frozenset[int] = frozenset()


def _skipping(step: Step, root: int, in_some_lanes: int | None) -> Step:
    """Return a step that does nothing while a cone that needs it is open, since the cone executes it itself.

    All cones of a block are opened together, and each is open until its root: `root`, or `in_some_lanes` where not all
    lanes are active (None: the step is executed there).
    """

    def run(machine: Machine) -> Control | None:
        cones: _OpenCones | None = machine.extra.get(_OPEN)
        if cones is None:
            return step(machine)
        return None if (root if cones.lanes is None else in_some_lanes) in cones.roots else step(machine)

    return run


def _passing(step: Step, root: int, after: int) -> Step:
    """Return a step that passes a run of skipped instructions at once while all cones of the block are open.

    A part of the program that is to stop may stop inside of the run, and passes nothing.
    The roots are no skipped instructions, so that a cone that is open at the start of the run is open to its end.
    """
    control = Branch(after)

    def run(machine: Machine) -> Control | None:
        cones: _OpenCones | None = machine.extra.get(_OPEN)
        if cones is not None and machine.runs_to_end and cones.lanes is None and root in cones.roots:
            return control
        return step(machine)

    return run


def _capturing(step: Step, wanted: Sequence[tuple[int, tuple[str, ...]]]) -> Step:
    """Return a step before which inputs of open cones are noted."""

    def run(machine: Machine) -> Control | None:
        cones: _OpenCones | None = machine.extra.get(_OPEN)
        if cones is not None:
            registers = machine.registers
            for number, names in wanted:
                held = {name: registers[name] for name in names if name in registers}
                cones.inputs[number] = _Input(names, held)
        return step(machine)

    return run


def _looking_up(
    step: Step,
    cone: Cone,
    program: Program,
    inputs: tuple[int, ...],
    functions: dict[Hashable, Function | None],
) -> Step:
    """Return the step of a root: it looks the result up, or executes the whole cone where that is not possible.

    `inputs` are the numbers of the inputs in `_OpenCones`, and `functions` those of the cones of its shape.
    """
    root = cone.members[-1]

    def run(machine: Machine) -> Control | None:
        cones: _OpenCones | None = machine.extra.get(_OPEN)
        if cones is None or root not in cones.roots:
            return step(machine)
        cones.roots.discard(root)
        captured = [cones.inputs[number] for number in inputs]
        value = (
            _value(machine, cone, captured, program, functions, cones.waiting)
            if cone.known is None
            else _known_value(machine, cone, captured, cones.lanes, cone.known)
        )
        if value is None:
            value = executed(machine, cone, program, [each.held for each in captured], cones.done)
        if not cones.roots:
            machine.extra.pop(_OPEN, None)
        if cones.lanes is not None:
            # In other lanes the register keeps its value.
            old = machine.registers.get(cone.result)
            value = deferred_blend(machine, cones.lanes, value, poison(width(value)) if old is None else old)
        machine.registers[cone.result] = value
        return None

    return run


def _known_value(
    machine: Machine, cone: Cone, captured: Sequence[_Input], lanes: Array | None, sequence: KnownSequence
) -> Value | None:
    """Return the result of a sequence that an architecture knows, None where its instructions must be executed."""
    values: list[Value] = []
    for definition in sequence.inputs:
        held = captured[cone.definitions.index(definition)].held
        if len(held) != 1:
            return None
        for each in held.values():
            value = each.in_lanes(lanes) if isinstance(each, SymbolicVector) else each
            if lanes is not None and isinstance(value, PackedVector):
                if value.whole is None or not (value.whole | ~lanes).all():
                    return None  # its parts may follow from lanes that are not active
                value = as_symbolic_vector(value)
            values.append(value)
    return sequence.compute(machine, values)


def _value(
    machine: Machine,
    cone: Cone,
    captured: Sequence[_Input],
    program: Program,
    functions: dict[Hashable, Function | None],
    waiting: dict[int, LookUps],
) -> Value | None:
    """Return the result of a cone from its table, None if it is not a function of a few bytes of these inputs."""
    constants, varying, widths = [], {}, []
    for number, each in enumerate(captured):
        if each.varying is not None:
            varying[number] = each.varying
            widths.append((number, each.bits))
        elif each.constants:
            constants.append((number, each.constants))
        else:
            return None
    if not varying:
        return None
    key = (tuple(constants), tuple(widths))
    numbers = {number: each for number, each in varying.items() if type(each) is np.ndarray}
    if numbers:
        # Of numbers alone, the instructions are faster than the search for their function.
        known = functions.get(key)
        alone = len(numbers) == len(varying) and machine.domain.recorder is None
        return of_numbers(known, numbers) if known is not None and alone else None
    if key not in functions:
        functions[key] = cached_function(machine, cone, [each.held for each in captured], key, program)
    function = functions[key]
    if function is None:
        return None
    recorder = machine.domain.recorder
    if recorder is None and all(len(part.atoms) <= 1 for part in function):
        deferred = DeferredLookUp(varying, waiting.setdefault(id(function), LookUps(function, [])))
        return deferred if may_be_deferred(machine, deferred) else deferred.value
    found: list[Value] = []
    for part in function:
        bits = part_value(part, varying)
        if bits is None:
            return None
        found.append(bits)
    if recorder is not None:
        # The tree of a table is that of the instructions.
        whole = executed(machine, cone, program, [each.held for each in captured])
        for part, value in zip(function, found, strict=True):
            if part.atoms and not part.copies:
                recorder.add(
                    SAME, as_symbolic_vector(value), [as_symbolic_vector(extract(whole, part.low, part.bits))], False
                )
    return concat(found)
