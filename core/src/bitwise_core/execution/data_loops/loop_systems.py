"""Loops that may be repeated more often than they are followed, as systems of equations: each is one function.

The body is executed for variables in the place of the registers that an iteration passes on to the next.  It may count,
load, exchange values between threads, and pass barriers, which that of `register_loops` may not.  A variable is named
by its values, never by a register or a thread.

A loop is a system of equations.  A group is the threads that repeat it together: one thread, or those of a warp or of a
block, where threads exchange values.  The variables are the carried registers of all threads of the group.  Each has a
name, a start (the term of its register before the loop) and a result (the term of what the body leaves in the register,
over the names of variables).  A further term over names is the condition.

- A name is made of the start.  While variables of one name have different results, each name is made of the former one
  and of the result, and the body is executed again.  At the end variables of one name have one start and one result.
  So their values are equal before the loop and, by induction, after each iteration: their results are one function of
  variables that the names determine, and the threads of a group iterate together.  This is why a name may stand for a
  variable of any thread and register, and why no name holds a number of either.
- A register that an iteration leaves as it was before the loop, if all those registers are as they were and any others
  are variables, stays as it was, by induction over the iterations: it is no variable.  Which ones these are is decided
  for each thread; the first iteration shows the candidates.
- A register after the loop is a term over its name and over the system: the condition and the set of all pairs of a
  name and its result.  If the terms of two registers are equal, in two loops or in one, then the two systems have the
  same names, and a name has the same start and the same result in both: a name contains its start, and has one result
  in each system.  By the same induction both systems have equal values by names after each iteration.  The condition
  is equal too, so both end after the same iteration, or never, and the two registers are equal.
- What is not passed on is a term that holds no variable, of values before the loop.  Terms of a loop inside of another
  one hold the outer variables by name, which are fixed while the inner loop runs.
- The condition must be proved equal in all threads of the group, for the variables too.
- A group depends on no variable of another one: the body is executed with other names for these, too.
- A value whose bits an equal term does not determine, of a NaN or of a race, gives its variable a name of its own, by
  register and thread.  So does a large number of refinements.
- A cell of shared memory that the body changes is undefined before each iteration and after the loop.  So what it
  passes on from one iteration to the next makes the result undefined.
- A register is undefined or undetermined in the threads in which it, or the condition, is before the loop or after the
  body, for variables that are where it is.
- Races are found between two iterations.  They pass the same barriers, so that further ones add none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bitwise_core.execution.data_loops.loop import (
    LEVEL,
    DataLoop,
    Runner,
    carried_registers,
    is_closed,
    iterate,
    kind_of_nan,
    one_value,
    same,
)
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Machine, conjunction
from bitwise_core.execution.program import Program
from bitwise_core.execution.program_analyses import effects_of, live_at
from bitwise_core.execution.sides import BlockSide, join_blocks
from bitwise_core.execution.uniformity import is_uniform
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash, nan_bits, poison, term

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


MAXIMUM_REFINEMENTS = 8
"""How often variables of one name are distinguished by their results; after that each has a name of its own."""

_EQUATION = hashing.constant("the result of a variable")


@dataclass(slots=True)
class _Iteration:
    """What the body leaves for the variables: the condition of the next iteration, and the registers it passes on."""

    repeats: Value
    results: tuple[Value, ...]
    repeats_hash: hashing.Words = field(init=False)
    hashes: tuple[hashing.Words, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.repeats_hash = exact_hash(one_value(self.repeats))
        self.hashes = tuple(exact_hash(one_value(each)) for each in self.results)

    @property
    def every_hash(self) -> tuple[hashing.Words, ...]:
        """The hashes of the condition and of all registers."""
        return (self.repeats_hash, *self.hashes)

    def same_as(self, other: _Iteration, except_for: Sequence[int] = ()) -> bool:
        """Return whether two iterations compute the same function, except for some registers."""
        pairs = [(self.repeats_hash, other.repeats_hash)]
        pairs += [(self.hashes[i], other.hashes[i]) for i in range(len(self.hashes)) if i not in except_for]
        return all(np.all(one == another) for one, another in pairs)


def run_loop_system(
    machine: Machine,
    program: Program,
    loop: DataLoop,
    taken: Value,
    blocks: BlockSide | None,
    runner: Callable[[], Runner],
) -> bool:
    """Set the state after a loop that may take many iterations, if it is a function; return whether it is.

    `blocks` is the state before it, which the machine has begun, where whole blocks choose.
    """
    together = threads_together(machine, program, loop)
    if together is None or (together[1] and blocks is None):
        return False
    threads, in_blocks = together
    outer, mask = (machine.condition, machine.path), machine.mask
    repeats = loop.repeats(machine, taken)
    begun = blocks if in_blocks else None
    if begun is None:
        machine.condition = conjunction(machine.domain, outer[0], repeats)
    else:
        machine.path = conjunction(machine.domain, outer[1], repeats)
    after = _registers_after(machine, program, loop, repeats, threads, begun, runner)
    machine.condition, machine.path = outer
    machine.mask = mask
    if after is None:
        return False
    if begun is not None:
        repeated = begun.end(machine)
        if repeated.stores.stores:
            return False
        begun.begin(machine)
        join_blocks(machine, repeats, repeated, begun.end(machine))
    machine.registers = after
    return True


def threads_together(machine: Machine, program: Program, loop: DataLoop) -> tuple[int, bool] | None:
    """Return how many consecutive threads must repeat a loop together, and whether those of a block use its memory.

    None for a loop that is no function here.
    """
    body = loop.body(program)
    effects = effects_of(program, body)
    if not isinstance(machine.domain, TermDomain) or effects & ~_FOLLOWED:
        return None
    if not is_closed(program, loop):
        return None
    for info in (program.infos[index] for index in body):
        if info.nondeterminism or info.nondeterministic_result or info.acquires or info.releases:
            return None
    if effects.overlaps(_SHARED):
        return machine.threads, True
    return machine.warp if effects.overlaps(Effect.CROSS_LANE) else 1, False


def _registers_after(
    machine: Machine,
    program: Program,
    loop: DataLoop,
    repeats: Value,
    together: int,
    block: BlockSide | None,
    runner: Callable[[], Runner],
) -> dict[str, Value] | None:
    """Return the registers after a loop that `together` threads repeat, None where it is no function.

    `block` is the state before the loop where whole blocks take part.  The machine has begun it, and is left in a state
    after the loop.
    """
    names = carried_registers(machine, program, loop)
    if names is None or (together > 1 and not is_uniform(machine, repeats, together)):
        return None
    outer = machine.extra
    level = outer.get(LEVEL, 0)
    machine.extra = {**outer, LEVEL: level + 1}
    try:
        assert isinstance(machine.domain, TermDomain)
        with machine.domain.following_members():
            body = _Body(machine, program, loop, names, together, block, runner, level)
            found = body.function()
        return None if found is None else body.after(repeats, found)
    finally:
        machine.extra = outer


class _Body:
    """The body of a loop, executed for variables.

    `names` are the hashes by which the variable of each carried register is called, shape (2, blocks, threads).
    """

    def __init__(
        self,
        machine: Machine,
        program: Program,
        loop: DataLoop,
        carried: Sequence[str],
        together: int,
        block: BlockSide | None,
        runner: Callable[[], Runner],
        level: int,
    ) -> None:
        self.machine, self.program, self.loop = machine, program, loop
        self.carried, self.together, self.block, self.runner = carried, together, block, runner
        self.before, self.mask = machine.registers, machine.mask
        self.level = level
        self.undefined: Array = np.zeros(machine.shared.flags.shape, dtype=bool)
        self.shape = (machine.blocks, machine.threads)
        starts = [one_value(self.before[name]) for name in carried]
        self.sticky = [self._sticky(each) for each in starts]
        self.varying = [self._varying(each) for each in starts]
        self.refined, self.tried = 0, False
        self.unused = [False] * len(carried)
        self.names = [self._start(place) for place in range(len(carried))]
        self.constant: list[Array] = [np.zeros(self.shape, dtype=bool) for _ in carried]

    def _sticky(self, value: Value) -> Array:
        """Return the flags of the threads in which a value is undefined or undetermined."""
        return L.flags_of_lanes(one_value(value).flags, self.shape) & np.uint32(L.STICKY)

    def _varying(self, value: SymbolicVector) -> Array:
        """Return in which threads a value may differ from another one although their terms are equal."""
        found: Array = (self._sticky(value) != 0) | _unspecified(value, self.shape)
        return found

    def _start(self, place: int) -> hashing.Words:
        """Return the first name of a variable: the hash of its register before the loop, with its width."""
        value = one_value(self.before[self.carried[place]])
        tag = hashing.constant(f"a variable of {value.bits} bits")
        words = hashing.mix(exact_hash(value) * hashing.multiplier(1) + tag)
        varying = self.varying[place]
        return np.where(varying, self._alone(place, words), words) if varying.any() else words

    def _alone(self, place: int, name: hashing.Words) -> hashing.Words:
        """Return a name that no other variable has."""
        thread = np.arange(self.machine.threads, dtype=np.uint64) * hashing.multiplier(2)
        return hashing.mix(name * hashing.multiplier(1) + thread + hashing.constant(f"variable {place} of a thread"))

    def function(self) -> _Iteration | None:
        """Return what one iteration computes from the variables, in every iteration; None where it is not known."""
        self._suppose_constants()
        while True:
            self._begin()
            found = self._run(self._variables())
            if found is None:
                return None
            changed = self._drop_constants(found)
            changed = self._note_flags(found) or changed
            if self._changed_cells() or changed:
                continue
            if not self._names_are_stable(found):
                self._refine_names(found)
            elif not self._drop_unused(found):
                break
        if self.together > 1 and not is_uniform(self.machine, found.repeats, self.together):
            return None
        if self._other_groups_decide(found):
            return None
        ends = self._sticky(found.repeats)
        self.sticky = [each | ends for each in self.sticky]
        if self.block is None:
            return found
        races = self.machine.races.copy()
        self._forget_cells()
        again = self._run(self._variables())
        if again is None or not again.same_as(found) or self._changed_cells():
            return None
        self.machine.races = self.machine.races.with_alternatives(races)
        self._forget_cells()
        return found

    def _suppose_constants(self) -> None:
        """Suppose that the registers which the first iteration leaves as they are never change."""
        self._begin()
        try:
            found = self._run({})
        except Unsupported:
            return
        if found is not None:
            self.constant = [np.ones(self.shape, dtype=bool) for _ in self.carried]
            self._drop_constants(found)

    def _drop_constants(self, found: _Iteration) -> bool:
        """Drop the assumption that a register is constant where an iteration changes it; return whether one does."""
        drops = False
        for place, words in enumerate(found.hashes):
            start, end = one_value(self.before[self.carried[place]]), one_value(found.results[place])
            same = (words == exact_hash(start)).all(axis=0) & ~_unspecified(start, self.shape)
            same = same & ~_unspecified(end, self.shape) & (self._sticky(start) == self._sticky(end))
            drops = drops or bool((self.constant[place] & ~same).any())
            self.constant[place] = self.constant[place] & same
        return drops

    def _drop_unused(self, found: _Iteration) -> bool:
        """Find registers that the loop may leave as they are, but never reads; return whether it was executed for that.

        They are not read after the loop either.  With other names for them, nothing else has another result.
        """
        if self.tried:
            return False
        self.tried = True
        live, infos = live_at(self.program, self.loop.join), self.program.infos
        instructions = self.program.kernel.instructions
        body = self.loop.body(self.program)
        guarded = [infos[index].writes for index in body if instructions[index].guard is not None]
        places = [
            place
            for place, name in enumerate(self.carried)
            if not live(name) and any(name in writes for writes in guarded)
        ]
        if not places:
            return False
        names = self.names
        self.names = [self._alone(place, each) if place in places else each for place, each in enumerate(names)]
        self._begin()
        other = self._run(self._variables())
        self.names = names
        if other is None or not other.same_as(found, except_for=places):
            return True
        for place in places:
            self.unused[place] = True
        return True

    def _note_flags(self, found: _Iteration) -> bool:
        """Note which variables are undefined or may vary after an iteration; return whether there are more of them."""
        grows = False
        for place, each in enumerate(map(one_value, found.results)):
            changed = ~self.constant[place]
            sticky = self.sticky[place] | np.where(changed, self._sticky(each), np.uint32(0))
            varying = self._varying(each) & ~self.varying[place] & changed
            grows = grows or bool(varying.any()) or bool(np.any(sticky != self.sticky[place]))
            self.sticky[place] = sticky
            if varying.any():
                self.varying[place] = self.varying[place] | varying
                self.names[place] = np.where(varying, self._alone(place, self.names[place]), self.names[place])
        return grows

    def _names_are_stable(self, found: _Iteration) -> bool:
        """Return whether variables of one name have one result, among the threads that repeat the loop together."""
        if self.refined > MAXIMUM_REFINEMENTS:
            return True
        names, active = self._of_groups(self.names)
        results, _ = self._of_groups(found.hashes)
        alone = _number_of_different(names, active)
        return bool(np.array_equal(alone, _number_of_different(np.concatenate([names, results]), active)))

    def _refine_names(self, found: _Iteration) -> None:
        """Give variables of one name whose results differ names of their own."""
        self.refined += 1
        if self.refined <= MAXIMUM_REFINEMENTS:
            tag, factor = hashing.constant("a variable and its result"), hashing.multiplier(2)
            pairs = zip(self.names, found.hashes, strict=True)
            self.names = [hashing.mix(name * hashing.multiplier(1) + end * factor + tag) for name, end in pairs]
            return
        self.names = [self._alone(place, name) for place, name in enumerate(self.names)]

    def _other_groups_decide(self, found: _Iteration) -> bool:
        """Return whether what a group computes depends on variables of another group of its block.

        The body is executed with other names in some groups, so often that for each two groups the names of the one
        change in an execution in which those of the other do not.
        """
        count = -(-self.machine.threads // self.together)
        group = np.arange(self.machine.threads) // self.together
        active, names = self.machine.active(self.shape), self.names
        for chosen in _separating_sets(count):
            changed = chosen[group]
            self.names = [np.where(changed, self._alone(place, each), each) for place, each in enumerate(names)]
            self._begin()
            other = self._run(self._variables())
            self.names = names
            pairs = None if other is None else zip(found.every_hash, other.every_hash, strict=True)
            kept = active & ~changed
            if pairs is None or any((np.broadcast_to(one != two, (2, *self.shape)) & kept).any() for one, two in pairs):
                return True
        return False

    def _of_groups(self, words: Sequence[hashing.Words]) -> tuple[hashing.Words, Array]:
        """Return hashes as (2, groups, members), and which members are variables of active threads.

        The members of a group are the carried registers that change of the threads that repeat the loop together.
        """
        machine, size = self.machine, self.together
        count = -(-machine.threads // size)
        missing = count * size - machine.threads
        every = np.stack([np.broadcast_to(each, (2, *self.shape)) for each in words], axis=-1)
        padded = np.pad(every, ((0, 0), (0, 0), (0, missing), (0, 0)))
        members = machine.active(self.shape)[..., None] & ~np.stack(self.constant, axis=-1) & ~np.array(self.unused)
        members = np.pad(members, ((0, 0), (0, missing), (0, 0)))
        shape = (machine.blocks * count, size * len(words))
        return padded.reshape(2, *shape), members.reshape(shape)

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
        shared.changed()
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

    def _variables(self) -> dict[str, Value]:
        """Return the variables of the carried registers, which keep their values where they are constant."""
        found: dict[str, Value] = {}
        for place, name in enumerate(self.carried):
            constant = self.constant[place]
            if constant.all():
                continue
            found[name] = self._variable(place)
            if constant.any():
                found[name] = blend_values(constant, self.before[name], found[name])
        return found

    def _run(self, variables: Mapping[str, Value]) -> _Iteration | None:
        extra = dict(self.machine.extra)
        found = iterate(self.machine, self.program, self.loop, self.carried, variables, self.runner)
        return None if found is None or not same(self.machine.extra, extra) else _Iteration(*found)

    def _variable(self, place: int) -> SymbolicVector:
        tag, recorder = f"a variable of loop {self.level}", self.machine.domain.recorder
        value = one_value(self.before[self.carried[place]])
        flags = L.uniform_flags(self.sticky[place] | np.uint32(L.INTEGER))
        words = hashing.mix(self.names[place] * hashing.multiplier(1) + hashing.constant(tag))
        variable = SymbolicVector(value.bits, words, L.TERM | flags)
        if recorder is not None:
            recorder.add(tag, variable, [value], False)
            variable.recorder = recorder
        return variable

    def after(self, repeats: Value, found: _Iteration) -> dict[str, Value]:
        """Return the registers after the loop.

        Where it is undefined or undetermined how often a thread repeats the loop, so is what the thread has after it.
        """
        machine = self.machine
        recorder, ended = machine.domain.recorder, self._sticky(found.repeats)
        ends = [one_value(each) for each in found.results]
        equations = self._equations(found, ends)
        registers = dict(self.before)
        for place, (name, end) in enumerate(zip(self.carried, ends, strict=True)):
            others = None if self.mask is None else ~machine.active(self.shape)
            if self.unused[place]:
                nothing = poison(end.bits)
                registers[name] = nothing if others is None else blend_values(others, self.before[name], nothing)
                continue
            own = SymbolicVector(64, self.names[place], L.TERM | L.INTEGER)
            flags = L.uniform_flags(kind_of_nan(end) | self.sticky[place] | ended)
            operands, tag = [equations, own], f"a result of loop {self.level}"
            result: Value = term(end.bits, tag, operands, flags, exact=True)
            if recorder is not None:
                assert isinstance(result, SymbolicVector)
                recorder.add(tag, result, [one_value(found.repeats), end, one_value(self.before[name])], False)
                result.recorder = recorder
            result = machine.domain.select(repeats, result, self.before[name])
            kept = self.constant[place] if others is None else self.constant[place] | others
            registers[name] = blend_values(~kept, result, self.before[name]) if kept.any() else result
        return registers

    def _equations(self, found: _Iteration, ends: Sequence[SymbolicVector]) -> SymbolicVector:
        """Return a term over the loop's condition and the set of its variables, each with its name and its result."""
        machine = self.machine
        names, active = self._of_groups(self.names)
        results, _ = self._of_groups(found.hashes)
        words = hashing.mix(names * hashing.multiplier(1) + results * hashing.multiplier(2) + _EQUATION)
        count, total = _sum_of_different(words, active)
        total = hashing.mix((total + count)[:, :, None])
        whole = np.repeat(total.reshape(2, machine.blocks, -1), self.together, axis=2)[..., : machine.threads]
        whole = hashing.mix(whole + found.repeats_hash * hashing.multiplier(3))
        flags = np.uint32(L.TERM | L.INTEGER) | self._inherited(one_value(found.repeats), ends)
        return SymbolicVector(64, whole, L.uniform_flags(flags))

    def _of_nans(self, value: SymbolicVector) -> Array:
        """Return the flags of a value and of its bits, for each thread."""
        return L.flags_of_lanes(value.flags, self.shape) | np.asarray(nan_bits(value), dtype=np.uint32)

    def _inherited(self, repeats: SymbolicVector, ends: Sequence[SymbolicVector]) -> Array:
        """Return what is known of NaNs in some thread of those that repeat the loop together, for each thread."""
        machine = self.machine
        kept = self._of_nans(repeats)
        for place, (name, end) in enumerate(zip(self.carried, ends, strict=True)):
            own = self._of_nans(end) | self._of_nans(one_value(self.before[name]))
            is_variable = np.logical_not(self.constant[place]) & (not self.unused[place])
            kept = kept | np.where(is_variable, own, np.uint32(0))
        kept = np.where(machine.active(self.shape), kept, np.uint32(0)) & np.uint32(L.INHERITED & ~L.STICKY)
        count = -(-machine.threads // self.together)
        padded = np.pad(kept, ((0, 0), (0, count * self.together - machine.threads)))
        groups = np.bitwise_or.reduce(padded.reshape(machine.blocks, count, -1), axis=2)
        return np.repeat(groups, self.together, axis=1)[:, : machine.threads]


def _unspecified(value: SymbolicVector, shape: tuple[int, int]) -> Array:
    """Return in which threads an assembler decides bits of a value."""
    flags = L.flags_of_lanes(value.flags, shape) | np.asarray(nan_bits(value), dtype=np.uint32)
    found: Array = (flags & np.uint32(L.UNSPECIFIED_NAN)) != 0
    return found


def _different(words: hashing.Words, members: Array) -> tuple[hashing.Words, Array]:
    """Return the words of each group in an order, and the first of those that are equal among the members.

    `words` has the shape (any number, groups, all members), `members` (groups, all members).
    """
    order = np.lexsort((*words, ~members), axis=-1)
    words = np.take_along_axis(words, order[None], axis=-1)
    first = np.take_along_axis(members, order, axis=-1)
    first[:, 1:] &= (words[..., 1:] != words[..., :-1]).any(axis=0)
    return words, first


def _number_of_different(words: hashing.Words, members: Array) -> Array:
    """Return how many different words the members of each group have."""
    found: Array = _different(words, members)[1].sum(axis=-1)
    return found


def _sum_of_different(words: hashing.Words, members: Array) -> tuple[Array, hashing.Words]:
    """Return how many different words the members of each group have, and their sums, shape (2, groups)."""
    words, first = _different(words, members)
    return first.sum(axis=-1).astype(np.uint64), np.where(first, words, np.uint64(0)).sum(axis=-1)


def _separating_sets(count: int) -> list[Array]:
    """Return sets of `count` members as masks, so that for each two members one set holds the first without the other.

    Each member is in half of the sets, and no two are in the same ones.
    """
    sets = next(number for number in itertools.count() if math.comb(number, number // 2) >= count)
    halves = itertools.islice(itertools.combinations(range(sets), sets // 2), count)
    of_members = np.zeros((count, sets), dtype=bool)
    for member, places in enumerate(halves):
        of_members[member, list(places)] = True
    return list(of_members.T)
