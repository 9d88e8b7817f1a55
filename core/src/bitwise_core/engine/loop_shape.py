"""What a loop's text says: its instructions, the registers it carries, and how accumulators depend on each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from bitwise_core.asm import (
    Address,
    Guard,
    Instruction,
    Kernel,
    Operand,
    Register,
    Vector,
    registers_of,
    symbols_of,
)
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.mnemonics import Mnemonics, root


@dataclass(frozen=True, slots=True)
class Effect:
    """Registers that an instruction writes and reads; a guarded one reads what it may leave."""

    writes: frozenset[str]
    reads: frozenset[str]


@lru_cache(maxsize=1 << 16)
def _effect(opcode: str, operands: tuple[Operand, ...], guard: Guard | None, mnemonics: Mnemonics) -> Effect:
    writes: set[str] = set()
    reads: set[str] = set()
    if opcode.startswith(mnemonics.in_place):
        writes = registers_of(operands[0])
        reads = {name for operand in operands for name in registers_of(operand)}
    elif opcode.split(".", 1)[0] in mnemonics.without_result:
        reads = {name for operand in operands for name in registers_of(operand)}
    else:
        writes = registers_of(operands[0]) if operands and not isinstance(operands[0], Address) else set()
        reads = {name for operand in operands[bool(writes) :] for name in registers_of(operand)}
    if guard is not None:
        reads = reads | writes | {guard.register}
    return Effect(frozenset(writes - {"_"}), frozenset(reads - {"_"}))


def effect(instruction: Instruction, mnemonics: Mnemonics) -> Effect:
    """What an instruction writes and reads."""
    return _effect(instruction.opcode, instruction.operands, instruction.guard, mnemonics)


@dataclass(frozen=True, slots=True)
class Loop:
    """Instructions `head` to `back`, the last of which branches to the first.

    `carried` are the registers that a turn reads before it writes them and that the loop writes; `kept` are those
    that it writes and that are read outside it.
    """

    head: int
    back: int
    writes: frozenset[str]
    carried: tuple[str, ...]
    kept: frozenset[str]

    @property
    def body(self) -> range:
        """The instructions of a turn but for the branch."""
        return range(self.head, self.back)


def find_loops(kernel: Kernel, mnemonics: Mnemonics) -> Mapping[int, Loop]:
    """By their head, the loops whose turns are straight lines."""
    instructions = kernel.instructions
    targets = {target for each in instructions for target in _targets(each, kernel, mnemonics)}
    found: dict[int, Loop] = {}
    for index, instruction in enumerate(instructions):
        own = _targets(instruction, kernel, mnemonics)
        if len(own) != 1 or (target := next(iter(own))) > index:
            continue
        inside = instructions[target:index]
        if instruction.guard is None or any(root(each) in mnemonics.leaving for each in inside):
            continue
        if any(target < place <= index for place in targets):
            continue
        found[target] = _loop(instructions, target, index, mnemonics)
    return found


def _targets(instruction: Instruction, kernel: Kernel, mnemonics: Mnemonics) -> set[int]:
    if root(instruction) not in mnemonics.branches:
        return set()
    return {
        kernel.labels[name] for operand in instruction.operands for name in symbols_of(operand) if name in kernel.labels
    }


def _loop(instructions: Sequence[Instruction], head: int, back: int, mnemonics: Mnemonics) -> Loop:
    written: set[str] = set()
    exposed: set[str] = set()
    for instruction in instructions[head : back + 1]:
        found = effect(instruction, mnemonics)
        exposed |= found.reads - written
        written |= found.writes
    outside = {
        name
        for instruction in (*instructions[:head], *instructions[back + 1 :])
        for name in effect(instruction, mnemonics).reads
    }
    return Loop(head, back, frozenset(written), tuple(sorted(exposed & written)), frozenset(written & outside))


def slice_of(
    instructions: Sequence[Instruction], loop: Loop, wanted: Iterable[str], mnemonics: Mnemonics
) -> list[int] | None:
    """The instructions of a turn that decide these registers; None where one is no plain integer operation."""
    needed = set(wanted)
    chosen: set[int] = set()
    while True:
        before = len(chosen), len(needed)
        for index in reversed(loop.body):
            found = effect(instructions[index], mnemonics)
            if index in chosen or found.writes & needed:
                chosen.add(index)
                needed |= found.reads
        if (len(chosen), len(needed)) == before:
            break
    if not all(_is_integer(instructions[index], mnemonics) for index in chosen):
        return None
    return sorted(chosen)


def _is_integer(instruction: Instruction, mnemonics: Mnemonics) -> bool:
    first, *modifiers = instruction.opcode.split(".")
    return first in mnemonics.integers and mnemonics.float_types.isdisjoint(modifiers)


@dataclass(frozen=True, slots=True)
class MatrixStep:
    """A matrix instruction that adds to accumulators: per register it writes, the accumulator whose value it holds."""

    index: int
    sources: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Source:
    """An accumulator that a value depends on; `elsewhere` says that it may be another thread's."""

    name: str
    elsewhere: bool = False


