"""Cones: computations within a basic block whose inner results nothing else uses.

A cone is an instruction, its root, and all instructions of the block whose results only it uses, each of which computes
every lane by itself (`Effect.LANEWISE`).  A root is a result that is live at the end of the block, or that an
instruction outside of cones reads.  Sequences that an architecture knows (`known_sequences.py`) are cones, too.

Cones of one form compute one function of their inputs, whatever the names of their registers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import repeat

from bitwise_core.assembly.module import Immediate, Instruction, Operand, Register, parts, registers_of
from bitwise_core.execution.control_flow import EXIT
from bitwise_core.execution.instruction_info import Effect, InstructionInfo, once_a_text
from bitwise_core.execution.known_sequences import Definition, KnownSequence
from bitwise_core.execution.program import Program
from bitwise_core.execution.program_analyses import live_at

MINIMUM_INSTRUCTIONS = 16
"""The fewest instructions of a cone that is looked up."""

MAXIMUM_INSTRUCTIONS = 512
"""The most instructions of a cone that is looked up."""

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


def blocks_of(program: Program) -> Iterator[tuple[int, int]]:
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


@once_a_text
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


def _texts(program: Program) -> list[_Text]:
    """Return what cones need to know about each instruction; equal texts have one record."""
    found: list[_Text] | None = program.analyses.get("texts of cones")
    if found is None:
        found = list(map(_text_of, program.kernel.instructions, program.infos, repeat(program.storage)))
        program.analyses["texts of cones"] = found
    return found


@dataclass(frozen=True, slots=True)
class BlockCones:
    """The cones of a block.

    `skipped` are the other instructions that they replace where all lanes are active, each with the root of one cone.
    `in_some_lanes` are the roots of the cones that are used where fewer lanes are active: those that the architecture
    knows, if no group waits inside of the block; `skipped_in_some_lanes` are the instructions that these replace.
    """

    cones: list[Cone]
    skipped: Mapping[int, int]
    in_some_lanes: frozenset[int]
    skipped_in_some_lanes: Mapping[int, int]


NO_CONES = BlockCones([], {}, frozenset(), {})
_WAITS = Effect.BARRIER | Effect.ASYNCHRONOUS | Effect.CLUSTER | Effect.CALL


def cones_of_block(program: Program, first: int, end: int) -> BlockCones:
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
        return NO_CONES
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
        return NO_CONES
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
        return BlockCones(kept, skipped, frozenset(), {})
    return BlockCones(kept, skipped, frozenset(cone.members[-1] for cone in known), _skipped(known, uses, escapes))


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
