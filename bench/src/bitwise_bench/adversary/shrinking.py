"""Smaller pairs of programs that the checker still calls Equal and that still return different bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bitwise_bench.adversary.classes import analyse
from bitwise_bench.adversary.execution import Executed, execute
from bitwise_bench.adversary.expressions import CONSTANT, LEAF, Expression, leaf, nodes, substituted
from bitwise_bench.adversary.instruction_sets.language import Language
from bitwise_bench.adversary.judging import Difference, pair_difference
from bitwise_bench.adversary.kernels import DTYPES
from bitwise_bench.adversary.programs import STORES, Program
from bitwise_bench.adversary.scopes import Scope
from bitwise_core.execution.domains.domain import Unsupported

BLOCKS = 16
"""The blocks of every execution on a CPU, in rounds and in attempts to shrink a pair."""


@dataclass(frozen=True, slots=True)
class Witness:
    """A pair that the checker calls Equal, its execution on the input of a seed, and a sample that differs.

    `context`: the programs before the pair in the kernel.
    """

    left: Program
    right: Program
    seed: int
    executed: Executed
    found: Difference
    context: tuple[Program, ...] = ()


def witness(
    left: Program,
    right: Program,
    language: Language,
    scope: Scope,
    seeds: tuple[int, ...],
    *,
    with_nan: bool,
    context: tuple[Program, ...] = (),
) -> Witness | None:
    """Return a witness if the checker calls the pair Equal and no note covers a difference of its bytes.

    One kernel of `context` and the pair is analysed and executed.  Unless `with_nan`, the programs must differ in a
    sample without a NaN.
    """
    programs = (*context, left, right)
    first, second = analyse(programs, language, scope).forms[-2:]
    if first is None or first != second:
        return None
    for seed in seeds:
        try:
            executed = execute(programs, language, BLOCKS, seed, finite=scope.finite)
        except Unsupported:
            return None
        dtype = DTYPES[STORES[left.store].buffer]
        found = pair_difference(executed, len(context), len(context) + 1, dtype)
        if found is not None and not found.covered and (with_nan or not found.with_nan):
            return Witness(left, right, seed, executed, found, context)
    return None


def context_of(
    programs: Sequence[Program], pair: tuple[Program, Program], language: Language, scope: Scope, most: int = 80
) -> tuple[Program, ...]:
    """Return programs with which two programs must share a kernel to be Equal, after at most `most` attempts.

    An analysis in which one program affects the form of another is wrong by itself.
    """
    kept = list(programs)
    place = attempts = 0
    while place < len(kept) and attempts < most:
        if kept[place] in pair:
            place += 1
            continue
        fewer = kept[:place] + kept[place + 1 :]
        attempts += 1
        forms = analyse(fewer, language, scope).forms
        first, second = (forms[fewer.index(each)] for each in pair)
        if first is not None and first == second:
            kept = fewer
        else:
            place += 1
    return tuple(each for each in kept if each not in pair)


def shrunk(first: Witness, language: Language, scope: Scope, most: int = 400) -> Witness:
    """Return a smaller witness after at most `most` attempts."""
    best = first
    seeds = (first.seed, 1, 2)
    attempts = 0
    progress = True
    while progress:
        progress = False
        for left, right in _smaller(best.left, best.right):
            attempts += 1
            if attempts > most:
                return best
            found = witness(left, right, language, scope, seeds, with_nan=first.found.with_nan, context=first.context)
            if found is not None:
                best, progress = found, True
                break
    return best


def _smaller(left: Program, right: Program) -> Iterator[tuple[Program, Program]]:
    """Return pairs with fewer operations: in both programs, then in one."""
    roots = left.root, right.root
    if roots[0].opcode == roots[1].opcode:
        for pair in zip(roots[0].inner, roots[1].inner, strict=False):
            if pair[0].width == pair[1].width == STORES[left.store].bits and pair[0] != pair[1]:
                yield replace(left, root=pair[0]), replace(right, root=pair[1])
    common = [node for node in nodes(roots[0]) if node in set(nodes(roots[1]))]
    taken = {str(node.operands[0]) for root in roots for node in nodes(root) if node.opcode == LEAF}
    for node in reversed(common):
        if node.opcode == LEAF:
            continue
        for made in _simpler(node, taken):
            changed = [substituted(root, node, made) for root in roots]
            if _size(*changed) < _size(*roots):
                yield replace(left, root=changed[0]), replace(right, root=changed[1])
    for index, root in enumerate(roots):
        for node in reversed(nodes(root)):
            if node.opcode == LEAF:
                continue
            for made in _simpler(node, taken):
                changed = list(roots)
                changed[index] = substituted(root, node, made)
                if _size(*changed) < _size(*roots):
                    yield replace(left, root=changed[0]), replace(right, root=changed[1])


def _simpler(node: Expression, taken: set[str]) -> Iterator[Expression]:
    for each in node.inner:
        if each.width == node.width:
            yield each
    kind = {"p": "", "q2": "i16"}.get(node.kind, node.kind)
    if kind and node.opcode != CONSTANT:
        for number in range(2):
            yield leaf(f"{kind}.{number}", kind)


def _size(*roots: Expression) -> int:
    return sum(3 * (node.opcode != LEAF) + 1 for root in roots for node in nodes(root))
