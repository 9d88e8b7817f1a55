"""The record of one operation: its evaluation and its algebraic properties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics.conversion import INTEGER_ROUNDINGS
from bitwise_core.numerics.floating import COMPARISONS
from bitwise_core.numerics.formats import FloatFormat, Format
from bitwise_core.numerics.softfloat import ROUNDINGS
from bitwise_core.numerics.verb_functions import Array, Function
from bitwise_core.numerics.word_arithmetic import Bits, storage


class Unevaluable(ValueError):
    """An operation has no evaluation; the message names it."""


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """The meaning of an operation's name.  Records are interned: one for each name, so that they compare by identity.

    `commutative` says that the first two operands can be exchanged (the factors of an fma).  `associative` says that
    the operands of nested operations form a multiset: an integer operation that is associative and commutative.
    `function` takes and returns arrays of patterns of at least one axis, predicates as booleans.  It is None where the
    hardware decides the bits.  The operands' types must be right (floating-point operations raise TypeError otherwise).
    `architecture` names the architecture of an operation that only one has, and is "" for all others.
    """

    name: str
    verb: str
    modifiers: tuple[str, ...]
    result: Format
    operands: tuple[Format, ...]
    function: Function | None
    commutative: bool = False
    associative: bool = False
    architecture: str = ""
    arity: int = field(init=False)
    bits: int = field(init=False)
    plain: bool = field(init=False)
    is_comparison: bool = field(init=False)
    """Whether the operation compares two operands of one format."""
    is_float: bool = field(init=False)
    """Whether an operand is a floating-point number."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "arity", len(self.operands))
        object.__setattr__(self, "bits", self.result.bits)
        object.__setattr__(self, "plain", not _NOT_PLAIN & set(self.modifiers))
        object.__setattr__(self, "is_comparison", self.verb in _COMPARED)
        object.__setattr__(self, "is_float", any(isinstance(form, FloatFormat) for form in self.operands))

    def __reduce__(self) -> Any:
        raise TypeError("an operation is interned in its process: send its name")

    def __repr__(self) -> str:
        return f"<operation {self.name}>"

    @property
    def rounding(self) -> str | None:
        """The rounding modifier; None without one."""
        known = (*ROUNDINGS, *INTEGER_ROUNDINGS)
        return next((modifier for modifier in self.modifiers if modifier in known), None)

    @property
    def evaluable(self) -> bool:
        """Whether the operation has an evaluation."""
        return self.function is not None

    @property
    def evaluate(self) -> Callable[..., Bits]:
        """The function on patterns.  Raises Unevaluable for an approximation.

        The function takes one array per operand, in the unsigned type of the operand's width, and returns the array
        of results in the unsigned type of the result's width, a predicate as 0 or 1.  Shapes broadcast.  It raises
        TypeError for other types.
        """
        if self.function is None:
            raise Unevaluable(f"{self.name} is an approximation whose bits the hardware decides: it has no evaluation")
        return partial(_evaluate, self)


_NOT_PLAIN = {"ftz", "sat", "satfinite", "relu", "atomic", "signalling"}
"""Modifiers that change the verb on special values, so that no rule for the verb applies."""

_COMPARED = frozenset((*COMPARISONS, *(f"{verb}u" for verb in COMPARISONS), "ord", "unord"))

_INTERNED: dict[str, Operation] = {}


def _evaluate(meaning: Operation, *arrays: npt.NDArray[Any]) -> Bits:
    assert meaning.function is not None
    kinds = [storage(form.bits) for form in meaning.operands]
    _check_types(meaning.name, kinds, arrays)
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    operands = [np.atleast_1d(array) for array in arrays]
    for place, form in enumerate(meaning.operands):
        if form.bits == 1:
            operands[place] = operands[place].astype(np.bool_)
    result = meaning.function(*operands).reshape(shape)
    return result.astype(np.uint8) if meaning.bits == 1 else result


def _check_types(name: str, kinds: Sequence[np.dtype[Any]], arrays: Sequence[npt.NDArray[Any]]) -> None:
    if len(arrays) != len(kinds):
        raise TypeError(f"{name} takes {len(kinds)} operands and was given {len(arrays)}")
    for array, kind in zip(arrays, kinds, strict=True):
        if array.dtype != kind:
            raise TypeError(f"{name} takes patterns as {kind} and was given {array.dtype}")


def _checked(core: Function, name: str, kinds: tuple[np.dtype[Any], ...], *arrays: npt.NDArray[Any]) -> Array:
    """Apply a floating-point function, which reads the arrays' bytes, after a check of the arrays' types."""
    _check_types(name, kinds, arrays)
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    return core(*arrays).reshape(shape)


@cache
def _table(core: Function, kind: np.dtype[Any], bits: int) -> Array:
    return core(np.arange(1 << bits, dtype=kind))


def _look_up(core: Function, bits: int, operand: Bits) -> Array:
    return _table(core, operand.dtype, bits)[operand]


def intern_operation(
    verb: str,
    modifiers: Sequence[str | None],
    formats: Sequence[Format],
    operands: Sequence[Format],
    result: Format,
    core: Function | None,
    *,
    commutative: bool = False,
    associative: bool = False,
    architecture: str = "",
) -> Operation:
    """Return the record of a name: the existing one, or a new one."""
    kept = tuple(modifier for modifier in modifiers if modifier)
    name = ".".join((verb, *kept, *(form.name for form in formats)))
    name = f"{name}@{architecture}" if architecture else name
    found = _INTERNED.get(name)
    if found is not None:
        return found
    if core is not None and any(isinstance(form, FloatFormat) for form in (result, *operands)):
        if len(operands) == 1 and operands[0].bits <= 16:
            core = partial(_look_up, core, operands[0].bits)
        core = partial(_checked, core, name, tuple(storage(form.bits) for form in operands))
    created = Operation(name, verb, kept, result, tuple(operands), core, commutative, associative, architecture)
    return _INTERNED.setdefault(name, created)
