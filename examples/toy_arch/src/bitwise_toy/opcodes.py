"""The instructions of toy1.  Registers r have 32 bits, a (addresses) 64 bits, p (predicates) one bit."""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Address, Immediate, Instruction, Operand, Register, Symbol
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect
from bitwise_core.execution.machine import Exit, Machine, Step, literal
from bitwise_core.execution.memory.access import known_address, load_global, store_global
from bitwise_core.execution.opcode_steps import apply_integer, branch
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import operation

TABLE = OpcodeTable()

FLOATS = {f"{verb}.f": operation(f"{verb}.rn.fp32") for verb in ("add", "mul", "fma")}
FLOATS["rcp.f"] = operation("rcp.approx.fp32@toy1")
INTEGERS = {"add.i": operation("add.b32"), "mul.i": operation("mul.b32"), "less.i": operation("lt.u32")}
OFFSET, ADDRESS = operation("mulwide.u32"), operation("add.b64")


def reciprocal(patterns: Array) -> Array:
    """Return rcp.f of fp32 bit patterns: the reciprocal with its last 12 bits zero; NaN for a NaN and for a zero."""
    numbers = patterns.view(np.float32).astype(np.float64)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        truncated = (1.0 / numbers).astype(np.float32).view(np.uint32) & np.uint32(0xFFFFF000)
    result: Array = np.where(np.isnan(numbers) | (numbers == 0), np.uint32(0x7FFFFFFF), truncated)
    return result


def operands(instruction: Instruction, kinds: str) -> tuple[Operand, ...]:
    """Return the operands, checked against one letter each.

    r, a and p are registers, v is a register r or a literal, s is a name, m is an address.  Raises UnknownInstruction.
    """
    given = instruction.operands
    if len(given) != len(kinds):
        raise UnknownInstruction(instruction, f"has {len(given)} operands instead of {len(kinds)}")
    for number, (operand, kind) in enumerate(zip(given, kinds, strict=True), 1):
        register = operand.name[0] if isinstance(operand, Register) else None
        fits = {
            "v": isinstance(operand, Immediate) or register not in ("a", "p", None),
            "s": isinstance(operand, Symbol),
            "m": isinstance(operand, Address),
        }
        if not fits.get(kind, register == kind):
            raise UnknownInstruction(instruction, f"does not accept its operand {number}")
    return given


def parameter_of(operand: Operand, instruction: Instruction, context: Context, *, pointer: bool) -> str:
    """Return the name of a kernel parameter, a buffer if `pointer`, else an i32.  Raises UnknownInstruction."""
    names = [each.name for each in context.kernel.parameters if each.pointer == pointer]
    if not isinstance(operand, Symbol) or operand.name not in names:
        raise UnknownInstruction(instruction, f"needs a parameter that is {'a buffer' if pointer else 'an i32'}")
    return operand.name


@TABLE.opcode("mov", operands=DESTINATION_FIRST, effects=Effect.MOVE)
def move(instruction: Instruction, context: Context) -> Step:
    """mov r, v: v is a register or a literal."""
    destination, source = operands(instruction, "rv")
    return lambda machine: machine.write(destination, machine.read_bits(source, 32))


@TABLE.opcode("param", operands=DESTINATION_FIRST, effects=Effect.NONE)
def parameter(instruction: Instruction, context: Context) -> Step:
    """param r, n: n is an i32 parameter."""
    destination, source = operands(instruction, "rs")
    name = parameter_of(source, instruction, context, pointer=False)
    return lambda machine: machine.write(destination, machine.parameters[name])


@TABLE.opcode("add", "mul", "fma", "rcp", "less", operands=DESTINATION_FIRST, effects=Effect.NONE)
def arithmetic(instruction: Instruction, context: Context) -> Step:
    """add.f, mul.f and fma.f round to nearest even; rcp.f is approximate; add.i and mul.i wrap; less.i is unsigned."""
    opcode = instruction.opcode
    destination, *sources = operands(instruction, {"fma.f": "rvvv", "rcp.f": "rv", "less.i": "pvv"}.get(opcode, "rvv"))
    if opcode not in FLOATS and opcode not in INTEGERS:
        raise UnknownInstruction(instruction)

    def step(machine: Machine) -> None:
        values = [machine.read_bits(each, 32) for each in sources]
        if opcode in FLOATS:
            machine.write(destination, machine.domain.floating(FLOATS[opcode], values))
        else:
            machine.write(destination, apply_integer(machine, INTEGERS[opcode], values))

    return step


@TABLE.opcode("index", operands=DESTINATION_FIRST, effects=Effect.NONE)
def index(instruction: Instruction, context: Context) -> Step:
    """index a, x, r: the address of element r of the buffer x, in elements of four bytes."""
    destination, buffer, number = operands(instruction, "asv")
    name = parameter_of(buffer, instruction, context, pointer=True)

    def step(machine: Machine) -> None:
        factors = [machine.read_bits(number, 32), literal(4, 32)]
        parts = [machine.parameters[name], apply_integer(machine, OFFSET, factors)]
        machine.write(destination, apply_integer(machine, ADDRESS, parts))

    return step


@TABLE.opcode("load", operands=DESTINATION_FIRST, effects=Effect.LOAD)
def load(instruction: Instruction, context: Context) -> Step:
    """load r, [a + n]: four bytes of global memory."""
    destination, source = operands(instruction, "rm")
    line = instruction.line
    return lambda machine: machine.write(destination, load_global(machine, known_address(machine, source, 4), 32, line))


@TABLE.opcode("store", operands=NO_DESTINATION, effects=Effect.STORE)
def store(instruction: Instruction, context: Context) -> Step:
    """store [a + n], r: four bytes of global memory."""
    target, value = operands(instruction, "mv")
    return lambda machine: store_global(
        machine, known_address(machine, target, 4), machine.read_bits(value, 32), 32, instruction.line
    )


@TABLE.opcode("swap", operands=DESTINATION_FIRST, effects=Effect.CROSS_LANE)
def swap(instruction: Instruction, context: Context) -> Step:
    """swap r, r, n: the register of the lane whose number is the own one xor n (1, 2 or 3), within the wave."""
    destination, source, distance = operands(instruction, "rrv")
    if not isinstance(distance, Immediate) or distance.value not in (1, 2, 3):
        raise UnknownInstruction(instruction, "needs a distance of 1, 2 or 3")
    bits = distance.value

    def step(machine: Machine) -> None:
        if not machine.active().all():
            raise Unsupported("the swap is executed by a part of the block only", instruction.line)
        partner = (np.arange(machine.threads) ^ bits)[None]
        machine.write(destination, take_threads(machine.read_bits(source, 32), partner))

    return step


TABLE.opcode("jump", operands=NO_DESTINATION, effects=Effect.BRANCH)(branch)


@TABLE.opcode("end", operands=NO_DESTINATION, effects=Effect.END)
def end(instruction: Instruction, context: Context) -> Step:
    """end: the thread exits."""
    operands(instruction, "")
    return lambda machine: Exit()
