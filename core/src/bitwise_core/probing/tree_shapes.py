"""A tree of sums in words: chains, balanced trees, and groups added in one step."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from bitwise_core.descriptors.merge_orders import MERGE_ORDERS, MergeOrder, index_bits
from bitwise_core.probing.summation_tree import SumTree


@dataclass(frozen=True)
class TreeShape:
    """How a node adds `terms` positions.

    `merge` is `term` (a single position), `together` (all parts in one step), `chain` (into an accumulator, `width`
    parts at a step), `balanced` (pairs, pairs of pairs, ...) or `tree` (another tree of `MERGE_ORDERS`).  `parts` are
    runs of like parts, first added first, as (count, form).  `layout` says which positions a part holds: `contiguous`,
    `strided N`, or `mixed`.  A chain is `descending` where every part added later stands before those added earlier.
    `order` names the order of a tree, and of a chain that is neither ascending nor descending, in `MERGE_ORDERS`.
    """

    merge: str
    terms: int
    width: int = 1
    parts: tuple[tuple[int, TreeShape], ...] = ()
    layout: str = "contiguous"
    descending: bool = False
    order: str = ""

    def record(self) -> object:
        """As JSON has it; a single position is 1."""
        if self.merge == "term":
            return 1
        parts = [[count, part.record()] for count, part in self.parts]
        found: dict[str, object] = {"merge": self.merge, "terms": self.terms, "width": self.width}
        if self.descending:
            found["descending"] = True
        if self.order:
            found["order"] = self.order
        return {**found, "layout": self.layout, "parts": parts}


TERM = TreeShape("term", 1)


def _unnamed(running_sum: bool) -> list[MergeOrder]:
    """The orders that `chain`, `descending` and `balanced` do not say."""
    plain = ("chain", "chain-down")
    return [
        order
        for order in MERGE_ORDERS.values()
        if order.running_sum == running_sum and (order.name not in plain if running_sum else not index_bits(order, 4))
    ]


class _Reader:
    """One tree, with the signature of every node's shape: nodes of equal signatures are alike but for positions."""

    def __init__(self, tree: SumTree) -> None:
        self.tree = tree
        known: dict[tuple[int, ...], int] = {}
        self.signatures: list[int] = []
        self.above = {frozenset(node): ~number for number, node in enumerate(tree.nodes)}
        for node in tree.nodes:
            key = tuple(sorted(self.signature(child) for child in node))
            self.signatures.append(known.setdefault(key, len(known) + 1))

    def signature(self, child: int) -> int:
        return 0 if child >= 0 else self.signatures[~child]

    def size(self, child: int) -> int:
        return 1 if child >= 0 else int(self.tree.sizes[~child])

    def last_step(self, child: int) -> tuple[int | None, tuple[int, ...]]:
        """The accumulator among a node's children, if one is, and what is added to it."""
        node = self.tree.nodes[~child]
        largest = max(node, key=self.size)
        if largest >= 0 or sum(1 for each in node if self.size(each) == self.size(largest)) > 1:
            return None, node
        rest = tuple(each for each in node if each != largest)
        # Two parts of one kind are a cut in two, however unequal, and no accumulator with its last addend.
        if len(rest) == 1 and rest[0] < 0 and self._kind(rest[0]) == self._kind(largest):
            return None, node
        return largest, rest

    def _kind(self, child: int) -> tuple[int, ...]:
        node = self.tree.nodes[~child]
        largest = max(node, key=self.size)
        alone = largest < 0 and sum(1 for each in node if self.size(each) == self.size(largest)) == 1
        return tuple(sorted(self.signature(each) for each in node if not alone or each != largest))

    def form(self, child: int) -> TreeShape:
        if child >= 0:
            return TERM
        for named in _unnamed(running_sum=False):
            if (parts := self._ordered(child, named)) is not None:
                return TreeShape(
                    "tree", self.size(child), 2, self._runs(parts), self.layout(parts), order=named.name
                )  # fmt: skip
        steps: list[tuple[int, ...]] = []
        current: int = child
        while True:
            accumulator, added = self.last_step(current)
            steps.append(added)
            if accumulator is None:
                break
            current = accumulator
        steps.reverse()
        terms = self.size(child)
        first = steps[0]
        if len(steps) == 1 and len(first) == 2 and self.signature(first[0]) == self.signature(first[1]):
            return self._balanced(child)
        if len(steps) == 1 and len(first) > 2:
            return TreeShape("together", terms, len(first), self._runs(first), self.layout(first))
        widths = {len(step) for step in steps[1:]}
        lowest = [min(map(self.lowest, step)) for step in steps]
        down = len(steps) > 1 and all(later < earlier for earlier, later in pairwise(lowest))
        if widths <= {1}:
            order = (*first, *(step[0] for step in steps[1:]))
            if len(first) == 2:
                if down:  # the two that begin a chain commute: the later position stands first where all descend
                    order = (*sorted(first, key=self.lowest, reverse=True), *order[2:])
                name = "" if down else self._running(order)
                return TreeShape("chain", terms, 1, self._runs(order), self.layout(order), down, name)
        layout = "contiguous" if self._neighbours(child) else "mixed"
        width = widths.pop() if len(widths) == 1 else 0
        return TreeShape("chain", terms, width, self._grouped(steps), layout, down)

    def _grouped(self, steps: list[tuple[int, ...]]) -> tuple[tuple[int, TreeShape], ...]:
        """Runs of steps, each a form of what joins the accumulator at once."""
        runs: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
        for step in steps:
            key = tuple(sorted(self.signature(each) for each in step))
            if runs and runs[-1][1] == key:
                runs[-1] = (runs[-1][0] + 1, key, step)
            else:
                runs.append((1, key, step))
        found = []
        for count, _, step in runs:
            terms = sum(self.size(each) for each in step)
            only = self.form(step[0]) if len(step) == 1 else None
            found.append((count, only or TreeShape("together", terms, len(step), self._runs(step), self.layout(step))))
        return tuple(found)

    def _ordered(self, child: int, order: MergeOrder) -> tuple[int, ...] | None:
        """The parts, by their lowest positions, that a tree adds in an order: like ones, more than two, the most."""
        found: tuple[int, ...] | None = None
        parts: tuple[int, ...] = (child,)

        def joined(one: int | None, other: int | None) -> int | None:
            return None if one is None or other is None else self.above.get(frozenset((one, other)))

        while any(each < 0 for each in parts):
            widest = max(map(self.size, parts))
            split = (self.tree.nodes[~each] if self.size(each) == widest else (each,) for each in parts)
            parts = tuple(sorted((inner for each in split for inner in each), key=self.lowest))
            alike = len(parts) > 2 and len(set(map(self.signature, parts))) == 1
            if alike and order.takes(len(parts)) and order.steps(len(parts)).run(parts, None, joined) == child:
                found = parts
        return found

    def _running(self, parts: tuple[int, ...]) -> str:
        """The name of an order of a running sum that takes these parts one after the other, empty for none."""
        places = {each: place for place, each in enumerate(sorted(parts, key=self.lowest))}
        taken = [places[each] for each in parts]
        for order in _unnamed(running_sum=True):
            sequence = order.steps(len(taken)).sequence
            if sequence[2:] == taken[2:] and taken != sorted(taken):
                return order.name
        return ""

    def _balanced(self, child: int) -> TreeShape:
        parts: tuple[int, ...] = (child,)
        while True:
            split = [self.tree.nodes[~each] if each < 0 else () for each in parts]
            pairs = all(
                len(each) == 2 and self.signature(each[0]) == self.signature(each[1]) for each in split
            )  # the parts are alike: what holds of one holds of all
            if not pairs:
                break
            parts = tuple(each for pair in split for each in pair)
        return TreeShape("balanced", self.size(child), 2, ((len(parts), self.form(parts[0])),), self.layout(parts))

    def _runs(self, children: tuple[int, ...]) -> tuple[tuple[int, TreeShape], ...]:
        runs: list[tuple[int, int]] = []
        for each in children:
            if runs and self.signature(runs[-1][1]) == self.signature(each):
                runs[-1] = (runs[-1][0] + 1, runs[-1][1])
            else:
                runs.append((1, each))
        return tuple((count, self.form(each)) for count, each in runs)

    def lowest(self, child: int) -> int:
        while child < 0:
            child = self.tree.nodes[~child][0]
        return child

    def leaves(self, child: int) -> list[int]:
        found: list[int] = []
        stack = [child]
        while stack:
            each = stack.pop()
            if each >= 0:
                found.append(each)
            else:
                stack.extend(self.tree.nodes[~each])
        return sorted(found)

    def _neighbours(self, child: int) -> bool:
        found = self.leaves(child)
        return found[-1] - found[0] + 1 == len(found)

    def layout(self, children: tuple[int, ...]) -> str:
        if all(each >= 0 for each in children):
            found = sorted(children)
            strides = {b - a for a, b in pairwise(found)}
            return "contiguous" if strides <= {1} else f"strided {strides.pop()}" if len(strides) == 1 else "mixed"
        strides = set()
        for each in children:
            found = self.leaves(each)
            strides |= {b - a for a, b in pairwise(found)}
        if strides <= {1}:
            return "contiguous"
        return f"strided {strides.pop()}" if len(strides) == 1 else "mixed"


