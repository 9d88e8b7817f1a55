"""mma.sync, ldmatrix and stmatrix.

Source: PTX ISA 8.7, "Warp Level Matrix Multiply-Accumulate Instructions".
The name of a fused step contains the family, the native k, all types and the architecture, but not n.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bitwise_core.assembly.module import Instruction, Operand, Vector
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import (
    DESTINATION_FIRST,
    NO_DESTINATION,
    Accumulation,
    Effect,
    InstructionInfo,
)
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.access import read_several_shared, write_shared
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.matrix_steps.mma_steps import IntegerProducts, MmaStep, row_of
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.numerics.mma import MmaSpec
from bitwise_nvidia_ptx.addresses.shared import own_offset
from bitwise_nvidia_ptx.opcodes.common import FORMATS
from bitwise_nvidia_ptx.opcodes.copies.issuing_thread import require_known_condition
from bitwise_nvidia_ptx.opcodes.matrices.fragments import accumulate, fragment_vectors
from bitwise_nvidia_ptx.opcodes.warp import has_whole_warps

_FAMILY = "mma.sync"
_K = re.compile(r"\.m\d+n\d+k(\d+)\.")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
ELEMENT_BITS = {"f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
_UNPACKED = frozenset({"e4m3", "e5m2"})
"""The types of operands that the assembler unpacks for machines without a matrix instruction of them."""
_NARROW = frozenset({"e2m1", "e2m3", "e3m2"})
_LARGEST_MAGNITUDE = {"s8": 128, "u8": 255}


def step_name(
    family: str, k: int, result: str, left: str, right: str, accumulator: str, arch: str, options: str = ""
) -> str:
    """Return the name of a fused step, which contains everything that determines its bits."""
    types = " ".join(FORMATS.get(each, each) for each in (result, left, right, accumulator))
    return f"{family} k{k} {types}{options} {arch}"


def integer_products(k: int, result: str, left: str, right: str, *, clamps: bool) -> IntegerProducts | None:
    """Return the integer products of a step with an s32 result, None for other types."""
    if result != "s32":
        return None
    return IntegerProducts(f"{left} {right}", k * _LARGEST_MAGNITUDE[left] * _LARGEST_MAGNITUDE[right], clamps)


def table(same_steps: Mapping[str, str], *, measured: bool = True) -> OpcodeTable:
    """Return the table of warp-level matrix instructions.

    `same_steps` and `measured` are those of `architecture.nvidia_arch`.
    """
    found = OpcodeTable()
    found.opcode("mma", operands=multiply_info)(partial(_multiply, same_steps, measured))
    found.opcode("ldmatrix", operands=DESTINATION_FIRST, effects=Effect.LOAD | Effect.CROSS_LANE)(load_matrices)
    found.opcode("stmatrix", operands=NO_DESTINATION, effects=Effect.STORE | Effect.CROSS_LANE)(store_matrices)
    return found


def units_of(context: Context) -> tuple[MmaSpec, ...]:
    """Return the rows of the architecture's matrix units, without those of block scales."""
    return () if context.arch.bits is None else context.arch.bits.matrix_units


def cuts_accumulator(name: str, context: Context) -> bool:
    """Return whether a fused step of zeros cuts its accumulator; see `MmaStep.cuts`."""
    row = row_of(name, units_of(context))
    return row is not None and not row.keeps_accumulator


def require_row(instruction: Instruction, name: str, context: Context) -> None:
    """Raise UnknownInstruction if an architecture with matrix-unit rows has none of a fused step."""
    rows = units_of(context)
    if rows and row_of(name, rows) is None:
        raise UnknownInstruction(instruction, f"has no matrix-unit row on {context.arch.name}: its bits are not known")


def instruction_k(opcode: str) -> int:
    """Return the k in the shape of a matrix instruction, 0 if the opcode has no shape."""
    found = _K.search(opcode)
    return int(found[1]) if found else 0


def multiply_info(instruction: Instruction) -> InstructionInfo:
    """Return what mma.sync reads and writes; it adds its products to its fourth operand."""
    info = DESTINATION_FIRST.info(instruction, Effect.CROSS_LANE)
    if len(instruction.operands) < 4:
        return info
    result, accumulator = instruction.operands[0], instruction.operands[3]
    return replace(info, accumulation=Accumulation(result, accumulator, instruction_k(instruction.opcode)))


