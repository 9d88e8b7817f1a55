"""Registers that the assembler may know: those computed from literals of the text alone.

The assembler evaluates an approximation of constants itself, and not to the bit as the machine would (a division by a
literal becomes a product with its correctly rounded reciprocal), so an approximation of such a register is
another operation than one of a register that holds the same number at run time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from bitwise_core.assembly.module import (
    Address,
    Immediate,
    Instruction,
    Kernel,
    Operand,
    Register,
    Symbol,
    once_a_kernel,
    registers_of,
)
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction, infos_of
from bitwise_core.execution.instruction_info import Effect

_RUN_TIME = Effect.LOAD | Effect.CROSS_LANE | Effect.CALL
"""What gives a value that no assembler knows."""


@once_a_kernel
def _classified_registers(kernel: Kernel, opcodes: OpcodeTable) -> tuple[frozenset[str], frozenset[str]]:
    """The registers of run time; and those of literals alone that are written more than once, or depend on such."""
    edges: list[tuple[frozenset[str], frozenset[str]]] = []
    found: set[str] = set()
    for instruction, info in zip(kernel.instructions, infos_of(kernel, opcodes), strict=True):
        if not info.writes:
            continue
        read = info.reads - info.writes
        symbols = any(not isinstance(each, Immediate) and not registers_of(each) for each in instruction.operands[1:])
        run_time = info.effects & _RUN_TIME or info.accumulation is not None
        if run_time or symbols or any(name.startswith(_SPECIAL) for name in read):
            found.update(info.writes)
        edges.append((info.writes, read))
    _propagate(edges, found)
    count = Counter(name for written, _ in edges for name in written)
    several = {name for name, times in count.items() if times > 1 and name not in found}
    _propagate(edges, several)
    return frozenset(found), frozenset(several - found)


def _propagate(edges: list[tuple[frozenset[str], frozenset[str]]], found: set[str]) -> None:
    """Adds whatever is computed from the registers in `found`."""
    changed = True
    while changed:
        changed = False
        for written, read in edges:
            if read & found and not written <= found:
                found.update(written)
                changed = True


_SPECIAL = (
    "%tid", "%ctaid", "%ntid", "%nctaid", "%laneid", "%warpid", "%nwarpid", "%clock", "%globaltimer", "%smid", "%nsmid",
    "%gridid", "%lanemask", "%cluster", "%nclusterid", "%is_explicit", "%envreg", "%dynamic", "%total", "%aggr",
)  # fmt: skip


@once_a_kernel
def _definitions(kernel: Kernel, opcodes: OpcodeTable) -> dict[str, list[int]]:
    """For each register, the places of the instructions that write it."""
    defined: dict[str, list[int]] = {}
    for index, info in enumerate(infos_of(kernel, opcodes)):
        for name in info.writes:
            defined.setdefault(name, []).append(index)
    return defined


@once_a_kernel
def _stores(kernel: Kernel) -> list[Instruction]:
    """The stores that a load from shared or local memory may read."""
    return [each for each in kernel.instructions if each.opcode.startswith("st.") and ".global" not in each.opcode]


def pointer_parameters(kernel: Kernel, register: str, opcodes: OpcodeTable) -> frozenset[str] | None:
    """The kernel parameters from which a pointer register is computed, or None where they cannot be told.

    Followed backwards through every instruction but loads from global memory: what is loaded there is no pointer of the
    launch (a table of pointers gives None).  A load from shared or local memory may give whatever is stored there.
    """
    defined, infos = _definitions(kernel, opcodes), infos_of(kernel, opcodes)
    found: set[str] = set()
    seen, stack = {register}, [register]

    def follow(names: Iterable[str]) -> None:
        for name in names:
            if name not in seen:
                seen.add(name)
                stack.append(name)

    while stack:
        for index in defined.get(stack.pop(), ()):
            instruction = kernel.instructions[index]
            parts = instruction.opcode.split(".")
            if parts[0] == "ld" and "param" in parts:
                source = instruction.operands[1]
                if not isinstance(source, Address) or not isinstance(source.base, Symbol):
                    return None
                found.add(source.base.name)
            elif Effect.LOAD in infos[index].effects:
                if not {"global", "const"} & set(parts):
                    for each in _stores(kernel):
                        follow(registers_of(*each.operands[1:]))
            else:
                follow(infos[index].reads - ({instruction.guard.register} if instruction.guard else set()))
    return frozenset(found) if found else None


def is_assembler_constant(operand: Operand, kernel: Kernel, opcodes: OpcodeTable) -> bool | None:
    """Whether the assembler knows the operand's value.

    None where that cannot be told: a register of literals alone that is written several times, as in a loop, which the
    assembler may or may not take apart.
    """
    if isinstance(operand, Immediate):
        return True
    if not isinstance(operand, Register):
        return False
    run_time, unclear = _classified_registers(kernel, opcodes)
    return None if operand.name in unclear else operand.name not in run_time


def literal_suffix(operand: Operand, context: Context, instruction: Instruction) -> str:
    """How the name of an approximation says that its operand is a literal.  Raises UnknownInstruction."""
    known = is_assembler_constant(operand, context.kernel, context.arch.opcodes)
    if known is None:
        raise UnknownInstruction(instruction, "approximates a number that the assembler may or may not know")
    return ".literal" if known else ""
