"""Provenance of addresses that depend on data: the buffers of the known pointer that an offset was added to.

A record is found again by the value, which may be in other registers, or merged with values of other lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.launch import buffer_at
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, Value, lazy_integers
from bitwise_core.execution.values.term_hash import full_hash

_TABLE_SIZE = 1024
_KEY = "pointer provenance"


@dataclass(frozen=True, slots=True)
class PointerProvenance:
    """The buffers that an address may point to, and its alignment in bytes, a power of two."""

    buffers: tuple[int, ...]
    alignment: int


def record_pointer_sum(machine: Machine, result: Value, *summands: Value) -> None:
    """Record the provenance of a 64-bit sum in which one summand is a known pointer, or such a sum itself.

    The record keeps the value alive, so that no other value reuses its id.  A known sum needs none.
    """
    if isinstance(result, np.ndarray) or lazy_integers(result) is not None:
        return
    origins = [provenance_of(machine, each) for each in summands]
    for origin in origins:
        if origin is not None:
            alignments = [
                alignment_of(machine, each) if found is None else found.alignment
                for each, found in zip(summands, origins, strict=True)
            ]
            _record(machine, _KEY, result, PointerProvenance(origin.buffers, min(alignments)))
            return


def buffers_of(machine: Machine, value: Value) -> list[int] | None:
    """The buffers that an address may point to; None where they are unknown."""
    found = provenance_of(machine, value)
    return None if found is None else list(found.buffers)


def provenance_of(machine: Machine, value: Value) -> PointerProvenance | None:
    """The provenance of a known pointer, or of a sum with one; None for any other value."""
    known = machine.known(value)
    if known is not None:
        if known.dtype != np.uint64:
            return None
        present = np.unique(_active_elements(machine, known))
        pointers = {buffer_at(int(each)) for each in present}
        if not pointers or 0 in pointers or len(pointers) > 4:
            return None
        return PointerProvenance(tuple(sorted(pointers)), _common_alignment(present))
    found = _recorded(machine, _KEY, value)
    return found if isinstance(found, PointerProvenance) else None


def record_alignment(machine: Machine, result: Value, alignment: int) -> None:
    """Record that a value that depends on data is a multiple of `alignment`, a power of two."""
    if not isinstance(result, np.ndarray):
        _record(machine, "multiples", result, alignment)


def alignment_of(machine: Machine, value: Value) -> int:
    """The largest known power of two, at most 16, that divides the value in every active lane."""
    known = machine.known(value)
    if known is not None:
        return _common_alignment(_active_elements(machine, known))
    found = _recorded(machine, "multiples", value)
    return found if isinstance(found, int) else 1


def _common_alignment(numbers: Array) -> int:
    together = int(np.bitwise_or.reduce(numbers, axis=None)) | 16 if numbers.size else 16
    return together & -together


def _active_elements(machine: Machine, array: Array) -> Array:
    if machine.mask is None:
        return array.ravel()
    shape = np.broadcast_shapes(array.shape, machine.mask.shape)
    found: Array = np.broadcast_to(array, shape)[np.broadcast_to(machine.mask, shape)]
    return found


def _record(machine: Machine, what: str, value: Value, note: object) -> None:
    known = machine.extra.setdefault(what, {})
    if len(known) > _TABLE_SIZE:
        known.clear()
    known[id(value)] = (value, note, machine.mask, [])


def _recorded(machine: Machine, what: str, value: Value) -> object | None:
    """The record of the value, or of a value that is equal in every active lane."""
    known = machine.extra.get(what)
    if not known:
        return None
    found = known.get(id(value))
    if found is not None and found[0] is value:
        same: object = found[1]
        return same
    if lazy_integers(value) is not None:
        return None
    wanted = _hashes(value, machine.mask)
    for earlier, note, mask, words in reversed(list(known.values())):
        if not words:
            kept = _hashes(earlier, mask)
            words.append(kept[:, np.argsort(kept[0])])
        if _all_recorded(wanted, words[0]):
            equal: object = note
            return equal
    return None


def _hashes(value: Value, mask: Array | None) -> Array:
    """The hashes of a value in the lanes of the mask, shape (2, lanes)."""
    words = full_hash(as_symbolic_vector(value))
    if mask is not None and words.shape[1:] != (1, 1):
        shape = np.broadcast_shapes(words.shape[1:], mask.shape)
        kept: Array = np.broadcast_to(words, (2, *shape))[:, np.broadcast_to(mask, shape)]
        return kept
    return words.reshape(2, -1)


def _all_recorded(wanted: Array, kept: Array) -> bool:
    """Whether every hash is one of those recorded, which are sorted by their first word."""
    if not kept.size or not wanted.size:
        return False
    index = np.minimum(np.searchsorted(kept[0], wanted[0]), kept.shape[1] - 1)
    return bool((kept[:, index] == wanted).all())
