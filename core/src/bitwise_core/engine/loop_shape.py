"""What a loop's text says: its instructions, the registers it carries, and how accumulators depend on each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
class Chains:
    """The matrix steps of accumulators that nothing else in the loop touches, in order."""

    pure: frozenset[str]
    steps: tuple[MatrixStep, ...]


def chains(
    instructions: Sequence[Instruction], loop: Loop, accumulators: Iterable[str], mnemonics: Mnemonics
) -> Chains:
    """Which accumulators are only ever added to by matrix steps.

    Raises Unreadable where an accumulator depends on another one or goes through other threads.
    """
    wanted = frozenset(accumulators)
    pure = wanted
    while True:
        impure, steps = _follow(instructions, loop, wanted, pure, mnemonics)
        if not impure & pure:
            return Chains(pure, steps)
        pure = pure - impure


def _follow(
    instructions: Sequence[Instruction],
    loop: Loop,
    wanted: frozenset[str],
    pure: frozenset[str],
    mnemonics: Mnemonics,
) -> tuple[frozenset[str], tuple[MatrixStep, ...]]:
    depends: dict[str, frozenset[str]] = {name: frozenset({name}) for name in wanted}
    holder: dict[str, tuple[str, int]] = {name: (name, 0) for name in pure}
    newest = dict.fromkeys(pure, 0)
    impure: set[str] = set()
    steps: list[MatrixStep] = []
    for index in loop.body:
        instruction = instructions[index]
        found = effect(instruction, mnemonics)
        held = matrix_accumulators(instruction, mnemonics)
        if held is not None:
            factors = frozenset().union(
                *(depends.get(name, frozenset()) for name in found.reads - {c for _, c in held})
            )
            if factors:
                raise Unreadable("a loop's accumulator enters a product", instruction.line)
            owners = [holder[source] for _, source in held if source in holder]
            fresh_values = all(newest[owner] == version for owner, version in owners)
            distinct = len({owner for owner, _ in owners}) == len(held)
            if len(owners) == len(held) and fresh_values and distinct and instruction.guard is None:
                steps.append(MatrixStep(index, tuple(held)))
                moved = {target: (holder[source][0], depends[source]) for target, source in held}
                for target, (owner, before) in moved.items():
                    newest[owner] += 1
                    holder[target], depends[target] = (owner, newest[owner]), before
                continue
            impure |= {owner for owner, _ in owners}
            fresh = {target: depends.get(source, frozenset()) for target, source in held}
        elif (
            root(instruction) in mnemonics.moves
            and len(instruction.operands) == 2
            and instruction.guard is None
            and all(isinstance(each, Register) for each in instruction.operands)
        ):
            target, source = (next(iter(registers_of(each))) for each in instruction.operands)
            depends[target] = depends.get(source, frozenset())
            if source in holder:
                holder[target] = holder[source]
            else:
                holder.pop(target, None)
            continue
        else:
            read: frozenset[str] = frozenset().union(*(depends.get(name, frozenset()) for name in found.reads))
            if read and root(instruction) in mnemonics.across_lanes:
                raise Unreadable("a loop's accumulator is seen by other threads within the loop", instruction.line)
            impure |= {holder[name][0] for name in found.reads if name in holder}
            fresh = dict.fromkeys(found.writes, read)
        for name, value in fresh.items():
            depends[name] = value
            holder.pop(name, None)
    for name in wanted:
        if not depends.get(name, frozenset()) <= {name}:
            raise Unreadable("a loop's accumulators depend on one another", instructions[loop.head].line)
    impure |= {name for name in pure if holder.get(name) != (name, newest[name])}
    return frozenset(impure), tuple(steps)


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


def matrix_depth(instruction: Instruction, mnemonics: Mnemonics) -> int:
    """How many elements of k a matrix instruction adds (0: it is none)."""
    if matrix_accumulators(instruction, mnemonics) is None:
        return 0
    found = mnemonics.accumulation(instruction)
    return 0 if found is None else found.depth
