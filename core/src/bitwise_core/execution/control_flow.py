"""Immediate postdominators in the control-flow graph of a kernel, and an order in which divergent lanes meet again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EXIT = -1


def postdominators(successors: Sequence[Sequence[int]]) -> Mapping[int, int]:
    """Return the immediate postdominator of every instruction with several successors.

    `successors[i]` lists the instructions that may follow instruction i; EXIT denotes the end of the kernel.
    Instructions from which the end is unreachable are omitted.  Computed with the iterative algorithm of Cooper, Harvey
    and Kennedy (A Simple, Fast Dominance Algorithm, 2001) on the reversed graph.
    """
    # An instruction with several successors is the last one of its run, and a run is entered at its first one only.
    runs = _Runs.of(successors)
    parent = _postdominator_tree(runs.following)
    return {
        last: runs.first[parent[run]]
        for run, last in enumerate(runs.last)
        if run in parent and len(successors[last]) > 1
    }


def order_before_joins(successors: Sequence[Sequence[int]]) -> Sequence[int]:
    """Return a number of each instruction; where the lanes with the lowest number run first, lanes that diverged meet.

    Without cycles every instruction has a higher number than those that may come before it, so both sides of a branch
    come before their join.  The body of a loop comes before what follows the loop, and what never reaches the end of
    the kernel comes before everything else.  Instructions that cannot be reached have the number -1.
    """
    runs, count = _Runs.of(successors), len(successors)
    parent, end = _postdominator_tree(runs.following), len(runs.last)
    depths = {end: 0}
    """How many instructions come after the first one of a run, on each way to the end."""
    for run in parent:
        path = []
        while run not in depths:
            path.append(run)
            run = parent[run]
        for each in reversed(path):
            depths[each] = depths[parent[each]] + 1 + runs.last[each] - runs.first[each]

    def farthest_first(run: int) -> list[int]:
        return sorted((each for each in runs.following[run] if each != EXIT), key=lambda each: -depths.get(each, count))

    numbers, next_number = [-1] * count, count
    visited = [False] * end
    # Depth first, and the successor that is nearest to the end first: what is left first has the highest number.
    stack = [(0, farthest_first(0))] if count else []
    while stack:
        run, rest = stack[-1]
        visited[run] = True
        following = rest.pop() if rest else None
        if following is None:
            stack.pop()
            first, after = runs.first[run], runs.last[run] + 1
            next_number -= after - first
            numbers[first:after] = range(next_number, next_number + after - first)
        elif not visited[following]:
            stack.append((following, farthest_first(following)))
    return numbers


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of instructions that follow each other without another way in or out, in the order of the text.

    `first` and `last` are the instructions at their ends, `first` also that of the end of the kernel.  `following` are
    the successors of each run, as runs.
    """

    first: Sequence[int]
    last: Sequence[int]
    following: Sequence[Sequence[int]]

    @staticmethod
    def of(successors: Sequence[Sequence[int]]) -> _Runs:
        """Return the runs of some instructions with these successors."""
        count = len(successors)
        starts = {0, count}
        for index, following in enumerate(successors):
            if following != (index + 1,):
                starts.add(index + 1)
                starts.update(following)
        first = sorted(each for each in starts if 0 <= each <= count)
        last = [each - 1 for each in first[1:]]
        number = {each: place for place, each in enumerate(first)}
        number[EXIT] = EXIT
        return _Runs(first, last, [tuple(number[each] for each in successors[index]) for index in last])


def _postdominator_tree(successors: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the immediate postdominator of every node from which the end can be reached, and of the end."""
    count = len(successors)
    end = count
    predecessors: list[list[int]] = [[] for _ in range(count + 1)]
    for node, following in enumerate(successors):
        for each in following:
            predecessors[end if each == EXIT else each].append(node)
    order: list[int] = []
    seen = [False] * (count + 1)
    stack: list[tuple[int, int]] = [(end, 0)]
    seen[end] = True
    while stack:
        node, index = stack.pop()
        if index < len(predecessors[node]):
            stack.append((node, index + 1))
            before = predecessors[node][index]
            if not seen[before]:
                seen[before] = True
                stack.append((before, 0))
        else:
            order.append(node)
    rank = {node: index for index, node in enumerate(order)}
    parent: dict[int, int] = {end: end}
    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            chosen: int | None = None
            for each in successors[node]:
                after = end if each == EXIT else each
                if after in parent:
                    chosen = after if chosen is None else _nearest_common_postdominator(parent, rank, chosen, after)
            if chosen is not None and parent.get(node) != chosen:
                parent[node] = chosen
                changed = True
    return parent


def _nearest_common_postdominator(parent: Mapping[int, int], rank: Mapping[int, int], left: int, right: int) -> int:
    while left != right:
        while rank[left] < rank[right]:
            left = parent[left]
        while rank[right] < rank[left]:
            right = parent[right]
    return left
