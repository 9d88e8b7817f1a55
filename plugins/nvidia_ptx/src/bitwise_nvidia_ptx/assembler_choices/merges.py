"""Instructions that ptxas merges with those before them into one whose results differ for some operands.

ptxas replaces `rcp.approx.ftz(ex2.approx.ftz(x))` by the approximation of 2^-x, and a minimum with 1 that is followed
by a maximum with 0 by a saturating sum, which returns 0 for a NaN, and not 1.  Where it does so depends on what it
sees: not through shared memory, a shuffle, or a number that is a parameter.  So the result of such an instruction is
equal only to that of the same execution by the same thread of the same text.

The sequences were found by executing random programs with and without optimisation, and in the machine code of ptxas
12.8 and 12.9 for sm_90.  ptxas 12.6, 12.8, 12.9, 13.0 and 13.1 merge them alike, for sm_90 and sm_100.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from bitwise_core.assembly.module import Instruction, Kernel, Register, Vector, once_a_kernel
from bitwise_core.execution.architecture import Context, OpcodeTable, is_complete
from bitwise_core.execution.machine import Step
from bitwise_nvidia_ptx.assembler_choices.approximation_merges import approximation_merges
from bitwise_nvidia_ptx.assembler_choices.byte_conversions import conversions_of_bytes
from bitwise_nvidia_ptx.assembler_choices.extremum_merges import extremum_merges
from bitwise_nvidia_ptx.assembler_choices.integer_merges import integer_merges
from bitwise_nvidia_ptx.assembler_choices.literal_nans import literal_nan_merges
from bitwise_nvidia_ptx.assembler_choices.merge import Merge
from bitwise_nvidia_ptx.assembler_choices.merged_steps import apart
from bitwise_nvidia_ptx.assembler_choices.selection_merges import (
    choice,
    guard_merges,
    is_guarded_move,
    selection_merges,
)
from bitwise_nvidia_ptx.assembler_choices.short_merges import short_merges
from bitwise_nvidia_ptx.assembler_choices.sources import Sources
from bitwise_nvidia_ptx.assembler_choices.usual_operations import is_operation, unusual_operations

_FAMILIES = (
    approximation_merges, integer_merges, literal_nan_merges, short_merges, extremum_merges, selection_merges,
)  # fmt: skip
_BASES = frozenset(
    (
        "abs", "add", "bfe", "bfi", "bfind", "copysign", "cvt", "div", "fma", "lop3", "mad", "max", "min", "mov", "mul",
        "neg", "not", "rcp", "rem", "selp", "setp", "shl", "shr", "sub", "xor",
    )
)  # fmt: skip
"""The first words of opcodes on which a family has a rule."""


@once_a_kernel
def _merges(kernel: Kernel, opcodes: OpcodeTable) -> Mapping[int, tuple[Merge, ...]]:
    """Return what ptxas may merge, by the identity of the last instruction of each sequence."""
    if not is_complete(kernel, opcodes):
        return {}
    sources = _sources(kernel, opcodes)
    found: dict[int, tuple[Merge, ...]] = {}
    unusual = unusual_operations(kernel, opcodes)
    copied = frozenset(id(each) for each in kernel.instructions if _copies_signs(each, sources))
    of_bytes = conversions_of_bytes(kernel, opcodes, sources) if copied or unusual else frozenset()
    for sources.use, instruction in enumerate(kernel.instructions):
        if len(instruction.operands) > 1 and not is_guarded_move(instruction):
            families = _FAMILIES if _has_rules(instruction.opcode) else ()
            merges = [each for family in families for each in family(instruction, sources)]
            if id(instruction) not in of_bytes:
                merges += _of_unusual(instruction, sources, unusual)
                merges += _of_copied_signs(instruction, sources, copied)
            if merges:
                found[id(instruction)] = tuple(dict.fromkeys(merges))
    return found


@lru_cache(maxsize=1024)
def _has_rules(opcode: str) -> bool:
    """Return whether a family may have a rule on an opcode."""
    return opcode.split(".", 1)[0] in _BASES


def _of_unusual(instruction: Instruction, sources: Sources, unusual: frozenset[int]) -> Iterator[Merge]:
    """Yield a merge of an operation that compilers do not use and one that it reads, that reads it or takes it apart.

    `unusual`: the identities of all of them.  A guard is a selection between what the instruction and an earlier one
    have written.
    """
    opcode, guard, operands = instruction.opcode, instruction.guard, instruction.operands
    takes_apart = isinstance(operands[0], Vector)
    if not unusual or not (is_operation(opcode) or takes_apart or (guard is not None and opcode.startswith("mov."))):
        return
    read = operands[1:] if guard is None else (*operands, Register(guard.register))
    every = id(instruction) in unusual
    for operand in read:
        for each in sources.of(operand):
            if each is not instruction and (is_operation(each.opcode) if every else id(each) in unusual):
                yield Merge("two operations, one of which compilers do not use")
                return


def _copies_signs(instruction: Instruction, sources: Sources) -> bool:
    """Return whether a permutation of bytes by a literal copies the sign of one to all bits of another one."""
    return instruction.opcode == "prmt.b32" and sources.may_be(
        instruction.operands[-1], lambda number: bool(number & 0x8888), instruction
    )


def _of_copied_signs(instruction: Instruction, sources: Sources, copied: frozenset[int]) -> Iterator[Merge]:
    """Yield a merge of an operation on a permutation that copies signs.

    ptxas takes copied bits for zeros under a mask.
    """
    if not copied or not (is_operation(instruction.opcode) or isinstance(instruction.operands[0], Vector)):
        return
    for operand in choice(instruction, sources):
        for each in sources.of(operand):
            if each is not instruction and id(each) in copied:
                yield Merge("an operation with a permutation of bytes that copies signs")
                return


@once_a_kernel
def _selections(kernel: Kernel, opcodes: OpcodeTable) -> Mapping[int, tuple[Merge, ...]]:
    """Return what ptxas may merge with an instruction under a guard, where the guard makes it a selection."""
    if not is_complete(kernel, opcodes):
        return {}
    sources = _sources(kernel, opcodes)
    found: dict[int, tuple[Merge, ...]] = {}
    unusual = unusual_operations(kernel, opcodes)
    for sources.use, instruction in enumerate(kernel.instructions):
        if instruction.guard is not None and len(instruction.operands) > 1:
            merges = *_of_unusual(instruction, sources, unusual), *guard_merges(instruction, sources)
            if merges:
                found[id(instruction)] = tuple(dict.fromkeys(merges))
    return found


@once_a_kernel
def _sources(kernel: Kernel, opcodes: OpcodeTable) -> Sources:
    return Sources(kernel, opcodes)


def unless_merged(step: Step, instruction: Instruction, context: Context) -> Step:
    """Return the step of an instruction, whose result is one of this text where ptxas may merge it with others.

    An execution on bit patterns has a note.  Raises Unsupported in other analyses than the one of terms.
    """
    merges = _merges(context.kernel, context.arch.opcodes).get(id(instruction), ())
    return apart(merges, step, instruction, context)


def unless_selected(step: Step, instruction: Instruction, context: Context) -> Step:
    """Return the step of an instruction with its guard, as `unless_merged` does, where that selects."""
    merges = _selections(context.kernel, context.arch.opcodes).get(id(instruction), ())
    return apart(merges, step, instruction, context)
