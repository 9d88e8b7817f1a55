"""Dependences between the accumulators of a loop: a data-flow analysis of its body, by parts of registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bitwise_core.assembly.module import Instruction, Operand, Register, Vector, registers_of
from bitwise_core.checker.parametric.loops.loop_shape import Loop, matrix_accumulators
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import Effect, InstructionInfo


@dataclass(frozen=True, slots=True)
class MatrixStep:
    """A matrix instruction that adds to accumulators.

    `dependences` are the pairs of result and accumulator register.  `owners` are, for each pair, the accumulators whose
    values the register holds, least significant first.
    """

    index: int
    sources: tuple[tuple[str, str], ...]
    owners: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Dependence:
    """An accumulator on which a value depends; `other_thread`: possibly the accumulator of another thread."""

    name: str
    other_thread: bool = False


Dependences: TypeAlias = frozenset[Dependence]
NO_DEPENDENCES: Dependences = frozenset()


@dataclass(frozen=True, slots=True)
class AccumulatorDependences:
    """The dependences between the accumulators of a loop.

    `matrix_only` are the accumulators that only matrix steps use, and `steps` these steps in order.  `levels` is a
    topological order: every accumulator comes after those on whose values at the start of an iteration it depends.
    `dependences_of` gives the accumulators on which each register depends at the end of an iteration.
    """

    matrix_only: frozenset[str]
    steps: tuple[MatrixStep, ...]
    levels: tuple[tuple[str, ...], ...]
    dependences_of: Mapping[str, Dependences]

    def single_dependence(self, name: str, among: Iterable[str]) -> str | None:
        """The only accumulator among these on which a register depends, in the same thread; None if there is none."""
        found = [each for each in self.dependences_of.get(name, NO_DEPENDENCES) if each.name in among]
        return found[0].name if len(found) == 1 and not found[0].other_thread else None


def analyse_accumulators(
    instructions: Sequence[Instruction], infos: Sequence[InstructionInfo], loop: Loop, accumulators: Iterable[str]
) -> AccumulatorDependences:
    """Find the accumulators that only matrix steps use, and a topological order of all accumulators.

    Raises Unsupported where the dependences have a cycle, or where an accumulator depends on itself in another thread.
    """
    accumulator_names = frozenset(accumulators)
    matrix_only = accumulator_names
    while True:
        iteration = _IterationState.at_start(accumulator_names, matrix_only)
        for index in loop.body:
            iteration.apply(index, instructions[index], infos[index])
        iteration.finish()
        if not iteration.other_uses & matrix_only:
            break
        matrix_only = matrix_only - iteration.other_uses
    dependences_of = {name: iteration.dependences([name]) for name in iteration.dependences_of}
    line = instructions[loop.header].line
    if any(Dependence(name, True) in dependences_of[name] for name in accumulator_names):
        raise Unsupported("an accumulator of a loop depends on itself in other threads", line)
    return AccumulatorDependences(
        matrix_only,
        tuple(iteration.steps),
        _topological_levels({name: dependences_of[name] for name in accumulator_names}, line),
        dependences_of,
    )


def _topological_levels(dependences_of: Mapping[str, Dependences], line: int | None) -> tuple[tuple[str, ...], ...]:
    remaining = {name: {each.name for each in found} - {name} for name, found in dependences_of.items()}
    levels: list[tuple[str, ...]] = []
    while remaining:
        level = tuple(sorted(name for name, others in remaining.items() if not others & remaining.keys()))
        if not level:
            raise Unsupported("the accumulators of a loop have a cyclic dependence", line)
        levels.append(level)
        remaining = {name: others for name, others in remaining.items() if name not in level}
    return tuple(levels) or ((),)


@dataclass(slots=True)
class _IterationState:
    """The state of the data-flow analysis within an iteration.

    `dependences_of` gives the dependences of each part of a register, `held_versions` the versions of matrix-only
    accumulators that a register holds, least significant first, `newest_version` the newest version of each such
    accumulator.  `shared` are the dependences of values stored to memory that other threads may read.  `other_uses` are
    the accumulators with other uses.
    """

    dependences_of: dict[str, tuple[Dependences, ...]]
    held_versions: dict[str, tuple[tuple[str, int], ...]]
    newest_version: dict[str, int]
    shared: Dependences = NO_DEPENDENCES
    other_uses: set[str] = field(default_factory=set)
    steps: list[MatrixStep] = field(default_factory=list)

    @staticmethod
    def at_start(accumulator_names: frozenset[str], matrix_only: frozenset[str]) -> _IterationState:
        """The state at the start of an iteration: each accumulator depends on itself."""
        own: dict[str, tuple[Dependences, ...]] = {name: (frozenset({Dependence(name)}),) for name in accumulator_names}
        return _IterationState(own, {name: ((name, 0),) for name in matrix_only}, dict.fromkeys(matrix_only, 0))

    def dependences(self, names: Iterable[str]) -> Dependences:
        """The union of the dependences of these registers."""
        return NO_DEPENDENCES.union(*(part for name in names for part in self.dependences_of.get(name, ())))

    def apply(self, index: int, instruction: Instruction, info: InstructionInfo) -> None:
        """Apply the transfer function of one instruction."""
        accumulator_pairs = matrix_accumulators(info)
        moved = None if accumulator_pairs is not None else self._move_operands(instruction, info)
        if moved is not None:
            self._apply_move(*moved)
        elif accumulator_pairs is None or not self._apply_matrix_step(index, instruction, info, accumulator_pairs):
            self._apply_other(instruction, info, accumulator_pairs)

    def _move_operands(self, instruction: Instruction, info: InstructionInfo) -> tuple[list[str], list[str]] | None:
        """The registers that a move writes and reads, with a single register on one side; None for others."""
        moves = Effect.MOVE in info.effects and len(instruction.operands) == 2
        if not moves or instruction.guard is not None:
            return None
        targets, sources = (_register_names(operand) for operand in instruction.operands)
        if targets is None or sources is None or min(len(targets), len(sources)) != 1:
            return None
        return targets, sources

    def _apply_move(self, targets: list[str], sources: list[str]) -> None:
        parts = tuple(part for source in sources for part in self.dependences_of.get(source, (NO_DEPENDENCES,)))
        versions = tuple(each for source in sources for each in self.held_versions.get(source, ()))
        whole = all(source in self.held_versions for source in sources)
        if len(targets) == 1:
            self.dependences_of[targets[0]] = parts
            self._set_held(targets[0], versions if whole else ())
            self.other_uses |= set() if whole else {name for name, _ in versions}
            return
        apart = len(parts) == len(targets)
        for place, target in enumerate(targets):
            self.dependences_of[target] = (parts[place],) if apart else (NO_DEPENDENCES.union(*parts),)
            self._set_held(target, versions[place : place + 1] if whole and len(versions) == len(targets) else ())
        self.other_uses |= set() if len(versions) == len(targets) else {name for name, _ in versions}

    def _set_held(self, name: str, versions: tuple[tuple[str, int], ...]) -> None:
        if versions:
            self.held_versions[name] = versions
        else:
            self.held_versions.pop(name, None)

    def _apply_matrix_step(
        self, index: int, instruction: Instruction, info: InstructionInfo, accumulator_pairs: list[tuple[str, str]]
    ) -> bool:
        """A matrix step on matrix-only accumulators in their newest versions; False if the instruction is not one."""
        owners = [each for _, source in accumulator_pairs for each in self.held_versions.get(source, ())]
        if not all(source in self.held_versions for _, source in accumulator_pairs) or self._factor_dependences(
            instruction, info
        ):
            return False
        up_to_date = all(self.newest_version[owner] == version for owner, version in owners)
        if not up_to_date or len({owner for owner, _ in owners}) != len(owners) or instruction.guard is not None:
            return False
        names = tuple(tuple(owner for owner, _ in self.held_versions[source]) for _, source in accumulator_pairs)
        self.steps.append(MatrixStep(index, tuple(accumulator_pairs), names))
        before = {target: self.dependences_of[source] for target, source in accumulator_pairs}
        for (target, _), own in zip(accumulator_pairs, names, strict=True):
            for owner in own:
                self.newest_version[owner] += 1
            self.held_versions[target] = tuple((owner, self.newest_version[owner]) for owner in own)
            self.dependences_of[target] = before[target]
        return True

    def _factor_dependences(self, instruction: Instruction, info: InstructionInfo) -> Dependences:
        """The dependences of the guard and of the operands of a matrix instruction other than the accumulators."""
        assert info.accumulation is not None
        own = (info.accumulation.results, info.accumulation.accumulators)
        names = set() if instruction.guard is None else {instruction.guard.register}
        for operand in instruction.operands:
            if not any(operand is each for each in own):
                names |= registers_of(operand)
        return _in_other_threads(self.dependences(names) | self.shared)

    def _apply_other(
        self, instruction: Instruction, info: InstructionInfo, accumulator_pairs: list[tuple[str, str]] | None
    ) -> None:
        if accumulator_pairs is not None:
            factors = self._factor_dependences(instruction, info)
            new_dependences = {
                target: tuple(part | factors for part in self.dependences_of.get(source, (NO_DEPENDENCES,)))
                for target, source in accumulator_pairs
            }
        else:
            read = self.dependences(info.reads)
            if info.effects.overlaps(Effect.CROSS_LANE | Effect.STORE):
                read = _in_other_threads(read)
            if Effect.STORE in info.effects:
                self.shared |= read
            new_dependences = dict.fromkeys(info.writes, (read | self.shared if Effect.LOAD in info.effects else read,))
        self.other_uses |= {owner for name in info.reads for owner, _ in self.held_versions.get(name, ())}
        for name, parts in new_dependences.items():
            self.dependences_of[name] = parts
            self.held_versions.pop(name, None)

    def finish(self) -> None:
        """At the end of an iteration: mark accumulators whose register does not hold exactly the newest version."""
        self.other_uses |= {
            name
            for name, newest_version in self.newest_version.items()
            if self.held_versions.get(name) != ((name, newest_version),)
        }


def _register_names(operand: Operand) -> list[str] | None:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    names = [each.name for each in items if isinstance(each, Register) and each.name != "_"]
    return names if len(names) == len(items) else None


def _in_other_threads(found: Dependences) -> Dependences:
    return frozenset(Dependence(each.name, True) for each in found)
