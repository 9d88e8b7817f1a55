"""The operations of an instruction set, as the adversary writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Spec:
    """An operation: its key, the kinds of its operands, the kind of its result, and its text.

    An operand kind that starts with # is an immediate of the vocabulary.  `plain` operations may have constants as
    immediates.  `crosses`: the operation reads values of other threads.
    """

    key: str
    operands: tuple[str, ...]
    result: str
    text: str
    plain: bool = False
    family: str = ""
    crosses: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """The operations of an instruction set by key and by family, its immediates by kind, and its loaded values.

    `leaves` maps each kind of loaded value to the element type of its buffer and the number of values in each thread.
    """

    specs: Mapping[str, Spec]
    families: Mapping[str, tuple[Spec, ...]]
    immediates: Mapping[str, tuple[str, ...]]
    leaves: Mapping[str, tuple[str, int]]

    def __reduce__(self) -> tuple[Any, ...]:
        return vocabulary, (tuple(self.specs.values()), dict(self.immediates), dict(self.leaves))


def vocabulary(
    specs: Iterable[Spec], immediates: Mapping[str, tuple[str, ...]], leaves: Mapping[str, tuple[str, int]]
) -> Vocabulary:
    """Return the vocabulary of these operations."""
    every = {each.key: each for each in specs}
    names = sorted({each.family for each in every.values()})
    families = {name: tuple(each for each in every.values() if each.family == name) for name in names}
    return Vocabulary(
        MappingProxyType(every), MappingProxyType(families), MappingProxyType(dict(immediates)),
        MappingProxyType(dict(leaves)),
    )  # fmt: skip