Sources: TypeAlias = frozenset[Source]
NOTHING: Sources = frozenset()


@dataclass(frozen=True, slots=True)
class Chains:
    """How the accumulators of a loop depend on each other.

    `pure` are those that nothing but matrix steps touches, and `steps` these steps in order.  In `levels` every
    accumulator comes after those on whose values at the start of a turn it depends; `depends` says of all registers at
    the end of a turn on which that is.
    """

    pure: frozenset[str]
    steps: tuple[MatrixStep, ...]
    levels: tuple[tuple[str, ...], ...]
    depends: Mapping[str, Sources]

    def only(self, name: str, among: Iterable[str]) -> str | None:
        """The one of these accumulators, of the same thread, on which a register depends beside others."""
        found = [each for each in self.depends.get(name, NOTHING) if each.name in among]
        return found[0].name if len(found) == 1 and not found[0].elsewhere else None


def chains(
    instructions: Sequence[Instruction], loop: Loop, accumulators: Iterable[str], mnemonics: Mnemonics
) -> Chains:
    """Which accumulators are only ever added to by matrix steps, and the order in which all can be named.

    Raises Unreadable where accumulators depend on each other in a circle, or on themselves in another thread.
    """
    wanted = frozenset(accumulators)
    pure = wanted
    while True:
        found = _follow(instructions, loop, wanted, pure, mnemonics)
        if not found.impure & pure:
            own = {name: found.depends.get(name, NOTHING) for name in wanted}
            return Chains(pure, found.steps, _levels(own, instructions[loop.head].line), found.depends)
        pure = pure - found.impure


def _levels(depends: Mapping[str, Sources], line: int | None) -> tuple[tuple[str, ...], ...]:
    left = {name: {each.name for each in found} - {name} for name, found in depends.items()}
    levels: list[tuple[str, ...]] = []
    while left:
        level = tuple(sorted(name for name, others in left.items() if not others & left.keys()))
        if not level:
            raise Unreadable("a loop's accumulators depend on one another in a circle", line)
        levels.append(level)
        left = {name: others for name, others in left.items() if name not in level}
    return tuple(levels) or ((),)


@dataclass(frozen=True, slots=True)
class _Followed:
    impure: frozenset[str]
    steps: tuple[MatrixStep, ...]
    depends: Mapping[str, Sources]


def _elsewhere(found: Sources) -> Sources:
    return frozenset(Source(each.name, True) for each in found)


