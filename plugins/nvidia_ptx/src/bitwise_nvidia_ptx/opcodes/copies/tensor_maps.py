"""Tensor maps: the descriptors of bulk tensor copies, encoded by the host or by the kernel in shared memory.

Source: PTX ISA 8.7, "Tensors" and "tensormap.replace".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from bitwise_core.assembly.module import Instruction, Operand
from bitwise_core.execution.alternatives import SharedByWays
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import NO_DESTINATION, Effect
from bitwise_core.execution.launch import POINTER_SHIFT
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.access import read_shared, read_undefined, store_global, write_shared
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.execution.values.term_hash import poison, term
from bitwise_nvidia_ptx.opcodes.copies.issuing_thread import (
    require_known_condition,
    uniform_address,
    uniform_offset,
    value_of_issuing_thread,
)
from bitwise_nvidia_ptx.opcodes.copies.mbarriers import fence_of_initialisations
from bitwise_nvidia_ptx.opcodes.memory import address_of, literal_value, no_operation

TABLE = OpcodeTable()

TENSOR_MAP_BYTES = 128


@dataclass(slots=True)
class TensorMap:
    """The fields of a tensor map, innermost dimension first; each is an array of shape (blocks or 1, 1).

    `rows` are the blocks that have the map where it is listed, and `visible` those that may use it: a map that the
    kernel has published is not visible until a fence acquires it.  `unset` names the fields that some blocks have not
    set, with these blocks.  Blocks are boolean arrays of shape (blocks or 1,).
    """

    fields: dict[str, Array] = field(default_factory=dict)
    rows: Array = field(default_factory=lambda: np.ones(1, dtype=bool))
    visible: Array = field(default_factory=lambda: np.ones(1, dtype=bool))
    unset: dict[str, Array] = field(default_factory=dict)

    def number(self, name: str, rows: Array) -> Array:
        """Return a field that these blocks use.  Raises Unsupported if it is not set."""
        if name not in self.fields or (name in self.unset and (self.unset[name] & rows).any()):
            raise Unsupported(f"a tensor map is used before its {name} is set")
        return self.fields[name]

    def uniform(self, name: str, rows: Array) -> int:
        """Return a field that must be equal in the blocks that use it.  Raises Unsupported if it is not."""
        values = self.number(name, rows)
        if values.size > 1:
            values = values[rows]
        if (values != values.flat[0]).any():
            raise Unsupported(f"a tensor map's {name} differs between blocks")
        return int(values.flat[0])

    def put(self, name: str, value: Array, rows: Array) -> None:
        """Set a field in these blocks."""
        if rows.all():
            self.fields[name] = value
            self.unset.pop(name, None)
            return
        before = self.fields.get(name)
        missing = self.unset.get(name, np.zeros(rows.shape, dtype=bool)) if before is not None else ~rows
        self.fields[name] = value if before is None else np.where(rows[:, None], value, before)
        self.unset[name] = missing & ~rows

    def forget(self, rows: Array) -> None:
        """No field is set in these blocks."""
        for name in self.fields:
            self.unset[name] = self.unset.get(name, np.zeros(rows.shape, dtype=bool)) | rows


Declared: TypeAlias = dict[int, list[tuple[object, Hashable]]]
"""See `GlobalMemory.declared`."""


@dataclass(slots=True, eq=False)
class TensorMaps(SharedByWays):
    """The tensor maps of a batch of blocks: by offset in shared memory, and with their addresses in global memory.

    No way of a branch on data changes them: such instructions are refused there.
    """

    shared: dict[int, TensorMap] = field(default_factory=dict)
    listed: list[tuple[Array, TensorMap]] = field(default_factory=list)

    def publish(self, address: Array, table: TensorMap, declared: Declared) -> None:
        """List a map at an address of each block, which replaces what its blocks had there.

        Raises Unsupported if two blocks give different maps to one address; see `require_agreement`.
        """
        for other, old in self.listed:
            old.rows = old.rows & ~(_same_places(other, address) & table.rows)
        self.listed = [*((where, each) for where, each in self.listed if each.rows.any()), (address, table)]
        self.require_agreement(declared)

    def require_agreement(self, declared: Declared) -> None:
        """Raise Unsupported if two blocks have different maps at one address.

        `declared` holds the maps of all batches of blocks; nothing orders the blocks of two batches.
        """
        contents: dict[int, frozenset[tuple[str, int]]] = {}
        for where, each in self.listed:
            for place, own in _contents_by_place(where, each):
                known = declared.setdefault(place, [])
                if contents.setdefault(place, own) != own or any(
                    batch is not self and content != own for batch, content in known
                ):
                    raise Unsupported("blocks publish different tensor maps at one address")
                if (self, own) not in known:
                    known.append((self, own))

    def at(self, address: Array, rows: Array) -> list[tuple[TensorMap, Array]]:
        """Return the maps at an address of each of these blocks, with the blocks of each."""
        found = [(table, _same_places(where, address) & table.rows & rows) for where, table in self.listed]
        return [(table, own) for table, own in found if own.any()]

    def used(self, address: Array, rows: Array) -> TensorMap | None:
        """Return the map that these blocks use, which may be another one in each; None where a block has none."""
        found = self.at(address, rows)
        if not found or not np.logical_or.reduce([own for _, own in found])[rows].all():
            return None
        first, _ = found[0]
        if len(found) == 1:
            return first
        joined = TensorMap(visible=np.zeros(rows.shape, dtype=bool))
        for table, own in found:
            joined.visible |= table.visible & own
            for name in first.fields:
                joined.put(name, table.number(name, own), own)
        return joined


def _number(value: int) -> Array:
    return np.full((1, 1), value, dtype=np.uint64)


def _same_places(address: Array, other: Array) -> Array:
    """Return the blocks in which two addresses are equal, shape (blocks or 1,); lazy ones as a whole."""
    lazy, second = L.lazy_integers(address), L.lazy_integers(other)
    if lazy is not None or second is not None:
        both = lazy is not None and second is not None and lazy.equality_key() == second.equality_key()
        return np.full(1, both)
    same: Array = (address == other)[:, 0]
    return same


def _contents_by_place(address: Array, table: TensorMap) -> Iterator[tuple[int, frozenset[tuple[str, int]]]]:
    """Yield the address of a map in each of its blocks, with the fields that are set there; none for lazy addresses."""
    if L.lazy_integers(address) is not None:
        return
    count = table.rows.size
    places = np.broadcast_to(address, (count, 1))[:, 0].tolist()
    fields = {name: np.broadcast_to(each, (count, 1))[:, 0].tolist() for name, each in table.fields.items()}
    for block in np.flatnonzero(table.rows).tolist():
        missing = {name for name, rows in table.unset.items() if rows[block]}
        yield places[block], frozenset((name, each[block]) for name, each in fields.items() if name not in missing)


def maps_of(machine: Machine) -> TensorMaps:
    """Return the machine's tensor maps."""
    maps: TensorMaps = machine.extra.setdefault("tensor maps", TensorMaps())
    return maps


