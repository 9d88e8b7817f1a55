"""Two sums compared: their terms, how products enter them, where partial sums are rounded, and the order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from bitwise_core.probing.summation_tree import SumTree, canonical_tree
from bitwise_core.probing.tree_shapes import describe_shape, tree_shape

Entry: TypeAlias = Literal["value", "rounded", "fused", "unit"]
"""How a term enters its sum: a value, a product that is rounded first, a factor pair of an fma or of a matrix unit."""

LONGEST_ORDER, LONGEST_PARTIAL_SUM = 100, 60
"""An order, or a partial sum, with a longer text is not written, in characters."""

ZERO = "0.0"
"""The text of a term that is +0."""

LONGEST_SHAPE = 160
"""A description of an order that is longer is not shown, in characters."""

_ROUNDINGS = {"rz": "toward zero", "rm": "down", "rd": "down", "rp": "up", "ru": "up", "rna": "ties away from zero"}


@dataclass(frozen=True, slots=True)
class Term:
    """A term of a sum.

    `key` is equal for terms of equal value in both sums.  `text` names the term for readers.  Terms are numbered in the
    order of `place`, the addresses that they read.
    """

    key: Hashable
    text: str
    place: tuple[int, ...] = ()
    entry: Entry = "value"
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Summation:
    """A sum: its terms, and its additions in an order in which operands precede results.

    An operand of an addition is the number of a term, or ~number of an addition; the last addition is the sum.
    `operations` are the names of the additions, `conversions` those of the roundings of partial sums.
    """

    terms: tuple[Term, ...]
    additions: tuple[tuple[int, ...], ...]
    operations: tuple[str, ...]
    conversions: tuple[str, ...] = ()


def compared_sums(left: Summation, right: Summation, names: tuple[str, str]) -> str | None:
    """Return how two sums of the same terms differ, in a sentence without a full stop; None if nothing can be said.

    Zeros from which sums start are no terms here.
    """
    both = left, right
    starts = [_starting_zeros(one) for one in both]
    if any(_own_terms(both, starts)):
        return None
    clauses = [*_entries(both, names), *_units(both, names), *_additions(both, names), *_conversions(both, names)]
    if not clauses or len(left.terms) > 2:
        clauses += _orders(both, names)
    return "; ".join(clauses) or None


def different_terms(left: Summation, right: Summation, names: tuple[str, str]) -> str | None:
    """Return which terms only one of two sums has, in a sentence without a full stop; None if nothing can be said."""
    own = _own_terms((left, right))
    common = len(left.terms) - len(own[0])
    if len(own[0]) == len(own[1]) == 1:
        first, second = own[0][0], own[1][0]
        if _is_start(left, first) and _is_start(right, second):
            return f"the sum of {names[0]} starts from {first.text}, that of {names[1]} from {second.text}"
        if common:
            return f"{names[0]} adds {first.text} where {names[1]} adds {second.text}"
    if not common or not any(own):
        return None
    clauses = [f"{name} also adds {_listed(terms)}" for name, terms in zip(names, own, strict=True) if terms]
    shared = "one term is" if common == 1 else f"{common} terms are"
    return f"{shared} in both sums; {', '.join(clauses)}"


def _own_terms(both: Sequence[Summation], skipped: Sequence[frozenset[int]] = (frozenset(),) * 2) -> list[list[Term]]:
    """Return the terms of each sum, without the skipped ones, that the other one lacks."""
    counts = [
        Counter(each.key for number, each in enumerate(one.terms) if number not in those)
        for one, those in zip(both, skipped, strict=True)
    ]
    return [_terms_of(both[0], counts[0] - counts[1]), _terms_of(both[1], counts[1] - counts[0])]


def _starting_zeros(one: Summation) -> frozenset[int]:
    """Return the numbers of the terms that are +0 and start a sum: all other operands of their addition are terms."""
    zeros = {number for number, each in enumerate(one.terms) if each.constant and each.text == ZERO}
    first = {each for addition in one.additions if all(part >= 0 for part in addition) for each in addition}
    return frozenset(zeros & first)


def _terms_of(one: Summation, keys: Counter[Hashable]) -> list[Term]:
    left = Counter(keys)
    found = []
    for each in one.terms:
        if left[each.key] > 0:
            left[each.key] -= 1
            found.append(each)
    return found


def _is_start(one: Summation, term: Term) -> bool:
    """Return whether a sum begins with a term: it is an operand of an addition without other additions."""
    number = next(number for number, each in enumerate(one.terms) if each.key == term.key)
    first = next((each for each in one.additions if number in each), ())
    return bool(first) and all(each >= 0 for each in first)


def _listed(terms: Sequence[Term]) -> str:
    if len(terms) == 1:
        return terms[0].text
    return f"{len(terms)} terms ({', '.join(each.text for each in terms[:3])}{', ...' if len(terms) > 3 else ''})"


def _entries(both: Sequence[Summation], names: tuple[str, str]) -> Iterable[str]:
    """Yield a clause where products enter the sums in different ways."""
    ways = [Counter((each.key, each.entry) for each in one.terms if each.entry != "value") for one in both]
    if ways[0] == ways[1]:
        return
    counts: list[Counter[Entry]] = [Counter(each.entry for each in one.terms if each.entry != "value") for one in both]
    products = [counts[0].total(), counts[1].total()]
    if counts[0] == counts[1]:
        own = ways[0] - ways[1], ways[1] - ways[0]
        changed = [_terms_of(one, Counter(key for key, _ in each)) for one, each in zip(both, own, strict=True)]
        texts = [[each.text for each in terms if each.entry == "fused"] for terms in changed]
        if texts[0] and texts[1]:
            yield f"{names[0]} fuses {texts[0][0]} with its addition, {names[1]} fuses {texts[1][0]}"
        return
    yield ", ".join(
        f"{name} {_entered(count, total)}" for name, count, total in zip(names, counts, products, strict=True)
    )


_ENTERED: dict[Entry, tuple[str, str, str]] = {
    "rounded": (
        "rounds the product before it is added",
        "rounds each product before it is added",
        "rounds {} before adding",
    ),
    "fused": (
        "fuses the product with its addition (fma)",
        "fuses each product with its addition (fma)",
        "fuses {} with addition (fma)",
    ),
    "unit": (
        "adds the product in a matrix unit",
        "adds the products in a matrix unit",
        "adds {} in a matrix unit",
    ),
}


def _entered(count: Counter[Entry], total: int) -> str:
    if not total:
        return "adds no products"
    found = []
    for entry, (one, each, some) in _ENTERED.items():
        number = count[entry]
        if number:
            found.append(
                one
                if total == 1
                else each
                if number == total
                else some.format(f"{number} product{'s' if number > 1 else ''}")
            )
    return " and ".join(found)


def _units(both: Sequence[Summation], names: tuple[str, str]) -> Iterable[str]:
    """Yield a clause where both sums use matrix units, and not the same instructions."""
    units = [sorted({each for each in one.operations if " " in each}) for one in both]
    if not units[0] or not units[1] or units[0] == units[1]:
        return
    yield ", ".join(f"{name} uses {' and '.join(map(_unit, each))}" for name, each in zip(names, units, strict=True))


def _unit(name: str) -> str:
    """Return a matrix instruction with the products of a step: `fused (16 products in a step, fp32 fp16 ...)`."""
    family, step, *rest = name.split()
    return f"{family} ({step.removeprefix('k')} products in a step; {' '.join(rest)})"


def _additions(both: Sequence[Summation], names: tuple[str, str]) -> Iterable[str]:
    """Yield a clause where the additions of the sums differ in type or rounding."""
    kinds = [sorted({_addition(each) for each in one.operations if " " not in each}) for one in both]
    if kinds[0] and kinds[1] and kinds[0] != kinds[1]:
        yield ", ".join(f"{name} adds {' and '.join(each)}" for name, each in zip(names, kinds, strict=True))


def _addition(name: str) -> str:
    """Return the type and the rounding of an addition: `in fp32`, `in fp16 with rounding toward zero`."""
    bare, _, owner = name.partition("@")
    parts = bare.split(".")
    words = f"in {parts[-1]}"
    for part in parts[1:-1]:
        if part in _ROUNDINGS:
            words += f" with rounding {_ROUNDINGS[part]}"
        elif part == "ftz":
            words += " with subnormal numbers flushed to zero"
    return words + (f" of {owner}" if owner and "ftz" not in parts else "")


def _conversions(both: Sequence[Summation], names: tuple[str, str]) -> Iterable[str]:
    """Yield a clause where partial sums are rounded to other types."""
    counts = [Counter(one.conversions) for one in both]
    if counts[0] == counts[1]:
        return
    clauses = []
    for name, count in zip(names, counts, strict=True):
        types: Counter[str] = Counter()
        for conversion, number in count.items():
            types[_rounded_to(conversion)] += number
        words = " and ".join(
            f"{number} partial sum{'s' if number > 1 else ''} to {each}" for each, number in types.items()
        )
        clauses.append(f"{name} rounds {words or 'no partial sum to another type'}")
    yield ", ".join(clauses)


def _rounded_to(conversion: str) -> str:
    """Return the type of a conversion's result: `convert.rn.fp16.fp32` rounds to fp16."""
    parts = conversion.partition("@")[0].split(".")
    return parts[-2] if len(parts) > 2 else parts[-1]


