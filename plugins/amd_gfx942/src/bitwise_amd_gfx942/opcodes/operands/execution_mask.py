"""Steps under the execution mask: a vector instruction acts in its lanes, a scalar one in every active wave.

`Machine.mask` holds the lanes of the active waves; the execution mask (exec) is a register.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bitwise_amd_gfx942.lane_masks import complement_mask, disjoint, is_subset, partitioned_mask, same_mask
from bitwise_amd_gfx942.opcodes.forms import Form, form
from bitwise_amd_gfx942.opcodes.memory.select_provenance import Select, record_select, selects_of
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import EXECUTION_MASK
from bitwise_amd_gfx942.registers import ALL_LANES, EXEC
from bitwise_core.assembly.module import Instruction, Operand, registers_of
from bitwise_core.execution.architecture import Builder, Context, OpcodeTable
from bitwise_core.execution.deferred_selects import DeferredSelect, deferred_select
from bitwise_core.execution.instruction_info import Describe, Effect, InstructionInfo, Operands, info_from_roles
from bitwise_core.execution.machine import Control, Machine, Step, conjunction
from bitwise_core.execution.program import merge_local
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, Value, width
from bitwise_core.execution.values.term_hash import poison

_NONE: frozenset[str] = frozenset()


def active_lanes(machine: Machine) -> Array | None:
    """The lanes in which a vector instruction acts, in the form of `Machine.mask` (None: all).

    Raises TypeError where the execution mask depends on data.
    """
    lanes = machine.registers[EXEC]
    if not isinstance(lanes, np.ndarray):
        known = machine.known(lanes)
        if known is None:
            raise TypeError
        lanes = known
    if lanes is ALL_LANES:
        return machine.mask
    if machine.mask is None:
        return lanes
    cached = machine.extra.get("active lanes")
    if cached is not None and cached[0] is lanes and cached[1] is machine.mask:
        found: Array = cached[2]
        return found
    found = lanes & machine.mask
    machine.extra["active lanes"] = (lanes, machine.mask, found)
    return found


def under_execution_mask(step: Step, operands: Sequence[Operand] = ()) -> Step:
    """The step restricted to the lanes of the execution mask; it does nothing where the mask is empty.

    `operands` are those that the step reads.
    """

    def run(machine: Machine) -> Control | None:
        lanes = machine.registers[EXEC]
        if lanes is ALL_LANES:
            return step(machine)
        try:
            mask = active_lanes(machine)
        except TypeError:
            return _predicated_step(machine, step, operands)
        if mask is not None and not mask.any():
            return None
        outer = machine.mask
        machine.mask = mask
        try:
            return step(machine)
        finally:
            machine.mask = outer

    return run


def _predicated_step(machine: Machine, step: Step, operands: Sequence[Operand]) -> Control | None:
    """Run the step under an execution mask that depends on data: a lane whose bit is 0 keeps its registers."""
    lanes = machine.registers[EXEC]
    before, local = dict(machine.registers), dict(machine.local)
    resolved = _resolved_registers(machine, lanes, operands)
    machine.registers.update(resolved)
    outer = machine.condition
    machine.condition = conjunction(machine.domain, outer, lanes)
    try:
        control = step(machine)
    finally:
        machine.condition = outer
    for name, value in machine.registers.items():
        old = before.get(name)
        if value is old:
            continue
        kept = old is not None and (is_value_of(value, old) or is_value_of(value, resolved.get(name)))
        machine.registers[name] = old if old is not None and kept else merge_inactive_lanes(machine, lanes, value, old)
    merge_local(machine, lanes, machine.local, local)
    return control


def _resolved_registers(machine: Machine, lanes: Value, operands: Sequence[Operand]) -> dict[str, Value]:
    """The operands' registers that hold a select whose predicate is constant in these lanes, as the selected value."""
    found = {}
    for name in registers_of(*operands):
        value = machine.registers.get(name)
        resolved = None if value is None else _resolved_value(machine, lanes, value)
        if resolved is not None and resolved is not value:
            found[name] = resolved
    return found


def _resolved_value(machine: Machine, lanes: Value, value: Value) -> Value:
    for predicate, if_true, if_false in selects_of(machine, value):
        if is_subset(machine, lanes, predicate):
            return _resolved_value(machine, lanes, if_true)
        if disjoint(machine, predicate, lanes):
            return _resolved_value(machine, lanes, if_false)
    return value


