"""Addresses that lanes exchange as two words, and put together again.

A shuffle exchanges 32 bits.  Compilers take both words of an address, exchange each in the same way, widen both, move
the upper one up by 32 bits, and join them:

    mov.b64 {_, %r1}, %rd1;        cvt.u32.u64 %r2, %rd1;
    shfl.sync.idx.b32 %r3, %r1, %r9, 31, -1;
    shfl.sync.idx.b32 %r4, %r2, %r9, 31, -1;
    cvt.u64.u32 %rd2, %r4;         cvt.u64.u32 %rd3, %r3;
    shl.b64 %rd4, %rd3, 32;        or.b64 %rd5, %rd2, %rd4;

The result is the address of another lane.  The words are followed backwards from the join, and only where all of these
instructions are in one basic block without a guard, where nothing else reads what is widened, and where every register
has one definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitwise_core.assembly.module import Immediate, Instruction, Kernel, Operand, Register, Vector
from bitwise_core.execution.instruction_info import Effect, InstructionInfo

_WORD = 32
_WIDENING = "cvt.u64.u32"
_ENDS = Effect.BRANCH | Effect.END | Effect.CALL
"""The effects of instructions that end a basic block."""


def exchanged_addresses(
    kernel: Kernel,
    infos: Sequence[InstructionInfo],
    definitions: Mapping[str, Sequence[int]],
    uses: Mapping[str, Sequence[int]],
) -> Mapping[int, tuple[str, tuple[int, int]]]:
    """Return for each instruction that joins two exchanged words the register that held both.

    Also returned are the two instructions that widen the words.  Instructions are numbers, in the order of the text.
    """
    found: dict[int, tuple[str, tuple[int, int]]] = {}
    block: list[int] | None = None
    for index, instruction in enumerate(kernel.instructions):
        if instruction.opcode != "or.b64" or instruction.guard is not None:
            continue
        block = _blocks(kernel, infos) if block is None else block
        joined = _Words(kernel.instructions, definitions, uses, block).joined(index)
        if joined is not None:
            found[index] = joined
    return found


def _blocks(kernel: Kernel, infos: Sequence[InstructionInfo]) -> list[int]:
    """Return the number of the basic block of each instruction."""
    starts, number, found = set(kernel.labels.values()), 0, list[int]()
    for index, info in enumerate(infos):
        number += index in starts
        found.append(number)
        number += bool(info.effects & _ENDS)
    return found


@dataclass(frozen=True, slots=True)
class _Words:
    """The way of the words of an address, backwards from the instruction that joins them."""

    instructions: Sequence[Instruction]
    definitions: Mapping[str, Sequence[int]]
    uses: Mapping[str, Sequence[int]]
    block: Sequence[int]

    def joined(self, index: int) -> tuple[str, tuple[int, int]] | None:
        """Return the register whose words an instruction joins, and the instructions that widen these."""
        operands = self._operand(index, 1), self._operand(index, 2)
        for one, other in (operands, operands[::-1]):
            low, moved = self._only_for(one, index, _WIDENING), self._only_for(other, index, "shl.b64")
            if low is None or moved is None:
                continue
            high = self._only_for(self._operand(moved, 1), moved, _WIDENING)
            if high is None or self._operand(moved, 2) != Immediate(_WORD):
                continue
            name = self._common_source(low, high)
            if name is not None:
                return name, (low, high)
        return None

    def _operand(self, index: int, place: int) -> Operand | None:
        operands = self.instructions[index].operands
        return operands[place] if place < len(operands) else None

    def _only_for(self, operand: Operand | None, reader: int, opcode: str) -> int | None:
        """Return the definition of a register that one instruction reads and no other, if it has this opcode."""
        place = self._definition(operand, reader)
        if place is None or self.instructions[place].opcode != opcode:
            return None
        return place if [*self.uses[_name(operand)]] == [reader] else None

    def _definition(self, operand: Operand | None, reader: int) -> int | None:
        """Return the only definition of a register, without a guard, before `reader` in its basic block."""
        places = self.definitions.get(_name(operand), ())
        if len(places) != 1 or self.block[places[0]] != self.block[reader] or places[0] >= reader:
            return None
        return places[0] if self.instructions[places[0]].guard is None else None

    def _common_source(self, low: int, high: int) -> str | None:
        """Return the register of which two instructions widen the lower and the upper word after the same exchanges."""
        lower, _, how, first = self._word(low)
        upper, word, as_well, other = self._word(high)
        if lower is None or upper is None or how != as_well:
            return None
        if lower.opcode != "cvt.u32.u64" or upper.opcode != "mov.b64":
            return None
        if len(lower.operands) != 2 or len(upper.operands) != 2:
            return None
        (_, source), (taken, whole) = lower.operands, upper.operands
        is_upper = isinstance(taken, Vector) and len(taken.items) == 2 and taken.items[1] == word
        if source != whole or not is_upper:
            return None
        start = min(first, other)
        kept = all(self._is_kept(each, start) for each in (source, *(each for step in how for each in step[1:])))
        return _name(source) if kept and isinstance(source, Register) else None

    def _word(self, widening: int) -> tuple[Instruction | None, Operand | None, list[tuple[Operand | str, ...]], int]:
        """Return what made the word that an instruction widens, its register, the exchanges between, and its number."""
        how: list[tuple[Operand | str, ...]] = []
        reader = widening
        while True:
            word = self._operand(reader, 1)
            place = self._definition(word, reader)
            if place is None:
                return None, word, how, reader
            instruction = self.instructions[place]
            if not instruction.opcode.startswith("shfl.sync."):
                return instruction, word, how, place
            how.append((instruction.opcode, *instruction.operands[2:]))
            reader = place

    def _is_kept(self, operand: Operand | str, start: int) -> bool:
        """Return whether an operand is the same from an instruction to the end of its basic block."""
        if not isinstance(operand, Register):
            return isinstance(operand, Immediate)
        places = self.definitions.get(operand.name, ())
        return len(places) == 1 and (self.block[places[0]] != self.block[start] or places[0] < start)


def _name(operand: Operand | None) -> str:
    """Return the name of a register, and a name of none for another operand."""
    return operand.name if isinstance(operand, Register) else ""
