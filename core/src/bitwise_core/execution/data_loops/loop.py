"""A loop that ends at a branch on data: the registers that an iteration passes on, and one iteration for variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bitwise_core.assembly.module import registers_of
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Branch, Machine, invert
from bitwise_core.execution.program import Program
from bitwise_core.execution.program_analyses import live_at, region
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value, width
from bitwise_core.execution.values.term_hash import nan_bits

LEVEL = "levels of loops"
"""The key of `Machine.extra` for how many loops the current one is inside of."""


class Runner(Protocol):
    """Runs instructions."""

    def start(self, pc: int = 0, stop: int | None = None) -> None:
        """Run from `pc` to `stop`."""


@dataclass(frozen=True, slots=True)
class DataLoop:
    """A loop that ends at a branch on data: it continues at `start` while `repeats` holds, else at `join`.

    `taken_repeats`: the branch is the last instruction of the loop and leads back to `start`.  Otherwise it is the
    first one and leads to `join`.
    """

    branch: int
    start: int
    join: int
    taken_repeats: bool

    def repeats(self, machine: Machine, taken: Value) -> Value:
        """Return the condition under which the loop is repeated, from that of its branch."""
        return taken if self.taken_repeats else invert(machine.domain, taken)

    def body(self, program: Program) -> frozenset[int]:
        """Return the instructions of the loop."""
        return region(program, self.branch, self.join)


def loop_at(branch: int, target: int, join: int) -> DataLoop | None:
    """Return the loop that a branch on data to `target` may end, with the condition at its end or at its start."""
    if join == branch + 1 and target <= branch:
        return DataLoop(branch, target, join, True)
    return DataLoop(branch, branch + 1, join, False) if target == join else None


def is_closed(program: Program, loop: DataLoop) -> bool:
    """Return whether a loop is entered at its start and left at its branch only."""
    body = loop.body(program)
    if loop.start not in body or loop.branch not in body:
        return False
    return not any(loop.join in program.following[index] for index in body if index != loop.branch)


def carried_registers(machine: Machine, program: Program, loop: DataLoop) -> Sequence[str] | None:
    """Return the registers that an iteration passes on or leaves, in the order of their first use.

    None where one of them has no value before the loop.
    """
    body = loop.body(program)
    written = frozenset().union(*(program.infos[index].writes for index in body))
    at_start, at_join = live_at(program, loop.start), live_at(program, loop.join)
    found: list[str] = []
    for index in sorted(body):
        info = program.infos[index]
        for name in (*_in_order(program, index, info.reads), *_in_order(program, index, info.writes)):
            if name in written and name not in found and (at_start(name) or at_join(name)):
                found.append(name)
    return found if all(name in machine.registers for name in found) else None


def _in_order(program: Program, index: int, names: frozenset[str]) -> list[str]:
    """Return the names in the order of the instruction's operands; others follow by name."""
    order = list(registers_of(*program.kernel.instructions[index].operands))
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def iterate(
    machine: Machine,
    program: Program,
    loop: DataLoop,
    carried: Sequence[str],
    variables: Mapping[str, Value],
    runner: Callable[[], Runner],
) -> tuple[Value, tuple[Value, ...]] | None:
    """Execute the body once for these values of registers; the machine's state stays as it is.

    Return the condition of the next iteration and what the `carried` registers hold.  None where the body changes
    local memory or parameters, or leaves a carried register with another width.
    """
    registers, local, parameters = machine.registers, machine.local, machine.parameters
    condition, path, mask = machine.condition, machine.path, machine.mask
    machine.local, machine.parameters = dict(local), dict(parameters)
    machine.registers = {**registers, **variables}
    try:
        runner().start(loop.start, loop.branch)
        machine.mask = mask
        control = program.steps[loop.branch](machine)
        after, unchanged = machine.registers, same(machine.local, local) and same(machine.parameters, parameters)
    finally:
        machine.registers, machine.local, machine.parameters = registers, local, parameters
        machine.condition, machine.path, machine.mask = condition, path, mask
    if not isinstance(control, Branch) or control.taken is None or not unchanged:
        return None
    results = [after.get(name) for name in carried]
    widths = [width(registers[name]) for name in carried]
    if any(each is None or width(each) != bits for each, bits in zip(results, widths, strict=True)):
        return None
    return loop.repeats(machine, control.taken), tuple(each for each in results if each is not None)


def same(left: dict[object, object] | dict[str, Value] | dict[int, Value], right: object) -> bool:
    """Return whether two mappings have the same values, as objects."""
    assert isinstance(right, dict)
    return left.keys() == right.keys() and all(value is right[key] for key, value in left.items())


def kind_of_nan(end: SymbolicVector) -> L.Flags:
    """Return the flags of what is known of a NaN that an iteration leaves: whether it is canonical."""
    mark = end.flags & L.NAN_MARK
    moved = np.logical_or(np.equal(mark, 0), (nan_bits(end) & L.UNSPECIFIED_NAN) != 0)
    return L.uniform_flags(np.asarray(mark, dtype=np.uint32) | np.where(moved, np.uint32(L.INTEGER), np.uint32(0)))


def one_value(value: Value) -> SymbolicVector:
    """Return a register as one value.  Raises Unsupported for many narrow values."""
    if isinstance(value, L.PackedVector) and len(value.parts) > 8:
        raise Unsupported("a loop that data ends passes on many narrow values in one register")
    return as_symbolic_vector(value)
