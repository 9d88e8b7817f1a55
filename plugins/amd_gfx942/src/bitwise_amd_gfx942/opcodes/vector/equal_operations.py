"""Equal instructions on different registers: the first one computes the results of all, in the domain of terms.

Compilers unroll what a thread does with its elements of a tile: one instruction for each.  An operation takes most of
its time for the calls that it makes, so that the operands of all are put side by side.  Each instruction writes its own
result, if its registers and the execution mask are those from which it was computed, and else executes its own step.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bitwise_amd_gfx942.addresses.address_words import may_read_words
from bitwise_amd_gfx942.opcodes.compute import Compute
from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_amd_gfx942.opcodes.matrices.matrix_accumulators import DeferredRegister
from bitwise_amd_gfx942.opcodes.operands.deferred_lanes import Batch, is_deferred
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import EXECUTION_MASK
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, is_vector
from bitwise_core.assembly.module import Instruction, Kernel, Modified, Operand, once_a_kernel
from bitwise_core.execution.architecture import Context, OpcodeTable, infos_of
from bitwise_core.execution.domains.domain import Domain
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.stacked_values import form_of, split, stacked
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value

ReadersOf: TypeAlias = Callable[[Instruction], Sequence[Sequence[Reader]]]
"""The readers of the operands of each result that an instruction computes."""

_NAME = "results of equal operations"
_MOST_MEMBERS = 32
"""The largest number of instructions whose results are computed together."""
_MOST_LANES = 1 << 16
"""The largest number of lanes that are computed together: beyond them the calls do not matter."""
_ENDS = Effect.BRANCH | Effect.CALL | Effect.END | Effect.BARRIER


@dataclass(frozen=True, slots=True, eq=False)
class _Member:
    """An instruction of a run, and the registers that it reads."""

    instruction: Instruction
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """The place of an instruction in its run."""

    run: Sequence[_Member]
    number: int


@dataclass(slots=True, eq=False)
class _Results:
    """The results of the instructions of a run by their numbers, with what their registers held; each is taken once."""

    run: Sequence[_Member]
    mask: Array | None
    domain: Domain
    results: dict[int, tuple[tuple[Value | None, ...], Sequence[Value]]]

    def take(self, machine: Machine, number: int) -> Sequence[Value] | None:
        """Return the results of an instruction, None where they were computed of something else."""
        found = self.results.pop(number, None)
        if found is None or self.mask is not machine.mask or self.domain is not machine.domain:
            return None
        held, results = found
        registers = machine.registers
        same = all(registers.get(name) is each for name, each in zip(self.run[number].reads, held, strict=True))
        return results if same and not _depends_on_more(machine) else None


def with_equal_ones(
    step: Step,
    instruction: Instruction,
    context: Context,
    readers_of: ReadersOf,
    compute: Compute,
    write: Callable[[Machine, Sequence[Value]], None],
) -> Step:
    """Return the step of an instruction that computes every lane by itself, together with equal ones if there are any.

    `compute` returns one result of the operands that `readers_of` has for it, and asks of a machine what `Batch` has.
    `write` writes all results of the instruction.
    """
    place = _places(context.kernel, context.arch.opcodes).get(id(instruction))
    if place is None:
        return step
    run, number = place.run, place.number

    def execute(machine: Machine) -> Control | None:
        runs: dict[int, _Results] = machine.extra.setdefault(_NAME, {})
        if number == 0:
            runs.pop(id(run), None)
            if _may_be_computed_together(machine):
                runs[id(run)] = _computed(machine, run, readers_of, compute)
        found = runs.get(id(run))
        results = None if found is None else found.take(machine, number)
        if number + 1 == len(run):
            runs.pop(id(run), None)
        if results is None:
            return step(machine)
        write(machine, results)
        return None

    return execute


def _depends_on_more(machine: Machine) -> bool:
    """Return whether the results of operations depend on more than their operands."""
    return machine.condition is not None or machine.path is not None


def _may_be_computed_together(machine: Machine) -> bool:
    domain, mask = machine.domain, machine.mask
    if not isinstance(domain, TermDomain) or not domain.defers_steps or _depends_on_more(machine):
        return False
    if type(machine.registers) is not dict or domain.context.finite:
        return False
    return (mask is None or mask.shape[1] == 1) and 2 * machine.blocks * machine.threads <= _MOST_LANES


def _computed(machine: Machine, run: Sequence[_Member], readers_of: ReadersOf, compute: Compute) -> _Results:
    """Return the results of a run, those of no instruction where its operands cannot be put side by side."""
    found = _Results(run, machine.mask, machine.domain, {})
    registers, blocks, threads = machine.registers, machine.blocks, machine.threads
    if any(is_deferred(registers.get(name)) for each in run for name in each.reads):
        return found
    if may_read_words(machine, frozenset(id(each.instruction) for each in run)):
        return found  # a word of an address is undetermined in the step of its own instruction only
    values = [[_operands(machine, readers) for readers in readers_of(each.instruction)] for each in run]
    # Reading may compute what a register holds, and keep it there.
    held = [tuple(registers.get(name) for name in each.reads) for each in run]
    flat = [operands for results in values for operands in results]
    alike: dict[Hashable, list[int]] = {}
    for place, operands in enumerate(flat):
        # An operand that occurs twice stays one object.
        same = tuple(next(index for index, each in enumerate(operands) if each is one) for one in operands)
        forms = tuple(map(form_of, operands))
        alike.setdefault(place if None in forms else (same, forms), []).append(place)
    size = max(1, _MOST_LANES // (blocks * threads))
    computed: dict[int, Value] = {}
    batch = Batch(machine.domain, machine.mask)
    for places in alike.values():
        for start in range(0, len(places), size):
            part = places[start : start + size]
            results = _of_alike(batch, [flat[place] for place in part], compute, blocks, threads)
            computed.update(zip(part, results, strict=True))
    count = len(values[0])
    for number in range(len(run)):
        found.results[number] = held[number], [computed[count * number + each] for each in range(count)]
    return found


def _operands(machine: Machine, readers: Sequence[Reader]) -> list[Value]:
    """Return the operands of an operation, in the form in which they were computed."""
    found = [read(machine) for read in readers]
    settled = {id(each): _settled(each) for each in found}
    return [settled[id(each)] for each in found]


def _settled(value: Value) -> Value:
    """Return a value as one that holds its lanes; for an operation, an accumulator is nothing but its lanes."""
    if type(value) is DeferredRegister:
        return SymbolicVector(value.bits, value.words, value.flags)
    return L.settled(value)


def _of_alike(
    batch: Batch, operands: Sequence[Sequence[Value]], compute: Compute, blocks: int, threads: int
) -> Sequence[Value]:
    """Return the results of operands of the same forms."""
    if len(operands) > 1:
        columns: dict[int, Value] = {}
        for place, one in enumerate(operands[0]):
            if id(one) not in columns:
                columns[id(one)] = stacked([each[place] for each in operands], blocks, threads)
        whole = compute(batch, *[columns[id(one)] for one in operands[0]])
        found = split(whole, len(operands), threads)
        if found is not None:
            return found
    return [compute(batch, *each) for each in operands]


_COMPUTED_TOGETHER = frozenset({
    *(f"v_{verb}_f32" for verb in ("add", "sub", "subrev", "mul", "fma", "exp")),
    *(f"v_pk_{verb}_f32" for verb in ("add", "mul", "fma")),
    *("v_cvt_f16_f32", "v_cvt_f32_f16", "v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"),
})  # fmt: skip
"""The instructions that compilers emit once for each element of a tile."""


@once_a_kernel
def _places(kernel: Kernel, opcodes: OpcodeTable) -> Mapping[int, _Place]:
    """Return the places of instructions in runs of several equal ones, by the identity of the instruction.

    Between the first instruction of a run and another one, nothing writes a register that the latter reads.
    """
    found: dict[int, _Place] = {}
    wanted = {
        opcode
        for opcode in {each.opcode for each in kernel.instructions}
        if opcode.startswith("v_") and form(opcode).name in _COMPUTED_TOGETHER
    }
    if not wanted:
        return found
    open_runs: dict[Hashable, tuple[int, list[_Member]]] = {}
    written: dict[str, int] = {}
    """The last instruction that wrote a register."""
    entries = set(kernel.labels.values())

    def close(members: list[_Member]) -> None:
        if len(members) > 1:
            found.update((id(each.instruction), _Place(members, number)) for number, each in enumerate(members))

    for index, (instruction, info) in enumerate(zip(kernel.instructions, infos_of(kernel, opcodes), strict=True)):
        if open_runs and (index in entries or info.effects.overlaps(_ENDS) or "exec_lo" in info.writes):
            for _, members in open_runs.values():
                close(members)
            open_runs.clear()
        if instruction.opcode in wanted and instruction.guard is None:
            key = (instruction.opcode, tuple(map(_same_in_a_run, instruction.operands)))
            first, members = open_runs.get(key, (index, []))
            if len(members) == _MOST_MEMBERS or any(written.get(name, -1) >= first for name in info.reads):
                close(members)
                first, members = index, []
            members.append(_Member(instruction, tuple(sorted(info.reads - EXECUTION_MASK))))
            open_runs[key] = first, members
        if open_runs:
            written.update(dict.fromkeys(info.writes, index))
    for _, members in open_runs.values():
        close(members)
    return found


def _same_in_a_run(operand: Operand) -> Hashable:
    """Return what is the same in an operand of all instructions of a run: all but the names of vector registers."""
    if isinstance(operand, Modified):
        return operand.changes, _same_in_a_run(operand.operand)
    return None if is_vector(operand) else operand