def tree_shape(tree: SumTree) -> TreeShape:
    """The form of a tree's root."""
    return _Reader(tree).form(-len(tree.nodes))


def describe_shape(form: TreeShape) -> str:
    """A form in one phrase: `a chain of 4 parts of 192 (each a chain of 12 steps of 16)`."""
    if form.merge == "term":
        return "a single value"
    if form.merge == "together":
        if all(part.merge == "term" for _, part in form.parts):
            return f"{form.width} values in one step"
        return f"{form.width} parts in one step: {_listed(form)}"
    if form.merge == "balanced":
        count, part = form.parts[0]
        inner = "" if part.merge == "term" else f", each {describe_shape(part)}"
        return f"a balanced tree of {count} {form.layout} {'values' if part.merge == 'term' else 'parts'}{inner}"
    if form.merge == "tree":
        kind = "values" if form.parts[0][1].merge == "term" else "parts"
        return f"{MERGE_ORDERS[form.order].tree} of {sum(count for count, _ in form.parts)} {form.layout} {kind}" + (
            "" if kind == "values" else f": {_listed(form)}"
        )
    order = ", last first" if form.descending else f", {MERGE_ORDERS[form.order].words}" if form.order else ""
    if all(part.merge == "term" for _, part in form.parts):
        return f"a chain of {form.terms} {form.layout} values{order}"
    if form.width != 1:
        return f"a chain of steps that take several values into the accumulator at once: {_listed(form)}"
    count = sum(count for count, _ in form.parts)
    return f"a chain of {count} {form.layout} parts{order}: {_listed(form)}"


def _listed(form: TreeShape) -> str:
    return ", then ".join(f"{count} of {part.terms} ({describe_shape(part)})" for count, part in form.parts)