def used_map(machine: Machine, address: Array, line: int) -> TensorMap:
    """Return the map at an address, which may differ between blocks.  Raises Unsupported for one that is unusable."""
    rows = machine.active_blocks()
    table = maps_of(machine).used(value_of_issuing_thread(machine, address), rows)
    if table is None:
        raise Unsupported("a tensor map is used that neither the launch nor the kernel defines", line)
    if not (table.visible | ~rows).all():
        raise Unsupported("a tensor map is used that no fence has made visible after the kernel defined it", line)
    return table


_FIELDS = {
    "global_address": "address", "rank": "rank", "box_dim": "box", "global_dim": "size", "global_stride": "stride",
    "element_stride": "element stride", "elemtype": "element type", "interleave_layout": "interleave",
    "swizzle_mode": "swizzle", "fill_mode": "fill",
}  # fmt: skip
ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 4, 9: 8, 10: 2}
"""Bytes of an element by tensormap's .elemtype code.

The codes are, in order: u8, u16, u32, s32, u64, s64, f16, f32, f32.ftz, f64, bf16, tf32, tf32.ftz.
"""
ELEMENT_TYPES = {
    "u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 9, "bf16": 10,
}  # fmt: skip
"""The .elemtype codes of types by their names in PTX."""
ROUNDED_ELEMENTS = frozenset({11, 12})
"""The codes of tf32 and tf32.ftz: a copy to shared memory rounds elements.  Copies of other types keep all bits."""
ROUNDS_ELEMENTS = "a tensor map of tf32, whose copies round elements, is not modelled"
_LAST_SWIZZLE = 3
"""The code of the swizzle of 128 bytes, the last one that is modelled."""
PADDED_ELEMENTS = 14
PACKED_BYTES = 8
"""The bytes of 16 elements of 4 bits in global memory."""
PACKED_ELEMENTS = {13: PACKED_BYTES, PADDED_ELEMENTS: 16}
"""The bytes that 16 elements of 4 bits take in shared memory, by the codes of such types: b4x16 and b4x16_p64."""