def numbered_orders(left: Summation, right: Summation) -> tuple[WrittenOrder | None, WrittenOrder | None]:
    """Return the orders of two sums over the same numbers of their terms, by place in the left one.

    Terms that only the right one has follow.  The order of a sum of one term is None.
    """
    numbers = _numbers(left)
    for key in _keys(right):
        numbers.setdefault(key, len(numbers))
    first, second = (_numbered(one, numbers) for one in (left, right))
    return None if first is None else WrittenOrder(first), None if second is None else WrittenOrder(second)


def _orders(both: Sequence[Summation], names: tuple[str, str]) -> Iterable[str]:
    """Yield a clause where the sums add the same terms in different orders."""
    numbers = _numbers(both[0])
    orders = [_numbered(one, numbers) for one in both]
    if orders[0] is None or orders[1] is None or orders[0] == orders[1]:
        return
    texts = dict(zip(numbers.values(), (each.text for each in both[0].terms), strict=False))
    first, second = WrittenOrder(orders[0]), WrittenOrder(orders[1])
    count = len(orders[0][0]) if len(orders[0]) == 1 else len(first.leaves(first.root))
    whole = [each.text(each.root) for each in (first, second)]
    if all(len(each) <= LONGEST_ORDER for each in whole):
        yield f"{names[0]} sums the {count} terms as {whole[0]}, {names[1]} as {whole[1]}, {_legend(texts, first)}"
        return
    shapes = [describe_shape(tree_shape(SumTree(order))) for order in (orders[0], orders[1])]
    if shapes[0] != shapes[1] and all(len(each) <= LONGEST_SHAPE for each in shapes):
        yield f"{names[0]} sums the {count} terms as {shapes[0]}, {names[1]} as {shapes[1]}"
    else:
        yield f"{names[0]} and {names[1]} sum the same {count} terms in different orders"
    parts = [
        each.text(each.around(number)) for each, number in zip((first, second), first.differs(second), strict=True)
    ]
    yield f"{names[0]} has the partial sum {parts[0]}, {names[1]} has {parts[1]}, {_legend(texts, first)}"


