"""Functions of one or two bytes: long integer arithmetic on loaded bytes, executed as one look-up in a table.

An instruction set without conversions of a narrow format emulates them: for each byte some thirty instructions compare
it with constants and select.  A cone (`instruction_cones`) is such a computation within a basic block.

The value of a cone is a term of its table.  Two facts make this sound.  The result depends on the bytes named in the
table and on nothing else: the cone is executed once on terms, in lanes that differ in one byte of its inputs each, and
a byte without an effect on the hash of the result does not occur in it.  The table is the result of the instructions'
own steps on every value of these bytes.  So two cones with one table are one function, whatever their instructions.

Where each part of a result depends on one byte at most, the result is looked up when something reads it, together with
those of the same function that wait in the block.

A cone whose result depends on more bytes than `MAXIMUM_BYTES` is executed as it is.  The result of a sequence that an
architecture knows (`known_sequences.py`) is computed by the operation that the architecture names, also where only some
lanes are active.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

import numpy as np

from bitwise_core.execution.alternatives import SharedByWays
from bitwise_core.execution.deferred_blends import deferred_blend
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.instruction_cones import BlockCones, Cone, Shape, blocks_of, cones_of_block
from bitwise_core.execution.known_sequences import Definition, KnownSequence
from bitwise_core.execution.machine import Branch, Control, Machine, Step
from bitwise_core.execution.program import Program
from bitwise_core.execution.term_recorder import SAME
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.deferred_values import DeferredValue
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.repeated_lanes import RepeatedLanes, repeated_lanes
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value, width
from bitwise_core.execution.values.term_hash import exact_hash, poison, term

MAXIMUM_BYTES = 2
"""The most bytes on which the result of a cone that is looked up depends."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Bits of a result: `table` has one axis of 256 numbers for each of `atoms`, which are bytes of inputs.

    No atom: a constant.  `copies`: the bits are those of the only atom.
    """

    low: int
    bits: int
    atoms: tuple[tuple[int, int], ...]
    table: Array
    tag: str
    copies: bool


Function: TypeAlias = tuple[Part, ...]
"""The parts of a result, least significant first."""


_FUNCTIONS: OrderedDict[Hashable, Function | None] = OrderedDict()
"""The functions of the most recent cones, by architecture, form and constant inputs; None: not of a few bytes."""

_MAXIMUM_FUNCTIONS = 1024
"""How many functions are cached, of at most 256 KiB each."""


def steps_with_byte_functions(program: Program) -> tuple[Step, ...]:
    """Return the steps of a program for the domain of terms, with its cones replaced by look-ups."""
    found: tuple[Step, ...] | None = program.analyses.get("steps with byte functions")
    if found is None:
        found = program.analyses["steps with byte functions"] = _replaced_steps(program)
    return found


# -- steps -----------------------------------------------------------------------------------------------------------


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
    waiting: dict[int, _LookUps]
    """By the identity of the function."""
    done: dict[int, _Writes]


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
            value = _executed(machine, cone, program, [each.held for each in captured], cones.done)
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


@dataclass(frozen=True, slots=True, eq=False)
class _Writes:
    """What an instruction wrote: the registers with their values, and those that are held under other names."""

    values: Mapping[str, Value]
    removed: tuple[str, ...]


def _executed(
    machine: Machine,
    cone: Cone,
    program: Program,
    inputs: Sequence[Mapping[str, Value]],
    done: dict[int, _Writes] | None = None,
) -> Value:
    """Return the result of the instructions of a cone on these inputs.

    `done` holds what instructions wrote that were executed on the same inputs for other cones, and is extended.
    """
    registers: dict[str, Value] = {}
    outer, line, consumed = machine.registers, machine.line, cone.consumed
    machine.registers = registers
    try:
        for index in cone.members:
            known = None if done is None else done.get(index)
            if known is not None:
                registers.update(known.values)
                for name in known.removed:
                    registers.pop(name, None)
                continue
            machine.line = program.kernel.instructions[index].line
            # Instructions outside of the cone may have written the register of an input that a member wrote before.
            for number in consumed[index]:
                for name in cone.inputs[number]:
                    registers.pop(name, None)
                registers.update(inputs[number])
            before = {} if done is None else dict(registers)
            program.steps[index](machine)
            if done is not None:
                values = {name: value for name, value in registers.items() if before.get(name) is not value}
                done[index] = _Writes(values, tuple(name for name in before if name not in registers))
        return registers[cone.result]
    finally:
        machine.registers, machine.line = outer, line


# -- functions -------------------------------------------------------------------------------------------------------


def _value(
    machine: Machine,
    cone: Cone,
    captured: Sequence[_Input],
    program: Program,
    functions: dict[Hashable, Function | None],
    waiting: dict[int, _LookUps],
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
        return _of_numbers(known, numbers) if known is not None and alone else None
    if key not in functions:
        functions[key] = _cached_function(machine, cone, captured, key, program)
    function = functions[key]
    if function is None:
        return None
    recorder = machine.domain.recorder
    if recorder is None and all(len(part.atoms) <= 1 for part in function):
        deferred = _DeferredLookUp(varying, waiting.setdefault(id(function), _LookUps(function, [])))
        return deferred if _may_be_deferred(machine, deferred) else deferred.value
    found: list[Value] = []
    for part in function:
        bits = _part_value(part, varying)
        if bits is None:
            return None
        found.append(bits)
    if recorder is not None:
        # The tree of a table is that of the instructions.
        whole = _executed(machine, cone, program, [each.held for each in captured])
        for part, value in zip(function, found, strict=True):
            if part.atoms and not part.copies:
                recorder.add(
                    SAME, as_symbolic_vector(value), [as_symbolic_vector(extract(whole, part.low, part.bits))], False
                )
    return concat(found)


def _of_numbers(function: Function, numbers: Mapping[int, Array]) -> Value:
    """Return the result of a function of numbers."""
    shape = np.broadcast_shapes(*(each.shape for each in numbers.values()))
    found: Array = np.zeros(shape, dtype=np.uint64)
    for part in function:
        octets = [(numbers[number] >> numbers[number].dtype.type(8 * byte)) & 255 for number, byte in part.atoms]
        bits = part.table[tuple([each.astype(np.intp) for each in octets])]
        found |= bits.astype(np.uint64) << np.uint64(part.low)
    return found.astype(L.UNSIGNED[sum(part.bits for part in function)])


def _part_value(part: Part, varying: Mapping[int, Value]) -> Value | None:
    """Return bits of a result; None where lanes have constants among several atoms."""
    if not part.atoms:
        return part.table.reshape(1, 1)
    atoms = [
        extract(value.value if type(value) is _DeferredLookUp else value, 8 * byte, 8)
        for value, byte in ((varying[number], byte) for number, byte in part.atoms)
    ]
    if part.copies:
        return atoms[0]
    vectors = [as_symbolic_vector(each) for each in atoms]
    if len(vectors) == 1:
        return _looked_up(part, vectors)[0]
    if any(L.constant_mask(each) is not False for each in vectors):
        return None
    return term(part.bits, part.tag, vectors, L.INTEGER, exact=True)


def _looked_up(part: Part, atoms: Sequence[SymbolicVector]) -> list[Value]:
    """Return bits of a result of one atom for each of these."""
    alike: dict[Hashable, list[int]] = {}
    for place, atom in enumerate(atoms):
        kind = atom.words.shape, atom.flags if isinstance(atom.flags, int) else None
        alike.setdefault(kind, []).append(place)
    found: dict[int, Value] = {}
    for places in alike.values():
        stacked = _stacked([atoms[place] for place in places])
        known = L.constant_mask(stacked)
        result = term(part.bits, part.tag, [stacked], L.INTEGER, exact=True)
        if known is not False:
            numbers = part.table[(stacked.words[0] & np.uint64(255)).astype(np.intp)]
            result = L.blend(known, L.constant_vector(numbers), result)
        for place, value in zip(places, _split(result, len(places)), strict=True):
            found[place] = value if known is False else L.as_array_if_constant(value)
    return [found[place] for place in range(len(atoms))]


def _stacked(vectors: Sequence[SymbolicVector]) -> SymbolicVector:
    """Return vectors of one shape, whose flags are the same number or arrays, as one of more blocks."""
    first = vectors[0]
    if len(vectors) == 1:
        return first
    words = np.concatenate([each.words for each in vectors], axis=1)
    flags = first.flags
    if not isinstance(flags, int):
        shape = first.words.shape[1:]
        flags = np.concatenate([np.broadcast_to(np.asarray(each.flags), shape) for each in vectors])
    return SymbolicVector(first.bits, words, flags)


def _split(vector: SymbolicVector, count: int) -> list[SymbolicVector]:
    """Return the vectors of which `_stacked` made one."""
    if count == 1:
        return [vector]
    blocks = vector.words.shape[1] // count
    found = []
    for start in range(0, count * blocks, blocks):
        flags = vector.flags
        if not isinstance(flags, int):
            flags = L.uniform_flags(np.broadcast_to(flags, vector.words.shape[1:])[start : start + blocks])
        found.append(SymbolicVector(vector.bits, vector.words[:, start : start + blocks], flags))
    return found


# -- results that wait -----------------------------------------------------------------------------------------------

_MOST_WAITING = 256
"""How many results of one function wait until one of them is read."""

_MAXIMUM_DEPTH = 16
"""How many values that wait for each other are deferred."""


class _DeferredLookUp(DeferredValue):
    """A result that is looked up together with the others of its function, when one of them is read."""

    __slots__ = ("varying", "waiting")

    def __init__(self, varying: Mapping[int, Value], waiting: _LookUps) -> None:
        self.varying, self.waiting = varying, waiting
        depths = [each.depth for each in varying.values() if isinstance(each, DeferredValue) and not each.is_computed]
        super().__init__(sum(part.bits for part in waiting.function), 1 + max(depths, default=0))
        waiting.results.append(self)

    def compute(self) -> Value:
        """Return the result."""
        results, self.waiting.results = self.waiting.results, []
        for each, value in zip(results, self.waiting.values(results), strict=True):
            each.settle(value)
        assert self._computed is not None
        return self._computed

    def settle(self, value: Value) -> None:
        """Keep the result, and drop what it is computed from."""
        self._computed, self.varying = value, {}


def waits_to_be_looked_up(value: object) -> bool:
    """Return whether a value is a result that nothing has looked up yet."""
    return type(value) is _DeferredLookUp and not value.is_computed


def _may_be_deferred(machine: Machine, value: _DeferredLookUp) -> bool:
    defers = getattr(machine.domain, "defers_steps", False)
    return defers and value.depth <= _MAXIMUM_DEPTH and len(value.waiting.results) <= _MOST_WAITING


@dataclass(slots=True, eq=False)
class _LookUps:
    """The results of a function, each part of which depends on one byte at most, that nothing has read yet."""

    function: Function
    results: list[_DeferredLookUp]

    def values(self, results: Sequence[_DeferredLookUp]) -> list[Value]:
        """Return the value of each result."""
        found: list[list[Value]] = [[] for _ in results]
        sources: dict[int, _Sources] = {}
        for part in self.function:
            if not part.atoms:
                for parts in found:
                    parts.append(part.table.reshape(1, 1))
                continue
            ((number, byte),) = part.atoms
            if number not in sources:
                sources[number] = _sources([L.settled(each.varying[number]) for each in results])
            for parts, value in zip(found, _bits_of(part, byte, sources[number]), strict=True):
                parts.append(value)
        return [concat(parts) for parts in found]


@dataclass(frozen=True, slots=True)
class _Sources:
    """The values of one input of several results.

    `alike` are places of values with one shape and one kind of flags, of which nothing but their lanes is known: `own`
    has the lanes of all of them, or of those groups of lanes of which these consist.
    """

    values: Sequence[Value]
    alike: Sequence[tuple[Sequence[int], SymbolicVector, RepeatedLanes | None]]
    others: Sequence[int]


def _sources(values: Sequence[Value]) -> _Sources:
    alike: dict[Hashable, list[int]] = {}
    others = []
    for place, each in enumerate(values):
        if type(each) is not SymbolicVector or each.origins or each.maximum is not None or each.recorder is not None:
            others.append(place)
            continue
        kind = each.words.shape, each.flags if isinstance(each.flags, int) else None
        alike.setdefault(kind, []).append(place)
    found = []
    for places in alike.values():
        stacked = _stacked([vector for place in places if isinstance(vector := values[place], SymbolicVector)])
        repeated = repeated_lanes([stacked])
        found.append((places, stacked if repeated is None else repeated.reduced(stacked), repeated))
    return _Sources(values, found, others)


def _bits_of(part: Part, byte: int, sources: _Sources) -> list[Value]:
    """Return bits of each of several results, which depend on a byte of the sources."""
    values, others = sources.values, sources.others
    if part.copies:
        return [extract(each, 8 * byte, 8) for each in values]
    atoms = [as_symbolic_vector(extract(values[place], 8 * byte, 8)) for place in others]
    found: dict[int, Value] = dict(zip(others, _looked_up(part, atoms), strict=True))
    for places, own, repeated in sources.alike:
        (value,) = _looked_up(part, [as_symbolic_vector(extract(own, 8 * byte, 8))])
        vector = as_symbolic_vector(value)
        whole = vector if repeated is None else repeated.whole(vector)
        for place, each in zip(places, _split(whole, len(places)), strict=True):
            found[place] = L.as_array_if_constant(each) if L.constant_mask(whole) is not False else each
    return [found[place] for place in range(len(values))]


def _cached_function(
    machine: Machine,
    cone: Cone,
    captured: Sequence[_Input],
    inputs: tuple[Hashable, tuple[tuple[int, int], ...]],
    program: Program,
) -> Function | None:
    """Return the function of a cone, with its constant inputs and the widths of the others, as it was found before."""
    key = (program.architecture, cone.form, inputs)
    if key in _FUNCTIONS:
        _FUNCTIONS.move_to_end(key)
        return _FUNCTIONS[key]
    found = _FUNCTIONS[key] = _function(machine, cone, captured, dict(inputs[1]), program)
    if len(_FUNCTIONS) > _MAXIMUM_FUNCTIONS:
        _FUNCTIONS.popitem(last=False)
    return found


def _function(
    machine: Machine,
    cone: Cone,
    captured: Sequence[_Input],
    widths: Mapping[int, int],
    program: Program,
) -> Function | None:
    """Return the function that a cone computes of some bytes of its inputs, None if there are too many of them."""
    run = _Trial(machine, cone, [each.held for each in captured], program)
    every = [(number, byte) for number, bits in widths.items() for byte in range(bits // 8)]
    halves = run.dependences(every)
    if not halves or any(len(needed) > MAXIMUM_BYTES for _, _, needed in halves):
        return None
    # Where every half depends on one byte at most, one execution has all of them: it gives all bytes the same value.
    single = all(len(needed) <= 1 for _, _, needed in halves)
    common = run.table([[atom for _, _, needed in halves for atom in needed]], widths) if single else None
    found: list[Part] = []
    for low, bits, needed in halves:
        table = common if single else run.table([[atom] for atom in needed], widths)
        if table is None:
            return None
        found += _parts(table, needed, low, bits)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Trial:
    """Executions of a cone on other inputs than those of the launch."""

    machine: Machine
    cone: Cone
    captured: Sequence[Mapping[str, Value]]
    program: Program

    def dependences(self, atoms: Sequence[tuple[int, int]]) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """Return the halves of the result: the first bit and the number of bits, and the bytes that they depend on.

        Each byte is a load.  Lane 0 has one place for each, and every other lane another place for one of them.  The
        list is empty if the dependence cannot be found out.
        """
        # Far apart, so that no bytes are adjacent.
        places = np.full((len(atoms), 1 + len(atoms)), 0, dtype=np.uint64) + (
            np.arange(1, len(atoms) + 1, dtype=np.uint64)[:, None] << np.uint64(20)
        )
        places[np.arange(len(atoms)), 1 + np.arange(len(atoms))] += np.uint64(1 << 19)
        loads = {
            atom: SymbolicVector(8, L.both_words(row[None]), L.LOAD) for atom, row in zip(atoms, places, strict=True)
        }
        outer, self.machine.domain = self.machine.domain, TermDomain()
        try:
            result = self._result(loads)
        finally:
            self.machine.domain = outer
        if result is None or width(result) not in (16, 32, 64):
            return []
        found = []
        for low in range(0, width(result), 16):
            half = as_symbolic_vector(extract(result, low, 16))
            words = np.broadcast_to(exact_hash(half), (2, *places[:1].shape))
            flags = L.flags_of_lanes(half.flags, places[:1].shape)
            changed = (words != words[:, :, :1]).any(axis=0) | (flags != flags[:, :1])
            needed = [atom for atom, differs in zip(atoms, changed[0, 1:], strict=True) if differs]
            found.append((low, 16, needed))
        return found

    def table(self, atoms: Sequence[Sequence[tuple[int, int]]], widths: Mapping[int, int]) -> Array | None:
        """Return the results for all values of some bytes, in an axis for those of equal value; other bytes are 0."""
        size = 256 ** len(atoms)
        numbers = np.arange(size, dtype=np.uint64)
        values: dict[tuple[int, int], Value] = {}
        for number, bits in widths.items():
            for byte in range(bits // 8):
                values[number, byte] = np.zeros((1, 1), dtype=np.uint8)
        for axis, alike in enumerate(atoms):
            shift = np.uint64(8 * (len(atoms) - 1 - axis))
            values.update(dict.fromkeys(alike, (numbers >> shift & np.uint64(255)).astype(np.uint8)[None]))
        result = self._result(values)
        if not isinstance(result, np.ndarray) or result.dtype == np.bool_:
            return None
        return np.broadcast_to(result, (1, size)).reshape((256,) * len(atoms))

    def _result(self, atoms: Mapping[tuple[int, int], Value]) -> Value | None:
        """Return the result of the cone where these are the bytes of its inputs, the others those of the launch."""
        inputs = list(self.captured)
        for number in {number for number, _ in atoms}:
            (name,) = self.captured[number]
            count = sum(each == number for each, _ in atoms)
            inputs[number] = {name: _joined([atoms[number, byte] for byte in range(count)])}
        try:
            return _executed(self.machine, self.cone, self.program, inputs)
        except Exception:
            # What a step cannot do with these inputs is no function; it is executed on those of the launch.
            return None


def _joined(parts: Sequence[Value]) -> Value:
    """Return bytes as one value; numbers of different shapes are broadcast."""
    if all(isinstance(each, np.ndarray) for each in parts):
        total = np.zeros((1, 1), dtype=np.uint64)
        for place, each in enumerate(parts):
            assert isinstance(each, np.ndarray)
            total = total | each.astype(np.uint64) << np.uint64(8 * place)
        return total.astype(L.UNSIGNED[8 * len(parts)])
    return concat(parts)


def _parts(table: Array, atoms: Sequence[tuple[int, int]], low: int, bits: int) -> Iterator[Part]:
    """Yield the parts of bits of a result: bytes where they are constant, copied, or depend on different bytes."""
    kind = L.UNSIGNED[bits]
    numbers: Array = (table >> table.dtype.type(low)).astype(kind)
    deep = [axis for axis in range(numbers.ndim) if (numbers != numbers.take([0], axis=axis)).any()]
    for axis in reversed(range(numbers.ndim)):
        if axis not in deep:
            numbers = numbers.take(0, axis=axis)
    own = tuple(atoms[axis] for axis in deep)
    if bits > 16 or (bits == 16 and _separable(table, low, len(deep))):
        yield from _parts(table, atoms, low, bits // 2)
        yield from _parts(table, atoms, low + bits // 2, bits // 2)
        return
    copies = bits == 8 and len(own) == 1 and bool((numbers == np.arange(256)).all())
    digest = blake2b(np.ascontiguousarray(numbers).tobytes(), digest_size=16).hexdigest()
    yield Part(low, bits, own, numbers, f"table {bits} {len(own)} {digest}", copies)


def _separable(table: Array, low: int, most: int) -> bool:
    """Return whether one byte of 16 bits is constant, or each depends on fewer atoms than both."""
    counts = []
    for place in (low, low + 8):
        byte = (table >> table.dtype.type(place)).astype(np.uint8)
        counts.append(sum(bool((byte != byte.take([0], axis=axis)).any()) for axis in range(byte.ndim)))
    return max(counts) > 0 and (min(counts) == 0 or max(counts) < most)
