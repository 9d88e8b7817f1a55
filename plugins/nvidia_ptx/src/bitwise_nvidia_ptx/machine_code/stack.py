"""Words of the stack of a SASS function that are like registers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bitwise_nvidia_ptx.machine_code.registers import MachineFunction

STACK = "R1"
_STACK_PLACE = re.compile(r"\[R1(?:\+0x([0-9a-f]+))?\]")
_STACK_ACCESSES = {
    f"{opcode}{modifier}{width}": words
    for opcode, modifier in (("STL", ""), ("LDL", ""), ("LDL", ".LU"))
    for width, words in (("", 1), (".64", 2), (".128", 4))
}
"""How many words the instructions that access the stack store or load."""
_STACK_STARTS = frozenset({
    "LDC R1, c[0x0][0x28]", "MOV R1, c[0x0][0x28]", "IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28]"
})  # fmt: skip
"""The instructions that load the stack pointer."""


def is_on_stack(name: str) -> bool:
    """Return whether a name is that of a word of the stack."""
    return name.startswith("stack")


def stack_words(function: MachineFunction, starts: Mapping[int, int]) -> dict[int, tuple[str, ...]]:
    """Return the words of the stack that each instruction stores or loads, by its address.

    Nothing, unless the stack pointer is set once, at the start of the function, is read only by loads and stores of
    whole words at constant offsets from it, and there are no other accesses to local memory.  Then no other instruction
    has the address of a word, and the words are like registers.
    """
    found: dict[int, tuple[str, ...]] = {}
    first_block = min((address for address in starts if address), default=16 * len(function.instructions))
    for line in function.instructions:
        if line.opcode in ("STL", "LDL"):
            place = next((each for each in line.operands if each.startswith("[")), "")
            match, size = _STACK_PLACE.fullmatch(place), _STACK_ACCESSES.get(line.mnemonic)
            if match is None or size is None or int(match[1] or "0", 16) % 4 or STACK in line.writes:
                return {}
            if line.opcode == "STL" and STACK in line.operands[1:]:
                return {}
            offset = int(match[1] or "0", 16)
            found[line.address] = tuple(f"stack{offset + 4 * i}" for i in range(size))
        elif STACK in line.reads | line.writes:
            if found or line.guard is not None or line.address >= first_block or line.operands[0] != STACK:
                return {}
            moves = STACK in line.reads and re.fullmatch(r"(IADD3|VIADD) R1, R1, -?0x[0-9a-f]+(, RZ)?", line.text)
            sets = STACK not in line.reads and line.text in _STACK_STARTS
            if not moves and not sets:
                return {}
    return found