def read_operands(
    machine: Machine, readers: Sequence[Callable[[Machine], Value]], operands: Sequence[Operand]
) -> list[Value]:
    """The sources of an instruction that acts in the lanes of the execution mask and applies the mask itself."""
    lanes = machine.registers[EXEC]
    if isinstance(lanes, np.ndarray):
        return [each(machine) for each in readers]
    resolved = _resolved_registers(machine, lanes, operands)
    before = {name: machine.registers[name] for name in resolved}
    machine.registers.update(resolved)
    try:
        return [each(machine) for each in readers]
    finally:
        machine.registers.update(before)


def _replaces_destination(found: Form) -> bool:
    """Whether the modifiers of an instruction let it write all bits of its destination in all active lanes."""
    modifiers = found.modifiers
    if found.encoding == "sdwa":
        return modifiers.get("dst_unused") == "UNUSED_PAD"
    if found.encoding.endswith("dpp"):
        every_row = all(modifiers.get(each, "0xf") in ("0xf", "15") for each in ("row_mask", "bank_mask"))
        return every_row and "bound_ctrl" in modifiers and "op_sel" not in modifiers
    return "op_sel" not in modifiers


def merge_inactive_lanes(machine: Machine, lanes: Value, value: Value, old: Value | None) -> Value:
    """A register after a write in the lanes of a mask that depends on data.

    Where an earlier write covered the remaining lanes of a larger mask, both writes together replace the original value
    in the larger mask, and the select of that value is dropped there.
    """
    if old is None or width(old) != width(value):
        old = poison(width(value))
    old = next((each[2] for each in selects_of(machine, old) if same_mask(each[0], lanes)), old)
    others: tuple[Select, ...] = ()
    rest, result = complement_mask(machine, lanes), None
    for predicate, if_true, if_false in selects_of(machine, old):
        if same_mask(predicate, rest):
            result = deferred_select(machine, lanes, value, if_true)
            break
        whole = partitioned_mask(machine, predicate, lanes)
        if whole is not None:
            inner = deferred_select(machine, lanes, value, if_true)
            if isinstance(whole, np.ndarray):
                result = inner if whole.all() else blend_values(whole, inner, if_false)
            else:
                result = merge_inactive_lanes(machine, whole, inner, if_false)
                others = selects_of(machine, result)
            break
    if result is None:
        result = deferred_select(machine, lanes, value, old)
    record_select(machine, result, lanes, value, old, others)
    return result


def never(name: str) -> bool:
    """No instruction leaves a part of its destination unchanged."""
    return False


def always(name: str) -> bool:
    """Every instruction leaves a part of its destination unchanged."""
    return True


def with_16_bits(name: str) -> bool:
    """Instructions on 16 bits leave a part of their destination unchanged."""
    return name.endswith("16")


def vector_opcode(
    table: OpcodeTable,
    *names: str,
    operands: Operands | Describe,
    effects: Effect = Effect.NONE,
    keeps: Callable[[str], bool] = never,
) -> Callable[[Builder], Builder]:
    """Declare instructions that act in the lanes of the execution mask; see `OpcodeTable.opcode`.

    They read the mask, and their destinations, which they leave unchanged in other lanes.  `keeps`: whether the
    instruction of a name also leaves a part of its destination unchanged in active lanes, without a modifier.
    """
    inner = info_from_roles(operands, effects) if isinstance(operands, Operands) else operands

    def describe(instruction: Instruction) -> InstructionInfo:
        info, found = inner(instruction), form(instruction.opcode)
        cross_lane = Effect.CROSS_LANE if found.encoding.endswith("dpp") else Effect.NONE
        whole = not keeps(found.name) and _replaces_destination(found)
        retained = info.writes - info.reads if whole else _NONE
        return info.extended(info.writes | EXECUTION_MASK, _NONE, cross_lane, retained, whole=whole)

    def register(builder: Builder) -> Builder:
        def build(instruction: Instruction, context: Context) -> Step:
            return under_execution_mask(builder(instruction, context), instruction.operands)

        table.opcode(*names, operands=describe)(build)
        return builder

    return register


def is_value_of(value: Value, register: Value | None) -> bool:
    """Return whether a value is what an instruction reads of a register that holds `register`."""
    if isinstance(register, DeferredSelect) and register.is_computed and value is register.value:
        return True
    return value is register
