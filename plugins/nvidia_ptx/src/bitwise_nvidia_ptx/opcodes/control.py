"""Branches, calls, exits and barriers.

Source: PTX ISA 8.7, "Control Flow Instructions" and "Parallel Synchronization: bar, barrier".
"""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Instruction, Symbol, Vector
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect, InstructionInfo
from bitwise_core.execution.machine import Barrier, Call, Control, Exit, Jump, Machine, Return, Step
from bitwise_core.execution.opcode_steps import branch
from bitwise_core.execution.races.colliding_lanes import pass_barrier_of_warps
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_nvidia_ptx.opcodes.clusters import cluster_barrier

TABLE = OpcodeTable()


TABLE.opcode("bra", operands=NO_DESTINATION, effects=Effect.BRANCH)(branch)


@TABLE.opcode("brx", operands=NO_DESTINATION, effects=Effect.BRANCH)
def indexed_branch(instruction: Instruction, context: Context) -> Step:
    """brx.idx{.uni} index, labels: each thread continues at the label with its index."""
    index, table = instruction.operands
    names = [each.name for each in table.items if isinstance(each, Symbol)] if isinstance(table, Vector) else []
    if instruction.guard is not None or instruction.opcode not in ("brx.idx", "brx.idx.uni") or not names:
        raise UnknownInstruction(instruction)
    places = np.array([context.kernel.labels[name] for name in names], dtype=np.int64)

    def step(machine: Machine) -> Jump:
        number = machine.known(machine.read_bits(index, 32))
        if number is None:
            raise DataDependent("an indirect branch depends on data", instruction.line)
        if (machine.active() & (number >= len(places))).any():
            raise Unsupported("an indirect branch has no label for its index", instruction.line)
        return Jump(places[np.minimum(number, len(places) - 1)])

    return step


@TABLE.opcode("ret", "exit", operands=NO_DESTINATION, effects=Effect.END)
def end(instruction: Instruction, context: Context) -> Step:
    """ret in a function returns to its caller; ret and exit in an entry end the thread."""
    if instruction.opcode.startswith("exit") and not context.kernel.entry:
        raise UnknownInstruction(instruction, "ends a thread inside a function, which is not modelled")
    control: Control = Exit() if instruction.opcode.startswith("exit") or context.kernel.entry else Return()

    def step(machine: Machine) -> Control:
        return control

    return step


@TABLE.opcode("trap", operands=NO_DESTINATION, effects=Effect.END | Effect.ABORT)
@TABLE.opcode("brkpt", operands=NO_DESTINATION, effects=Effect.NONE)
def trap(instruction: Instruction, context: Context) -> Step:
    """trap and brkpt: a launch that executes one has no result."""

    def step(machine: Machine) -> Control | None:
        raise Unsupported("the kernel traps on this launch", instruction.line)

    return step


@TABLE.opcode("call", operands=DESTINATION_FIRST, effects=Effect.CALL)
def call(instruction: Instruction, context: Context) -> Step:
    """call of a function whose body is in the module."""
    returns, function, arguments = instruction.operands
    if not isinstance(returns, Vector) or not isinstance(function, Symbol) or not isinstance(arguments, Vector):
        raise UnknownInstruction(instruction)
    names = [item.name for item in arguments.items if isinstance(item, Symbol)]
    results = [item.name for item in returns.items if isinstance(item, Symbol)]
    body = context.module.functions.get(function.name)
    if body is None or len(names) != len(arguments.items) or not body.instructions:
        raise UnknownInstruction(instruction, f"calls {function.name}, whose body is not in the text")

    def step(machine: Machine) -> Control:
        values = tuple(machine.parameters[name] for name in names)
        return Call(function.name, values, tuple(Symbol(name) for name in results))

    return step


_WHOLE_WARP = 0xFFFFFFFF
"""The member mask of a barrier of all lanes of a warp."""


