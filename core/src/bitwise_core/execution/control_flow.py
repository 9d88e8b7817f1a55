"""Immediate postdominators in the control-flow graph of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

EXIT = -1


def postdominators(successors: Sequence[Sequence[int]]) -> Mapping[int, int]:
    """Return the immediate postdominator of every instruction with several successors.

    `successors[i]` lists the instructions that may follow instruction i; EXIT denotes the end of the kernel.
    Instructions from which the end is unreachable are omitted.  Computed with the iterative algorithm of Cooper, Harvey
    and Kennedy (A Simple, Fast Dominance Algorithm, 2001) on the reversed graph.
    """
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
    return {node: parent[node] for node in range(count) if len(successors[node]) > 1 and node in parent}


def _nearest_common_postdominator(parent: Mapping[int, int], rank: Mapping[int, int], left: int, right: int) -> int:
    while left != right:
        while rank[left] < rank[right]:
            left = parent[left]
        while rank[right] < rank[left]:
            right = parent[right]
    return left
