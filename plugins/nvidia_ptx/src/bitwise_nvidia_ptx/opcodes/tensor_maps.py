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
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.access import read_shared, write_shared
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.execution.values.term_hash import poison
from bitwise_nvidia_ptx.opcodes.issuing_thread import uniform_address, uniform_offset, value_of_issuing_thread
from bitwise_nvidia_ptx.opcodes.mbarriers import fence_of_initialisations
from bitwise_nvidia_ptx.opcodes.memory import address_of, literal_value, no_operation

TABLE = OpcodeTable()

TENSOR_MAP_BYTES = 128


@dataclass(slots=True)
class TensorMap:
    """The fields of a tensor map, innermost dimension first; each is an array of shape (blocks or 1, 1).

    A map that the kernel has published is not `visible` until a fence acquires it.
    """

    fields: dict[str, Array] = field(default_factory=dict)
    visible: bool = True

    def number(self, name: str) -> Array:
        """Return a field.  Raises Unsupported if it is not set."""
        if name not in self.fields:
            raise Unsupported(f"a tensor map is used before its {name} is set")
        return self.fields[name]

    def uniform(self, name: str) -> int:
        """Return a field that must be equal in all blocks.  Raises Unsupported if it is not."""
        values = self.number(name)
        if (values != values.flat[0]).any():
            raise Unsupported(f"a tensor map's {name} differs between blocks")
        return int(values.flat[0])


def maps_of(machine: Machine) -> dict[int, TensorMap]:
    """Return the machine's tensor maps, by `map_key` of their addresses."""
    maps: dict[int, TensorMap] = machine.extra.setdefault("tensor maps", {})
    return maps


def map_key(machine: Machine, address: Array) -> int:
    """Return the key of the map at an address that may differ between blocks, but not within a block."""
    number = value_of_issuing_thread(machine, address)
    lazy = L.lazy_integers(number)
    return int(number.flat[0]) if lazy is None else lazy.equality_key()


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
        found = machine.known(machine.read_bits(value, bits))
        if found is None:
            raise DataDependent("a field of a tensor map depends on data", instruction.line)
        place = find(machine, map_operand, "a tensor map")
        if find is uniform_offset:
            _begin_map(machine, place)
        table = maps_of(machine).setdefault(place, TensorMap())
        _set_field(table, name, ordinal, value_of_issuing_thread(machine, found).astype(np.uint64))

    return replace


@TABLE.opcode("fence", operands=NO_DESTINATION, effects=Effect.NONE)
def fence(instruction: Instruction, context: Context) -> Step:
    """fence; fence.proxy.tensormap with .acquire makes a published tensor map visible."""
    if instruction.opcode == "fence.mbarrier_init.release.cluster":
        return fence_of_initialisations(instruction)
    if "proxy.tensormap" not in instruction.opcode or "acquire" not in instruction.opcode:
        return no_operation(instruction, context)
    target = instruction.operands[0]

    def acquire(machine: Machine) -> None:
        address = machine.known(address_of(machine, target))
        if address is None:
            raise DataDependent("a tensor map at a computed address is acquired", instruction.line)
        found = maps_of(machine).get(map_key(machine, address))
        if found is not None:
            found.visible = True

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
    table = maps_of(machine)[place] = TensorMap()
    for name in ("element type", "swizzle"):
        _set_field(table, name, None, np.zeros((1, 1), dtype=np.uint64))
    for each in places:
        write_shared(machine, each, poison(32))


def _set_field(table: TensorMap, name: str, ordinal: int | None, value: Array) -> None:
    if name == "stride" and ordinal is not None:
        table.fields[f"stride {ordinal + 1}"] = value
    elif name == "element type":
        code = int(value.flat[0])
        packed = PACKED_ELEMENTS.get(code, 0)
        if code not in ELEMENT_BYTES and not packed:
            raise Unsupported(f"a tensor map with the element type {code} is not modelled")
        size = 8 if packed else ELEMENT_BYTES[code]
        for field_name, number in (("element bytes", size), ("packed bytes", packed)):
            table.fields[field_name] = np.full((1, 1), number, dtype=np.uint64)
    elif name == "fill" and value.any():
        raise Unsupported("a tensor map that fills with NaN is not modelled")
    elif name == "interleave" and value.any():
        raise Unsupported("an interleaved tensor map is not modelled")
    elif name == "element stride" and (value != 1).any():
        raise Unsupported("a tensor map with element strides is not modelled")
    else:
        table.fields[name if ordinal is None else f"{name} {ordinal}"] = value


def _publish(machine: Machine, target: Operand, source: Operand) -> None:
    """Copy the map in shared memory to a global address, which may differ between blocks."""
    table = maps_of(machine).get(uniform_offset(machine, source, "a tensor map"))
    if table is None:
        raise Unsupported("a tensor map is published before it is defined")
    address = machine.known(address_of(machine, target))
    if address is None:
        raise DataDependent("a tensor map is published at a computed address")
    maps_of(machine)[map_key(machine, address)] = TensorMap(dict(table.fields), visible=False)
