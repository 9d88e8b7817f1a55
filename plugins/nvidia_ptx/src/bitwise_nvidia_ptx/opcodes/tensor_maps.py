"""Tensor maps: the descriptors of bulk tensor copies, encoded by the host or by the kernel in shared memory.

Source: PTX ISA 8.7, "Tensors" and "tensormap.replace".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bitwise_core.assembly.module import Instruction, Operand
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import NO_DESTINATION, Effect
from bitwise_core.execution.launch import POINTER_SHIFT
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.access import read_shared, store_global, write_shared
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.execution.values.term_hash import poison, term
from bitwise_nvidia_ptx.opcodes.issuing_thread import (
    require_known_condition,
    uniform_address,
    uniform_offset,
    value_of_issuing_thread,
)
from bitwise_nvidia_ptx.opcodes.mbarriers import fence_of_initialisations
from bitwise_nvidia_ptx.opcodes.memory import address_of, literal_value, no_operation

TABLE = OpcodeTable()

TENSOR_MAP_BYTES = 128


@dataclass(slots=True)
class TensorMap:
    """The fields of a tensor map, innermost dimension first; each is an array of shape (blocks or 1, 1).

    `unset` holds the blocks, of shape (blocks,), in which a field is not set; a field without an entry is set in all.
    `hidden` are the blocks in which the kernel has published the map and no fence has acquired it since, None for none.
    `address` is where the map is published, an array of shape (blocks or 1, 1), None for a map at one place.
    """

    fields: dict[str, Array] = field(default_factory=dict)
    unset: dict[str, Array] = field(default_factory=dict)
    hidden: Array | None = None
    address: Array | None = None

    def number(self, name: str, rows: Array | None = None) -> Array:
        """Return a field, which must be set in the blocks `rows`, None for all.  Raises Unsupported if it is not."""
        missing = self.unset.get(name)
        if name not in self.fields or (missing is not None and (missing if rows is None else missing & rows).any()):
            raise Unsupported(f"a tensor map is used before its {name} is set")
        return self.fields[name]

    def uniform(self, name: str, rows: Array | None = None) -> int:
        """Return a field that must be equal in all blocks.  Raises Unsupported if it is not."""
        values = self.number(name, rows)
        if (values != values.flat[0]).any():
            raise Unsupported(f"a tensor map's {name} differs between blocks")
        return int(values.flat[0])

    def put(self, name: str, value: Array, rows: Array) -> None:
        """Set a field in the blocks `rows`."""
        if not rows.all():
            old = self.fields.get(name)
            missing = np.ones(rows.shape, dtype=bool) if old is None else self.unset.get(name, np.zeros_like(rows))
            self.unset[name] = missing & ~rows
            value = value if old is None else np.where(rows[:, None], value, old)
        else:
            self.unset.pop(name, None)
        self.fields[name] = value

    def forget(self, rows: Array) -> None:
        """No field is set in the blocks `rows`."""
        for name in self.fields:
            self.unset[name] = self.unset.get(name, np.zeros_like(rows)) | rows


def maps_of(machine: Machine) -> dict[int, TensorMap]:
    """Return the machine's tensor maps, by their addresses, or by `_key` for those that the kernel has published."""
    maps: dict[int, TensorMap] = machine.extra.setdefault("tensor maps", {})
    return maps


def _key(number: Array) -> int:
    """Return a key of the addresses of a map that may differ between blocks, but not within a block."""
    lazy = L.lazy_integers(number)
    return int(number.flat[0]) if lazy is None else lazy.equality_key()


def map_at(machine: Machine, address: Array) -> TensorMap | None:
    """Return the map that each active block has at its address, None if there is none."""
    number = value_of_issuing_thread(machine, address)
    if L.lazy_integers(number) is not None:
        return maps_of(machine).get(_key(number))
    rows = machine.active_blocks()
    own = np.broadcast_to(number, (machine.blocks, 1))[rows]
    for place, each in maps_of(machine).items():
        where = np.full((1, 1), place, dtype=np.uint64) if each.address is None else each.address
        if L.lazy_integers(where) is None and (own == np.broadcast_to(where, (machine.blocks, 1))[rows]).all():
            return each
    return None


_FIELDS = {
    "global_address": "address", "rank": "rank", "box_dim": "box", "global_dim": "size", "global_stride": "stride",
    "element_stride": "element stride", "elemtype": "element type", "interleave_layout": "interleave",
    "swizzle_mode": "swizzle", "fill_mode": "fill",
}  # fmt: skip
ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 4, 9: 8, 10: 2, 11: 4, 12: 4}
"""Bytes of an element by tensormap's .elemtype code.

The codes are, in order: u8, u16, u32, s32, u64, s64, f16, f32, f32.ftz, f64, bf16, tf32, tf32.ftz.
"""
PACKED_ELEMENTS = {13: 8, 14: 16}
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
    bits = 64 if parts[-1] == "b64" else 32
    find = uniform_offset if "shared::cta" in parts else uniform_address

    def replace(machine: Machine) -> None:
        require_known_condition(machine, "a field of a tensor map", of_blocks=True)
        found = machine.known(machine.read_bits(value, bits))
        if found is None:
            raise DataDependent("a field of a tensor map depends on data", instruction.line)
        place, rows = find(machine, map_operand, "a tensor map"), machine.active_blocks()
        if find is uniform_offset:
            _begin_map(machine, place)
        table = map_at(machine, np.full((1, 1), place, dtype=np.uint64))
        if table is None:
            table = maps_of(machine)[place] = TensorMap()
        if table.hidden is not None:
            table.hidden = table.hidden | rows
        _set_field(table, name, ordinal, _of_block(machine, found).astype(np.uint64), rows)

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
        found = map_at(machine, address)
        if found is not None and found.hidden is not None:
            found.hidden = found.hidden & ~machine.active_blocks()

    return acquire


