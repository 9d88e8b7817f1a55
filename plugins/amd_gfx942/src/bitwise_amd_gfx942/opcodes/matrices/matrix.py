"""MFMA: matrix products of a wave.

Source: AMD Instinct MI300 ISA, "Matrix Arithmetic Instructions"; LLVM's names of the instructions.  All lanes take
part regardless of the execution mask; a kernel that runs one with inactive lanes is Unknown.

An instruction is a chain of steps over ascending k, as its row in `matrix_units` states: a step adds several products
to the accumulator with one rounding.  The name of a step contains its k, all types and the architecture.  It contains
neither the rows and columns nor the instruction's own k, so that two instructions with k = 16 equal four with k = 8.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bitwise_amd_gfx942.modes import DENORMALS_KEPT, mode_of
from bitwise_amd_gfx942.opcodes.forms import check_modifiers, modifier_value
from bitwise_amd_gfx942.opcodes.matrices.matrix_accumulators import accumulate, in_active_waves
from bitwise_amd_gfx942.opcodes.matrices.matrix_fragments import fragment
from bitwise_amd_gfx942.opcodes.matrices.matrix_layouts import Tile
from bitwise_amd_gfx942.opcodes.operands.deferred_bytes import is_unmoved
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import EXECUTION_MASK, with_implicit
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, Writer, reader, word_reader, writer
from bitwise_amd_gfx942.registers import ALL_LANES, EXEC
from bitwise_core.assembly.module import Immediate, Instruction, Module, Operand, Register, Vector
from bitwise_core.execution.architecture import Context, ContractionAudit, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import OpaqueProducts, Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.table_look_ups import waits_to_be_looked_up
from bitwise_core.execution.values.matrix_steps.mma_steps import IntegerProducts, MmaStep
from bitwise_core.execution.values.packing import blend_values, concat
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value

TABLE = OpcodeTable()

_CACHE_SIZE = 256
"""The number of operands of active waves that are kept."""

_NAME = re.compile(r"v_mfma_(f32|f64|i32)_(\d+)x\d+x(\d+)_?(?:(\d+)b_)?([a-z]+\d+(?:_1k|_[bfp]+8)?)")
_TYPES = {
    "f16": ("fp16", "fp16", 16), "bf16": ("bf16", "bf16", 16), "bf16_1k": ("bf16", "bf16", 16),
    "f32": ("fp32", "fp32", 32), "xf32": ("tf32", "tf32", 32), "f64": ("fp64", "fp64", 64), "i8": ("s8", "s8", 8),
    "fp8_fp8": ("e4m3fnuz", "e4m3fnuz", 8), "fp8_bf8": ("e4m3fnuz", "e5m2fnuz", 8),
    "bf8_fp8": ("e5m2fnuz", "e4m3fnuz", 8), "bf8_bf8": ("e5m2fnuz", "e5m2fnuz", 8),
}  # fmt: skip
_RESULTS = {"f32": "fp32", "f64": "fp64", "i32": "s32"}
_SHAPES = {
    "f16": {(32, 8, 1), (16, 16, 1), (4, 4, 16)}, "bf16": {(32, 8, 1), (16, 16, 1), (4, 4, 16)},
    "f32": {(32, 2, 1), (16, 4, 1), (4, 1, 16)}, "xf32": {(32, 4, 1), (16, 8, 1)}, "f64": {(16, 4, 1)},
    "i8": {(32, 16, 1), (16, 32, 1), (4, 4, 16)}, "8": {(32, 16, 1), (16, 32, 1)},
}  # fmt: skip
"""The shapes that Triton uses, by type: rows (and columns), k, blocks."""


_STEPS = {"fp16": 8, "bf16": 8, "tf32": 4, "fp32": 1, "fp64": 4, "s8": 8, "e4m3fnuz": 16, "e5m2fnuz": 16}
"""The k of a step; the instruction's own k where that is less.

