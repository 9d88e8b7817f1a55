"""How many iterations of a loop that data ends are followed, and the error for one that may take more."""

from __future__ import annotations

from collections.abc import Sequence

from bitwise_core.execution.data_loops.loop import DataLoop, carried_registers
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Branch, Machine
from bitwise_core.execution.program import Program
from bitwise_core.execution.program_analyses import effects_of
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value

MAXIMUM_ITERATIONS = 64
"""How many iterations of a loop that data ends are followed."""

_ITERATIONS_BEFORE_THE_END_IS_SOUGHT = 2
"""After how many iterations only the condition is computed, to find out whether there may be more than that."""


class LongLoop(DataDependent):
    """The loop at the branch `branch` may take more iterations than are followed.

    `carried` are the values that the last iteration that was followed passes on.
    """

    def __init__(self, branch: int, line: int | None, repeats: Value, carried: Sequence[Value]) -> None:
        reason = f"a loop that data ends may take more than {MAXIMUM_ITERATIONS} iterations"
        super().__init__(reason, line, (repeats,))
        self.branch, self.carried = branch, tuple(carried)


def long_loop(
    machine: Machine,
    program: Program,
    branch: int,
    loop: DataLoop | None,
    taken: Value,
    entered: int,
    nesting: int,
) -> LongLoop | None:
    """Return the error of a loop that may take more iterations than are followed; None where the next one is followed.

    `entered` counts the iterations so far.  `nesting` is how much deeper branches may nest, one level an iteration.
    """
    last = taken if entered >= MAXIMUM_ITERATIONS else None
    if entered == _ITERATIONS_BEFORE_THE_END_IS_SOUGHT and nesting >= MAXIMUM_ITERATIONS:
        last = _condition_after(machine, program, loop, MAXIMUM_ITERATIONS - entered)
    if last is None:
        return None
    names = None if loop is None else carried_registers(machine, program, loop)
    line = program.kernel.instructions[branch].line
    return LongLoop(branch, line, last, [machine.registers[name] for name in names or ()])


def _condition_after(machine: Machine, program: Program, loop: DataLoop | None, iterations: int) -> Value | None:
    """Return the condition of a loop after further iterations; None if it may be a number in one of them.

    Only what decides the condition is executed, which must be integers that the loop computes without a further branch.
    """
    if loop is None or not loop.taken_repeats or machine.domain.name != "terms":
        return None
    infos, between = program.infos, range(loop.start, loop.branch)
    needed, chosen, grows = set(infos[loop.branch].reads), set[int](), True
    while grows:
        found = {index for index in between if not needed.isdisjoint(infos[index].writes)}
        grows = found != chosen
        chosen = found
        needed.update(*(infos[index].reads for index in chosen))
    if effects_of(program, frozenset(chosen)) & ~(Effect.MOVE | Effect.INTEGER) or any(
        program.following[index] != (index + 1,) for index in between
    ):
        return None
    before, taken = machine.registers, None
    machine.registers = dict(before)
    try:
        for _ in range(iterations):
            for index in sorted(chosen):
                program.steps[index](machine)
            control = program.steps[loop.branch](machine)
            taken = control.taken if isinstance(control, Branch) else None
            if not isinstance(taken, SymbolicVector) or L.lazy_integers(taken) is not None:
                return None
            if L.constant_mask(taken) is not False:
                return None
    except Unsupported:
        return None
    finally:
        machine.registers = before
    return taken
