"""What PTX mnemonics say of an instruction before it is run."""

from __future__ import annotations

import re

from bitwise_core.asm import Instruction
from bitwise_core.machine.mnemonics import Accumulation, Mnemonics, root

_DEPTH = re.compile(r"\.m\d+n\d+k(\d+)\.")


def depth(opcode: str) -> int:
    """The k of a matrix instruction's shape (0: it names none)."""
    found = _DEPTH.search(opcode)
    return int(found[1]) if found else 0


def accumulation(instruction: Instruction) -> Accumulation | None:
    """mma.sync adds its products to its fourth operand."""
    if root(instruction) != "mma":
        return None
    return Accumulation(instruction.operands[0], instruction.operands[3], depth(instruction.opcode))


MNEMONICS = Mnemonics(
    branches=frozenset({"bra", "brx"}),
    ends=frozenset({"ret", "exit", "trap"}),
    calls=frozenset({"call"}),
    without_result=frozenset({
        "st", "red", "bar", "barrier", "bra", "ret", "exit", "cp", "fence", "membar", "prefetch", "prefetchu",
        "stmatrix", "trap", "nanosleep", "griddepcontrol", "discard",
    }),
    across_lanes=frozenset({
        "shfl", "redux", "vote", "match", "ldmatrix", "stmatrix", "st", "red", "atom", "cp", "call",
    }),
    moves=frozenset({"mov"}),
    integers=frozenset({
        "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "not", "neg", "min", "max", "setp", "selp",
        "mov", "cvt", "cvta", "bfe", "bfi", "div", "rem", "lop3", "abs", "shf",
    }),
    float_types=frozenset({"f16", "f32", "f64", "bf16", "f16x2", "bf16x2", "e4m3x2", "e5m2x2"}),
    asynchronous=("cp.async",),
    accumulation=accumulation,
)  # fmt: skip
