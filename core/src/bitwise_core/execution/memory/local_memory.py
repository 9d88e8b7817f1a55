"""Local memory (each thread's own arrays) and the module's constant arrays.

A store must go to one offset that all threads share.  Its bytes may be read, and replaced, in any widths.  A load at an
offset that depends on data is a term over the whole content of local memory.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.active_lanes import active_lanes, active_values
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.execution.values.term_hash import poison, term
from bitwise_core.numerics import operation

LOCAL_BASE = 1 << 33
CONSTANT_BASE = 1 << 34
"""The address of the module's constant arrays; local arrays start at LOCAL_BASE.

Both are below every buffer and above shared memory.
"""


def _uniform_address(machine: Machine, address: Array) -> int | None:
    if address.size > 1:
        address = active_values(address, machine.mask)
    return int(address.flat[0]) if address.size and (address == address.flat[0]).all() else None


def is_local(machine: Machine, address: Array, line: int) -> bool:
    """Return whether the addresses of the active lanes are those of local arrays.  Raises Unsupported if some are."""
    active = active_values(address, active_lanes(machine.mask, address)).astype(np.uint64, copy=False)
    inside = (active >= np.uint64(LOCAL_BASE)) & (active < np.uint64(CONSTANT_BASE))
    if inside.any() and not inside.all():
        raise Unsupported("an instruction accesses local memory in some threads and other memory in others", line)
    return bool(inside.any())


def _overlapping(contents: dict[int, Value], where: int, bits: int) -> list[int]:
    """Return the places of the values that share bytes with `bits` bits at a place."""
    end = where + bits // 8
    return [start for start, old in contents.items() if where < start + L.width(old) // 8 and start < end]


def _content(contents: dict[int, Value], where: int, bits: int) -> Value | None:
    """Return what `bits` bits at a place hold, joined from several values where necessary; None: nothing is stored."""
    places = _overlapping(contents, where, bits)
    if not places:
        return None
    if places == [where] and L.width(contents[where]) == bits:
        return contents[where]
    held = {
        start + byte: extract(L.settled(contents[start]), 8 * byte, 8)
        for start in places
        for byte in range(L.width(contents[start]) // 8)
    }
    return concat([held.get(each, poison(8)) for each in range(where, where + bits // 8)])


def _remove(contents: dict[int, Value], where: int, bits: int) -> None:
    """Remove the bytes of `bits` bits at a place; those of the same values beside them stay, one by one."""
    for start in _overlapping(contents, where, bits):
        old = contents.pop(start)
        for byte in range(L.width(old) // 8):
            if not where <= start + byte < where + bits // 8:
                contents[start + byte] = extract(L.settled(old), 8 * byte, 8)


def store(machine: Machine, address: Array, values: list[Value], bits: int, line: int) -> None:
    """Store values consecutively, starting at an offset that all active threads share.  Raises Unsupported."""
    place = _uniform_address(machine, address)
    if place is None:
        raise Unsupported("local memory is written at offsets that differ between threads", line)
    contents = machine.local
    for index, value in enumerate(values):
        where = place + index * bits // 8
        old = None if machine.mask is None else _content(contents, where, bits)
        if where not in contents or L.width(contents[where]) != bits:
            _remove(contents, where, bits)
        contents[where] = (
            value
            if machine.mask is None
            else blend_values(machine.mask, value, poison(bits) if old is None else L.settled(old))
        )


def load(machine: Machine, address: Value, offset: int, bits: int, line: int) -> Value:
    """Return the value at a thread's own address.  Raises Unsupported."""
    contents = machine.local
    known = machine.known(address)
    place = None if known is None else _uniform_address(machine, known)
    if place is not None:
        found = _content(contents, place + offset, bits)
        return poison(bits) if found is None else L.settled(found)
    if isinstance(known, np.ndarray):
        return _own_cells(machine, contents, known.astype(np.uint64) + np.uint64(offset), bits, line)
    if any(L.width(value) != bits for value in contents.values()):
        raise DataDependent("local memory is read at a computed address in another width than it was written", line)
    shift = np.full((1, 1), offset, dtype=np.uint64)
    where = address if not offset else machine.domain.integer(operation("add.b64"), [address, shift])
    cells = [contents[start] for start in sorted(contents)]
    layout = " ".join(str(start) for start in sorted(contents))
    return term(
        bits,
        f"local gather {layout}",
        [as_symbolic_vector(L.settled(each)) for each in (where, *cells)],
        exact=True,
        recorder=machine.domain.recorder,
    )


def _own_cells(machine: Machine, contents: dict[int, Value], address: Array, bits: int, line: int) -> Value:
    """Return the value at each active thread's own known address.  Raises Unsupported."""
    found: Value = poison(bits)
    for start, value in contents.items():
        here = address == np.uint64(start)
        inside = (address < np.uint64(start + L.width(value) // 8)) & (
            address + np.uint64(bits // 8) > np.uint64(start)
        )
        other = inside & machine.active() if L.width(value) != bits else inside & ~here & machine.active()
        if other.any():
            raise Unsupported("local memory is read in another width than it was written", line)
        if here.any() and L.width(value) == bits:
            found = blend_values(here, L.settled(value), found)
    return found


def load_constant(machine: Machine, address: Array, bits: int) -> Array | None:
    """Return the number at an address inside the module's constant arrays, or None for any other address."""
    table: Array | None = machine.extra.get("constants")
    if table is None or not isinstance(address, np.ndarray):
        return None
    active = active_lanes(machine.mask, address)
    where = np.where(active, address.astype(np.int64) - CONSTANT_BASE, 0)
    if where.size == 0 or int(where.min()) < 0 or int(where.max()) + bits // 8 > table.size:
        return None
    number = np.zeros(where.shape, dtype=np.uint64)
    for byte in range(bits // 8):
        number |= table[where + byte].astype(np.uint64) << np.uint64(8 * byte)
    return number.astype(L.UNSIGNED[bits])
