"""How the accumulators of a loop depend on each other: a data-flow analysis of its text, by parts of registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bitwise_core.assembly.module import Instruction, Operand, Register, Vector, registers_of
from bitwise_core.checker.parametric.loop_shape import Loop, matrix_accumulators
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import Effect, InstructionInfo


@dataclass(frozen=True, slots=True)
class MatrixStep:
    """A matrix instruction that adds to accumulators, by the registers it writes and those it adds to.

    `owners` are the accumulators whose values each of these registers holds, least significant first.
    """

    index: int
    sources: tuple[tuple[str, str], ...]
    owners: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Source:
    """An accumulator that a value depends on; `elsewhere`: it may be that of another thread."""

    name: str
    elsewhere: bool = False


Sources: TypeAlias = frozenset[Source]
NOTHING: Sources = frozenset()


@dataclass(frozen=True, slots=True)
class Chains:
    """How the accumulators of a loop depend on each other.

    `pure` are those that only matrix steps use, and `steps` these steps in order.  In `levels` every accumulator comes
    after those on whose values at the start of an iteration it depends.  `depends` gives the accumulators on which each
    register depends at the end of an iteration.
    """

    pure: frozenset[str]
    steps: tuple[MatrixStep, ...]
    levels: tuple[tuple[str, ...], ...]
    depends: Mapping[str, Sources]

    def only(self, name: str, among: Iterable[str]) -> str | None:
        """The one of these accumulators, of the same thread, on which a register depends beside others."""
        found = [each for each in self.depends.get(name, NOTHING) if each.name in among]
        return found[0].name if len(found) == 1 and not found[0].elsewhere else None


def chains(
    instructions: Sequence[Instruction], infos: Sequence[InstructionInfo], loop: Loop, accumulators: Iterable[str]
) -> Chains:
    """Which accumulators only matrix steps add to, and an order of all by dependence.

    Raises Unsupported where accumulators depend on each other in a circle, or on themselves in another thread.
    """
    wanted = frozenset(accumulators)
    pure = wanted
    while True:
        iteration = _Iteration.before(wanted, pure)
        for index in loop.body:
            iteration.take(index, instructions[index], infos[index])
        iteration.end()
        if not iteration.impure & pure:
            break
        pure = pure - iteration.impure
    depends = {name: iteration.sources([name]) for name in iteration.depends}
    line = instructions[loop.header].line
    if any(Source(name, True) in depends[name] for name in wanted):
        raise Unsupported("a loop's accumulator is seen by other threads within the loop", line)
    return Chains(pure, tuple(iteration.steps), _levels({name: depends[name] for name in wanted}, line), depends)


def _levels(depends: Mapping[str, Sources], line: int | None) -> tuple[tuple[str, ...], ...]:
    left = {name: {each.name for each in found} - {name} for name, found in depends.items()}
    levels: list[tuple[str, ...]] = []
    while left:
        level = tuple(sorted(name for name, others in left.items() if not others & left.keys()))
        if not level:
            raise Unsupported("a loop's accumulators depend on one another in a circle", line)
        levels.append(level)
        left = {name: others for name, others in left.items() if name not in level}
    return tuple(levels) or ((),)


@dataclass(slots=True)
class _Iteration:
    """What registers hold during an iteration.

    `depends` gives the sources of each part of a register, `holder` the versions of pure accumulators that a register
    holds side by side, and `shared` what entered memory that other threads may read.
    """

    depends: dict[str, tuple[Sources, ...]]
    holder: dict[str, tuple[tuple[str, int], ...]]
    newest: dict[str, int]
    shared: Sources = NOTHING
    impure: set[str] = field(default_factory=set)
    steps: list[MatrixStep] = field(default_factory=list)

    @staticmethod
    def before(wanted: frozenset[str], pure: frozenset[str]) -> _Iteration:
        """Each accumulator holds itself."""
        own: dict[str, tuple[Sources, ...]] = {name: (frozenset({Source(name)}),) for name in wanted}
        return _Iteration(own, {name: ((name, 0),) for name in pure}, dict.fromkeys(pure, 0))

    def sources(self, names: Iterable[str]) -> Sources:
        """All that registers depend on."""
        return NOTHING.union(*(part for name in names for part in self.depends.get(name, ())))

    def take(self, index: int, instruction: Instruction, info: InstructionInfo) -> None:
        """One instruction."""
        held = matrix_accumulators(info)
        moved = None if held is not None else self._moved(instruction, info)
        if moved is not None:
            self._move(*moved)
        elif held is None or not self._step(index, instruction, info, held):
            self._other(instruction, info, held)

    def _moved(self, instruction: Instruction, info: InstructionInfo) -> tuple[list[str], list[str]] | None:
        """The registers that a move writes and those that it reads; one side is one register."""
        moves = Effect.MOVE in info.effects and len(instruction.operands) == 2
        if not moves or instruction.guard is not None:
            return None
        targets, sources = (_names(operand) for operand in instruction.operands)
        if targets is None or sources is None or min(len(targets), len(sources)) != 1:
            return None
        return targets, sources

    def _move(self, targets: list[str], sources: list[str]) -> None:
        parts = tuple(part for source in sources for part in self.depends.get(source, (NOTHING,)))
        held = tuple(each for source in sources for each in self.holder.get(source, ()))
        whole = all(source in self.holder for source in sources)
        if len(targets) == 1:
            self.depends[targets[0]] = parts
            self._hold(targets[0], held if whole else ())
            self.impure |= set() if whole else {name for name, _ in held}
            return
        apart = len(parts) == len(targets)
        for place, target in enumerate(targets):
            self.depends[target] = (parts[place],) if apart else (NOTHING.union(*parts),)
            self._hold(target, held[place : place + 1] if whole and len(held) == len(targets) else ())
        self.impure |= set() if len(held) == len(targets) else {name for name, _ in held}

    def _hold(self, name: str, held: tuple[tuple[str, int], ...]) -> None:
        if held:
            self.holder[name] = held
        else:
            self.holder.pop(name, None)

    def _step(self, index: int, instruction: Instruction, info: InstructionInfo, held: list[tuple[str, str]]) -> bool:
        """A matrix step of pure accumulators, each of which holds the result of the step before."""
        owners = [each for _, source in held for each in self.holder.get(source, ())]
        if not all(source in self.holder for _, source in held) or self._factors(instruction, info):
            return False
        fresh = all(self.newest[owner] == version for owner, version in owners)
        if not fresh or len({owner for owner, _ in owners}) != len(owners) or instruction.guard is not None:
            return False
        names = tuple(tuple(owner for owner, _ in self.holder[source]) for _, source in held)
        self.steps.append(MatrixStep(index, tuple(held), names))
        before = {target: self.depends[source] for target, source in held}
        for (target, _), own in zip(held, names, strict=True):
            for owner in own:
                self.newest[owner] += 1
            self.holder[target] = tuple((owner, self.newest[owner]) for owner in own)
            self.depends[target] = before[target]
        return True

    def _factors(self, instruction: Instruction, info: InstructionInfo) -> Sources:
        """What the other operands of a matrix instruction depend on, and what guards it."""
        assert info.accumulation is not None
        own = (info.accumulation.results, info.accumulation.accumulators)
        names = set() if instruction.guard is None else {instruction.guard.register}
        for operand in instruction.operands:
            if not any(operand is each for each in own):
                names |= registers_of(operand)
        return _elsewhere(self.sources(names) | self.shared)

    def _other(self, instruction: Instruction, info: InstructionInfo, held: list[tuple[str, str]] | None) -> None:
        if held is not None:
            factors = self._factors(instruction, info)
            fresh = {
                target: tuple(part | factors for part in self.depends.get(source, (NOTHING,)))
                for target, source in held
            }
        else:
            read = self.sources(info.reads)
            if info.effects & (Effect.CROSS_LANE | Effect.STORE):
                read = _elsewhere(read)
            if Effect.STORE in info.effects:
                self.shared |= read
            fresh = dict.fromkeys(info.writes, (read | self.shared if Effect.LOAD in info.effects else read,))
        self.impure |= {owner for name in info.reads for owner, _ in self.holder.get(name, ())}
        for name, parts in fresh.items():
            self.depends[name] = parts
            self.holder.pop(name, None)

    def end(self) -> None:
        """A pure accumulator's register holds its newest version, and nothing else."""
        self.impure |= {name for name, newest in self.newest.items() if self.holder.get(name) != ((name, newest),)}


def _names(operand: Operand) -> list[str] | None:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    names = [each.name for each in items if isinstance(each, Register) and each.name != "_"]
    return names if len(names) == len(items) else None


def _elsewhere(found: Sources) -> Sources:
    return frozenset(Source(each.name, True) for each in found)