def _legend(texts: dict[int, str], order: WrittenOrder) -> str:
    """Return how to read a written order: the terms of its ends, from left to right, and what is added in one step."""
    ends = sorted(order.leaves(order.root))
    words = f"where {ends[0]} is {texts[ends[0]]} and {ends[-1]} is {texts[ends[-1]]}"
    return words + ("; brackets are added in one step" if order.has_steps else "")


def _numbers(one: Summation) -> dict[tuple[Hashable, int], int]:
    """Return a number for each term, in order of places; the second part of a key counts equal terms."""
    order = sorted(range(len(one.terms)), key=lambda number: one.terms[number].place)
    places = {number: place for place, number in enumerate(order)}
    return {key: places[number] for number, key in enumerate(_keys(one))}


def _keys(one: Summation) -> list[tuple[Hashable, int]]:
    seen: Counter[Hashable] = Counter()
    found = []
    for each in one.terms:
        found.append((each.key, seen[each.key]))
        seen[each.key] += 1
    return found


def _numbered(one: Summation, numbers: dict[tuple[Hashable, int], int]) -> tuple[tuple[int, ...], ...] | None:
    """Return the additions of a sum over these numbers of its terms, without the zeros from which it starts.

    The result is in canonical order; it is None for a sum of one term.
    """
    keys, starts = _keys(one), _starting_zeros(one)
    children: list[int] = []
    nodes: list[list[int]] = []
    for addition in one.additions:
        own = []
        for each in addition:
            if each < 0:
                own.append(children[~each])
            elif each not in starts:
                own.append(numbers[keys[each]])
        if len(own) == 1:
            children.append(own[0])
            continue
        nodes.append(own)
        children.append(~(len(nodes) - 1))
    if not nodes or not children or children[-1] >= 0:
        return None
    return canonical_tree(nodes, ~children[-1]).nodes


