"""State in `Machine.extra` that both ways of a branch on data may change: copies of it, and what holds after both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.memory.shared_memory import SharedMemory
from bitwise_core.execution.values.symbolic_vector import Array


class NotJoined(Unsupported):
    """The ways of a branch on data leave states that are not described as one."""


@dataclass(frozen=True, slots=True)
class Ways:
    """The two ways of a branch: the blocks that are known to take the first one, and those that take the second one.

    Both are boolean arrays of shape (blocks,).  `shared` is what shared memory holds after each of the ways.
    """

    first: Array
    second: Array
    shared: tuple[SharedMemory, SharedMemory]

    @property
    def open(self) -> Array:
        """The other blocks: data decides, or they take no part and have one state in both ways."""
        found: Array = ~(self.first | self.second)
        return found


class Alternative(ABC):
    """State of which each way of a branch on data changes a copy of its own.

    A way that has none of it has what the type makes without arguments.
    """

    __slots__ = ()

    @abstractmethod
    def copy(self) -> Self:
        """Return an independent copy."""

    @abstractmethod
    def joined(self, other: Self, ways: Ways) -> Self:
        """Return the state after both ways, this one and another, whichever is taken.  Raises NotJoined."""


class SharedByWays:
    """State that both ways of a branch share: what is kept to save time, or what no instruction changes there.

    A class says which of both it is.
    """

    __slots__ = ()


class Possibilities(set[Any], Alternative):
    """A set of what may be so: after both ways it holds what either of them holds."""

    def copy(self) -> Possibilities:
        """See `Alternative.copy`."""
        return Possibilities(self)

    def joined(self, other: Iterable[Any], ways: Ways) -> Possibilities:
        """See `Alternative.joined`."""
        return Possibilities(self | set(other))


_UNCHANGED = (int, str, tuple, frozenset, dict, set, list, np.ndarray)
"""Types of what ways share besides: numbers and caches, and what is set at the start of a run and never changed."""
_CACHES = (int, str, tuple, dict, SharedByWays)
"""The types of what is left out after both ways where they differ."""


def copied_alternatives(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `Machine.extra` holds for one way of a branch.  Raises NotJoined for state of another kind."""
    found = {}
    for key, value in extra.items():
        if isinstance(value, Alternative):
            found[key] = value.copy()
        elif isinstance(value, SharedByWays) or type(value) in _UNCHANGED or isinstance(value, bool):
            found[key] = value
        else:
            raise NotJoined(f"data decides about instructions that may change {key}")
    return found


def joined_alternatives(left: Mapping[str, Any], right: Mapping[str, Any], ways: Ways) -> dict[str, Any]:
    """Return what `Machine.extra` holds after both ways.  Raises NotJoined."""
    found = {}
    for key in {**left, **right}:
        one, other = left.get(key), right.get(key)
        if isinstance(one, Alternative) or isinstance(other, Alternative):
            kind: Any = type(other if one is None else one)
            found[key] = (kind() if one is None else one).joined(kind() if other is None else other, ways)
        elif one is other:
            found[key] = one
        elif not all(each is None or isinstance(each, _CACHES) for each in (one, other)):
            raise NotJoined(f"the ways of a branch on data leave different {key}")
    return found