def _whole_warps(machine: Machine, members: Array) -> Array:
    """Return the warps whose lanes all execute a barrier of the warp, each with a member mask of all of them.

    A barrier of a part of a warp orders that part alone; it is not followed, as if it ordered nothing.
    """
    active = machine.active((machine.blocks, machine.threads))
    there = np.full(machine.threads, _WHOLE_WARP, dtype=np.uint32)
    rest = machine.threads % machine.warp
    there[machine.threads - rest :] = (1 << rest) - 1
    named = np.broadcast_to((members & there) == there, active.shape)
    whole = (active & named)[active.any(axis=1)].all(axis=0)
    found: Array = np.flatnonzero(np.logical_and.reduceat(whole, np.arange(0, machine.threads, machine.warp)))
    return found


_BARRIERS = 16
"""The number of barriers of a block."""


def barrier_info(instruction: Instruction) -> InstructionInfo:
    """Return what a barrier reads and writes; one that reduces a predicate over the block has a destination."""
    if "red" in instruction.opcode.split("."):
        return DESTINATION_FIRST.info(instruction, Effect.BARRIER | Effect.CROSS_LANE)
    if "cluster" in instruction.opcode.split("."):
        return NO_DESTINATION.info(instruction, Effect.BARRIER | Effect.CLUSTER)
    return NO_DESTINATION.info(instruction, Effect.BARRIER)


@TABLE.opcode("bar", "barrier", operands=barrier_info)
def barrier(instruction: Instruction, context: Context) -> Step:
    """bar.sync, barrier.sync, bar.warp.sync and barrier.cluster; bar.arrive and bar.red are not modelled."""
    parts = instruction.opcode.split(".")
    if parts[:2] == ["barrier", "cluster"]:
        return cluster_barrier(instruction, context)
    if "warp" in parts:
        members_operand = instruction.operands[0]

        def warp(machine: Machine) -> None:
            members = machine.known(machine.read_bits(members_operand, 32))
            if members is None:
                raise DataDependent("the member mask of a barrier depends on data", instruction.line)
            lane = (np.arange(machine.threads, dtype=np.uint32) & np.uint32(31))[None]
            if ((members >> lane & np.uint32(1) == 0) & machine.active()).any():
                raise Unsupported("a lane executes a barrier whose member mask does not contain it", instruction.line)
            whole = _whole_warps(machine, members)
            if not whole.size:
                return
            for races in machine.races.acting(machine.mask):
                races.warp_barrier(whole)
            if machine.mask is None and whole.size * machine.warp == machine.threads:
                pass_barrier_of_warps(machine)
            if machine.mask is None and machine.threads == machine.warp:
                # All threads of each block take part, and it orders their accesses to global memory too.
                machine.epoch = machine.epoch + 1

        return warp
    if "red" in parts or "sync" not in parts:
        raise UnknownInstruction(instruction)
    number, *count = instruction.operands
    aligned = parts[0] == "bar" or "aligned" in parts

    def step(machine: Machine) -> Control:
        numbers = [machine.known(machine.read_bits(each, 32)) for each in (number, *count)]
        if any(each is None or (each != each.flat[0]).any() for each in numbers):
            reason = "the number or the count of a barrier differs between threads or depends on data"
            raise Unsupported(reason, instruction.line)
        values = [int(each.flat[0]) for each in numbers if each is not None]
        if values[0] >= _BARRIERS:
            raise Unsupported(f"a block has no barrier {values[0]}", instruction.line)
        return Barrier(values[0], values[1] if len(values) > 1 else None, aligned=aligned)

    return step


@TABLE.opcode(
    "setmaxnreg", "griddepcontrol", "nanosleep", "pragma", "nop", operands=NO_DESTINATION, effects=Effect.NONE
)
def no_effect(instruction: Instruction, context: Context) -> Step:
    """Register allocation, launch dependencies, sleep and nop have no effect on values."""

    def step(machine: Machine) -> None:
        return None

    return step