def _follow(
    instructions: Sequence[Instruction],
    loop: Loop,
    wanted: frozenset[str],
    pure: frozenset[str],
    mnemonics: Mnemonics,
) -> _Followed:
    depends: dict[str, Sources] = {name: frozenset({Source(name)}) for name in wanted}
    shared = NOTHING
    holder: dict[str, tuple[str, int]] = {name: (name, 0) for name in pure}
    newest = dict.fromkeys(pure, 0)
    impure: set[str] = set()
    steps: list[MatrixStep] = []
    for index in loop.body:
        instruction = instructions[index]
        found = effect(instruction, mnemonics)
        held = matrix_accumulators(instruction, mnemonics)
        if held is not None:
            factors = _elsewhere(_union(depends, _factors(instruction, mnemonics)) | shared)
            owners = [holder[source] for _, source in held if source in holder]
            fresh_values = all(newest[owner] == version for owner, version in owners)
            distinct = len({owner for owner, _ in owners}) == len(held)
            if len(owners) == len(held) and fresh_values and distinct and instruction.guard is None and not factors:
                steps.append(MatrixStep(index, tuple(held)))
                moved = {target: (holder[source][0], depends[source]) for target, source in held}
                for target, (owner, before) in moved.items():
                    newest[owner] += 1
                    holder[target], depends[target] = (owner, newest[owner]), before
                continue
            impure |= {owner for owner, _ in owners}
            fresh = {target: depends.get(source, NOTHING) | factors for target, source in held}
        elif (
            root(instruction) in mnemonics.moves
            and len(instruction.operands) == 2
            and instruction.guard is None
            and all(isinstance(each, Register) for each in instruction.operands)
        ):
            target, source = (next(iter(registers_of(each))) for each in instruction.operands)
            depends[target] = depends.get(source, NOTHING)
            if source in holder:
                holder[target] = holder[source]
            else:
                holder.pop(target, None)
            continue
        else:
            read = _union(depends, found.reads)
            addressed = any(isinstance(each, Address) for each in instruction.operands)
            if root(instruction) in mnemonics.across_lanes:
                read = _elsewhere(read)
                if addressed or root(instruction) in mnemonics.without_result:
                    shared |= read
            if addressed:
                read |= shared
            impure |= {holder[name][0] for name in found.reads if name in holder}
            fresh = dict.fromkeys(found.writes, read)
        for name, value in fresh.items():
            depends[name] = value
            holder.pop(name, None)
    for name in wanted:
        if Source(name, True) in depends.get(name, NOTHING):
            raise Unreadable(
                "a loop's accumulator is seen by other threads within the loop", instructions[loop.head].line
            )
    impure |= {name for name in pure if holder.get(name) != (name, newest[name])}
    return _Followed(frozenset(impure), tuple(steps), depends)


def _union(depends: Mapping[str, Sources], names: Iterable[str]) -> Sources:
    return NOTHING.union(*(depends.get(name, NOTHING) for name in names))


def matrix_accumulators(instruction: Instruction, mnemonics: Mnemonics) -> list[tuple[str, str]] | None:
    """For a matrix instruction, each register it writes with the accumulator register that enters it."""
    found = mnemonics.accumulation(instruction)
    if found is None:
        return None
    targets, sources = found.results, found.accumulators
    if not isinstance(targets, Vector) or not isinstance(sources, Vector):
        return None
    pairs = list(zip(targets.items, sources.items, strict=True))
    if not all(isinstance(each, Register) for pair in pairs for each in pair):
        return None
    return [
        (target.name, source.name)
        for target, source in pairs
        if isinstance(target, Register) and isinstance(source, Register)
    ]


def _factors(instruction: Instruction, mnemonics: Mnemonics) -> frozenset[str]:
    """The registers of a matrix instruction's other operands, and what guards it."""
    found = mnemonics.accumulation(instruction)
    assert found is not None
    own = (found.results, found.accumulators)
    others = [operand for operand in instruction.operands if not any(operand is each for each in own)]
    guard = set() if instruction.guard is None else {instruction.guard.register}
    return frozenset(guard.union(*(registers_of(operand) for operand in others)))


def matrix_depth(instruction: Instruction, mnemonics: Mnemonics) -> int:
    """How many elements of k a matrix instruction adds (0: it is none)."""
    if matrix_accumulators(instruction, mnemonics) is None:
        return 0
    found = mnemonics.accumulation(instruction)
    return 0 if found is None else found.depth
