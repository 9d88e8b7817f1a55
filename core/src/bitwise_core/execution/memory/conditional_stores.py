"""Stores of one content to one element by several threads, each under its own condition on data.

If no other access of the launch touches the element, it holds that content if any of the conditions holds, and else
what it held before, in every order of the threads.  So the stores are kept with their conditions until the launch has
ended, and each of them then stores the select of both by the joint condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.memory.atomic_contributions import combined
from bitwise_core.execution.memory.store_forwarding import Access, overlapping, payload
from bitwise_core.execution.races.undetermined import AFTER_CONDITION, Cause, Kind, Nondeterministic
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash
from bitwise_core.numerics import operation

MAXIMUM_STORES = 1 << 14
"""How many stores of all threads are kept at most: their conditions are joined one after another."""


@dataclass(frozen=True, slots=True, eq=False)
class _Stores:
    """Stores of one instruction: the contents, and their conditions, of shape (1, stores)."""

    access: Access
    condition: SymbolicVector


class ConditionalStores:
    """The kept stores of a launch by buffer."""

    def __init__(self) -> None:
        self.count = 0
        self._stores: dict[int, list[_Stores]] = {}

    @property
    def buffers(self) -> KeysView[int]:
        """The buffers of the kept stores."""
        return self._stores.keys()

    def is_full(self, more: int) -> bool:
        """Return whether so many stores more are too many."""
        return self.count + more > MAXIMUM_STORES

    def touches(self, access: Access, buffers: Iterable[int]) -> Array | None:
        """Return which elements of an access share a byte with a kept store, None if none does."""
        found: Array | None = None
        for buffer in buffers:
            for each in self._stores.get(buffer, ()):
                near = overlapping(access, each.access)
                found = near if found is None else found | near
        return None if found is None or not found.any() else found

    def joins(self, access: Access, buffer: int) -> bool:
        """Return whether stores are to be kept: several to an element have one content, or some is kept already.

        All elements of an instruction are kept, or none.
        """
        if self.touches(access, (buffer,)) is not None:
            return True
        _, first, element, count = np.unique(access.address, return_index=True, return_inverse=True, return_counts=True)
        if not (count > 1).any() or access.value is None:
            return False
        hashes = np.broadcast_to(exact_hash(access.value), (2, 1, access.address.size))[:, 0]
        return bool((hashes == hashes[:, first[element.reshape(-1)]]).all())

    def keep(self, access: Access, condition: SymbolicVector, buffer: int) -> None:
        """Keep stores in a buffer that are executed under a condition, until their contents are settled."""
        self.count += access.address.size
        self._stores.setdefault(buffer, []).append(_Stores(access, condition))

    def settled(self, domain: Domain, initial: Callable[[Array, int, int, int], Value]) -> dict[int, list[Access]]:
        """Return the stores with the contents that they leave, by buffer.

        `initial` returns the contents before the launch at addresses (1, n), of a width, in a buffer, for a line.
        Raises Unsupported for elements of several widths, and Nondeterministic for an element to which several contents
        are stored: it is not followed which of the stores comes last.
        """
        return {buffer: self._joined(domain, initial, buffer) for buffer in self._stores}

    def _joined(self, domain: Domain, initial: Callable[[Array, int, int, int], Value], buffer: int) -> list[Access]:
        accesses = [each.access for each in self._stores[buffer]]
        bits, line = accesses[0].bits, accesses[0].line
        if any(each.bits != bits for each in accesses):
            raise Unsupported("stores of several widths depend on data", line)
        recorder = domain.recorder
        address = np.concatenate([each.address for each in accesses])
        first, place = np.unique(address, return_index=True, return_inverse=True)[1:]
        place = place.reshape(-1)
        words, flags = payload(accesses)
        contents = SymbolicVector(bits, words[:, None], flags[None])
        own = _in_one_row([each.condition for each in self._stores[buffer]], [each.address.size for each in accesses])
        for each in (contents, own):
            each.recorder = recorder
        # One condition of several threads is joined once.
        rows = np.unique(np.stack([place.astype(np.uint64), *exact_hash(own)[:, 0]]), axis=1, return_index=True)[1]
        start, count = np.unique(place[rows], return_index=True, return_counts=True)[1:]
        joint = as_symbolic_vector(combined(domain, operation("or.b1"), None, _lanes(own, rows), start, count))
        joint.recorder = recorder
        hashes = exact_hash(contents)[:, 0]
        others = (hashes != hashes[:, first[place]]).any(axis=0)
        if others.any():
            sizes = [each.address.size for each in accesses]
            line = int(np.repeat([each.line for each in accesses], sizes)[others][0])
            raise Nondeterministic(AFTER_CONDITION, line, (Cause(Kind.GLOBAL, AFTER_CONDITION, line),))
        before = as_symbolic_vector(initial(address[None], bits, buffer, line))
        left = as_symbolic_vector(domain.select(_lanes(joint, place), contents, before))
        result: list[Access] = []
        done = 0
        for access in accesses:
            value = _lanes(left, np.arange(done, done + access.address.size))
            done += access.address.size
            result.append(replace(access, value=value, chosen=True))
        return result


def _in_one_row(values: Sequence[SymbolicVector], sizes: Sequence[int]) -> SymbolicVector:
    """Return values of these numbers of lanes one after another, shape (1, lanes)."""
    words = [np.broadcast_to(each.words, (2, 1, size)) for each, size in zip(values, sizes, strict=True)]
    flags = [L.flags_of_lanes(each.flags, (1, size)) for each, size in zip(values, sizes, strict=True)]
    return SymbolicVector(values[0].bits, np.concatenate(words, axis=2), np.concatenate(flags, axis=1))


def _lanes(value: SymbolicVector, numbers: Array) -> SymbolicVector:
    """Return lanes of a value of shape (1, lanes), by their numbers."""
    lanes = value.words.shape[2]
    found = SymbolicVector(
        value.bits, value.words[:, :, numbers], L.flags_of_lanes(value.flags, (1, lanes))[:, numbers]
    )
    found.recorder = value.recorder
    return found
