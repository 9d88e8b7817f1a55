"""Postdominators and the order of joins against their definitions, on random graphs of instructions."""

from __future__ import annotations

from random import Random

import pytest

from bitwise_core.execution.control_flow import EXIT, order_before_joins, postdominators

Graph = tuple[tuple[int, ...], ...]


def graph(seed: int) -> Graph:
    """Return successors in which most instructions follow each other."""
    random = Random(seed)
    count = random.randrange(1, 14)

    def following(index: int) -> tuple[int, ...]:
        after = index + 1 if index + 1 < count else EXIT
        kind = random.random()
        if kind < 0.6:
            return (after,)
        if kind < 0.65:
            return ()
        target = random.choice((EXIT, *range(count)))
        return (target,) if kind < 0.75 else (target, after)

    return tuple(following(index) for index in range(count))


def ends(successors: Graph, start: int, without: int | None = None) -> bool:
    """Return whether the end can be reached from an instruction without passing another one."""
    seen, work = set(), [start]
    while work:
        index = work.pop()
        if index == EXIT:
            return True
        if index not in seen and index != without:
            seen.add(index)
            work += successors[index]
    return False


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_postdominators_are_on_every_way_to_the_end(first: int) -> None:
    for seed in range(first, first + 100):
        successors = graph(seed)
        found = postdominators(successors)
        end = len(successors)
        for node, following in enumerate(successors):
            if len(following) < 2 or not ends(successors, node):
                assert node not in found
                continue
            on_every_way = {each for each in range(end) if each != node and not ends(successors, node, each)}
            nearest = found[node]
            # The nearest one is on every way, and all others are on every way from it.
            assert nearest == end or nearest in on_every_way
            assert all(not ends(successors, nearest, each) for each in on_every_way - {nearest})
            assert nearest != end or not on_every_way


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_without_cycles_an_instruction_comes_after_those_before_it(first: int) -> None:
    for seed in range(first, first + 100):
        acyclic = tuple(
            tuple(each for each in following if each == EXIT or each > index)
            for index, following in enumerate(graph(seed))
        )
        numbers = order_before_joins(acyclic)
        reached, work = set(), [0]
        while work:
            index = work.pop()
            if index not in reached and index != EXIT:
                reached.add(index)
                work += acyclic[index]
        for index, following in enumerate(acyclic):
            assert (numbers[index] >= 0) == (index in reached)
            if index in reached:
                assert all(numbers[each] > numbers[index] for each in following if each != EXIT)