class WrittenOrder:
    """The additions of a sum as text: from left to right, parentheses first, `[...]` in one step."""

    def __init__(self, order: Sequence[Sequence[int]]) -> None:
        self.order = order
        self.root = -len(order)
        self.sizes: list[int] = []
        for each in order:
            self.sizes.append(sum(1 if child >= 0 else self.sizes[~child] for child in each))
        self.parents = {child: ~number for number, each in enumerate(order) for child in each}
        self.has_steps = any(len(each) > 2 for each in order)

    def leaves(self, child: int) -> list[int]:
        """Return the terms below a child, ascending."""
        found, stack = [], [child]
        while stack:
            each = stack.pop()
            if each >= 0:
                found.append(each)
            else:
                stack.extend(self.order[~each])
        return sorted(found)

    @cached_property
    def masks(self) -> list[int]:
        """The terms of each addition, one bit for each."""
        found: list[int] = []
        for addition in self.order:
            found.append(sum(1 << child if child >= 0 else found[~child] for child in addition))
        return found

    def differs(self, other: WrittenOrder) -> tuple[int, int]:
        """Return the smallest additions of this order and of another one whose terms no addition of the other adds.

        The second one adds the lowest term of the first one.
        """
        others, own = set(other.masks), set(self.masks)
        first = min(
            (number for number, mask in enumerate(self.masks) if mask not in others), key=self.sizes.__getitem__
        )
        lowest = self.masks[first] & -self.masks[first]
        held = [number for number, mask in enumerate(other.masks) if mask & lowest and mask not in own]
        return first, min(held, key=other.sizes.__getitem__, default=len(other.order) - 1)

    def around(self, number: int) -> int:
        """Return the largest partial sum that holds an addition and has a short text, as a child."""
        child = ~number
        for _ in range(_MOST_LEVELS):
            if child not in self.parents or len(self.text(self.parents[child])) > LONGEST_PARTIAL_SUM:
                break
            child = self.parents[child]
        return child

    def _accumulator(self, number: int) -> int | None:
        """Return the operand of an addition that has more terms than every other one, None for a tie."""
        inner = sorted((each for each in self.order[number] if each < 0), key=lambda each: -self.sizes[~each])
        tied = len(inner) > 1 and self.sizes[~inner[0]] == self.sizes[~inner[1]]
        return None if not inner or tied else inner[0]

    def chain(self, child: int) -> list[tuple[int, ...]]:
        """Return the operands that are added from left to right to compute a sum: those of one addition each."""
        parts: list[tuple[int, ...]] = []
        current: int | None = child
        while current is not None:
            following = self._accumulator(~current)
            parts.append(tuple(each for each in self.order[~current] if each != following))
            current = following
        return parts[::-1]

    def text(self, child: int) -> str:
        """Return a child as text; the parts of a long sum are left out in its middle."""
        if child >= 0:
            return str(child)
        chain = self.chain(child)
        first = len(chain[0]) > 2
        parts = [self._added(each, first if number == 0 else len(each) > 1) for number, each in enumerate(chain[:3])]
        if len(chain) > 5:
            parts.append("...")
        else:
            parts += [self._added(each, len(each) > 1) for each in chain[3:-1]]
        if len(chain) > 3:
            parts.append(self._added(chain[-1], len(chain[-1]) > 1))
        return "+".join(parts)

    def _added(self, operands: Sequence[int], one_step: bool) -> str:
        texts = [f"({self.text(each)})" if each < 0 else "" for each in operands]
        terms = _runs([each for each in operands if each >= 0])
        found = [*terms, *filter(None, texts)] if one_step else [
            text or str(each) for text, each in zip(texts, operands, strict=True)
        ]  # fmt: skip
        return f"[{','.join(found)}]" if one_step else "+".join(found)


_MOST_LEVELS = 64


def _runs(numbers: Sequence[int]) -> list[str]:
    """Return ascending numbers as text, with consecutive ones as `0..15`; long lists are shortened."""
    runs: list[tuple[int, int]] = []
    for each in numbers:
        if runs and runs[-1][1] + 1 == each:
            runs[-1] = (runs[-1][0], each)
        else:
            runs.append((each, each))
    found = [f"{first}..{last}" if last > first + 1 else ",".join(map(str, sorted({first, last})))
             for first, last in runs]  # fmt: skip
    return found if len(found) <= 5 else [*found[:3], "...", found[-1]]