def _multiply(same_steps: Mapping[str, str], measured: bool, instruction: Instruction, context: Context) -> Step:
    """mma.sync.aligned.shape.row.col{.kind::f8f6f4,.satfinite}.d.a.b.c of dense operands without block scales.

    With operands of 8 bits, ptxas emits the same machine instruction with and without the kind.
    """
    parts = instruction.opcode.split(".")
    found = _SHAPE.fullmatch(parts[3]) if len(parts) > 3 else None
    if found is None or parts[1:3] != ["sync", "aligned"] or parts[4:6] != ["row", "col"]:
        raise UnknownInstruction(instruction)
    m, n, k = (int(each) for each in found.groups())
    scaled = any(each.startswith("scale_vec") or each == "block_scale" for each in parts)
    narrow = _NARROW.intersection(parts)
    if scaled or narrow:
        what = "block scales" if scaled else f"operands of the type {min(narrow)}"
        raise UnknownInstruction(instruction, f"has {what}: its arithmetic is not modelled")
    *options, result, left, right, accumulator = parts[6:]
    if options[:1] == ["kind::f8f6f4"] and {left, right} <= {"e4m3", "e5m2"}:
        del options[0]
    if (
        n != 8
        or m not in (8, 16)
        or set(options) - {"satfinite"}
        or left not in ELEMENT_BITS
        or right not in ELEMENT_BITS
    ):
        raise UnknownInstruction(instruction)
    bits, halves = ELEMENT_BITS[left], m // 8
    forms = [FORMATS.get(each, each) for each in (left, right)]
    if bits != ELEMENT_BITS[right] or (m == 8 and left != "f64"):
        raise UnknownInstruction(instruction)
    family = same_steps.get(f"{result} {left} k{k}", _FAMILY)
    name, own_name = (
        step_name(each, k, result, left, right, accumulator, context.arch.name, "".join(f" {each}" for each in options))
        for each in (family, _FAMILY)
    )
    require_row(instruction, name, context)
    out = {"f64": 64, "f32": 32, "s32": 32, "f16": 16}[result]
    products = integer_products(k, result, left, right, clamps="satfinite" in options)
    fused = MmaStep(
        name,
        positive_zero=result in ("f32", "f16"),
        commutes=left == right,
        integers=products,
        signed_zeros=result == "f64",
        cuts=cuts_accumulator(name, context),
        units=units_of(context),
        own_name="" if measured or family == _FAMILY else own_name,
    )
    destination, a, b, c = instruction.operands
    if left in _UNPACKED:
        _check_places(instruction, *map(registers_in, (destination, a, b, c)))

    def step(machine: Machine) -> None:
        if not has_whole_warps(machine) or machine.threads % machine.warp:
            raise Unsupported("a matrix instruction runs in part of a warp", instruction.line)
        require_known_condition(machine, "whether threads execute a matrix instruction")
        register, source = max(32, bits), _warps_of_active_lanes(machine)
        of_a, of_b = (
            _moved([machine.read_bits(each, register) for each in registers_in(operand)], source) for operand in (a, b)
        )
        lefts = fragment_vectors(machine, of_a, bits, forms[0], halves)
        rights = fragment_vectors(machine, of_b, bits, forms[1], 1)[0]
        old = _moved(_elements(machine, registers_in(c), out), source)
        new = accumulate(machine, fused, lefts, rights, old)
        _write_elements(machine, registers_in(destination), new, out)

    return step


def _warps_of_active_lanes(machine: Machine) -> Array | None:
    """Return the thread whose registers each thread takes, None for its own: a warp that is inactive takes others'.

    What the registers of an inactive warp hold, possibly nothing, then has no part in the step.
    """
    if machine.mask is None:
        return None
    active = machine.active_threads()
    if active.all() or not active.any():
        return None
    first = int(np.argmax(active)) // machine.warp * machine.warp
    number = np.arange(machine.threads)
    return np.where(active, number, first + number % machine.warp)


def _moved(values: list[Value], source: Array | None) -> list[Value]:
    return values if source is None else [take_threads(each, source[None]) for each in values]


def _check_places(
    instruction: Instruction,
    results: tuple[Operand, ...],
    rows: tuple[Operand, ...],
    columns: tuple[Operand, ...],
    accumulators: tuple[Operand, ...],
) -> None:
    """Raise UnknownInstruction if a register of the result is an operand other than the accumulator at its place.

    Where the machine has no such instruction, the assembler replaces it by several.  ptxas 12.8 for sm_90 then writes
    one register of the result after the other, and reads an accumulator after it was overwritten.
    """
    others = {*rows, *columns}
    for place, each in enumerate(results):
        if each in others or each in accumulators[:place] or each in accumulators[place + 1 :]:
            raise UnknownInstruction(
                instruction, "writes a register that it reads at another place, which ptxas may do too early"
            )


