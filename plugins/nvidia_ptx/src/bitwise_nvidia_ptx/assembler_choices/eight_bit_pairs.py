"""Conversions to pairs of numbers of 8 bits that ptxas joins with the pair of 16 bits whose lower half they are.

The machine instruction `F2FP...PACK_AB_MERGE_C d, a, b, c` converts a pair to the lower half of a register and takes
the upper half from `c`.  ptxas 12.8 and 12.9 make one of a conversion and `mov.b32 {low, high}` in the same basic
block, also of a vector of 16-bit numbers that is stored, and execute it where the pair is.  Whatever reads the result
of the conversion before that finds a register that nothing has written: another store, or the upper half itself where
it depends on the result.  ptxas 13.0 joins only conversions that nothing else reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bitwise_core.assembly.module import Instruction, Kernel, Operand, Register, Vector, once_a_kernel
from bitwise_core.assembly.module import registers_of as registers_in
from bitwise_core.execution.architecture import OpcodeTable
from bitwise_nvidia_ptx.addresses.numbers import Flow, flow_of

_TO_PAIR = re.compile(r"cvt\.[\w.]*?(e[2345]m[23]|ue8m0)x2\.(f32|b?f16x2)")
"""The conversions whose result is a pair of 16 bits."""
_STORES = ("st", "red", "atom", "multimem")
_TYPE_OF_16_BITS = re.compile(r"\.(b|u|s|f|bf)16$")


@once_a_kernel
def joined_conversions(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[int]:
    """Return the conversions, by identity, whose result something may read before ptxas has computed it."""
    found = [index for index, each in enumerate(kernel.instructions) if _TO_PAIR.fullmatch(each.opcode) is not None]
    if not found:
        return frozenset()
    return _Pairs(kernel, flow_of(kernel, opcodes)).joined(found)


class _Pairs:
    """The pairs of a kernel, and the copies of its registers."""

    def __init__(self, kernel: Kernel, flow: Flow) -> None:
        self.instructions = kernel.instructions
        self.flow = flow
        self._copies: dict[str, list[str]] = {}
        """The registers to which a register is copied."""
        self._copying: dict[int, frozenset[str]] = {}
        """The instructions that copy, by number, with the registers that they only copy."""
        self._unpacking: set[int] = set()
        """The instructions, by number, each of whose results is a copy of what was packed to its place."""
        for index, each in enumerate(kernel.instructions):
            self._note_copies(index, each)
        self._numbers: dict[str, object] = {}

    def _note_copies(self, index: int, instruction: Instruction) -> None:
        if not instruction.opcode.startswith("mov.") or len(instruction.operands) != 2:
            return
        target, source = instruction.operands
        if isinstance(target, Register) and isinstance(source, Register):
            self._copy(index, source.name, target.name)
            return
        packed = self._packed(source) if isinstance(target, Vector) and isinstance(source, Register) else None
        if packed is None or not isinstance(target, Vector) or len(packed.items) != len(target.items):
            return
        self._unpacking.add(index)
        for one, other in zip(packed.items, target.items, strict=True):
            if isinstance(one, Register) and isinstance(other, Register):
                self._copy(None, one.name, other.name)

    def _copy(self, index: int | None, source: str, target: str) -> None:
        self._copies.setdefault(source, []).append(target)
        if index is not None:
            self._copying[index] = frozenset({source})

    def _packed(self, operand: Operand) -> Vector | None:
        """Return the vector that is packed to a register by its only definition."""
        definition = self._definition(operand.name) if isinstance(operand, Register) else None
        if definition is None:
            return None
        instruction = self.instructions[definition]
        source = instruction.operands[1] if len(instruction.operands) == 2 else None
        return source if instruction.opcode.startswith("mov.") and isinstance(source, Vector) else None

    def _definition(self, name: str) -> int | None:
        """Return the only definition of a register, if it has no guard."""
        definitions = self.flow.definitions.get(name, [])
        found = definitions[0] if len(definitions) == 1 else None
        return None if found is None or self.instructions[found].guard is not None else found

    def joined(self, conversions: list[int]) -> frozenset[int]:
        """Return which of these conversions are joined behind something that reads them, by identity."""
        groups: dict[object, list[int]] = {}
        for index in conversions:
            groups.setdefault(self._number_of(index), []).append(index)
        return frozenset(
            id(self.instructions[index]) for group in groups.values() if self._is_early(group) for index in group
        )

    def _is_early(self, conversions: list[int]) -> bool:
        """Return whether something may read the common result of some conversions before the last pair on it."""
        same = self._reached({each for index in conversions for each in self.flow.infos[index].writes}, self._copies)
        users = sorted({index for name in same for index in self.flow.uses.get(name, ())})
        halves = {index: _halves(self.instructions[index]) for index in users}
        pairs = [index for index in users if not same.isdisjoint(halves[index][0])]
        if not pairs:
            return False
        dependent = self._dependent(same)
        if any(not dependent.isdisjoint(halves[index][1]) for index in pairs):
            return True
        others = [index for index in users if index not in pairs and same.isdisjoint(self._copying.get(index, ()))]
        guarded = any(self.instructions[index].guard is not None for index in pairs)
        return any(guarded or index < pairs[-1] for index in others)

    def _dependent(self, same: set[str]) -> set[str]:
        """Return the registers that may depend on these."""
        found, work = set(same), list(same)
        while work:
            name = work.pop()
            users = (index for index in self.flow.uses.get(name, ()) if index not in self._unpacking)
            made = {each for index in users for each in self.flow.infos[index].writes}
            fresh = made.union(self._copies.get(name, ())) - found
            found |= fresh
            work += fresh
        return found

    @staticmethod
    def _reached(names: set[str], edges: Mapping[str, list[str]]) -> set[str]:
        found, work = set(names), list(names)
        while work:
            fresh = [each for each in edges.get(work.pop(), ()) if each not in found]
            found.update(fresh)
            work += fresh
        return found

    def _number_of(self, index: int) -> object:
        """Return what the assembler may take an instruction's result for: equal for equal instructions on equals."""
        instruction = self.instructions[index]
        return instruction.opcode, tuple(self._number(each) for each in instruction.operands[1:])

    def _number(self, operand: Operand) -> object:
        """Return the number of an operand.  Registers with one definition have that of its instruction."""
        if not isinstance(operand, Register):
            return repr(operand)
        work, begun = [operand.name], set[str]()
        while work:
            name = work[-1]
            definition = None if name in self._numbers else self._definition(name)
            if definition is None:
                self._numbers.setdefault(name, name)
                work.pop()
                continue
            instruction = self.instructions[definition]
            read = sorted(self.flow.infos[definition].reads)
            if name not in begun:
                begun.add(name)
                work += [each for each in read if each not in self._numbers and each not in begun]
                continue
            numbers = tuple(self._numbers.get(each, each) for each in read)
            place = [name in registers_in(each) for each in _items(instruction.operands[0])]
            text = [repr(each) for each in instruction.operands[1:] if not registers_in(each)]
            shape = [[read.index(name) for name in registers_in(each)] for each in instruction.operands[1:]]
            self._numbers[name] = hash((instruction.opcode, numbers, tuple(place), tuple(text), str(shape)))
            work.pop()
        return self._numbers[operand.name]


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _halves(instruction: Instruction) -> tuple[set[str], set[str]]:
    """Return the registers of the lower and of the upper halves of the words that an instruction makes of pairs."""
    base = instruction.opcode.split(".", 1)[0]
    if base == "mov":
        vectors = [each for each in instruction.operands[1:] if isinstance(each, Vector)]
        narrow = instruction.opcode.endswith("32") and all(len(each.items) == 2 for each in vectors)
        wide = instruction.opcode.endswith("64") and all(len(each.items) == 4 for each in vectors)
        vectors = vectors if narrow or wide else []
    else:
        of_pairs = base in _STORES and _TYPE_OF_16_BITS.search(instruction.opcode) is not None
        vectors = [each for each in instruction.operands if isinstance(each, Vector)] if of_pairs else []
    lower = {name for each in vectors for item in each.items[::2] for name in registers_in(item)}
    upper = {name for each in vectors for item in each.items[1::2] for name in registers_in(item)}
    return lower, upper
