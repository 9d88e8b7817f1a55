"""Functions of one or two bytes: long integer arithmetic on loaded bytes, executed as one look-up in a table.

An instruction set without conversions of a narrow format emulates them: for each byte some thirty instructions compare
it with constants and select.  A cone is such a computation within a basic block: an instruction and all instructions
whose results only it uses, each of which computes every lane by itself (`Effect.LANEWISE`).

The value of a cone is a term of its table.  Two facts make this sound.  The result depends on the bytes named in the
table and on nothing else: the cone is executed once on terms, in lanes that differ in one byte of its inputs each, and
a byte without an effect on the hash of the result does not occur in it.  The table is the result of the instructions'
own steps on every value of these bytes.  So two cones with one table are one function, whatever their instructions.

A cone whose instructions are fewer than `MINIMUM_INSTRUCTIONS`, or whose result depends on more bytes than
`MAXIMUM_BYTES`, is executed as it is.  The sequences that an architecture knows (`known_sequences.py`) are cones, too:
their results are computed by the operation that the architecture names, also where only some lanes are active.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import TypeAlias

import numpy as np

from bitwise_core.assembly.module import Immediate, Instruction, Operand, Register, parts, registers_of, same_text
from bitwise_core.execution.control_flow import EXIT
from bitwise_core.execution.deferred_blends import deferred_blend
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.instruction_info import Effect, InstructionInfo
from bitwise_core.execution.known_sequences import Definition, KnownSequence
from bitwise_core.execution.machine import Branch, Control, Machine, Step
from bitwise_core.execution.program import Program
from bitwise_core.execution.program_analyses import live_at
from bitwise_core.execution.term_recorder import SAME
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value, width
from bitwise_core.execution.values.term_hash import exact_hash, poison, term

MINIMUM_INSTRUCTIONS = 16
"""The fewest instructions of a cone that is looked up."""

MAXIMUM_INSTRUCTIONS = 512
"""The most instructions of a cone that is looked up."""

MAXIMUM_BYTES = 2
"""The most bytes on which the result of a cone that is looked up depends."""

_PERMISSIONS = Effect.MOVE | Effect.INTEGER | Effect.LANEWISE
_INTERRUPTIONS = Effect.CALL | Effect.CLUSTER


@dataclass(frozen=True, slots=True)
class Cone:
    """A cone: its instructions in the order of the text, the last one being its root.

    `inputs` names the registers that may hold each input, `captured` is the first member that reads it, and `consumed`
    lists the inputs that each member reads.  `result` is the register that the root writes.  `form` is the same for
    cones that differ in the names of registers and the order of independent instructions only; it numbers the inputs.
    `definitions` are those of the inputs.  `known` is the sequence of a cone that an architecture knows.
    """

    members: tuple[int, ...]
    inputs: tuple[tuple[str, ...], ...]
    captured: tuple[int, ...]
    consumed: Mapping[int, tuple[int, ...]]
    result: str
    form: Hashable
    definitions: tuple[Definition, ...]
    known: KnownSequence | None = None


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


# -- cones -----------------------------------------------------------------------------------------------------------


def _replaced_steps(program: Program) -> tuple[Step, ...]:
    steps = list(program.steps)
    for first, end in _blocks(program):
        found = _cones(program, first, end)
        cones = found.cones
        if not cones:
            continue
        captures: dict[int, list[tuple[int, int, tuple[str, ...]]]] = {}
        for cone in cones:
            for number, place in enumerate(cone.captured):
                captures.setdefault(place, []).append((cone.members[-1], number, cone.inputs[number]))
        for index, root in found.skipped.items():
            steps[index] = _skipping(steps[index], root, found.skipped_in_some_lanes.get(index))
        for cone in cones:
            steps[cone.members[-1]] = _looking_up(steps[cone.members[-1]], cone, program)
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


def _blocks(program: Program) -> Iterator[tuple[int, int]]:
    """Yield the first instruction and the end of each run of instructions that one group of lanes executes.

    An instruction that writes the execution mask ends a run.
    """
    fewest = MINIMUM_INSTRUCTIONS if program.sequences is None else 1
    starts = {0, *program.joins, *program.reconvergence.values()}
    count = len(program.steps)
    for index, following in enumerate(program.following):
        if following != (index + 1,) or _ends_a_block(program, index):
            starts.update((index, index + 1, *(each for each in following if each != EXIT)))
    if program.execution_mask is not None:
        starts.update(index + 1 for index in _writes_of(program, program.execution_mask))
    ordered = sorted(each for each in starts if 0 <= each < count)
    for first, end in zip(ordered, [*ordered[1:], count], strict=True):
        if end - first >= fewest:
            yield first, end


def _writes_of(program: Program, key: str) -> Iterator[int]:
    """Yield the instructions that write a register kept under a key."""
    found: dict[int, bool] = {}
    for index, info in enumerate(program.infos):
        writes = found.get(id(info))
        if writes is None:
            writes = found[id(info)] = any(program.storage(name) == key for name in info.writes)
        if writes:
            yield index


def _ends_a_block(program: Program, index: int) -> bool:
    """Return whether other instructions may run at an instruction, or only some lanes execute it.

    At a barrier of the block no lane of a group that holds all of them waits for another one.
    """
    return program.kernel.instructions[index].guard is not None or program.infos[index].effects.overlaps(_INTERRUPTIONS)


@dataclass(frozen=True, eq=False)
class _Text:
    """What cones need to know about all instructions of one text.

    `keys` are the storages of all registers that the instruction reads, those on which the result depends where all
    lanes are active first (`whole` of them); `written` are those that it writes.  `lanewise`: it computes one register,
    each lane by itself.
    """

    instruction: Instruction
    info: InstructionInfo
    storage: Callable[[str], str]
    keys: tuple[str, ...]
    whole: int
    written: tuple[str, ...]
    lanewise: bool

    @cached_property
    def names(self) -> tuple[tuple[str, int], ...]:
        """The registers on which the result depends where all lanes are active, in an order without their names.

        With each comes the place of its storage in `keys`.  Few instructions belong to a cone.
        """
        info = self.info
        wanted = info.reads - info.retained
        numbers: dict[str, int] = {}
        for position, operand in enumerate(self.instruction.operands):
            if isinstance(operand, Immediate) or position in info.overwritten:
                continue
            for each in parts(operand):
                if isinstance(each, Register) and each.name in wanted:
                    numbers.setdefault(each.name, len(numbers))
        if len(numbers) < len(wanted):
            for name in _sorted(wanted.difference(numbers)):
                numbers[name] = len(numbers)
        place = {key: number for number, key in enumerate(self.keys)}
        return tuple([(name, place[self.storage(name)]) for name in numbers])

    @cached_property
    def form(self) -> str:
        """The text with the registers of `names` numbered in their order.  Few instructions belong to a cone."""
        numbers = {name: number for number, (name, _) in enumerate(self.names)}
        only_written: set[str] = set()
        named: set[str] = set()
        found = [self.instruction.opcode]
        for position, operand in enumerate(self.instruction.operands):
            if isinstance(operand, Immediate):
                found.append(f"{operand.value} {operand.kind}")
            elif position in self.info.overwritten:
                only_written |= registers_of(operand)
                found.append("written" if isinstance(operand, Register) else repr(_renamed(operand, {})))
            else:
                named |= registers_of(operand)
                if not isinstance(operand, Register):
                    found.append(repr(_renamed(operand, numbers)))
                elif operand.name in numbers:
                    found.append(f"register {numbers[operand.name]}")
                else:
                    found.append("written")
        found += [
            f"implicit {number}" for name, number in numbers.items() if name not in named and name not in only_written
        ]
        return "; ".join(found)


@lru_cache(maxsize=1024)
def _may_be_member(effects: Effect) -> bool:
    """Return whether an instruction with these effects may belong to a cone."""
    return effects.overlaps(Effect.LANEWISE) and not effects & ~_PERMISSIONS


def _text_of(instruction: Instruction, info: InstructionInfo, storage: Callable[[str], str]) -> _Text:
    keys = dict.fromkeys(map(storage, info.reads - info.retained if info.retained else info.reads))
    whole = len(keys)
    if info.retained:
        keys.update(dict.fromkeys(map(storage, info.reads)))
    written = tuple(dict.fromkeys(map(storage, info.writes)))
    lanewise = _may_be_member(info.effects) and len(written) == 1
    return _Text(
        instruction,
        info,
        storage,
        tuple(keys),
        whole,
        written,
        lanewise and (info.writes == set(written) or len(info.writes) > 1),
    )


_TEXTS: dict[Hashable, _Text] = {}
"""The most recent texts, by the identity of their info and the storage of registers."""

_MAXIMUM_TEXTS = 1 << 14


def _texts(program: Program) -> list[_Text]:
    """Return what cones need to know about each instruction; equal texts have one record."""
    found: list[_Text] | None = program.analyses.get("texts of cones")
    if found is None:
        storage = program.storage
        found = []
        for instruction, info in zip(program.kernel.instructions, program.infos, strict=True):
            key = id(info), storage
            text = _TEXTS.get(key)
            if text is None or text.info is not info or same_text(text.instruction) != same_text(instruction):
                if len(_TEXTS) >= _MAXIMUM_TEXTS:
                    _TEXTS.clear()
                text = _TEXTS[key] = _text_of(instruction, info, storage)
            found.append(text)
        program.analyses["texts of cones"] = found
    return found


@dataclass(frozen=True, slots=True)
class _Found:
    """The cones of a block.

    `skipped` are the other instructions that they replace where all lanes are active, each with the root of one cone.
    `in_some_lanes` are the roots of the cones that are used where fewer lanes are active: those that the architecture
    knows, if no group waits inside of the block; `skipped_in_some_lanes` are the instructions that these replace.
    """

    cones: list[Cone]
    skipped: Mapping[int, int]
    in_some_lanes: frozenset[int]
    skipped_in_some_lanes: Mapping[int, int]


_NO_CONES = _Found([], {}, frozenset(), {})
_WAITS = Effect.BARRIER | Effect.ASYNCHRONOUS | Effect.CLUSTER | Effect.CALL


def _cones(program: Program, first: int, end: int) -> _Found:
    """Return the cones of a block."""
    infos = program.infos
    # Fewer instructions than a cone has need no text.
    if sum(_may_be_member(info.effects) for info in infos[first:end]) < MINIMUM_INSTRUCTIONS:
        members = [False] * (end - first)
    else:
        texts = _texts(program)
        refused = program.known_refusals
        members = [texts[index].lanewise and index not in refused for index in range(first, end)]
    sequences = _known_sequences(program, first, end)
    if sum(members) < MINIMUM_INSTRUCTIONS and not sequences:
        return _NO_CONES
    texts = _texts(program)
    mask = program.execution_mask
    made: dict[int, list[int]] = {}
    """The instruction of the block that wrote each register that an instruction reads last, by `_Text.keys`."""
    uses: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    """How many instructions a cone has at most."""
    latest: dict[str, int] = {}
    for index in range(first, end):
        text = texts[index]
        # While the lanes are those that entered the block, all of them, no register keeps its value in others.
        whole = members[index - first] if mask is None else mask not in latest
        made[index] = found = [latest.get(key, -1) for key in text.keys]
        size = 1
        for place in found[: text.whole] if whole else found:
            if place >= 0:
                uses.setdefault(place, []).append(index)
                size += sizes.get(place, 0)
        if members[index - first]:
            sizes[index] = size
        for key in text.written:
            latest[key] = index
    if max(sizes.values(), default=0) < MINIMUM_INSTRUCTIONS and not sequences:
        return _NO_CONES
    live = live_at(program, end)
    # A definition that is live at the end, or that an instruction outside of cones reads, is a root.
    escapes = {index for key, index in latest.items() if live(key)}
    roots = [
        index
        for index in range(first, end)
        if sizes.get(index, 0) >= MINIMUM_INSTRUCTIONS
        and (index in escapes or any(not members[each - first] for each in uses.get(index, ())))
    ]
    cones = []
    for root in roots:
        cone = _cone(program, root, made, first, members)
        if cone is not None:
            cones.append(cone)
    roots_of_known = {sequence.members[-1] for sequence in sequences}
    kept = [cone for cone in cones if cone.members[-1] not in roots_of_known]
    for sequence in sequences:
        flags = [index in sequence.members for index in range(first, end)]
        cone = _cone(program, sequence.members[-1], made, first, flags, fewest=1)
        if cone is not None and cone.members == sequence.members:
            kept.append(replace(cone, known=sequence))
    while True:
        skipped = _skipped(kept, uses, escapes)
        # Few instructions are saved where others need the results inside of a cone.
        saved = {*skipped, *(cone.members[-1] for cone in kept)}
        saving = [
            cone
            for cone in kept
            if cone.known is not None or 2 * sum(each in saved for each in cone.members) >= len(cone.members)
        ]
        if len(saving) == len(kept):
            break
        kept = saving
    known = [cone for cone in kept if cone.known is not None]
    if mask is None or not known or any(info.effects.overlaps(_WAITS) for info in infos[first:end]):
        return _Found(kept, skipped, frozenset(), {})
    return _Found(kept, skipped, frozenset(cone.members[-1] for cone in known), _skipped(known, uses, escapes))


def _known_sequences(program: Program, first: int, end: int) -> tuple[KnownSequence, ...]:
    """Return the sequences in a block that the architecture knows and whose instructions it models."""
    if program.sequences is None:
        return ()
    found = program.sequences(program.kernel, program.infos, first, end)
    return tuple(each for each in found if not any(index in program.refused for index in each.members))


def _skipped(cones: Sequence[Cone], uses: Mapping[int, Sequence[int]], escapes: Collection[int]) -> dict[int, int]:
    """Return the instructions whose results only these cones need, each with the root of one of them.

    The result of a member of one cone may be an input of another one, which captures it where it is read.
    """
    roots = {cone.members[-1] for cone in cones}
    inputs = {place for cone in cones for _, place in cone.definitions}
    owner = {index: cone.members[-1] for cone in cones for index in cone.members[:-1]}
    found: dict[int, int] = {}
    for index in sorted(owner, reverse=True):
        if index in roots or index in escapes or index in inputs:
            continue
        if all(each in found or each in roots for each in uses[index]):
            found[index] = owner[index]
    return found


def _cone(
    program: Program,
    root: int,
    made: Mapping[int, Sequence[int]],
    first: int,
    members: Sequence[bool],
    fewest: int = MINIMUM_INSTRUCTIONS,
) -> Cone | None:
    """Return the cone of a root, None if it is too small or too large, or if its inputs cannot be captured."""
    texts, mask = _texts(program), program.execution_mask
    numbers: dict[int, int] = {}
    """The members, and the place of each in the order of their forms."""
    inputs: dict[Definition, int] = {}
    names: dict[Definition, set[str]] = {}
    consumed: dict[int, tuple[int, ...]] = {}
    form: list[Hashable] = []

    def visit(index: int) -> bool:
        if len(numbers) > MAXIMUM_INSTRUCTIONS:
            return False
        text, definitions = texts[index], made[index]
        operands: list[int] = []
        own: list[int] = []
        for name, slot in text.names:
            place = definitions[slot]
            if place >= first and members[place - first]:
                if place not in numbers and not visit(place):
                    return False
                operands.append(numbers[place])
                continue
            key = text.keys[slot]
            if key == mask and place >= first:
                return False  # the lanes are others than when the block was entered
            definition = (key, place)
            number = inputs.setdefault(definition, len(inputs))
            operands.append(-1 - number)
            own.append(number)
            names.setdefault(definition, set()).add(name)
        numbers[index] = len(numbers)
        consumed[index] = tuple(dict.fromkeys(own))
        form.append((text.form, tuple(operands)))
        return True

    if not visit(root) or len(numbers) < fewest:
        return None
    sequence = tuple(sorted(numbers))
    captured: dict[int, int] = {}
    for index in sequence:
        for number in consumed[index]:
            captured.setdefault(number, index)
    (result,) = texts[root].written
    if result not in program.infos[root].writes:
        return None
    read = tuple((definition[0], *sorted(names[definition] - {definition[0]})) for definition in inputs)
    places = tuple(captured[each] for each in range(len(read)))
    if not _is_modelled(program, tuple(form), sequence):
        return None
    return Cone(sequence, read, places, consumed, result, tuple(form), tuple(inputs))


def _is_modelled(program: Program, form: Hashable, members: Sequence[int]) -> bool:
    """Return whether a cone with these members has no instruction that is not modelled; its form tells."""
    known: dict[Hashable, bool] = program.analyses.setdefault("modelled cones", {})
    if form not in known:
        known[form] = not any(index in program.refused for index in members)
    return known[form]


@lru_cache(maxsize=1024)
def _sorted(names: frozenset[str]) -> list[str]:
    return sorted(names)


def _renamed(operand: Operand, names: Mapping[str, Hashable]) -> Hashable:
    """Return an operand with its registers renamed; a register that is written only has no name."""
    if type(operand) is Immediate:
        return operand
    if isinstance(operand, Register):
        return names.get(operand.name, "written")
    inner = tuple(parts(operand))
    if inner == (operand,):
        return operand
    changes = getattr(operand, "changes", ()), getattr(operand, "offset", 0)
    return type(operand).__name__, changes, tuple(_renamed(each, names) for each in inner)


# -- steps -----------------------------------------------------------------------------------------------------------

_OPEN = "cones that were entered"
"""The key of `machine.extra` for the inputs of the cones that were entered, by root and number of the input."""


_LANES = "the lanes in which cones were entered"
"""The key of `machine.extra` for the lanes in which the open cones are computed; None: all."""


def _entering(step: Step, found: _Found, execution_mask: str | None) -> Step:
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
        machine.extra[_OPEN], machine.extra[_LANES] = {root: {} for root in roots}, lanes
        return step(machine)

    return run


_NO_ROOTS: frozenset[int] = frozenset()


def _skipping(step: Step, root: int, in_some_lanes: int | None) -> Step:
    """Return a step that does nothing while a cone that needs it is open, since the cone executes it itself.

    All cones of a block are opened together, and each is open until its root: `root`, or `in_some_lanes` where not all
    lanes are active (None: the step is executed there).
    """

    def run(machine: Machine) -> Control | None:
        cones = machine.extra.get(_OPEN)
        if not cones:
            return step(machine)
        return None if (root if machine.extra[_LANES] is None else in_some_lanes) in cones else step(machine)

    return run


def _passing(step: Step, root: int, after: int) -> Step:
    """Return a step that passes a run of skipped instructions at once while all cones of the block are open.

    A part of the program that is to stop may stop inside of the run, and passes nothing.
    The roots are no skipped instructions, so that a cone that is open at the start of the run is open to its end.
    """
    control = Branch(after)

    def run(machine: Machine) -> Control | None:
        cones = machine.extra.get(_OPEN)
        if cones and machine.runs_to_end and machine.extra[_LANES] is None and root in cones:
            return control
        return step(machine)

    return run


def _capturing(step: Step, wanted: Sequence[tuple[int, int, tuple[str, ...]]]) -> Step:
    """Return a step before which inputs of open cones are noted."""

    def run(machine: Machine) -> Control | None:
        cones = machine.extra.get(_OPEN)
        if cones:
            registers = machine.registers
            for root, number, names in wanted:
                if root in cones:
                    cones[root][number] = {name: registers[name] for name in names if name in registers}
        return step(machine)

    return run


def _looking_up(step: Step, cone: Cone, program: Program) -> Step:
    """Return the step of a root: it looks the result up, or executes the whole cone where that is not possible."""
    root = cone.members[-1]
    functions: dict[Hashable, Function | None] = {}  # of this cone: its form is long, and hashed once only

    def run(machine: Machine) -> Control | None:
        cones = machine.extra.get(_OPEN)
        if not cones or root not in cones:
            return step(machine)
        captured: dict[int, dict[str, Value]] = cones.pop(root)
        value = (
            _value(machine, cone, captured, program, functions)
            if cone.known is None
            else _known_value(machine, cone, captured, cone.known)
        )
        if value is None:
            value = _executed(machine, cone, program, captured)
        lanes = machine.extra[_LANES]
        if lanes is not None:
            # In other lanes the register keeps its value.
            old = machine.registers.get(cone.result)
            value = deferred_blend(machine, lanes, value, poison(width(value)) if old is None else old)
        machine.registers[cone.result] = value
        return None

    return run


def _known_value(
    machine: Machine, cone: Cone, captured: Mapping[int, Mapping[str, Value]], sequence: KnownSequence
) -> Value | None:
    """Return the result of a sequence that an architecture knows, None where its instructions must be executed."""
    lanes: Array | None = machine.extra[_LANES]
    values: list[Value] = []
    for definition in sequence.inputs:
        held = captured[cone.definitions.index(definition)]
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


def _executed(machine: Machine, cone: Cone, program: Program, inputs: Mapping[int, Mapping[str, Value]]) -> Value:
    """Return the result of the instructions of a cone on these inputs."""
    registers: dict[str, Value] = {}
    outer, line = machine.registers, machine.line
    machine.registers = registers
    try:
        for index in cone.members:
            machine.line = program.kernel.instructions[index].line
            # Instructions outside of the cone may have written the register of an input that a member wrote before.
            for number in cone.consumed[index]:
                for name in cone.inputs[number]:
                    registers.pop(name, None)
                registers.update(inputs[number])
            program.steps[index](machine)
        return registers[cone.result]
    finally:
        machine.registers, machine.line = outer, line


# -- functions -------------------------------------------------------------------------------------------------------


def _value(
    machine: Machine,
    cone: Cone,
    captured: Mapping[int, Mapping[str, Value]],
    program: Program,
    functions: dict[Hashable, Function | None],
) -> Value | None:
    """Return the result of a cone from its table, None if it is not a function of a few bytes of these inputs."""
    constants, varying = [], {}
    for number, names in enumerate(cone.inputs):
        held = captured[number]
        if not held:
            return None
        for name, value in held.items():
            place = names.index(name)
            if isinstance(value, np.ndarray) and value.size == 1:
                constants.append((number, place, value.dtype.str, int(value.flat[0])))
            elif isinstance(value, SymbolicVector | PackedVector) and len(held) == 1 and width(value) % 8 == 0:
                varying[number] = value
            else:
                return None
    if not varying:
        return None
    widths = tuple((number, width(value)) for number, value in varying.items())
    key = (tuple(constants), widths)
    if key not in functions:
        functions[key] = _cached_function(machine, cone, captured, key, program)
    function = functions[key]
    if function is None:
        return None
    found: list[Value] = []
    for part in function:
        bits = _part_value(part, varying)
        if bits is None:
            return None
        found.append(bits)
    recorder = machine.domain.recorder
    if recorder is not None:
        # The tree of a table is that of the instructions.
        whole = _executed(machine, cone, program, captured)
        for part, value in zip(function, found, strict=True):
            if part.atoms and not part.copies:
                recorder.add(
                    SAME, as_symbolic_vector(value), [as_symbolic_vector(extract(whole, part.low, part.bits))], False
                )
    return concat(found)


def _part_value(part: Part, varying: Mapping[int, Value]) -> Value | None:
    """Return bits of a result; None where lanes have constants among several atoms."""
    if not part.atoms:
        return part.table.reshape(1, 1)
    atoms = [extract(varying[number], 8 * byte, 8) for number, byte in part.atoms]
    if part.copies:
        return atoms[0]
    vectors = [as_symbolic_vector(each) for each in atoms]
    known = [L.constant_mask(each) for each in vectors]
    if len(vectors) > 1 and any(each is not False for each in known):
        return None
    result = term(part.bits, part.tag, vectors, L.INTEGER, exact=True)
    if known[0] is False:
        return result
    numbers = part.table[(vectors[0].words[0] & np.uint64(255)).astype(np.intp)]
    return L.as_array_if_constant(L.blend(known[0], L.constant_vector(numbers), result))


def _cached_function(
    machine: Machine,
    cone: Cone,
    captured: Mapping[int, Mapping[str, Value]],
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
    captured: Mapping[int, Mapping[str, Value]],
    widths: Mapping[int, int],
    program: Program,
) -> Function | None:
    """Return the function that a cone computes of some bytes of its inputs, None if there are too many of them."""
    run = _Trial(machine, cone, captured, program)
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
    captured: Mapping[int, Mapping[str, Value]]
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
        inputs = dict(self.captured)
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