def registers_in(operand: Operand) -> tuple[Operand, ...]:
    """Return the registers of a braced operand, or the operand itself."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def _elements(machine: Machine, registers: tuple[Operand, ...], bits: int) -> list[Value]:
    if bits != 16:
        return [machine.read_bits(each, bits) for each in registers]
    values = [machine.read_bits(each, 32) for each in registers]
    return [extract(value, low, 16) for value in values for low in (0, 16)]


def _write_elements(
    machine: Machine, registers: tuple[Operand, ...], values: list[L.SymbolicVector], bits: int
) -> None:
    if bits == 16:
        joined = [concat([values[index], values[index + 1]]) for index in range(0, len(values), 2)]
        for register, value in zip(registers, joined, strict=True):
            machine.write(register, value)
        return
    for register, lanes in zip(registers, values, strict=True):
        machine.write(register, lanes)


def _matrix_form(instruction: Instruction) -> tuple[int, bool]:
    parts = instruction.opcode.split(".")
    count = next((int(each[1:]) for each in parts if each in ("x1", "x2", "x4")), 0)
    if "m8n8" not in parts or parts[-1] != "b16" or not count:
        raise UnknownInstruction(instruction)
    return count, "trans" in parts


def _pointer_threads(threads: int, matrix: int) -> Array:
    """Return, for each thread, the thread with the address of its row (lane / 4) of one matrix; shape (1, threads)."""
    thread = np.arange(threads)
    return ((thread & ~31) + 8 * matrix + (thread & 31) // 4)[None]


def _addresses_of_threads(address: Array, index: Array) -> Array:
    """Return the addresses held by other threads; they are known since `address` is."""
    taken: Any = take_threads(address, index)
    rows: Array = taken
    return rows


def load_matrices(instruction: Instruction, context: Context) -> Step:
    """ldmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}.shared.b16."""
    from bitwise_nvidia_ptx.opcodes.memory import address_of

    count, transposed = _matrix_form(instruction)
    destination, source = instruction.operands

    def step(machine: Machine) -> None:
        address = machine.known(address_of(machine, source))
        if address is None:
            raise DataDependent("shared memory is read at a computed address", instruction.line)
        _require_whole_warps(machine, instruction.line)
        address = np.broadcast_to(address, (address.shape[0], machine.threads))
        where = [each for index in range(count) for each in _addresses_of_matrix(machine, address, index, transposed)]
        values = read_several_shared(machine, where, 16 if transposed else 32)
        if transposed:
            values = [concat(values[first : first + 2]) for first in range(0, len(values), 2)]
        for target, value in zip(registers_in(destination), values, strict=True):
            machine.write(target, value)

    if len(registers_in(destination)) != count:
        raise UnknownInstruction(instruction)
    return step


def _require_whole_warps(machine: Machine, line: int) -> None:
    """Raise Unsupported unless all lanes of each warp, or none, load or store matrices."""
    require_known_condition(machine, "whether threads load or store matrices")
    if not has_whole_warps(machine):
        raise Unsupported("matrices are loaded or stored by a part of a warp", line)


def _addresses_of_matrix(machine: Machine, address: Array, index: int, transposed: bool) -> list[Array]:
    """Return the addresses of the 32 bits that each thread takes of a matrix, or of the halves of a transposed one."""
    lane = np.arange(machine.threads) & 31
    if not transposed:
        rows = _addresses_of_threads(address, _pointer_threads(machine.threads, index))
        return [own_offset(machine, rows + (4 * (lane % 4)).astype(rows.dtype))]
    base = np.arange(machine.threads) & ~31
    found = []
    for element in range(2):
        holder = (base + 8 * index + 2 * (lane % 4) + element)[None]
        rows = _addresses_of_threads(address, holder)
        found.append(own_offset(machine, rows + (2 * (lane // 4)).astype(rows.dtype)))
    return found


def store_matrices(instruction: Instruction, context: Context) -> Step:
    """stmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}.shared.b16."""
    from bitwise_nvidia_ptx.opcodes.memory import address_of

    count, transposed = _matrix_form(instruction)
    target, source = instruction.operands
    if len(registers_in(source)) != count:
        raise UnknownInstruction(instruction)

    def step(machine: Machine) -> None:
        address = machine.known(address_of(machine, target))
        if address is None:
            raise DataDependent("shared memory is written at a computed address", instruction.line)
        _require_whole_warps(machine, instruction.line)
        address = np.broadcast_to(address, (address.shape[0], machine.threads))
        lane = np.arange(machine.threads) & 31
        base = np.arange(machine.threads) & ~31
        for index, item in enumerate(registers_in(source)):
            value = machine.read_bits(item, 32)
            if not transposed:
                rows = _addresses_of_threads(address, _pointer_threads(machine.threads, index))
                where = rows + (4 * (lane % 4)).astype(rows.dtype)
                write_shared(machine, own_offset(machine, where), value)
                continue
            for element in range(2):
                rows = _addresses_of_threads(address, (base + 8 * index + 2 * (lane % 4) + element)[None])
                where = rows + (2 * (lane // 4)).astype(rows.dtype)
                write_shared(machine, own_offset(machine, where), extract(value, 16 * element, 16))

    return step
