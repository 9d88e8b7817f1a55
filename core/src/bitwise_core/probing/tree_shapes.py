"""The shape of a summation tree, in words: chains, balanced trees, and groups that are added in one step."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from bitwise_core.descriptors.merge_orders import MERGE_ORDERS, MergeOrder, index_bits
from bitwise_core.probing.summation_tree import SumTree


@dataclass(frozen=True)
class TreeShape:
    """How a node adds `terms` positions.

    `merge` is `term` (a single position), `together` (all parts in one step), `chain` (into an accumulator, `width`
    parts in each step), `balanced` (pairs, pairs of pairs, ...) or `tree` (another tree of `MERGE_ORDERS`).  `parts`
    are runs of parts of equal shape in the order of addition, as (count, shape).  `layout` says which positions a part
    holds: `contiguous`, `strided N`, or `mixed`.  A chain is `descending` where every part has lower positions than the
    parts added before it.  `order` is the name in `MERGE_ORDERS` of a tree's order, or of the order of a chain that is
    neither ascending nor descending.
    """

    merge: str
    terms: int
    width: int = 1
    parts: tuple[tuple[int, TreeShape], ...] = ()
    layout: str = "contiguous"
    descending: bool = False
    order: str = ""

    def record(self) -> object:
        """Return the shape as JSON; a single position is 1."""
        if self.merge == "term":
            return 1
        parts = [[count, part.record()] for count, part in self.parts]
        fields: dict[str, object] = {"merge": self.merge, "terms": self.terms, "width": self.width}
        if self.descending:
            fields["descending"] = True
        if self.order:
            fields["order"] = self.order
        return {**fields, "layout": self.layout, "parts": parts}


TERM = TreeShape("term", 1)


def _orders_named_explicitly(running_sum: bool) -> list[MergeOrder]:
    """Return the running sums, or else the trees, that `chain`, `descending` and `balanced` do not express."""
    plain = ("chain", "chain-down")
    return [
        order
        for order in MERGE_ORDERS.values()
        if order.running_sum == running_sum and (order.name not in plain if running_sum else not index_bits(order, 4))
    ]


class _ShapeBuilder:
    """One tree with a signature for each node: nodes of equal signature have equal shape and differ in positions."""

    def __init__(self, tree: SumTree) -> None:
        self.tree = tree
        known: dict[tuple[int, ...], int] = {}
        self.signatures: list[int] = []
        self.node_of_children = {frozenset(node): ~number for number, node in enumerate(tree.nodes)}
        for node in tree.nodes:
            key = tuple(sorted(self.signature(child) for child in node))
            self.signatures.append(known.setdefault(key, len(known) + 1))

    def signature(self, child: int) -> int:
        return 0 if child >= 0 else self.signatures[~child]

    def size(self, child: int) -> int:
        return 1 if child >= 0 else int(self.tree.sizes[~child])

    def last_step(self, child: int) -> tuple[int | None, tuple[int, ...]]:
        """Return the accumulator among a node's children, None if there is none, and the other children."""
        node = self.tree.nodes[~child]
        largest = max(node, key=self.size)
        if largest >= 0 or sum(1 for each in node if self.size(each) == self.size(largest)) > 1:
            return None, node
        rest = tuple(each for each in node if each != largest)
        # Two parts of one kind are a cut into two, of any lengths, and not an accumulator with its last addend.
        if len(rest) == 1 and rest[0] < 0 and self._kind(rest[0]) == self._kind(largest):
            return None, node
        return largest, rest

    def _kind(self, child: int) -> tuple[int, ...]:
        node = self.tree.nodes[~child]
        largest = max(node, key=self.size)
        alone = largest < 0 and sum(1 for each in node if self.size(each) == self.size(largest)) == 1
        return tuple(sorted(self.signature(each) for each in node if not alone or each != largest))

    def shape(self, child: int) -> TreeShape:
        if child >= 0:
            return TERM
        named = [(self._ordered_parts(child, order), order) for order in _orders_named_explicitly(running_sum=False)]
        parts, name = max(((each or (), order.name) for each, order in named), key=lambda each: len(each[0]))
        if parts:
            return TreeShape("tree", self.size(child), 2, self._runs(parts), self.layout(parts), order=name)
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
            sequence = (*first, *(step[0] for step in steps[1:]))
            if len(first) == 2:
                if down:  # the first two of a chain commute: in a descending chain the higher position is first
                    sequence = (*sorted(first, key=self.lowest, reverse=True), *sequence[2:])
                name = "" if down else self._running_sum_order(sequence)
                return TreeShape("chain", terms, 1, self._runs(sequence), self.layout(sequence), down, name)
        layout = "contiguous" if self._is_contiguous(child) else "mixed"
        width = widths.pop() if len(widths) == 1 else 0
        return TreeShape("chain", terms, width, self._grouped(steps), layout, down)

    def _grouped(self, steps: list[tuple[int, ...]]) -> tuple[tuple[int, TreeShape], ...]:
        """Return runs of steps, each with the shape of the terms that one step adds to the accumulator."""
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
            only = self.shape(step[0]) if len(step) == 1 else None
            found.append((count, only or TreeShape("together", terms, len(step), self._runs(step), self.layout(step))))
        return tuple(found)

    def _ordered_parts(self, child: int, order: MergeOrder) -> tuple[int, ...] | None:
        """Return the parts that a tree adds in a merge order, sorted by lowest position; None if there are none.

        The parts have equal shapes, and there are more than two; of several ways the one with the most parts is taken.
        """
        found: tuple[int, ...] | None = None
        parts: tuple[int, ...] = (child,)

        def joined(one: int | None, other: int | None) -> int | None:
            return None if one is None or other is None else self.node_of_children.get(frozenset((one, other)))

        while any(each < 0 for each in parts):
            widest = max(map(self.size, parts))
            split = (self.tree.nodes[~each] if self.size(each) == widest else (each,) for each in parts)
            parts = tuple(sorted((inner for each in split for inner in each), key=self.lowest))
            alike = len(parts) > 2 and len(set(map(self.signature, parts))) == 1
            if alike and order.takes(len(parts)) and order.steps(len(parts)).run(parts, None, joined) == child:
                found = parts
        return found

    def _running_sum_order(self, parts: tuple[int, ...]) -> str:
        """Return the name of the running sum that adds these parts in this order, empty if there is none."""
        places = {each: place for place, each in enumerate(sorted(parts, key=self.lowest))}
        taken = [places[each] for each in parts]
        for order in _orders_named_explicitly(running_sum=True):
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
            )  # the parts have equal shapes, so all of them split or none does
            if not pairs:
                break
            parts = tuple(each for pair in split for each in pair)
        return TreeShape("balanced", self.size(child), 2, ((len(parts), self.shape(parts[0])),), self.layout(parts))

    def _runs(self, children: tuple[int, ...]) -> tuple[tuple[int, TreeShape], ...]:
        runs: list[tuple[int, int]] = []
        for each in children:
            if runs and self.signature(runs[-1][1]) == self.signature(each):
                runs[-1] = (runs[-1][0] + 1, runs[-1][1])
            else:
                runs.append((1, each))
        return tuple((count, self.shape(each)) for count, each in runs)

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

    def _is_contiguous(self, child: int) -> bool:
        leaves = self.leaves(child)
        return leaves[-1] - leaves[0] + 1 == len(leaves)

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
    """Return the shape of a tree."""
    return _ShapeBuilder(tree).shape(-len(tree.nodes))


