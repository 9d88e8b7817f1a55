"""DPP: the first source is taken from another lane of the wave, in rows of 16 lanes and banks of 4.

Source: AMD Instinct MI300 ISA, "Data Parallel Processing (DPP)"; LLVM's AMDGPU modifier syntax.
A lane whose source lane is outside of its row or wave, or inactive, reads 0 where `bound_ctrl` is set and writes
nothing otherwise.  A lane outside of the row mask or the bank mask writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache

import numpy as np

from bitwise_amd_gfx942.opcodes.forms import DPP_CONTROLS, form, modifier_value
from bitwise_amd_gfx942.opcodes.operands.deferred_lanes import (
    Deferrable,
    Exchange,
    Masked,
    deferred,
    may_defer,
    undefined_if_none,
)
from bitwise_amd_gfx942.opcodes.operands.execution_mask import active_lanes
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, Writer
from bitwise_amd_gfx942.registers import WAVE
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, Value


@lru_cache(maxsize=256)
def source_lanes(control: str, value: str) -> tuple[Array, Array]:
    """For each of the 64 lanes, its source lane, and whether that lane exists.

    Raises KeyError or ValueError for a control that is not modelled.
    """
    lane = np.arange(WAVE)
    row, position = lane & ~15, lane & 15
    if control == "quad_perm":
        order = [int(each) for each in value.strip("[]").split(",")]
        if len(order) != 4 or not set(order) <= {0, 1, 2, 3}:
            raise KeyError(value)
        return (lane & ~3) + np.array(order)[lane & 3], np.ones(WAVE, dtype=bool)
    if control in ("row_mirror", "row_half_mirror"):
        return (lane ^ (15 if control == "row_mirror" else 7)), np.ones(WAVE, dtype=bool)
    count = int(value, 0)
    if control in ("row_shl", "row_shr", "row_ror"):
        if not 1 <= count <= 15:
            raise KeyError(value)
        shifted = position + count if control == "row_shl" else position - count
        if control == "row_ror":
            return row + shifted % 16, np.ones(WAVE, dtype=bool)
        return row + shifted % 16, (shifted >= 0) & (shifted < 16)
    if control in ("wave_shl", "wave_shr", "wave_rol", "wave_ror"):
        if count != 1:
            raise KeyError(value)
        shifted = lane + 1 if control in ("wave_shl", "wave_rol") else lane - 1
        inside = (shifted >= 0) & (shifted < WAVE)
        return shifted % WAVE, inside if control in ("wave_shl", "wave_shr") else np.ones(WAVE, dtype=bool)
    if control == "row_bcast":
        if count == 15:
            return np.where(row > 0, row - 1, 0), row > 0
        if count == 31:
            return np.full(WAVE, 31), lane >= 32
        raise KeyError(value)
    if control == "row_newbcast" and 0 <= count <= 15:
        return row + count, np.ones(WAVE, dtype=bool)
    raise KeyError(control)


def dpp_step(
    instruction: Instruction,
    readers: Sequence[Reader],
    write: Writer,
    compute: Callable[[Machine, list[Value]], Value],
    later: Deferrable | None = None,
) -> Step:
    """The step that computes with the first source taken from other lanes; `later` if its result may be deferred.

    Raises UnknownInstruction.
    """
    modifiers = form(instruction.opcode).modifiers
    controls = [each for each in modifiers if each in DPP_CONTROLS]
    if len(controls) != 1:
        raise UnknownInstruction(instruction, "does not state one DPP control")
    try:
        source, exists = source_lanes(controls[0], modifiers[controls[0]])
    except (KeyError, ValueError):
        raise UnknownInstruction(instruction, f"has the control {controls[0]}, whose value is not modelled") from None
    lane = np.arange(WAVE)
    rows = modifier_value(instruction, modifiers.get("row_mask", "0xf"))
    banks = modifier_value(instruction, modifiers.get("bank_mask", "0xf"))
    chosen = (rows >> (lane // 16) & 1).astype(bool) & (banks >> (lane // 4 % 4) & 1).astype(bool)
    reads_zero = "bound_ctrl" in modifiers  # bound_ctrl:0 and bound_ctrl:1 both set the bit
    if modifiers.get("bound_ctrl", "0") not in ("0", "1") or not 0 <= rows <= 15 or not 0 <= banks <= 15:
        raise UnknownInstruction(instruction, "has a mask or bound_ctrl that no encoding has")
    line = instruction.line
    whole = bool((chosen if reads_zero else chosen & exists).all())

    @cache
    def lanes_of(waves: int) -> tuple[Array, Array, Array]:
        """The thread whose value each thread takes, whether it exists, and whether the thread may write."""
        index = (source[None] + WAVE * np.arange(waves)[:, None]).reshape(1, -1)
        return index, np.tile(exists, waves)[None], np.tile(chosen, waves)[None]

    def defer(machine: Machine) -> bool:
        """Write a deferred result; false where it must be computed."""
        if later is None or len(later.results) > 1 or not may_defer(machine):
            return False
        index, valid, writes = lanes_of(machine.threads // WAVE)
        values = later.read(machine)
        if values is None:
            return False
        taken = deferred(Exchange(values[0], index[0], valid[0] if reads_zero else None), values[:1], machine.threads)
        result = None if taken is None else later.defer(machine, (taken, *values[1:]))
        if result is not None and not whole:
            old = undefined_if_none(machine.registers.get(later.results[0]))
            kept = writes if reads_zero else writes & valid
            result = deferred(Masked(kept, result, old), (result, old), machine.threads)
        return result is not None and later.write(machine, result)

    def step(machine: Machine) -> None:
        if defer(machine):
            return
        if machine.condition is not None:
            raise DataDependent("lanes exchange values under an execution mask that depends on data", line)
        index, valid, writes = lanes_of(machine.threads // WAVE)
        runs = active_lanes(machine) if machine.mask is None else machine.mask
        if runs is not None:
            valid = valid & np.take_along_axis(
                np.broadcast_to(runs, (runs.shape[0], machine.threads)),
                np.broadcast_to(index, (runs.shape[0], machine.threads)),
                axis=1,
            )
        values = [each(machine) for each in readers]
        taken = take_threads(values[0], index)
        if reads_zero:
            if not valid.all():
                taken = blend_values(valid, taken, np.zeros((1, 1), dtype=L.UNSIGNED[L.width(taken)]))
        else:
            writes = writes & valid
        values[0] = taken
        result = compute(machine, values)
        outer = machine.mask
        if not writes.all():
            machine.mask = writes if outer is None else writes & outer
        try:
            write(machine, result)
        finally:
            machine.mask = outer

    return step
