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
    """Instructions `header` to `latch`, the last of which branches to the first.

    `carried` are the registers that an iteration reads before it writes them and that the loop writes; `kept` are
    those that it writes and that are read outside it.
    """

    header: int
    latch: int
    writes: frozenset[str]
    carried: tuple[str, ...]
    kept: frozenset[str]

    @property
    def body(self) -> range:
        """The instructions of an iteration but for the branch."""
        return range(self.header, self.latch)


def find_loops(kernel: Kernel, mnemonics: Mnemonics) -> Mapping[int, Loop]:
    """The loops whose bodies are straight lines, by header."""
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


def _loop(instructions: Sequence[Instruction], header: int, latch: int, mnemonics: Mnemonics) -> Loop:
    written: set[str] = set()
    exposed: set[str] = set()
    for instruction in instructions[header : latch + 1]:
        found = effect(instruction, mnemonics)
        exposed |= found.reads - written
        written |= found.writes
    outside = {
        name
        for instruction in (*instructions[:header], *instructions[latch + 1 :])
        for name in effect(instruction, mnemonics).reads
    }
    return Loop(header, latch, frozenset(written), tuple(sorted(exposed & written)), frozenset(written & outside))


def slice_of(
    instructions: Sequence[Instruction], loop: Loop, wanted: Iterable[str], mnemonics: Mnemonics
) -> list[int] | None:
    """The instructions of an iteration that decide these registers; None where one is no plain integer operation."""
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
