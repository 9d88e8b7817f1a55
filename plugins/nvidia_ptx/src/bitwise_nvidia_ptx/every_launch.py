"""What a reading of PTX for every launch needs beside the meaning of each instruction."""

from __future__ import annotations

from bitwise_core.asm import Instruction, Kernel, Register, Symbol, registers_of

_FIXED = ("%tid", "%ctaid", "%ntid", "%nctaid", "%laneid", "%warpid", "%nwarpid", "%lanemask", "WARP_SZ", "%cluster")
"""Beginnings of special registers that the launch fixes (those of clusters are 0 or 1 without clusters)."""

OF_GRID = frozenset(f"{name}.{axis}" for name in ("%clusterid", "%nclusterid") for axis in "xyz")


def fixed(register: str) -> bool:
    """Whether a launch fixes a special register."""
    return register.startswith(_FIXED)


def undetermined(instruction: Instruction, kernel: Kernel) -> str | None:
    """Why the result of an atomic operation or of a strong load may depend on the order of threads."""
    parts = instruction.opcode.split(".")
    if parts[0] in ("atom", "red") and "shared" not in parts:
        kind = parts[-1]
        floats = kind.startswith(("f", "bf")) and "add" in parts
        if parts[0] == "atom" and not _unused(instruction, kernel):
            return "an atomic operation gives back a value that depends on the order of threads"
        if floats or {"exch", "cas", "inc", "dec"} & set(parts):
            return "an atomic operation's result depends on the order of threads"
    if parts[0] == "ld" and {"acquire", "relaxed", "volatile"} & set(parts) and "shared" not in parts:
        return "memory is read that other blocks may be writing"
    return None


def _unused(instruction: Instruction, kernel: Kernel) -> bool:
    destination = instruction.operands[0]
    name = destination.name if isinstance(destination, Register | Symbol) else ""
    if name == "_":
        return True
    return not any(
        name in registers_of(operand)
        for other in kernel.instructions
        for operand in (other.operands if other is not instruction else other.operands[1:])
    )
