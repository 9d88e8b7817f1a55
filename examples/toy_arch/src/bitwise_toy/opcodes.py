"""What each instruction of toy1 means.  Registers r are 32 bits wide, a (addresses) 64, p (predicates) one."""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Address, Immediate, Instruction, Operand, Register, Symbol
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect
from bitwise_core.execution.machine import Exit, Machine, Step, literal
from bitwise_core.execution.memory.access import known_address, load_global, store_global
from bitwise_core.execution.opcode_steps import apply_integer, branch
from bitwise_core.execution.values.packing import take_threads
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import operation

TABLE = OpcodeTable()

FLOATS = {f"{verb}.f": operation(f"{verb}.rn.fp32") for verb in ("add", "mul", "fma")}
FLOATS["rcp.f"] = operation("rcp.approx.fp32@toy1")
INTEGERS = {"add.i": operation("add.b32"), "mul.i": operation("mul.b32"), "less.i": operation("lt.u32")}
OFFSET, ADDRESS = operation("mulwide.u32"), operation("add.b64")


def reciprocal(patterns: Array) -> Array:
    """rcp.f: the reciprocal of fp32 patterns, its last 12 bits zero; of a NaN and of a zero the one NaN."""
    numbers = patterns.view(np.float32).astype(np.float64)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        cut = (1.0 / numbers).astype(np.float32).view(np.uint32) & np.uint32(0xFFFFF000)
    found: Array = np.where(np.isnan(numbers) | (numbers == 0), np.uint32(0x7FFFFFFF), cut)
    return found


def operands(instruction: Instruction, kinds: str) -> tuple[Operand, ...]:
    """The operands, one for each letter: a register (r, a, p), v a register r or literal, s a name, m an address."""
    given = instruction.operands
    if len(given) != len(kinds):
        raise UnknownInstruction(instruction, f"has {len(given)} operands and takes {len(kinds)}")
    for number, (operand, kind) in enumerate(zip(given, kinds, strict=True), 1):
        register = operand.name[0] if isinstance(operand, Register) else None
        fits = {
            "v": isinstance(operand, Immediate) or register not in ("a", "p", None),
            "s": isinstance(operand, Symbol),
            "m": isinstance(operand, Address),
        }
        if not fits.get(kind, register == kind):
            raise UnknownInstruction(instruction, f"does not take its operand {number}")
    return given


def parameter_of(operand: Operand, instruction: Instruction, context: Context, *, pointer: bool) -> str:
    """The name of a parameter of the kernel."""
    names = [each.name for each in context.kernel.parameters if each.pointer == pointer]
    if not isinstance(operand, Symbol) or operand.name not in names:
        raise UnknownInstruction(instruction, f"takes a parameter that is {'a buffer' if pointer else 'an i32'}")
    return operand.name


@TABLE.opcode("mov", operands=DESTINATION_FIRST, effects=Effect.MOVE)
def move(instruction: Instruction, context: Context) -> Step:
    """mov r, (a register or a literal)."""
    destination, source = operands(instruction, "rv")
    return lambda machine: machine.write(destination, machine.read_bits(source, 32))


@TABLE.opcode("param", operands=DESTINATION_FIRST, effects=Effect.NONE)
def parameter(instruction: Instruction, context: Context) -> Step:
    """param r, (an i32 parameter)."""
    destination, source = operands(instruction, "rs")
    name = parameter_of(source, instruction, context, pointer=False)
    return lambda machine: machine.write(destination, machine.parameters[name])


@TABLE.opcode("add", "mul", "fma", "rcp", "less", operands=DESTINATION_FIRST, effects=Effect.NONE)
def arithmetic(instruction: Instruction, context: Context) -> Step:
    """add.f, mul.f and fma.f round to nearest even; rcp.f is toy1's own; .i wraps; less.i knows no signs."""
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
    """swap r, r, n: the register of the lane whose number differs in the bits of n (1, 2 or 3), within the wave."""
    destination, source, distance = operands(instruction, "rrv")
    if not isinstance(distance, Immediate) or distance.value not in (1, 2, 3):
        raise UnknownInstruction(instruction, "takes a distance of 1, 2 or 3")
    bits = distance.value

    def step(machine: Machine) -> None:
        if not machine.active().all():
            raise Unsupported("a swap runs in part of the block", instruction.line)
        partner = (np.arange(machine.threads) ^ bits)[None]
        machine.write(destination, take_threads(machine.read_bits(source, 32), partner))

    return step


TABLE.opcode("jump", operands=NO_DESTINATION, effects=Effect.BRANCH)(branch)


@TABLE.opcode("end", operands=NO_DESTINATION, effects=Effect.END)
def end(instruction: Instruction, context: Context) -> Step:
    """The thread is done."""
    operands(instruction, "")
    return lambda machine: Exit()
