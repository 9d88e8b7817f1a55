"""Loops that data ends and that may be repeated more often than they are followed: each is one function.

The body is executed for variables in the place of the registers that an iteration passes on to the next.  The registers
after the loop are terms over the results of the body, the condition under which it is repeated, and the registers
before the loop.  Two loops with equal terms compute the same function, however often they are repeated, and end for the
same inputs.  `data_loops` has the loops that are functions from the start; those here may also count, load, exchange
values between threads, and pass barriers.

- Where threads exchange values, the terms are over these values in all threads that take part: those of a warp, or of
  a block.  The condition must be proved equal in them, for the variables too.  A register that is equal in these
  threads before the loop and after the body is one variable for all of them.
- A cell of shared memory that the body changes is undefined before each iteration and after the loop.  So what it
  passes on from one iteration to the next makes the result undefined.
- A register is undefined or undetermined in the threads in which it, or the condition, is before the loop or after the
  body, for variables that are where it is.
- Races are found between two iterations.  They pass the same barriers, so that further ones add none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bitwise_core.execution.data_loops import (
    LEVEL,
    Runner,
    carried_registers,
    is_closed,
    kind_of_nan,
    one_value,
)
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Branch, Machine, invert
from bitwise_core.execution.program import Program
from bitwise_core.execution.program_analyses import effects_of, region
from bitwise_core.execution.sides import BlockSide
from bitwise_core.execution.uniformity import is_uniform
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value, width
from bitwise_core.execution.values.term_hash import exact_hash, poison, term

_SHARED = Effect.STORE | Effect.BARRIER
"""Effects for which a whole block takes part in an iteration."""

_FOLLOWED = (
    Effect.MOVE
    | Effect.INTEGER
    | Effect.LANEWISE
    | Effect.BRANCH
    | Effect.CONDITIONAL
    | Effect.LOAD
    | Effect.CROSS_LANE
    | _SHARED
)


@dataclass(frozen=True, slots=True)
class DataLoop:
    """A loop that ends at a branch on data: it continues at `start` while `repeats` holds, else at `join`."""

    branch: int
    start: int
    join: int
    taken_repeats: bool

    def repeats(self, machine: Machine, taken: Value) -> Value:
        """Return the condition under which the loop is repeated, from that of its branch."""
        return taken if self.taken_repeats else invert(machine.domain, taken)


@dataclass(slots=True)
class _Iteration:
    """What the body leaves for the variables: the condition of the next iteration, and the registers it passes on."""

    repeats: Value
    results: tuple[Value, ...]
    hashes: list[hashing.Words] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hashes = [exact_hash(one_value(each)) for each in (self.repeats, *self.results)]

    def same_as(self, other: _Iteration) -> bool:
        """Return whether two iterations compute the same function."""
        pairs = zip(self.hashes, other.hashes, strict=True)
        return all(np.all(one == another) for one, another in pairs)


def loop_at(branch: int, target: int, join: int) -> DataLoop | None:
    """Return the loop that a branch on data to `target` may end, with the condition at its end or at its start."""
    if join == branch + 1 and target <= branch:
        return DataLoop(branch, target, join, True)
    return DataLoop(branch, branch + 1, join, False) if target == join else None


def threads_together(machine: Machine, program: Program, loop: DataLoop) -> tuple[int, bool] | None:
    """Return how many consecutive threads must repeat a loop together, and whether those of a block use its memory.

    None for a loop that is no function here.
    """
    body = region(program, loop.branch, loop.join)
    effects = effects_of(program, body)
    if machine.domain.name != "terms" or effects & ~_FOLLOWED:
        return None
    if not is_closed(program, loop.branch, loop.start, loop.join):
        return None
    for info in (program.infos[index] for index in body):
        if info.nondeterminism or info.nondeterministic_result or info.acquires or info.releases:
            return None
    if effects.overlaps(_SHARED):
        return machine.threads, True
    return machine.warp if effects.overlaps(Effect.CROSS_LANE) else 1, False


def registers_after(
    machine: Machine,
    program: Program,
    loop: DataLoop,
    taken: Value,
    together: int,
    block: BlockSide | None,
    runner: Callable[[], Runner],
) -> dict[str, Value] | None:
    """Return the registers after a loop that `together` threads repeat, None where it is no function.

    `block` is the state before the loop where whole blocks take part.  The machine has begun it, and is left in a state
    after the loop.
    """
    repeats = loop.repeats(machine, taken)
    names = carried_registers(machine, program, loop.branch, loop.start, loop.join)
    if names is None or (together > 1 and not is_uniform(machine, repeats, together)):
        return None
    outer = machine.extra
    level = outer.get(LEVEL, 0)
    machine.extra = {**outer, LEVEL: level + 1}
    try:
        body = _Body(machine, program, loop, names, together, block, runner, level)
        found = body.function()
        return None if found is None else body.after(repeats, found)
    finally:
        machine.extra = outer


class _Body:
    """The body of a loop, executed for variables."""

    def __init__(
        self,
        machine: Machine,
        program: Program,
        loop: DataLoop,
        names: Sequence[str],
        together: int,
        block: BlockSide | None,
        runner: Callable[[], Runner],
        level: int,
    ) -> None:
        self.machine, self.program, self.loop = machine, program, loop
        self.names, self.together, self.block, self.runner = names, together, block, runner
        self.before, self.mask = machine.registers, machine.mask
        self.level = level
        self.sizes = [self._size(self.before[name], together) for name in names]
        self.undefined: Array = np.zeros(machine.shared.flags.shape, dtype=bool)
        self.shape = (machine.blocks, machine.threads)
        self.sticky = [self._sticky(self.before[name]) for name in names]

    def _sticky(self, value: Value) -> Array:
        """Return the flags of the threads in which a value is undefined or undetermined."""
        return L.flags_of_lanes(one_value(value).flags, self.shape) & np.uint32(L.STICKY)

    def _size(self, value: Value, largest: int) -> int:
        """Return in how many consecutive threads a value is equal."""
        for size in (self.machine.threads, self.machine.warp):
            if 1 < size <= largest and is_uniform(self.machine, value, size):
                return size
        return 1

    def function(self) -> _Iteration | None:
        """Return what one iteration computes from the variables, in every iteration; None where it is not known."""
        while True:
            self._begin()
            found = self._run()
            if found is None:
                return None
            sizes = [self._size(each, size) for each, size in zip(found.results, self.sizes, strict=True)]
            sticky = [one | self._sticky(each) for one, each in zip(self.sticky, found.results, strict=True)]
            grows = any(np.any(one != other) for one, other in zip(sticky, self.sticky, strict=True))
            if not self._changed_cells() and sizes == self.sizes and not grows:
                break
            self.sizes, self.sticky = sizes, sticky
        if self.together > 1 and not is_uniform(self.machine, found.repeats, self.together):
            return None
        ends = self._sticky(found.repeats)
        self.sticky = [each | ends for each in self.sticky]
        if self.block is None:
            return found
        races = self.machine.races.copy()
        self._forget_cells()
        again = self._run()
        if again is None or not again.same_as(found) or self._changed_cells():
            return None
        self.machine.races = self.machine.races.with_alternatives(races)
        self._forget_cells()
        return found

    def _begin(self) -> None:
        """Go back to the state before the loop, with undefined cells."""
        if self.block is not None:
            extra = self.machine.extra
            self.block.end(self.machine)
            self.block.begin(self.machine)
            self.machine.extra = extra
            self._forget_cells()

    def _forget_cells(self) -> None:
        shared, columns = self.machine.shared, self.undefined.shape[1]
        shared.version += 1
        nothing = poison(8 * shared.granule)
        assert isinstance(nothing.flags, int)
        for half, word in zip(shared.words, nothing.words, strict=True):
            half[:, :columns][self.undefined] = word.item()
        shared.flags[:, :columns][self.undefined] = nothing.flags

    def _changed_cells(self) -> bool:
        """Note the cells that an iteration changes; return whether there are more of them."""
        if self.block is None:
            return False
        shared, start = self.machine.shared, self.block.shared
        start.reserve_cells(shared.flags.shape[1])
        changed = (shared.words != start.words).any(axis=0) | (shared.flags != start.flags)
        known = np.zeros(changed.shape, dtype=bool)
        known[:, : self.undefined.shape[1]] = self.undefined
        self.undefined = known | changed
        return bool((changed & ~known).any())

    def _run(self) -> _Iteration | None:
        machine, loop = self.machine, self.loop
        local, parameters, extra, mask = machine.local, machine.parameters, dict(machine.extra), machine.mask
        machine.local, machine.parameters = dict(local), dict(parameters)
        variables = dict(zip(self.names, map(self._variable, range(len(self.names))), strict=True))
        machine.registers = {**self.before, **variables}
        self.runner().start(loop.start, loop.branch)
        machine.mask = mask
        control = self.program.steps[loop.branch](machine)
        after, machine.registers = machine.registers, self.before
        unchanged = _same(machine.local, local) and _same(machine.parameters, parameters)
        machine.local, machine.parameters = local, parameters
        if not isinstance(control, Branch) or control.taken is None or not unchanged or not _same(machine.extra, extra):
            return None
        results = [after.get(name) for name in self.names]
        widths = [width(self.before[name]) for name in self.names]
        if any(each is None or width(each) != bits for each, bits in zip(results, widths, strict=True)):
            return None
        return _Iteration(loop.repeats(machine, control.taken), tuple(each for each in results if each is not None))

    def _variable(self, place: int) -> SymbolicVector:
        tag = f"variable {place} of loop {self.level}"
        where = [] if self.together == 1 else [self._threads(self.sizes[place])]
        flags = L.uniform_flags(self.sticky[place] | np.uint32(L.INTEGER))
        return term(width(self.before[self.names[place]]), tag, where, flags, recorder=self.machine.domain.recorder)

    def _threads(self, size: int) -> SymbolicVector:
        """Return the first thread of each thread's group of `size`: a variable is the register of that thread."""
        threads = np.arange(self.machine.threads, dtype=np.uint32)
        return L.constant_vector((threads - threads % np.uint32(size))[None])

    def after(self, repeats: Value, found: _Iteration) -> dict[str, Value]:
        """Return the registers after the loop.

        Where it is undefined or undetermined how often a thread repeats the loop, so is what the thread has after it.
        """
        recorder, ended = self.machine.domain.recorder, self._sticky(found.repeats)
        ends = [one_value(each) for each in found.results]
        operands = [one_value(found.repeats), *ends, *(one_value(self.before[name]) for name in self.names)]
        operands = [L.without_flags(each, L.STICKY) for each in operands]
        whole = None if self.together == 1 else self._of_threads(operands)
        registers = dict(self.before)
        for place, (name, end) in enumerate(zip(self.names, ends, strict=True)):
            own = operands if whole is None else [whole, self._threads(self.sizes[place])]
            tag = f"result {place} of loop {self.level}"
            flags = L.uniform_flags(kind_of_nan(end) | self.sticky[place] | ended)
            result: Value = term(end.bits, tag, own, flags, exact=True, recorder=recorder)
            result = self.machine.domain.select(repeats, result, self.before[name])
            registers[name] = result if self.mask is None else blend_values(self.mask, result, self.before[name])
        return registers

    def _of_threads(self, operands: Sequence[SymbolicVector]) -> SymbolicVector:
        """Return a term over the operands in all threads that repeat the loop together."""
        machine, recorder = self.machine, self.machine.domain.recorder
        each = term(64, "a thread of a loop", [*operands, self._threads(1)], exact=True, recorder=recorder)
        shape = (machine.blocks, machine.threads)
        active = machine.active(shape)
        count = -(-machine.threads // self.together)
        padding = ((0, 0), (0, 0), (0, count * self.together - machine.threads))
        words = np.where(active, np.broadcast_to(exact_hash(each), (2, *shape)), np.uint64(0))
        groups = np.pad(words, padding).reshape(2, machine.blocks, count, self.together)
        flags = np.where(active, L.flags_of_lanes(each.flags, shape), np.uint32(0)) & np.uint32(L.INHERITED & ~L.STICKY)
        kept = np.bitwise_or.reduce(np.pad(flags, padding[1:]).reshape(machine.blocks, count, -1), axis=2)
        sums, kept = (
            np.repeat(one, self.together, axis=-1)[..., : machine.threads] for one in (groups.sum(axis=3), kept)
        )
        whole = SymbolicVector(64, hashing.mix(sums), L.uniform_flags(kept | np.uint32(L.TERM)))
        if recorder is not None:
            recorder.add("the threads of a loop", whole, [each], False)
            whole.recorder = recorder
        return whole


def _same(left: dict[object, object] | dict[str, Value] | dict[int, Value], right: object) -> bool:
    """Return whether two mappings have the same values, as objects."""
    assert isinstance(right, dict)
    return left.keys() == right.keys() and all(value is right[key] for key, value in left.items())