@TABLE.opcode("tensormap", operands=NO_DESTINATION, effects=Effect.LOAD | Effect.STORE)
def tensor_map(instruction: Instruction, context: Context) -> Step:
    """tensormap.replace.tile.field in shared memory, and tensormap.cp_fenceproxy to global memory."""
    parts = instruction.opcode.split(".")
    if parts[1] == "cp_fenceproxy":
        target, source = instruction.operands[:2]

        def publish(machine: Machine) -> None:
            _publish(machine, target, source)

        return publish
    if parts[1:3] != ["replace", "tile"] or parts[3] not in _FIELDS:
        raise UnknownInstruction(instruction)
    name = _FIELDS[parts[3]]
    map_operand = instruction.operands[0]
    number, value = (
        (instruction.operands[1], instruction.operands[2])
        if len(instruction.operands) == 3
        else (None, instruction.operands[1])
    )
    ordinal = literal_value(number, instruction) if number is not None else None
    bits, in_shared = 64 if parts[-1] == "b64" else 32, "shared::cta" in parts

    def find(machine: Machine) -> Sequence[TensorMap]:
        if not in_shared:
            place, rows = uniform_address(machine, map_operand, "a tensor map"), machine.active_blocks()
            published = [each for each, _ in maps_of(machine).at(_number(place), rows)]
            for each in published:
                each.visible = each.visible & ~rows
            return published
        offset = uniform_offset(machine, map_operand, "a tensor map")
        _begin_map(machine, offset)
        return [maps_of(machine).shared.setdefault(offset, TensorMap())]

    def replace(machine: Machine) -> None:
        require_known_condition(machine, "a field of a tensor map", of_blocks=True)
        found = machine.known(machine.read_bits(value, bits))
        if found is None:
            raise DataDependent("a field of a tensor map depends on data", instruction.line)
        rows, number = machine.active_blocks(), _of_block(machine, found).astype(np.uint64)
        for table in find(machine):
            _set_field(table, name, ordinal, number, rows)
            if not in_shared:
                maps_of(machine).require_agreement(machine.memory.declared)
                place = uniform_address(machine, map_operand, "a tensor map")
                _store_bytes(machine, table, np.full((machine.blocks, 1), place, dtype=np.uint64), rows)

    return replace


def _of_block(machine: Machine, value: Array) -> Array:
    """Return what the active threads of each block give for a field.  Raises Unsupported if they differ."""
    chosen = value_of_issuing_thread(machine, value)
    if L.lazy_integers(value) is None and ((value != chosen) & machine.active()).any():
        raise Unsupported("threads of a block set a field of a tensor map to different numbers")
    return chosen


@TABLE.opcode("fence", operands=NO_DESTINATION, effects=Effect.NONE)
def fence(instruction: Instruction, context: Context) -> Step:
    """fence; fence.proxy.tensormap with .acquire makes a published tensor map visible."""
    if instruction.opcode == "fence.mbarrier_init.release.cluster":
        return fence_of_initialisations(instruction)
    if "proxy.tensormap" not in instruction.opcode or "acquire" not in instruction.opcode:
        return no_operation(instruction, context)
    target = instruction.operands[0]

    def acquire(machine: Machine) -> None:
        require_known_condition(machine, "the fence of a tensor map", of_blocks=True)
        address = machine.known(address_of(machine, target))
        if address is None:
            raise DataDependent("a tensor map at a computed address is acquired", instruction.line)
        rows = machine.active_blocks()
        for table, own in maps_of(machine).at(value_of_issuing_thread(machine, address), rows):
            table.visible = table.visible | own

    return acquire


def _begin_map(machine: Machine, place: int) -> None:
    """Begin a map at an offset in shared memory if threads have stored zeros there, as for its first field.

    An element type or swizzle that is not set then has the code 0: compilers leave such fields out.  What the fields of
    a map make of its bytes is undefined.  Raises Unsupported if only a part of them is known to be zero.
    """
    places = [np.full((1, 1), each, dtype=np.uint64) for each in range(place, place + TENSOR_MAP_BYTES, 4)]
    rows = machine.active_blocks()
    if read_undefined(machine, places[0], TENSOR_MAP_BYTES)[rows].all():
        return
    words = [machine.known(read_shared(machine, each, 32, ends_late=False)) for each in places]
    own = [None if word is None else value_of_issuing_thread(machine, word) for word in words]
    zero = [each is not None and not np.broadcast_to(each, (machine.blocks, 1))[rows].any() for each in own]
    if not any(zero):
        return
    if not all(zero):
        raise Unsupported("a part of the bytes of a tensor map is stored by threads, which is not modelled")
    table = maps_of(machine).shared.setdefault(place, TensorMap())
    table.forget(rows)
    for name in ("element type", "swizzle"):
        _set_field(table, name, None, _number(0), rows)
    for each in places:
        write_shared(machine, each, poison(32))