def _begin_map(machine: Machine, place: int) -> None:
    """Begin a map at an offset in shared memory if threads have stored zeros there, as for its first field.

    An element type or swizzle that is not set then has the code 0: compilers leave such fields out.  What the fields of
    a map make of its bytes is undefined.  Raises Unsupported if only a part of them is known to be zero.
    """
    places = [np.full((1, 1), each, dtype=np.uint64) for each in range(place, place + TENSOR_MAP_BYTES, 4)]
    words = [machine.known(read_shared(machine, each, 32)) for each in places]
    rows = machine.active_blocks()
    own = [None if word is None else value_of_issuing_thread(machine, word) for word in words]
    zero = [each is not None and not np.broadcast_to(each, (machine.blocks, 1))[rows].any() for each in own]
    if not any(zero):
        return
    if not all(zero):
        raise Unsupported("a part of the bytes of a tensor map is stored by threads, which is not modelled")
    table = maps_of(machine).setdefault(place, TensorMap())
    table.forget(rows)
    for name in ("element type", "swizzle"):
        _set_field(table, name, None, np.zeros((1, 1), dtype=np.uint64), rows)
    for each in places:
        write_shared(machine, each, poison(32))


def _set_field(table: TensorMap, name: str, ordinal: int | None, value: Array, rows: Array) -> None:
    """Set a field in the blocks `rows`.  Raises Unsupported for a value that is not modelled."""
    own = np.broadcast_to(value, (rows.size, 1))[rows]
    if name == "stride" and ordinal is not None:
        table.put(f"stride {ordinal + 1}", value, rows)
    elif name == "element type":
        code = int(own.flat[0])
        packed = PACKED_ELEMENTS.get(code, 0)
        if (own != code).any() or (code not in ELEMENT_BYTES and not packed):
            raise Unsupported(f"a tensor map with the element type {code} is not modelled")
        size = 8 if packed else ELEMENT_BYTES[code]
        for field_name, number in (("element bytes", size), ("packed bytes", packed)):
            table.put(field_name, np.full((1, 1), number, dtype=np.uint64), rows)
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
    place = uniform_offset(machine, source, "a tensor map")
    table = maps_of(machine).get(place)
    if table is None:
        raise Unsupported("a tensor map is published before it is defined")
    _require_only_fields(machine, place)
    known = machine.known(address_of(machine, target))
    if known is None:
        raise DataDependent("a tensor map is published at a computed address")
    address, rows = value_of_issuing_thread(machine, known), machine.active_blocks()
    every = maps_of(machine)
    if L.lazy_integers(address) is not None:
        fields, unset = dict(table.fields), dict(table.unset)
        every[_key(address)] = TensorMap(fields, unset, np.ones(machine.blocks, dtype=bool), address)
        return
    spread = np.broadcast_to(address, (machine.blocks, 1))
    found = None
    for each in [each for each in every.values() if each.address is not None and L.lazy_integers(each.address) is None]:
        assert each.address is not None
        old = np.broadcast_to(each.address, spread.shape)
        if (old == spread)[rows].all():
            found = each
        else:
            each.forget((old == spread)[:, 0] & rows)
    if found is None:
        # Negative keys are of maps whose addresses `map_at` compares.
        found = every[-1 - len(every)] = TensorMap(hidden=np.zeros(machine.blocks, dtype=bool), address=spread)
    assert found.hidden is not None
    assert found.address is not None
    found.forget(rows)
    for name, value in table.fields.items():
        defined = rows & ~table.unset.get(name, np.zeros_like(rows))
        if defined.any():
            found.put(name, value, defined)
    found.address = np.where(rows[:, None], spread, found.address)
    found.hidden = found.hidden | rows
    _require_own_places(found, rows)
    _store_bytes(machine, table, spread, rows)


def _require_only_fields(machine: Machine, place: int) -> None:
    """Raise Unsupported if threads have stored to the bytes of a map in shared memory since its first field."""
    granule = machine.shared.granule
    cells = np.arange(place // granule, -(-(place + TENSOR_MAP_BYTES) // granule))
    machine.shared.reserve_cells(int(cells[-1]) + 1)
    if ((machine.shared.flags[:, cells] & np.uint32(L.POISON)) == 0)[machine.active_blocks()].any():
        raise Unsupported("a part of the bytes of a tensor map is stored by threads, which is not modelled")


def _require_own_places(table: TensorMap, rows: Array) -> None:
    """Raise Unsupported if two blocks have published different maps at one address."""
    assert table.address is not None
    shape = (rows.size, 1)
    columns = [np.broadcast_to(each, shape)[rows] for each in table.fields.values()]
    places = np.broadcast_to(table.address, shape)[rows]
    contents = np.unique(np.concatenate([places, *columns], axis=1), axis=0)
    if len(np.unique(contents[:, 0])) < len(contents):
        raise Unsupported("blocks publish different tensor maps at one address")


def _store_bytes(machine: Machine, table: TensorMap, address: Array, rows: Array) -> None:
    """Store terms of a map's fields where it is published, unless that is the compiler's own buffer.

    The bytes of a map are not documented: an execution on bit patterns leaves what is there.
    """
    own = np.isin(address >> np.uint64(POINTER_SHIFT), list(machine.extra.get("scratch", ())))[:, 0]
    if machine.domain.name != "terms" or own[rows].all():
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
