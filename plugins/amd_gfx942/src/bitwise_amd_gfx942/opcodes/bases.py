"""Addresses that depend on data, with the buffers they were made from: a known pointer and an offset that is data.

What is remembered of a sum is found again by the value, which other registers may hold, or other lanes beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.launch import POINTER_SHIFT
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, Value, lazy_integers
from bitwise_core.execution.values.term_hash import full_hash

_REMEMBERED = 1024
_KEY = "bases"


@dataclass(frozen=True, slots=True)
class Base:
    """What is known of an address: its buffers, and of how many bytes it is a multiple (a power of two)."""

    buffers: tuple[int, ...]
    unit: int


def remember_base(machine: Machine, result: Value, *summands: Value) -> None:
    """Notes the base of a sum of 64 bits in which one summand is a known pointer, or such a sum itself.

    The values are kept, so that no other takes their identity.
    """
    if isinstance(result, np.ndarray):
        return
    bases = [base_of(machine, each) for each in summands]
    for base in bases:
        if base is not None:
            units = [
                multiple_of(machine, each) if found is None else found.unit
                for each, found in zip(summands, bases, strict=True)
            ]
            _keep(machine, _KEY, result, Base(base.buffers, min(units)))
            return


def buffers_of(machine: Machine, value: Value) -> list[int] | None:
    """The buffers that an address may point to: those of a known pointer, or of the one it was made from."""
    found = base_of(machine, value)
    return None if found is None else list(found.buffers)


def base_of(machine: Machine, value: Value) -> Base | None:
    """The base of a known pointer, or of a sum with one."""
    known = machine.known(value)
    if known is not None:
        if known.dtype != np.uint64:
            return None
        present = np.unique(_active(machine, known))
        pointers = {int(each) >> POINTER_SHIFT for each in present}
        if not pointers or 0 in pointers or len(pointers) > 4:
            return None
        return Base(tuple(sorted(pointers)), _unit(present))
    found = _found(machine, _KEY, value)
    return found if isinstance(found, Base) else None


def remember_multiple(machine: Machine, result: Value, unit: int) -> None:
    """Notes that a value that depends on data is a multiple of a power of two."""
    if not isinstance(result, np.ndarray):
        _keep(machine, "multiples", result, unit)


def multiple_of(machine: Machine, value: Value) -> int:
    """A power of two, at most 16, of which the value is a multiple."""
    known = machine.known(value)
    if known is not None:
        return _unit(_active(machine, known))
    found = _found(machine, "multiples", value)
    return found if isinstance(found, int) else 1


def _unit(numbers: Array) -> int:
    together = int(np.bitwise_or.reduce(numbers, axis=None)) | 16 if numbers.size else 16
    return together & -together


def _active(machine: Machine, array: Array) -> Array:
    if machine.mask is None:
        return array.ravel()
    shape = np.broadcast_shapes(array.shape, machine.mask.shape)
    found: Array = np.broadcast_to(array, shape)[np.broadcast_to(machine.mask, shape)]
    return found


def _keep(machine: Machine, what: str, value: Value, note: object) -> None:
    known = machine.extra.setdefault(what, {})
    if len(known) > _REMEMBERED:
        known.clear()
    known[id(value)] = (value, note, machine.mask, [])


def _found(machine: Machine, what: str, value: Value) -> object | None:
    """What is noted of the value, or of a value that is the same in every active lane."""
    known = machine.extra.get(what)
    if not known:
        return None
    found = known.get(id(value))
    if found is not None and found[0] is value:
        same: object = found[1]
        return same
    if lazy_integers(value) is not None:
        return None
    wanted = _words(value, machine.mask)
    for earlier, note, mask, words in reversed(list(known.values())):
        if not words:
            kept = _words(earlier, mask)
            words.append(kept[:, np.argsort(kept[0])])
        if _among(wanted, words[0]):
            equal: object = note
            return equal
    return None


def _words(value: Value, mask: Array | None) -> Array:
    """The hashes of a value in the active lanes, shape (2, lanes)."""
    words = full_hash(as_symbolic_vector(value))
    if mask is not None and words.shape[1:] != (1, 1):
        shape = np.broadcast_shapes(words.shape[1:], mask.shape)
        kept: Array = np.broadcast_to(words, (2, *shape))[:, np.broadcast_to(mask, shape)]
        return kept
    return words.reshape(2, -1)


def _among(wanted: Array, kept: Array) -> bool:
    """Whether every hash is one of those kept, which are in order."""
    if not kept.size or not wanted.size:
        return False
    place = np.minimum(np.searchsorted(kept[0], wanted[0]), kept.shape[1] - 1)
    return bool((kept[:, place] == wanted).all())