def _set_field(table: TensorMap, name: str, ordinal: int | None, value: Array, rows: Array) -> None:
    """Set a field of a map in these blocks."""
    own = value if value.size == 1 or rows.all() else value[rows]
    if name == "stride" and ordinal is not None:
        table.put(f"stride {ordinal + 1}", value, rows)
    elif name == "element type":
        code = int(own.flat[0])
        packed = PACKED_ELEMENTS.get(code, 0)
        if np.isin(own, list(ROUNDED_ELEMENTS)).any():
            raise Unsupported(ROUNDS_ELEMENTS)
        if (own != code).any() or (code not in ELEMENT_BYTES and not packed):
            raise Unsupported(f"a tensor map with the element type {code} is not modelled")
        size = PACKED_BYTES if packed else ELEMENT_BYTES[code]
        for field_name, number in (("element type", code), ("element bytes", size), ("packed bytes", packed)):
            table.put(field_name, _number(number), rows)
    elif name == "swizzle" and (own > _LAST_SWIZZLE).any():
        raise Unsupported(f"a tensor map with the swizzle mode {int(own.max())} is not modelled")
    elif name == "fill" and own.any():
        raise Unsupported("a tensor map that fills with NaN is not modelled")
    elif name == "interleave" and own.any():
        raise Unsupported("an interleaved tensor map is not modelled")
    elif name == "element stride" and (own != 1).any():
        raise Unsupported("a tensor map with element strides is not modelled")
    else:
        table.put(name if ordinal is None else f"{name} {ordinal}", value, rows)


def _publish(machine: Machine, target: Operand, source: Operand) -> None:
    """Copy the map in shared memory to a global address, which may differ between blocks."""
    require_known_condition(machine, "the publication of a tensor map", of_blocks=True)
    maps = maps_of(machine)
    offset = uniform_offset(machine, source, "a tensor map")
    table = maps.shared.get(offset)
    if table is None:
        raise Unsupported("a tensor map is published before it is defined")
    _require_only_fields(machine, offset)
    address = machine.known(address_of(machine, target))
    if address is None:
        raise DataDependent("a tensor map is published at a computed address")
    rows = machine.active_blocks()
    copied = TensorMap(dict(table.fields), rows, np.zeros(rows.shape, dtype=bool), dict(table.unset))
    place = value_of_issuing_thread(machine, address)
    maps.publish(place, copied, machine.memory.declared)
    _store_bytes(machine, table, place, rows)


def _require_only_fields(machine: Machine, place: int) -> None:
    """Raise Unsupported if threads have stored to the bytes of a map in shared memory since its first field."""
    first = np.full((1, 1), place // machine.shared.granule)
    undefined = machine.shared.undefined(first, TENSOR_MAP_BYTES // machine.shared.granule)
    if not undefined[machine.active_blocks()].all():
        raise Unsupported("a part of the bytes of a tensor map is stored by threads, which is not modelled")


def _store_bytes(machine: Machine, table: TensorMap, address: Array, rows: Array) -> None:
    """Store terms of a map's fields where it is published, unless that is the compiler's own buffer.

    The bytes of a map are not documented: an execution on bit patterns leaves what is there.
    """
    if machine.domain.name == "bits":
        return
    scratch = list(machine.extra.get("scratch", ()))
    buffers = machine.known(address >> np.uint64(POINTER_SHIFT))
    if L.lazy_integers(address) is not None:
        if buffers is None or L.lazy_integers(buffers) is not None or not np.isin(buffers, scratch).all():
            raise Unsupported("a tensor map is published in a buffer of the launch at an address that blocks compute")
        return
    assert buffers is not None
    own = np.broadcast_to(np.isin(buffers, scratch), (rows.size, 1))[:, 0]
    if own[rows].all():
        return
    outer = machine.mask
    first = np.argmax(machine.active((machine.blocks, machine.threads)), axis=1)
    machine.mask = rows[:, None] & ~own[:, None] & (np.arange(machine.threads)[None] == first[:, None])
    names = sorted(table.fields)
    fields = [L.constant_vector(table.fields[name].astype(np.uint64)) for name in names]
    try:
        for place in range(0, TENSOR_MAP_BYTES, 8):
            tag = f"bytes from {place} of a tensor map with {', '.join(names)}"
            content = term(64, tag, fields, L.INTEGER, recorder=machine.domain.recorder)
            store_global(machine, address + np.uint64(place), content, 64, machine.line)
    finally:
        machine.mask = outer
