"""Immediate postdominators in the control-flow graph of a kernel, and an order in which divergent lanes meet again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

EXIT = -1


def postdominators(successors: Sequence[Sequence[int]]) -> Mapping[int, int]:
    """Return the immediate postdominator of every instruction with several successors.

    `successors[i]` lists the instructions that may follow instruction i; EXIT denotes the end of the kernel.
    Instructions from which the end is unreachable are omitted.  Computed with the iterative algorithm of Cooper, Harvey
    and Kennedy (A Simple, Fast Dominance Algorithm, 2001) on the reversed graph.
    """
    parent = _postdominator_tree(successors)
    return {node: above for node, above in parent.items() if node < len(successors) and len(successors[node]) > 1}


def order_before_joins(successors: Sequence[Sequence[int]]) -> Sequence[int]:
    """Return a number of each instruction; where the lanes with the lowest number run first, lanes that diverged meet.

    Without cycles every instruction has a higher number than those that may come before it, so both sides of a branch
    come before their join.  The body of a loop comes before what follows the loop, and what never reaches the end of
    the kernel comes before everything else.  Instructions that cannot be reached have the number -1.
    """
    parent, count = _postdominator_tree(successors), len(successors)
    depths = {count: 0}
    for node in parent:
        path = []
        while node not in depths:
            path.append(node)
            node = parent[node]
        for each in reversed(path):
            depths[each] = depths[parent[each]] + 1

    def farthest_first(node: int) -> list[int]:
        return sorted((each for each in successors[node] if each != EXIT), key=lambda each: -depths.get(each, count))

    numbers, next_number = [-1] * count, count
    visited = [False] * count
    # Depth first, and the successor that is nearest to the end first: what is left first has the highest number.
    stack = [(0, farthest_first(0))] if count else []
    while stack:
        node, rest = stack[-1]
        visited[node] = True
        following = rest.pop() if rest else None
        if following is None:
            stack.pop()
            next_number -= 1
            numbers[node] = next_number
        elif not visited[following]:
            stack.append((following, farthest_first(following)))
    return numbers


def _postdominator_tree(successors: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the immediate postdominator of every instruction from which the end can be reached, and of the end."""
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
