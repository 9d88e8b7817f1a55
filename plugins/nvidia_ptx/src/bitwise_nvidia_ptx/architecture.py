"""The part of an architecture that all NVIDIA GPUs share: opcode tables, kernel parameters and memory layout."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from bitwise_core.assembly.module import Kernel, Module, Parameter
from bitwise_core.execution.architecture import Arch, BitSupport, OpcodeTable, ParametricSupport
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import POINTER_SHIFT, Argument, Launch, ManifestError
from bitwise_core.execution.launch import TensorMap as TensorMapArgument
from bitwise_core.execution.machine import Machine, literal
from bitwise_core.execution.memory.kernel_parameters import value_of
from bitwise_core.execution.memory.local_memory import CONSTANT_BASE, LOCAL_BASE
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_nvidia_ptx.assembler.installed import audit_tools
from bitwise_nvidia_ptx.availability import AvailableTable
from bitwise_nvidia_ptx.contraction.audit import audit_contraction
from bitwise_nvidia_ptx.machine_code.access_order import keeps_order
from bitwise_nvidia_ptx.opcodes import (
    atomics,
    clusters,
    compare,
    control,
    floating,
    integer,
    logic,
    memory,
    stores,
    warp,
)
from bitwise_nvidia_ptx.opcodes.copies import async_copy as asynchronous
from bitwise_nvidia_ptx.opcodes.copies import mbarriers, tensor_maps
from bitwise_nvidia_ptx.opcodes.matrices import matrix_sync
from bitwise_nvidia_ptx.row_evidence import with_row_evidence
from bitwise_nvidia_ptx.special_registers import (
    CLUSTER_REGISTERS,
    SHARED_WINDOW,
    fill_special_registers,
    fixed_by_launch,
)
from bitwise_nvidia_ptx.text.parser import parse
from bitwise_nvidia_ptx.text.writer import write

SHARED_BASE = 1024
"""The first address of shared memory: lower ones are reserved, and swizzles need an alignment of 1024 bytes."""

COMMON = OpcodeTable(
    asynchronous.TABLE, atomics.TABLE, clusters.TABLE, compare.TABLE, control.TABLE, floating.TABLE, integer.TABLE,
    logic.TABLE, memory.TABLE, mbarriers.TABLE, stores.TABLE, tensor_maps.TABLE, warp.TABLE,
)  # fmt: skip


def nvidia_arch(
    name: str,
    targets: tuple[str, ...],
    own: OpcodeTable,
    bits: BitSupport,
    same_steps: Mapping[str, str] | None = None,
    largest_cluster: int = 1,
    *,
    measured_steps: bool = True,
    lowest_lane: str | None = None,
    warp_order: str | None = None,
    copies_visible: str | None = None,
) -> Arch:
    """Return an NVIDIA architecture with the common opcodes and its `own`.

    `targets` are the spellings of `.target`.  `same_steps` maps result type, operand type and k of an mma.sync, for
    example `f32 f16 k16`, to the family whose fused steps it runs; `measured_steps` says whether that was measured, or
    is only published.
    `largest_cluster` is the largest number of blocks of a cluster.  `lowest_lane`, `warp_order` and `copies_visible`
    are the notes of measured facts, see `Arch`.
    """
    opcodes = AvailableTable(COMMON, matrix_sync.table(same_steps or {}, measured=measured_steps), own)
    return Arch(
        name=name,
        extension=".ptx",
        targets=targets,
        warp=32,
        opcodes=opcodes,
        parse=parse,
        write=write,
        granule=granule,
        special=fill_special_registers,
        prepare=prepare,
        audit_contraction=with_row_evidence(partial(audit_contraction, opcodes), name, bits.matrix_units),
        every_launch=PARAMETRIC_SUPPORT,
        bits=bits,
        largest_cluster=largest_cluster,
        lowest_lane=lowest_lane,
        warp_order=warp_order,
        copies_visible=copies_visible,
        keeps_order=partial(keeps_order, opcodes),
        audit_tools=audit_tools,
    )


_BYTE_TYPES = frozenset(["b8", "u8", "s8", "e4m3", "e5m2", "e4m3x2", "e5m2x2", "prmt", "kind::f8f6f4", "kind::i8"])
_HALFWORD_TYPES = frozenset(["b16", "u16", "s16", "f16", "bf16", "f16x2", "bf16x2", "kind::f16"])


def granule(kernel: Kernel) -> int:
    """Return the size in bytes of the smallest unit in which the kernel's instructions access data: 1, 2 or 4."""
    found = 4
    for opcode in {instruction.opcode for instruction in kernel.instructions}:
        parts = opcode.split(".")
        if not _BYTE_TYPES.isdisjoint(parts):
            return 1
        if not _HALFWORD_TYPES.isdisjoint(parts):
            found = 2
    return found


_OVERTAKING_WRITES = ("cp.async.bulk.tensor", "cp.async.bulk.shared", "clusterlaunchcontrol.try_cancel", "st.async")
"""The instructions that write shared memory through the asynchronous proxy, or may do so."""


def prepare(machine: Machine, module: Module, kernel: Kernel, launch: Launch) -> None:
    """Assign addresses to arrays and values to kernel parameters.  Raises ManifestError and Unsupported."""
    _place_arrays(machine, module, kernel)
    if any(each.opcode.startswith(_OVERTAKING_WRITES) for each in kernel.instructions):
        machine.races.follow_unfenced_reads()
    if len(launch.args) > len(kernel.parameters):
        raise ManifestError(
            f"the launch gives {len(launch.args)} arguments and the entry {kernel.name} takes {len(kernel.parameters)}"
        )
    for index, parameter in enumerate(kernel.parameters):
        if index >= len(launch.args):
            if parameter.size != 8:
                raise ManifestError(f"the parameter {parameter.name} has no argument in the launch")
            pointer = (len(machine.buffers) + 1 + index) << POINTER_SHIFT
            machine.extra.setdefault("scratch", set()).add(pointer >> POINTER_SHIFT)
            machine.parameters[parameter.name] = literal(pointer, 64)
            continue
        machine.parameters[parameter.name] = _argument(machine, launch.args[index], parameter, index)


