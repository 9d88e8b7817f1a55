"""Instructions that store the address of an array as a number, which the assembler and the driver choose.

In an analysis, arrays in shared, local, constant and global memory follow each other.  An assembler leaves out arrays
that nothing uses and places them as it likes.  An address may select what is accessed in shared and local memory, and
it may be moved, compared and packed into a descriptor for that.  Where what is computed from it, by moves, arithmetic,
comparisons and selections, is stored in global or shared memory, is given to a function, contributes to an atomic
operation, or is a part of an address of global memory, it is a number of this program alone: the assembler places the
arrays of one text in one way.  Branches on addresses are not followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bitwise_core.assembly.module import Address, Instruction, Kernel, Symbol, once_a_kernel, program_digest
from bitwise_core.assembly.module import registers_of as registers_in
from bitwise_core.execution.architecture import Context, OpcodeTable
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.opcode_steps import step_with_registers
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Value, width
from bitwise_core.execution.values.term_hash import term
from bitwise_nvidia_ptx.addresses.numbers import Flow, definitions_in_block, flow_of
from bitwise_nvidia_ptx.addresses.spaces import may_be_local

REASON = "the address of an array, which the assembler chooses, is stored or selects global memory"

_STORES = frozenset({"st", "red", "atom"})
_NO_ARRAYS = frozenset[str]()
_ENDS = Effect.BRANCH | Effect.CALL | Effect.END
_NOT_COMPUTED = frozenset(
    {
        "ldmatrix",
        "mma",
        "wgmma",
        "tcgen05",
        "cp",
        "mbarrier",
        "ld",
        "ldu",
        "atom",
        "red",
        "tensormap",
        "call",
        "prefetch",
    }
)
"""Opcodes whose results are no functions of the numbers of their operands, which are addresses."""


def storing_addresses(step: Step, instruction: Instruction, context: Context) -> Step:
    """Return the step of an instruction, for which numbers from addresses of arrays are those of the program.

    Raises Unsupported in a pass over the addresses of a large grid.
    """
    module = context.module
    named = module.constants or module.globals
    in_global = frozenset(each.name for each in (*module.constants, *module.globals)) if named else _NO_ARRAYS
    names = _stored(context.kernel, context.arch.opcodes, in_global).get(id(instruction))
    if names is None:
        return step
    line, name = instruction.line, f"a number from addresses of arrays of {program_digest(module, context.kernel)}"

    def run(machine: Machine) -> Control | None:
        domain = machine.domain
        if domain.name == "addresses":
            raise Unsupported(REASON, line)
        if domain.name == "bits":
            return step(machine)

        def of_program(_: str, value: Value) -> Value:
            return term(
                width(value), name, [as_symbolic_vector(value)], L.INTEGER, exact=True, recorder=domain.recorder
            )

        return step_with_registers(step, names, machine, of_program)

    return run


@once_a_kernel
def _stored(kernel: Kernel, opcodes: OpcodeTable, in_global: frozenset[str]) -> Mapping[int, frozenset[str]]:
    """Return the instructions that store addresses of arrays, by identity, with the registers that hold them.

    `in_global` are the arrays whose addresses are those of global memory.
    """
    if not any(_names_array(each, frozenset()) for each in kernel.instructions):
        return {}
    flow = flow_of(kernel, opcodes)
    in_block = definitions_in_block(flow, kernel)
    of_all = _held(flow, in_block, frozenset())
    of_own = _held(flow, in_block, in_global) if in_global else of_all
    found: dict[int, frozenset[str]] = {}
    for index, (held, own) in enumerate(zip(of_all, of_own, strict=True)):
        stored, selecting = _numbers_and_addresses(kernel.instructions[index])
        names = frozenset(stored & held | selecting & own)
        if names:
            found[id(kernel.instructions[index])] = names
    return found


def _held(flow: Flow, in_block: Sequence[Mapping[str, int]], excepted: frozenset[str]) -> list[set[str]]:
    """Return for each instruction what it reads that is computed from addresses of arrays, but for some arrays."""
    held: list[set[str]] = [set() for _ in flow.instructions]
    work = [index for index, each in enumerate(flow.instructions) if _names_array(each, excepted)]
    made: set[int] = set()
    in_local = False
    while work:
        index = work.pop()
        instruction, info = flow.instructions[index], flow.infos[index]
        base, *parts = instruction.opcode.split(".")
        if base == "st" and may_be_local(parts):
            if not in_local and not held[index].isdisjoint(registers_in(*instruction.operands[1:])):
                in_local = True
                work += [place for place, each in enumerate(flow.instructions) if _loads_locally(each)]
        elif index not in made and (
            (_loads_locally(instruction) and in_local) or not (base in _NOT_COMPUTED or info.effects.overlaps(_ENDS))
        ):
            made.add(index)
            for name in info.writes:
                for use in flow.uses.get(name, ()):
                    if in_block[use].get(name, index) == index:
                        held[use].add(name)
                        work.append(use)
    return held


def _loads_locally(instruction: Instruction) -> bool:
    base, *parts = instruction.opcode.split(".")
    return base == "ld" and may_be_local(parts)


def _names_array(instruction: Instruction, excepted: frozenset[str]) -> bool:
    return any(isinstance(each, Symbol) and each.name not in excepted for each in instruction.operands[1:])


def _numbers_and_addresses(instruction: Instruction) -> tuple[set[str], set[str]]:
    """Return the registers whose numbers an instruction stores, and those of its addresses of global memory."""
    base, *parts = instruction.opcode.split(".")
    stored: set[str] = set()
    selecting: set[str] = set()
    if base in (*_STORES, "ld", "ldu"):
        for place, operand in enumerate(instruction.operands):
            if isinstance(operand, Address):
                selecting.update(registers_in(operand) if "global" in parts else ())
            elif base in _STORES and "local" not in parts and (place or base != "atom"):
                stored.update(registers_in(operand))
    return stored, selecting
