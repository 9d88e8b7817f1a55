"""Instructions that an assembler may expand to branches between the lanes of a warp, and what is executed behind them.

ptxas gives exactly rounded quotients and roots, divisions of 64 bits, atomic operations that it builds from exchanges,
and copies by one lane a way of their own for some lanes.  The lanes join behind it by a convergence barrier, but no
document says so.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from bitwise_core.assembly.module import Immediate, Instruction, Kernel, Register, once_a_kernel
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.program import successors
from bitwise_nvidia_ptx.assembler_choices.found_numbers import found_numbers

_ROUNDINGS = frozenset(["rn", "rz", "rm", "rp"])


def may_branch(instruction: Instruction) -> bool:
    """Return whether an assembler may expand an instruction to branches between lanes."""
    root, *modifiers = instruction.opcode.split(".")
    if root in ("div", "rem", "sqrt", "rcp"):
        return not _ROUNDINGS.isdisjoint(modifiers) or modifiers[-1:] in (["u64"], ["s64"])
    return root in ("atom", "red", "call", "fns", "multimem") or instruction.opcode.startswith("cp.async.bulk")


def _joins_warps(instruction: Instruction, exchanges: frozenset[int]) -> bool:
    """Return whether the lanes of each warp execute an instruction together: a barrier of the block, or an exchange.

    `exchanges` are those that an assembler keeps.
    """
    root, *modifiers = instruction.opcode.split(".")
    if instruction.guard is not None:
        return False
    if root == "shfl":
        source, members = instruction.operands[1], instruction.operands[-1]
        everyone = isinstance(members, Immediate) and members.value & 0xFFFFFFFF == 0xFFFFFFFF
        return everyone and isinstance(source, Register) and id(instruction) in exchanges
    aligned = (root == "bar" and modifiers[:1] == ["sync"]) or (root == "barrier" and "aligned" in modifiers)
    return aligned and "warp" not in modifiers and len(instruction.operands) == 1


_EVERY_EFFECT = reduce(or_, Effect)
_ACTING = _EVERY_EFFECT ^ (Effect.CROSS_LANE | Effect.LOAD | Effect.MOVE | Effect.INTEGER | Effect.LANEWISE)
"""What an instruction may do for which an assembler keeps it where nothing needs its result."""


def _leaves_out(instruction: Instruction) -> bool:
    """Return whether the literals of an instruction may let it leave out an operand in a register."""
    root, sources = instruction.opcode.split(".", 1)[0], instruction.operands[1:]
    numbers = [each.value for each in sources if isinstance(each, Immediate)]
    if root in ("mad", "mul", "dp4a", "dp2a", "and"):
        return 0 in numbers
    # A selection by a literal: of bytes, bits or a side.
    return root in ("lop3", "bfi", "shf", "sad", "slct") or (root == "prmt" and bool(numbers))


@once_a_kernel
def kept_exchanges(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[int]:
    """Return the shuffles, by `id`, of which another instruction needs the result: ptxas leaves out all others.

    An instruction needs what it reads if it stores, branches, waits or has no result, or if another one needs its
    result, and may depend on what it reads.
    """
    instructions, infos = kernel.instructions, infos_of(kernel, opcodes)
    if not any(each.opcode.startswith("shfl.") for each in instructions):
        return frozenset()
    bit: dict[str, int] = {}
    facts: list[tuple[int, int, bool]] = []
    """The registers that each instruction reads and writes, and whether it is kept where nothing needs its result."""
    found = found_numbers(kernel, opcodes)
    for instruction, info in zip(instructions, infos, strict=True):
        # A guarded instruction reads what it writes, so that no register that it may leave as it is counts as replaced.
        reads = writes = 0
        for name in info.reads:
            reads |= bit.setdefault(name, 1 << len(bit))
        for name in info.writes:
            writes |= bit.setdefault(name, 1 << len(bit))
        acts = not writes or info.effects.overlaps(_ACTING)
        if not acts and (info.writes <= found or _leaves_out(instruction)):
            reads = 0
        facts.append((reads, writes, acts))
    following, count = successors(kernel, infos), len(instructions)
    needed, changed = [0] * (count + 1), True
    """The registers that are needed before each instruction, as the bits of an integer."""

    def after(index: int) -> int:
        return reduce(or_, (needed[each] for each in following[index] if 0 <= each < count), 0)

    while changed:
        changed, later = False, 0
        for index in range(count - 1, -1, -1):
            reads, writes, acts = facts[index]
            if following[index] != (index + 1,):
                later = after(index)
            if acts or writes & later:
                later = later & ~writes | reads
            if later != needed[index]:
                needed[index], changed = later, True
    return frozenset(
        id(each)
        for index, each in enumerate(instructions)
        if each.opcode.startswith("shfl.") and facts[index][1] & after(index)
    )


@once_a_kernel
def behind_expanded_branches(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[int]:
    """Return the instructions that may follow one that `may_branch` with none between that `joins_warps`.

    They are identified by `id`, since a line of the text may hold several.
    """
    work = [index for index, each in enumerate(kernel.instructions) if may_branch(each)]
    if not work:
        return frozenset()
    following = successors(kernel, infos_of(kernel, opcodes))
    exchanges = kept_exchanges(kernel, opcodes)
    found: set[int] = set()
    while work:
        for place in following[work.pop()]:
            if 0 <= place < len(kernel.instructions) and place not in found:
                found.add(place)
                if not _joins_warps(kernel.instructions[place], exchanges):
                    work.append(place)
    return frozenset(id(kernel.instructions[place]) for place in found)
