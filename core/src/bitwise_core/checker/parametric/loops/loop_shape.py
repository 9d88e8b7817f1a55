"""Straight-line loops of a program: instructions, loop-carried registers, slices and matrix accumulators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bitwise_core.assembly.module import Register, Vector
from bitwise_core.execution.instruction_info import Effect, InstructionInfo
from bitwise_core.execution.program import Program, labels_of


@dataclass(frozen=True, slots=True)
class Loop:
    """The instructions from `header` to `latch`, which branches to the header.

    `writes` are the registers that the loop writes.  `carried` are those of them that an iteration reads before it
    writes them; `live_out` are those that are read outside the loop.
    """

    header: int
    latch: int
    writes: frozenset[str]
    carried: tuple[str, ...]
    live_out: frozenset[str]

    @property
    def body(self) -> range:
        """The instructions of an iteration, without the branch."""
        return range(self.header, self.latch)


_LEAVING = Effect.BRANCH | Effect.END | Effect.CALL
"""The effects of instructions whose successor may not be the next instruction."""


def find_loops(program: Program) -> Mapping[int, Loop]:
    """The loops whose bodies are straight-line code, by header."""
    instructions, infos = program.kernel.instructions, program.infos
    jumps = {
        index: set(labels_of(index, program.kernel))
        for index, info in enumerate(infos)
        if Effect.BRANCH in info.effects
    }
    targets = set().union(*jumps.values())
    found: dict[int, Loop] = {}
    for index, own in jumps.items():
        if len(own) != 1 or (target := next(iter(own))) > index:
            continue
        if instructions[index].guard is None or any(each.effects.overlaps(_LEAVING) for each in infos[target:index]):
            continue
        if any(target < place <= index for place in targets):
            continue
        found[target] = _loop(infos, target, index)
    return found


def _loop(infos: Sequence[InstructionInfo], header: int, latch: int) -> Loop:
    written: set[str] = set()
    exposed: set[str] = set()
    for info in infos[header : latch + 1]:
        exposed |= info.reads - written
        written |= info.writes
    outside = {name for info in (*infos[:header], *infos[latch + 1 :]) for name in info.reads}
    return Loop(header, latch, frozenset(written), tuple(sorted(exposed & written)), frozenset(written & outside))


def integer_slice(infos: Sequence[InstructionInfo], loop: Loop, wanted: Iterable[str]) -> list[int] | None:
    """The backward slice of these registers in the loop body; None unless all its instructions are integer ones."""
    needed = set(wanted)
    chosen: set[int] = set()
    while True:
        before = len(chosen), len(needed)
        for index in reversed(loop.body):
            if index in chosen or infos[index].writes & needed:
                chosen.add(index)
                needed |= infos[index].reads
        if (len(chosen), len(needed)) == before:
            break
    if not all(Effect.INTEGER in infos[index].effects for index in chosen):
        return None
    return sorted(chosen)


def matrix_accumulators(info: InstructionInfo) -> list[tuple[str, str]] | None:
    """For a matrix instruction, pairs of result and accumulator register; None for other instructions."""
    if info.accumulation is None:
        return None
    targets, sources = info.accumulation.results, info.accumulation.accumulators
    if not isinstance(targets, Vector) or not isinstance(sources, Vector):
        return None
    pairs = list(zip(targets.items, sources.items, strict=True))
    if not all(isinstance(each, Register) for pair in pairs for each in pair):
        return None
    return [
        (target.name, source.name)
        for target, source in pairs
        if isinstance(target, Register) and isinstance(source, Register)
    ]


def matrix_depth(info: InstructionInfo) -> int:
    """The number of elements of k that a matrix instruction adds; 0 for other instructions."""
    if matrix_accumulators(info) is None or info.accumulation is None:
        return 0
    return info.accumulation.depth
