"""Registers whose values the assembler may know, so that it evaluates approximate instructions on them itself.

The assembler folds an approximate instruction of constants, and its result can differ from the machine's: a division by
a literal becomes a product with the correctly rounded reciprocal.  So an approximation of such a register is a
different operation from one of a register that holds the same number at run time.

The assembler knows what simple instructions compute from literals.  It does not know a number that is loaded, and what
sums and products with it are.  Of all other registers it may or may not know a number that is the same in all threads:
ptxas passes literals through shuffles and local memory, evaluates `x & 0` and not `x - x`, and a sum of literals and
not a fused product of them.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping
from itertools import combinations

import numpy as np

from bitwise_core.assembly.module import (
    Immediate,
    Instruction,
    Kernel,
    Operand,
    Register,
    once_a_kernel,
    program_digest,
    registers_of,
)
from bitwise_core.execution.architecture import Context, OpcodeTable, infos_of
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Value, constant_mask
from bitwise_core.execution.values.term_hash import term
from bitwise_nvidia_ptx.addresses.spaces import may_be_local
from bitwise_nvidia_ptx.assembler_choices.possible_numbers import Numbers, may_be_found, possible_numbers
from bitwise_nvidia_ptx.special_register_names import SPECIAL_REGISTERS

_UNCLEAR = "approximates a number that the assembler may or may not know"

_FOLDED = re.compile(
    r"mov\.[bfsu]\d+|(neg|abs)\.f32|(add|sub|mul)(\.rn)?\.f32|(add|sub|mul\.lo|mad\.lo)\.[su]32|(shl|and|or)\.b32"
    r"|cvt\.rn\.f32\.[su]32|cvt\.f32\.b?f16|cvt\.rn\.b?f16\.f32"
)
"""Instructions that ptxas evaluates on literals."""

_PASSED_ON = frozenset({"mov", "cvt", "neg", "abs", "add", "sub", "mul", "mad", "fma", "shfl"})
"""Opcodes whose result has no number that follows from the text, if one of their operands has none."""

_INTEGER_SUMS = frozenset({"add", "sub", "mul", "mad"})

_RUN_TIME = Effect.LOAD | Effect.CROSS_LANE | Effect.CALL
"""The effects of instructions whose results the assembler cannot know."""


@once_a_kernel
def _classified_registers(kernel: Kernel, opcodes: OpcodeTable) -> tuple[frozenset[str], frozenset[str]]:
    """Return the registers whose values are unknown before run time, and those that the assembler may or may not know.

    The latter are computed from literals only, but are written more than once or depend on such a register.
    """
    edges: list[tuple[frozenset[str], frozenset[str]]] = []
    found: set[str] = set()
    for instruction, info in zip(kernel.instructions, infos_of(kernel, opcodes), strict=True):
        if not info.writes:
            continue
        read = info.reads - info.writes
        symbols = any(not isinstance(each, Immediate) and not registers_of(each) for each in instruction.operands[1:])
        run_time = info.effects.overlaps(_RUN_TIME) or info.accumulation is not None
        if run_time or symbols or not SPECIAL_REGISTERS.isdisjoint(read):
            found.update(info.writes)
        edges.append((info.writes, read))
    _propagate(edges, found)
    count = Counter(name for written, _ in edges for name in written)
    several = {name for name, times in count.items() if times > 1 and name not in found}
    _propagate(edges, several)
    return frozenset(found), frozenset(several - found)


def _propagate(edges: list[tuple[frozenset[str], frozenset[str]]], found: set[str]) -> None:
    """Add to `found` every register that is computed from a register in it."""
    changed = True
    while changed:
        changed = False
        for written, read in edges:
            if read & found and not written <= found:
                found.update(written)
                changed = True


@once_a_kernel
def _definitions(
    kernel: Kernel, opcodes: OpcodeTable
) -> tuple[Mapping[str, list[Instruction]], Mapping[str, set[str]]]:
    """Return the instructions that write each register, and the registers that are computed from each."""
    definitions: dict[str, list[Instruction]] = {}
    readers: dict[str, set[str]] = {}
    for instruction, info in zip(kernel.instructions, infos_of(kernel, opcodes), strict=True):
        for name in info.writes:
            definitions.setdefault(name, []).append(instruction)
        for each in registers_of(*instruction.operands[1:]) if info.writes else ():
            readers.setdefault(each, set()).update(info.writes)
    return definitions, readers


@once_a_kernel
def _literal_registers(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[str]:
    """Return the registers that the assembler certainly evaluates."""
    definitions, readers = _definitions(kernel, opcodes)
    once = {name: each[0] for name, each in definitions.items() if len(each) == 1 and _may_be_folded(each[0])}
    literal: set[str] = set()
    pending = list(once)
    while pending:
        name = pending.pop()
        if name not in literal and _reads_literals(once[name], literal):
            literal.add(name)
            pending += readers.get(name, frozenset()) & once.keys()
    return frozenset(literal)


@once_a_kernel
def _run_time_registers(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[str]:
    """Return the registers whose numbers the assembler cannot know."""
    definitions, readers = _definitions(kernel, opcodes)
    literal = _literal_registers(kernel, opcodes)
    run_time = set(definitions)  # as far as nothing speaks against it: a register may be computed from itself
    pending = list(definitions)
    while pending:
        name = pending.pop()
        if name in run_time and not all(
            _is_unknown(each, kernel, opcodes, run_time, literal) for each in definitions[name]
        ):
            run_time.discard(name)
            pending += readers.get(name, frozenset()) & run_time
    return frozenset(run_time)


def _may_be_folded(instruction: Instruction) -> bool:
    """Return whether ptxas evaluates an instruction if all that it reads are literals."""
    return instruction.guard is None and _FOLDED.fullmatch(instruction.opcode) is not None


def _reads_literals(instruction: Instruction, literal: set[str]) -> bool:
    """Return whether all that an instruction reads are literals, in its text or in registers."""
    return all(
        isinstance(each, Immediate) or (isinstance(each, Register) and each.name in literal)
        for each in instruction.operands[1:]
    )


def _is_unknown(
    instruction: Instruction, kernel: Kernel, opcodes: OpcodeTable, run_time: set[str], literal: frozenset[str]
) -> bool:
    """Return whether an instruction loads its result, or moves, adds or multiplies what is loaded."""
    base, *parts = instruction.opcode.split(".")
    if base in ("ld", "ldu"):
        return not may_be_local(parts) and "const" not in parts and ("param" not in parts or kernel.entry)
    if base not in _PASSED_ON or "sat" in parts:
        return False
    sources = instruction.operands[1:2] if base == "shfl" else instruction.operands[1:]
    names = [each.name for each in sources if isinstance(each, Register)]
    numbers = [each.value for each in sources if isinstance(each, Immediate)]
    scaled = base in ("mul", "mad", "fma")
    plain = len(names) + len(numbers) == len(sources) and len(set(names)) == len(names)
    # A literal in a register may be 0, which leaves nothing of a product.
    loaded = names if scaled else [each for each in names if each not in literal]
    if not plain or not loaded or not run_time.issuperset(loaded) or (scaled and any(not each for each in numbers)):
        return False
    if base not in _INTEGER_SUMS or parts[-1][0] not in "su":
        return True
    # An even factor and the upper half of a product may leave none of the loaded bits; a sum, what its difference adds.
    vanishes = "hi" in parts or (scaled and any(not each & 1 for each in numbers))
    return not vanishes and not _share_loads(names, kernel, opcodes)


@once_a_kernel
def _loads_below(kernel: Kernel, opcodes: OpcodeTable) -> Mapping[str, int]:
    """Return which loaded registers each register is computed from by moves, sums and products, as a set of bits."""
    definitions, readers = _definitions(kernel, opcodes)
    below: dict[str, tuple[int, set[str]]] = {}
    for place, (name, made) in enumerate(definitions.items()):
        passing = [each for each in made if each.opcode.split(".", 1)[0] in _PASSED_ON]
        read = {source for each in passing for source in registers_of(*each.operands[1:])}
        below[name] = (0 if len(passing) == len(made) else 1 << place), read
    found = dict.fromkeys(definitions, 0)
    pending, queued = deque(definitions), set(definitions)
    while pending:
        name = pending.popleft()
        queued.remove(name)
        loads, read = below[name]
        for source in read:
            loads |= found.get(source, 0)
        if loads != found[name]:
            found[name] = loads
            fresh = readers.get(name, set()) - queued
            queued |= fresh
            pending += fresh
    return found


def _share_loads(names: list[str], kernel: Kernel, opcodes: OpcodeTable) -> bool:
    """Return whether two of some registers are computed from one loaded number."""
    below = [_loads_below(kernel, opcodes).get(name, 0) for name in names] if len(names) > 1 else []
    return any(one & other for one, other in combinations(below, 2))


def is_assembler_constant(operand: Operand, kernel: Kernel, opcodes: OpcodeTable) -> bool | None:
    """Return whether the assembler knows the operand's value.

    None if that is unknown: a register that is computed from literals and written several times, as in a loop that the
    assembler may or may not unroll.
    """
    if isinstance(operand, Immediate):
        return True
    if not isinstance(operand, Register):
        return False
    if operand.name in _literal_registers(kernel, opcodes):
        return True
    run_time, unclear = _classified_registers(kernel, opcodes)
    return None if operand.name in unclear or operand.name not in run_time else False


def may_be_constant(operand: Operand, kernel: Kernel, opcodes: OpcodeTable) -> bool:
    """Return whether the assembler may know the number of an operand that is computed from others than literals."""
    return not (isinstance(operand, Register) and operand.name in _run_time_registers(kernel, opcodes))


@once_a_kernel
def _possible_numbers(kernel: Kernel, opcodes: OpcodeTable) -> Mapping[str, Numbers]:
    """Return the numbers that the assembler may find in each register."""
    return possible_numbers(kernel, _run_time_registers(kernel, opcodes), _definitions(kernel, opcodes)[0])


_MAY_BE_GUARDED = frozenset({"bra", "ld", "ldu", "st", "red", "atom", "cp", "mbarrier", "prefetch", "fence"})
"""The instructions for whose guards an assembler makes no copies of the code behind them."""


@once_a_kernel
def _chosen_registers(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[str] | None:
    """Return the registers whose computation a predicate may choose between threads that take the same branches.

    None where any register may be one: an instruction has a guard for which an assembler may copy the code behind it.
    """
    found: set[str] = set()
    edges: list[tuple[frozenset[str], frozenset[str]]] = []
    for instruction, info in zip(kernel.instructions, infos_of(kernel, opcodes), strict=True):
        base = instruction.opcode.split(".", 1)[0]
        if instruction.guard is not None and base not in _MAY_BE_GUARDED:
            return None
        if instruction.guard is not None or base in ("selp", "slct"):
            found.update(info.writes)
        edges.append((info.writes, info.reads - info.writes))
    _propagate(edges, found)
    return frozenset(found)


def _is_one_computation(instruction: Instruction, context: Context, operand: Operand | None) -> bool:
    """Return whether threads that take the same branches compute a number by the same instructions.

    The number is the `operand` of an instruction, None: each of its operands.
    """
    chosen = _chosen_registers(context.kernel, context.arch.opcodes)
    operands = instruction.operands[1:] if operand is None else (operand,)
    return chosen is not None and chosen.isdisjoint(registers_of(*operands))


def literal_suffix(known: bool | None) -> str:
    """Return the part of an approximation's name that says whether its operand is a literal: ".literal" or "".

    `known` is what `is_assembler_constant` returns of the operand.
    """
    return ".literal" if known else ""


def of_this_text(step: Step, instruction: Instruction, context: Context, operand: Operand | None = None) -> Step:
    """Return a step whose result is equal to none but that of the same execution of the same text.

    It is for an approximation of a number that the assembler may or may not know: whether it evaluates the instruction
    itself may differ between the copies that it makes of a loop, so the result of each execution in each thread is a
    number of its own.  The same text is assembled to the same copies.  The threads of a block that have taken the same
    branches execute the same copy: where they compute the number by the same instructions, they have one result.

    With an `operand`, this holds only where it is one number in all threads, for which the result is no number, and one
    that the assembler may find (`possible_numbers`).
    """
    destination = instruction.operands[0]
    assert isinstance(destination, Register)
    program = program_digest(context.module, context.kernel)
    name = f"{instruction.opcode} at line {instruction.line} of {program}"
    together = _is_one_computation(instruction, context, operand)
    possible: Numbers = None
    if isinstance(operand, Register):
        possible = _possible_numbers(context.kernel, context.arch.opcodes).get(operand.name)

    def run(machine: Machine) -> None:
        domain = machine.domain.name
        if operand is None and domain not in ("terms", "addresses"):
            raise Unsupported(f"the instruction {instruction.opcode} {_UNCLEAR}", instruction.line)
        number = operand is None or _is_one_number(machine, machine.read(operand), possible)
        step(machine)
        if not number or domain in ("bits", "addresses"):
            return
        found = as_symbolic_vector(machine.read(destination))
        if operand is not None and np.all(np.logical_or(constant_mask(found), ~machine.active())):
            return
        if domain != "terms":
            raise Unsupported(f"the instruction {instruction.opcode} {_UNCLEAR}", instruction.line)
        count = machine.memory.executions[instruction.line] = machine.memory.executions.get(instruction.line, 0) + 1
        of_block = together and not machine.splits_blocks and machine.condition is None and machine.mask is None
        whose = machine.thread[:, :1] if of_block else machine.thread
        parts = [found, as_symbolic_vector(whose.astype(np.uint64))]
        machine.write(
            destination, term(found.bits, f"{name}, execution {count}", parts, recorder=machine.domain.recorder)
        )

    return run


def _is_one_number(machine: Machine, value: Value, possible: Numbers) -> bool:
    """Return whether a value is known, the same in all active lanes, and among the possible numbers."""
    vector, active = as_symbolic_vector(value), machine.active()
    if not np.all(np.logical_or(constant_mask(vector), ~active)):
        return False
    numbers = np.broadcast_to(vector.words[0], active.shape)[active]
    if not numbers.size or not (numbers == numbers[0]).all():
        return False
    return may_be_found(int(numbers[0]), possible)
