"""Steps of lanewise vector instructions: sources and result as the encoding (op_sel, DPP, SDWA) modifies them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bitwise_amd_gfx942.opcodes.compute import Compute
from bitwise_amd_gfx942.opcodes.forms import DPP_MODIFIERS, SDWA_MODIFIERS, bit_list, check_modifiers, form
from bitwise_amd_gfx942.opcodes.operands import dpp, sdwa
from bitwise_amd_gfx942.opcodes.operands.constants import BITS
from bitwise_amd_gfx942.opcodes.operands.deferred_bytes import Moves, moving_bytes
from bitwise_amd_gfx942.opcodes.operands.deferred_lanes import Deferrable, Source, may_defer
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, half_writer, is_vector, reader, writer
from bitwise_amd_gfx942.opcodes.vector.equal_operations import with_equal_ones
from bitwise_core.assembly.module import Immediate, Instruction, Modified, Operand, Register, Vector
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.values.packing import extract
from bitwise_core.execution.values.symbolic_vector import Value

ENCODING_MODIFIERS = ("op_sel", *DPP_MODIFIERS, *SDWA_MODIFIERS)
"""The modifiers that `lanewise` handles."""


def lanewise(
    instruction: Instruction,
    kinds: Sequence[str],
    result_bits: int,
    compute: Compute,
    *,
    extra_modifiers: Sequence[str] = (),
    keep_high_half: bool = False,
    first: int = 1,
    deferrable: bool = False,
    moves: Moves | None = None,
    together: Context | None = None,
) -> Step:
    """The step that writes `compute(machine, *sources)`, `result_bits` bits, to the first operand.

    `kinds` are the types of the sources, which are the operands from position `first` on.  `extra_modifiers` names
    modifiers that the caller has handled.  `keep_high_half`: a result of 16 bits leaves the high half of the register
    unchanged.  `deferrable`: the result may be computed when it is read (`deferred_lanes`), and `compute` asks of the
    machine what `deferred_lanes.Batch` has.  `moves` says which bytes of its sources the result consists of
    (`deferred_bytes`).  `together`: equal instructions of this kernel may be computed together (`equal_operations`).
    Raises UnknownInstruction.
    """
    operands = instruction.operands
    if len(operands) != first + len(kinds):
        raise UnknownInstruction(instruction, f"has {len(operands)} operands and takes {first + len(kinds)}")
    found = (
        check_modifiers(instruction, *ENCODING_MODIFIERS, *extra_modifiers)
        if "." in instruction.opcode
        else form(instruction.opcode)
    )
    modifiers = found.modifiers
    if found.encoding == "sdwa":
        return sdwa.sdwa_step(instruction, kinds, result_bits, compute, first, extra_modifiers)
    readers = [reader(each, kind, instruction) for each, kind in zip(operands[first:], kinds, strict=True)]
    write = half_writer(operands[0], False, instruction) if keep_high_half and result_bits == 16 else None
    if "op_sel" in modifiers:
        chosen = bit_list(instruction, modifiers["op_sel"], len(kinds) + 1)
        for index, high in enumerate(chosen[: len(kinds)]):
            if high:
                readers[index] = _high_half(readers[index], operands[first + index], kinds[index], instruction)
        if chosen[-1]:
            write = half_writer(operands[0], True, instruction)
            if result_bits != 16:
                raise UnknownInstruction(instruction, "writes a result of more than 16 bits to half a register")
    write = write or writer(operands[0], result_bits, instruction)
    later = None
    if deferrable and result_bits in (BITS["b32"], BITS["b64"]) and "op_sel" not in modifiers:
        later = _deferrable(operands[0], operands[first:], kinds, readers, compute)
    if found.encoding.endswith("dpp"):
        return dpp.dpp_step(instruction, readers, write, lambda machine, values: compute(machine, *values), later)
    step = _step(readers, write, compute)
    if moves is not None and found.encoding in ("", "e32", "e64") and not modifiers:
        return moving_bytes(step, operands[0], operands[first:], moves)
    step = step if later is None else _deferring(step, later)
    if together is None or "op_sel" in modifiers:
        return step

    def readers_of(other: Instruction) -> Sequence[Sequence[Reader]]:
        return [[reader(each, kind, other) for each, kind in zip(other.operands[first:], kinds, strict=True)]]

    def write_only(machine: Machine, results: Sequence[Value]) -> None:
        write(machine, results[0])

    return with_equal_ones(step, instruction, together, readers_of, compute, write_only)


def _deferrable(
    result: Operand, sources: Sequence[Operand], kinds: Sequence[str], readers: Sequence[Reader], compute: Compute
) -> Deferrable | None:
    """The instruction as one whose result may be deferred; None unless its operands are whole registers."""
    results = _vector_registers(result)
    if results is None or any(BITS[kind] != BITS["b32"] * len(results) for kind in kinds):
        return None
    found: list[Source] = []
    for source, read in zip(sources, readers, strict=True):
        names = _vector_registers(source)
        if names is not None and len(names) == len(results):
            found.append(names[0] if len(names) == 1 else (names[0], names[1]))
        elif isinstance(source, Register | Immediate | Vector):
            found.append(read)
        else:
            return None
    return Deferrable(results, tuple(found), compute)


def _vector_registers(operand: Operand) -> tuple[str, ...] | None:
    """The vector registers that an operand of 32 or 64 bits consists of, None for any other operand."""
    if not is_vector(operand):
        return None
    items = operand.items if isinstance(operand, Vector) else (operand,)
    names = tuple(each.name for each in items if isinstance(each, Register))
    return names if len(names) == len(items) <= 2 else None


def _deferring(step: Step, later: Deferrable) -> Step:
    """The step that defers its result where a source is deferred."""

    def run(machine: Machine) -> Control | None:
        if later.reads_deferred(machine) and may_defer(machine):
            values = later.read(machine)
            found = None if values is None else later.defer(machine, values)
            if found is not None and later.write(machine, found):
                return None
        return step(machine)

    return run


def _step(readers: Sequence[Reader], write: Callable[[Machine, Value], None], compute: Compute) -> Step:
    if len(readers) == 1:
        (only,) = readers
        return lambda machine: write(machine, compute(machine, only(machine)))
    if len(readers) == 2:
        left, right = readers
        return lambda machine: write(machine, compute(machine, left(machine), right(machine)))
    return lambda machine: write(machine, compute(machine, *[each(machine) for each in readers]))


def _high_half(inner: Reader, operand: Operand, kind: str, instruction: Instruction) -> Reader:
    """The high half of a register as a source of 16 bits."""
    changes: tuple[str, ...] = ()
    if isinstance(operand, Modified):
        changes, operand = operand.changes, operand.operand
    if BITS[kind] != 16 or not isinstance(operand, Register):
        raise UnknownInstruction(
            instruction, "selects the high half of an operand that is no register or not of 16 bits"
        )
    whole = reader(operand, "b32", instruction)

    def read(machine: Machine) -> Value:
        return extract(whole(machine), 16, 16)

    if changes:
        raise UnknownInstruction(
            instruction, "selects the high half of an operand and applies neg or abs, which is not modelled"
        )
    return read
