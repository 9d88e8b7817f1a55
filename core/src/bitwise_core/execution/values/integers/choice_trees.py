"""Selects between constants, nested: integers that are one of a few constants of each lane.

LLVM moves what is computed of such an integer into its selects or out of them: an index may be a select of sums, or a
sum with a select.  A sum or a bitwise operation of the integer and constants is computed for each of its constants, and
selected as they are.  The selects are known within a thread only: an exchange between threads returns the term.

A select of two constants is a `PredicateBits`; a `ChoiceTree` has at least one more select.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bitwise_core.execution.values.integers.predicate_bits import choice_of
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.numerics import Operation

Select: TypeAlias = Callable[[Value, Value, Value], Value]
"""The domain's select by a predicate."""

MAXIMUM = 32
"""The most selects of a tree."""

_VERBS = frozenset({"add", "sub", "and", "or", "xor"})


@dataclass(frozen=True, slots=True)
class _Node:
    """A select of constants of each lane or of trees, and the number of selects in it, shared ones counted twice."""

    condition: Value
    if_true: Value
    if_false: Value
    size: int


class ChoiceTree(SymbolicVector):
    """The term of nested selects between constants, with its selects."""

    __slots__ = ("node",)

    def __init__(self, value: SymbolicVector, node: _Node) -> None:
        super().__init__(value.bits, value.words, value.flags)
        self.origins, self.recorder, self.cached_hash = value.origins, value.recorder, value.cached_hash
        self.maximum = value.maximum
        self.node = node


def with_choices(selected: Value, condition: Value, if_true: Value, if_false: Value) -> Value:
    """Return a select with its selects, where it is one of constants and of selects between constants."""
    if not isinstance(selected, SymbolicVector) or selected.bits not in (32, 64):
        return selected
    sizes = [_size(each) for each in (if_true, if_false)]
    if None in sizes or not any(sizes):
        return selected
    size = 1 + sum(each or 0 for each in sizes)
    return selected if size > MAXIMUM else ChoiceTree(selected, _Node(condition, if_true, if_false, size))


def of_tree(info: Operation, operands: Sequence[Value], select: Select) -> Value | None:
    """Return a sum or a bitwise operation of a tree and constants as a tree, None for others."""
    if info.function is None or info.bits not in (32, 64) or info.verb not in _VERBS:
        return None
    trees = [place for place, each in enumerate(operands) if isinstance(each, ChoiceTree)]
    if len(trees) != 1 or not all(isinstance(each, np.ndarray | ChoiceTree) for each in operands):
        return None
    place, function = trees[0], info.function
    others = [np.atleast_2d(each) if isinstance(each, np.ndarray) else each for each in operands]

    def result(leaf: Array) -> Array:
        return np.asarray(function(*(leaf if each == place else other for each, other in enumerate(others))))

    return _mapped(operands[place], result, select)


def _size(value: Value) -> int | None:
    """Return the number of selects of constants, of a select of two constants or of a tree; None for other values."""
    if isinstance(value, np.ndarray):
        return 0
    if isinstance(value, ChoiceTree):
        return value.node.size
    return None if choice_of(value) is None else 1


def _mapped(value: Value, function: Callable[[Array], Array], select: Select) -> Value:
    """Return the tree with a function of each constant in its place."""
    if isinstance(value, np.ndarray):
        return function(value)
    if isinstance(value, ChoiceTree):
        node = value.node
        return select(node.condition, _mapped(node.if_true, function, select), _mapped(node.if_false, function, select))
    choice = choice_of(value)
    assert choice is not None
    return select(choice.predicate, function(choice.high), function(choice.low))