def describe_shape(shape: TreeShape) -> str:
    """Return a shape as a phrase: `a chain of 4 contiguous parts, each a chain of 12 values with stride 4`."""
    if shape.merge == "term":
        return "a single value"
    count = sum(count for count, _ in shape.parts)
    of_values = all(part.merge == "term" for _, part in shape.parts)
    if shape.merge == "together":
        return f"{shape.width} values in one step" if of_values else f"{shape.width} parts in one step{_of(shape)}"
    if shape.merge in ("balanced", "tree"):
        name = "a balanced tree" if shape.merge == "balanced" else MERGE_ORDERS[shape.order].tree
        return f"{name} of {_laid_out(shape, count, 'values' if of_values else 'parts')}{_of(shape)}"
    order = ", last first" if shape.descending else f", {MERGE_ORDERS[shape.order].words}" if shape.order else ""
    if of_values:
        return f"a chain of {_laid_out(shape, shape.terms, 'values')}{order}"
    if shape.width != 1:
        return f"a chain of steps that take several values into the accumulator at once{_of(shape)}"
    return f"a chain of {_laid_out(shape, count, 'parts')}{order}{_of(shape)}"


def _laid_out(shape: TreeShape, count: int, noun: str) -> str:
    """Return a number of parts and where they are: `4 contiguous parts`, `4 parts with stride 8`."""
    word, _, stride = shape.layout.partition(" ")
    return f"{count} {noun} with stride {stride}" if stride else f"{count} {word} {noun}"


def _of(shape: TreeShape) -> str:
    """Return the end of a phrase that describes the parts, empty for single values."""
    if all(part.merge == "term" for _, part in shape.parts):
        return ""
    if len(shape.parts) == 1 and shape.parts[0][0] > 1:
        return f", each {describe_shape(shape.parts[0][1])}"
    runs = (f"{count} of {_values(part.terms)} ({describe_shape(part)})" for count, part in shape.parts)
    return f": {', then '.join(runs)}"


def _values(count: int) -> str:
    return "1 value" if count == 1 else f"{count} values"