def _argument(machine: Machine, argument: Argument, parameter: Parameter, index: int) -> Value:
    if argument.kind == "tensor_map":
        assert argument.tensor_map is not None
        address = memory.PARAMETER_BASE + index * tensor_maps.TENSOR_MAP_BYTES
        machine.symbols[parameter.name] = address
        table = host_tensor_map(argument.tensor_map, machine.buffers)
        tensor_maps.maps_of(machine).publish(np.full((1, 1), address, dtype=np.uint64), table, {})
        return literal(address, 64)
    return value_of(machine, argument, parameter)


_DTYPE_BYTES = {
    "fp64": 8,
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "i64": 8,
    "u64": 8,
    "i32": 4,
    "u32": 4,
    "i16": 2,
    "u16": 2,
}


_ELEMENT_TYPES = {
    "fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64", "i64": "s64", "u64": "u64", "i32": "s32", "u32": "u32",
    "u16": "u16", "u8": "u8",
}  # fmt: skip
"""The types of tensor maps by the types of a manifest, without those that have no type of their own."""


def host_tensor_map(argument: TensorMapArgument, buffers: Mapping[str, int]) -> tensor_maps.TensorMap:
    """Return the tensor map that the host encodes from shape, strides and block.  Raises Unsupported."""
    if argument.dtype == "tf32" or argument.round_f32_to_tf32:
        raise Unsupported(tensor_maps.ROUNDS_ELEMENTS)
    pitch = element = argument.element_bytes or _DTYPE_BYTES.get(argument.dtype, 1)
    packed = 0
    if argument.fp4_padded:
        if element != 1:
            raise Unsupported("a tensor map of padded elements of 4 bits over elements of more than a byte")
        element, packed = tensor_maps.PACKED_BYTES, tensor_maps.PACKED_ELEMENTS[tensor_maps.PADDED_ELEMENTS]
    modes = {0: 0, 32: 1, 64: 2, 128: 3}
    if argument.padding != "zero" or argument.swizzle not in modes:
        raise Unsupported("a tensor map with this padding or swizzle is not modelled")
    rank = len(argument.shape)
    numbers = {"address": (buffers[argument.buffer] << POINTER_SHIFT) + argument.offset, "element bytes": element,
               "packed bytes": packed, "swizzle": modes[argument.swizzle]}  # fmt: skip
    if argument.dtype in _ELEMENT_TYPES and not packed:
        numbers["element type"] = tensor_maps.ELEMENT_TYPES[_ELEMENT_TYPES[argument.dtype]]
    for dimension in range(rank):
        axis = rank - 1 - dimension
        numbers[f"size {dimension}"] = argument.shape[axis]
        numbers[f"stride {dimension}"] = argument.strides[axis] * pitch
        numbers[f"box {dimension}"] = argument.block[axis]
    return tensor_maps.TensorMap({name: np.full((1, 1), number, dtype=np.uint64) for name, number in numbers.items()})


def _place_arrays(machine: Machine, module: Module, kernel: Kernel) -> None:
    address = LOCAL_BASE
    names: set[str] = set()
    for array in (*kernel.local, *(each for function in module.functions.values() for each in function.local)):
        if array.name in names:
            machine.symbols.pop(array.name, None)  # two arrays of one name: neither has an address
            continue
        names.add(array.name)
        address = -(-address // 16) * 16
        machine.symbols[array.name] = address
        address += max(array.size, 1)
    data = bytearray()
    for array in (*module.constants, *module.globals):
        if array.data is not None:
            data.extend(b"\0" * (-len(data) % max(array.align, 16)))
            machine.symbols[array.name] = CONSTANT_BASE + len(data)
            data.extend(array.data)
    if data:
        machine.extra["constants"] = np.frombuffer(bytes(data), dtype=np.uint8)
    _place_shared_arrays(machine, module, kernel)


def _place_shared_arrays(machine: Machine, module: Module, kernel: Kernel) -> None:
    """Place static shared arrays first, then the dynamic ones, as the assembler does, except for their order.

    Dynamic arrays begin at their own alignment behind the static ones.  A swizzle of 128 bytes depends on the address
    modulo 1024, so static arrays of other sizes change what it does to a dynamic array.
    """
    address = SHARED_BASE
    for array in (*module.shared, *kernel.shared):
        if array.size:
            address = -(-address // array.align) * array.align
            machine.symbols[array.name] = address
            address += array.size
    dynamic = [array for array in (*module.shared, *kernel.shared) if not array.size]
    alignment = max((array.align for array in dynamic), default=1)
    address = -(-address // alignment) * alignment
    for array in (*module.shared, *kernel.shared):
        if not array.size:
            machine.symbols[array.name] = address
        if SHARED_WINDOW in machine.special:
            machine.windows[array.name] = SHARED_WINDOW


PARAMETRIC_SUPPORT = ParametricSupport(
    layout=_place_arrays,
    block=("%ctaid.x", "%ctaid.y", "%ctaid.z"),
    grid=("%nctaid.x", "%nctaid.y", "%nctaid.z"),
    fixed=fixed_by_launch,
    cluster_registers=CLUSTER_REGISTERS,
)
