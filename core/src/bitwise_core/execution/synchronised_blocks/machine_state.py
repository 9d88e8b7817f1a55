"""The state of a batch while its blocks wait: what a round of waiting changes, and digests of what is left."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.races.colliding_lanes import RecentStores
from bitwise_core.execution.races.undetermined import undetermined
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, Value, width


@dataclass(frozen=True, slots=True, eq=False)
class MachineState:
    """Registers, shared memory, local memory and the state of asynchronous work at one point of a run.

    `extra` is what `Machine.extra` holds, with its content (`_content_of`), since much of it is changed in place.
    """

    registers: Mapping[str, Value]
    words: Array
    flags: Array
    local: Mapping[int, Value]
    extra: object

    @classmethod
    def of(cls, machine: Machine) -> MachineState:
        """Return the current state."""
        shared = machine.shared
        return cls(
            dict(machine.registers), shared.words.copy(), shared.flags.copy(), dict(machine.local), _extra_of(machine)
        )

    def changes_elsewhere(self, machine: Machine) -> bool:
        """Return whether more has changed since than registers and shared memory."""
        extra = _extra_of(machine) == self.extra
        local = machine.local.keys() == self.local.keys() and all(
            _same(machine.local[each], self.local[each]) for each in machine.local
        )
        return not extra or not local


def forget_changes(machine: Machine, before: MachineState, changed: set[object], line: int) -> bool:
    """Make undetermined what has changed since an earlier state, and note it in `changed`.

    Return whether something is not in `changed` before.  Raises Unsupported for changes elsewhere.
    """
    if before.changes_elsewhere(machine):
        raise Unsupported("a block changes more than registers and shared memory while it waits", line)
    fresh = False
    shape = (machine.blocks, machine.threads)
    for name, value in list(machine.registers.items()):
        old = before.registers.get(name)
        if old is None or not _same(old, value):
            machine.registers[name] = undetermined(width(value), shape, machine.domain.recorder)
            fresh |= name not in changed
            changed.add(name)
    shared = machine.shared
    count = min(before.words.shape[2], shared.words.shape[2])
    differ = np.ones(shared.words.shape[1:], dtype=bool)
    differ[:, :count] = (shared.words[:, :, :count] != before.words[:, :, :count]).any(axis=0)
    differ[:, :count] |= shared.flags[:, :count] != before.flags[:, :count]
    rows, columns = np.nonzero(differ)
    if columns.size:
        content = as_symbolic_vector(undetermined(8 * shared.granule, (1, columns.size), machine.domain.recorder))
        shared.words[:, rows, columns] = np.broadcast_to(content.words, (2, 1, columns.size))[:, 0]
        shared.flags[rows, columns] = content.flags
        shared.changed()
        cells = set(zip(rows.tolist(), columns.tolist(), strict=True))
        fresh |= not changed.issuperset(cells)
        changed.update(cells)
    return fresh


def digest_of(machine: Machine, is_live: Callable[[str], bool]) -> bytes:
    """Return a digest of shared memory, of local memory, and of the registers that are live."""
    found = hashlib.sha256()
    shape = (machine.blocks, machine.threads)
    values: list[tuple[object, Value]] = [
        (name, value) for name, value in sorted(machine.registers.items()) if is_live(name)
    ]
    values += sorted(machine.local.items())
    for name, value in values:
        vector = as_symbolic_vector(value)
        words = np.broadcast_to(vector.words, (vector.words.shape[0], *shape))
        flags = np.broadcast_to(vector.flags, shape)
        found.update(repr((name, width(value), machine.pc)).encode())
        found.update(np.ascontiguousarray(words).tobytes() + np.ascontiguousarray(flags).tobytes())
    shared = machine.shared
    found.update(repr((shared.words.shape, shared.granule)).encode())
    found.update(np.ascontiguousarray(shared.words).tobytes() + np.ascontiguousarray(shared.flags).tobytes())
    return found.digest()


def _extra_of(machine: Machine) -> object:
    """Return what else the state of a machine holds.  `RecentStores` decide no value."""
    return _content_of({name: each for name, each in machine.extra.items() if not isinstance(each, RecentStores)})


def _content_of(value: object) -> object:
    """Return a number, an array, a container or a record as tuples that are equal if its whole content is.

    Anything else is equal to itself alone.
    """
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, Mapping):
        return type(value), tuple((name, _content_of(each)) for name, each in value.items())
    if isinstance(value, list | tuple | deque):
        return type(value), tuple(map(_content_of, value))
    if is_dataclass(value):
        return type(value), tuple(_content_of(getattr(value, each.name)) for each in fields(value))
    return value


def _same(left: Value, right: Value) -> bool:
    """Return whether two values are proved to be equal in all lanes."""
    if left is right:
        return True
    if width(left) != width(right):
        return False
    one, other = as_symbolic_vector(left), as_symbolic_vector(right)
    return bool((one.words == other.words).all() and np.all(one.flags == other.flags))
