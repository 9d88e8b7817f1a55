"""What an architecture's mnemonics say of an instruction before it is run: where control goes, what it writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bitwise_core.asm import Instruction, Operand


@dataclass(frozen=True, slots=True)
class Accumulation:
    """A matrix instruction's results and the accumulators that enter it, element for element.

    `depth` is how many elements of k it adds.
    """

    results: Operand
    accumulators: Operand
    depth: int


def no_accumulation(instruction: Instruction) -> Accumulation | None:
    """For an architecture without matrix instructions."""
    return None


@dataclass(frozen=True, slots=True)
class Mnemonics:
    """What mnemonics say; a name is the part of a mnemonic in front of its first point.

    `branches` may go on at any label among their operands, and nothing else may; `ends` end the thread or return from
    a function; `calls` call the function among their operands.  What is not in `without_result` writes the registers
    of its first operand and reads those of the others, unless the mnemonic begins with one of `in_place`: that one
    reads its first operand as well.  `across_lanes` carry values from one thread to another.  `moves` copy their
    second operand.  `integers` work on integers, unless one of `float_types` is among the modifiers.
    `asynchronous` are beginnings of copies whose bytes arrive after their instruction.
    `accumulation` tells of a matrix instruction what it adds to (None: it is none).
    """

    branches: frozenset[str]
    ends: frozenset[str]
    calls: frozenset[str] = frozenset()
    without_result: frozenset[str] = frozenset()
    in_place: tuple[str, ...] = ()
    across_lanes: frozenset[str] = frozenset()
    moves: frozenset[str] = frozenset()
    integers: frozenset[str] = frozenset()
    float_types: frozenset[str] = frozenset()
    asynchronous: tuple[str, ...] = ()
    accumulation: Callable[[Instruction], Accumulation | None] = no_accumulation

    @property
    def leaving(self) -> frozenset[str]:
        """Instructions after which another one than the next may be run."""
        return self.branches | self.ends | self.calls


def root(instruction: Instruction) -> str:
    """The part of the mnemonic in front of its first point."""
    return instruction.opcode.split(".", 1)[0]