Sums of integers are exact, so their step may have any k; 8 is what one lane holds, whichever k Triton assigned to it.
"""


def names() -> list[str]:
    """The mnemonics of the modelled instructions."""
    found = []
    for kind in _TYPES:
        shapes = _SHAPES[kind.removesuffix("_1k") if not kind.endswith("8") or kind == "i8" else "8"]
        result = {"f64": "f64", "i8": "i32"}.get(kind, "f32")
        for side, k, blocks in shapes:
            split = f"{blocks}b_" if blocks > 1 else ""
            found += [f"v_mfma_{result}_{side}x{side}x{k}_{split}{kind}", f"v_mfma_{result}_{side}x{side}x{k}{kind}"]
    return found


def step_name(k: int, result: str, left: str, right: str, architecture: str) -> str:
    """The name of a fused step, which contains everything that determines its bits."""
    return f"mfma k{k} {result} {left} {right} {result} {architecture}"


def multiply(instruction: Instruction, context: Context) -> Step:
    """v_mfma destination, a, b, c; cbsz and abid say which block of A several blocks share."""
    found_form = check_modifiers(instruction, "cbsz", "abid")
    found = _NAME.fullmatch(found_form.name)
    if found is None or len(instruction.operands) != 4:
        raise UnknownInstruction(instruction)
    result, (left, right, bits) = _RESULTS[found[1]], _TYPES[found[5]]
    side, k = int(found[2]), int(found[3])
    tile = Tile(side, k, 16 if side == 4 else 1, 1 if result == "fp64" else 4)
    shared, chosen = (modifier_value(instruction, found_form.modifiers.get(each, "0")) for each in ("cbsz", "abid"))
    if 1 << shared > tile.blocks or chosen >= 1 << shared:
        raise UnknownInstruction(instruction, "shares blocks of A that it does not have")
    a_blocks = [block >> shared << shared | chosen for block in range(tile.blocks)]
    part = min(k, _STEPS[left])
    # No documentation says whether the mode applies here, so a step in a flushing mode is an operation of its own.
    mode = mode_of(context.kernel)
    flushed = result != "s32" and not (mode.denormals_fp32 == mode.denormals_fp16_fp64 == DENORMALS_KEPT)
    step = MmaStep(
        step_name(part, result, left, right, context.arch.name) + (" flushing" if flushed else ""),
        positive_zero=result == "fp32" and left != "fp32",
        commutes=left == right,
        integers=IntegerProducts("s8 s8", part << 14, clamps=False) if result == "s32" else None,
        signed_zeros=left in ("fp32", "fp64"),
    )
    return product_step(instruction, tile, part, (bits, left, right, result), step, a_blocks)


def product_step(
    instruction: Instruction,
    tile: Tile,
    part: int,
    types: tuple[int, str, str, str],
    step: MmaStep,
    a_blocks: Sequence[int] = (0,),
) -> Step:
    """The step of destination, a, b, c: a chain of fused steps of `part` k.

    `types` are the bits of an operand's element, the formats of a's and b's elements, and the format of the result.
    """
    bits, left, right, result = types
    wide = 64 if result == "fp64" else 32
    destination, *sources = instruction.operands
    count = tile.side * tile.k * tile.blocks // 64 * bits // 32
    a, b = (_unread_words(each, count, instruction) for each in sources[:2])
    old = _accumulators(sources[2], tile, wide, result, instruction)
    new = _writers(destination, tile, wide, instruction)
    updates = wide == 32 and destination == sources[2]

    def products(
        machine: Machine, of_a: Sequence[Value], of_b: Sequence[Value], accumulators: Sequence[Value]
    ) -> list[SymbolicVector]:
        if isinstance(machine.domain, OpaqueProducts):
            return machine.domain.opaque_products(wide, tile.accumulators, (*of_a, *of_b, *accumulators))
        lefts = fragment(machine, of_a, bits, left, tile, part)
        rights = fragment(machine, of_b, bits, right, tile, part)
        return accumulate(machine, step, lefts, rights, accumulators, tile, a_blocks)

    def run(machine: Machine) -> None:
        check_all_lanes_active(machine, instruction)
        of_a, of_b = ([_zero_inactive_waves(machine, read(machine)) for read in each] for each in (a, b))
        accumulators = [read(machine) for read in old]
        values = products(machine, of_a, of_b, accumulators)
        outer, lanes = machine.mask, machine.written_lanes
        chosen = in_active_waves(lanes, values, accumulators) if updates and lanes is not None else None
        if chosen is not None:
            machine.mask = None
        try:
            for write, value in zip(new, chosen or values, strict=True):
                write(machine, value)
        finally:
            machine.mask = outer

    return run


def check_all_lanes_active(machine: Machine, instruction: Instruction) -> None:
    """Raises Unsupported unless all lanes of the active waves are active."""
    lanes = machine.registers[EXEC]
    if lanes is ALL_LANES:
        return
    known = machine.known(lanes)
    if known is None or not (known if machine.mask is None else known | ~machine.mask).all():
        raise Unsupported("a matrix instruction runs with lanes off", instruction.line)


def _zero_inactive_waves(machine: Machine, value: Value) -> Value:
    """An operand with zeros in inactive waves, whose values, undefined ones included, must not affect the result.

    `operand_vectors` leaves out blocks whose registers are not those of the machine.
    """
    mask = machine.written_lanes
    if mask is None:
        return value
    # The same value for the same operand and waves: vectors of the same values are hashed once.
    known: dict[tuple[int, int], tuple[Value, Array, Value]] = machine.extra.setdefault("operands of active waves", {})
    found = known.get((id(value), id(mask)))
    if found is None:
        if len(known) >= _CACHE_SIZE:
            known.clear()
        found = known[id(value), id(mask)] = (value, mask, blend_values(mask, value, literal(0, 32)))
    return found[2]


def _registers(operand: Operand, count: int, instruction: Instruction) -> tuple[Register, ...]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    found = tuple(each for each in items if isinstance(each, Register) and each.name[0] in "va")
    if len(found) != count or len(items) != count:
        raise UnknownInstruction(instruction, f"takes {count} registers and is given {len(items)}")
    return found


def _words(operand: Operand, count: int, instruction: Instruction) -> list[Reader]:
    return [word_reader(each.name, instruction) for each in _registers(operand, count, instruction)]


def _unread_words(operand: Operand, count: int, instruction: Instruction) -> list[Reader]:
    """The readers of the words of a matrix; moved bytes and results of look-ups of all lanes are returned unread."""
    registers = _registers(operand, count, instruction)
    return [_unread_word(each.name, word_reader(each.name, instruction)) for each in registers]


def _unread_word(name: str, read: Reader) -> Reader:
    def unread(machine: Machine) -> Value:
        held = machine.registers.get(name)
        is_unread = machine.mask is None and (is_unmoved(held) or waits_to_be_looked_up(held))
        return held if held is not None and is_unread else read(machine)

    return unread


def _accumulators(operand: Operand, tile: Tile, bits: int, kind: str, instruction: Instruction) -> list[Reader]:
    """The readers of the accumulators: registers, or one constant for all."""
    if isinstance(operand, Immediate):
        return [reader(operand, "b32" if kind == "s32" else kind, instruction)] * tile.accumulators
    words = _words(operand, tile.accumulators * bits // 32, instruction)
    if bits == 32:
        return words
    return [_pair(words[each], words[each + 1]) for each in range(0, len(words), 2)]


def _pair(low: Reader, high: Reader) -> Reader:
    return lambda machine: concat([low(machine), high(machine)])


def _writers(operand: Operand, tile: Tile, bits: int, instruction: Instruction) -> list[Writer]:
    items = _registers(operand, tile.accumulators * bits // 32, instruction)
    if bits == 32:
        return [writer(each, 32, instruction) for each in items]
    return [writer(Vector(items[each : each + 2]), 64, instruction) for each in range(0, len(items), 2)]


TABLE.opcode(*names(), operands=with_implicit(DESTINATION_FIRST, Effect.CROSS_LANE, reads=EXECUTION_MASK))(multiply)


STATED = "the text is machine code and states every rounding"
MODELLED = f"{STATED}; its matrix instructions follow a public model (MMA-Sim), of which nothing was measured here"


def audit_contraction(module: Module, text: str, entry: str | None) -> ContractionAudit:
    """See `Arch.audit_contraction`: the text determines the roundings; the matrix units follow a published model."""
    kernels = [module.kernel(entry), *module.functions.values()]
    used = any(each.opcode.startswith("v_mfma") for kernel in kernels for each in kernel.instructions)
    return ContractionAudit(module, MODELLED if used else STATED)
