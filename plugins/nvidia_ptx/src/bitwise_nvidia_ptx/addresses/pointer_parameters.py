"""The kernel parameters from which a pointer register is computed."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_core.assembly.module import Address, Instruction, Kernel, Symbol, once_a_kernel, registers_of
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_core.execution.instruction_info import Effect


@once_a_kernel
def _definitions(kernel: Kernel, opcodes: OpcodeTable) -> dict[str, list[int]]:
    """Return, for each register, the indices of the instructions that write it."""
    defined: dict[str, list[int]] = {}
    for index, info in enumerate(infos_of(kernel, opcodes)):
        for name in info.writes:
            defined.setdefault(name, []).append(index)
    return defined


@once_a_kernel
def _stores(kernel: Kernel) -> list[Instruction]:
    """Return the stores from which a load of shared or local memory may read."""
    return [each for each in kernel.instructions if each.opcode.startswith("st.") and ".global" not in each.opcode]


def pointer_parameters(kernel: Kernel, register: str, opcodes: OpcodeTable) -> frozenset[str] | None:
    """Return the kernel parameters from which a pointer register is computed, or None if they are unknown.

    The definitions are followed backwards through every instruction except loads from global memory: a value loaded
    from there is not a pointer of the launch (a table of pointers gives None).  A load from shared or local memory may
    return any value stored there.
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
