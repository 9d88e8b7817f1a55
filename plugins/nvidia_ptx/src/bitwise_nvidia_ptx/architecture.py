"""What all NVIDIA architectures share: parameters, special registers, memory layout, and the tables of opcodes."""

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
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_nvidia_ptx.contraction.audit import audit_contraction
from bitwise_nvidia_ptx.special_registers import GRID_DEPENDENT, fixed_by_launch
from bitwise_nvidia_ptx.opcodes import async_copy as asynchronous, atomics, compare, control, floating, integer, logic, matrix_sync, memory, mbarriers as memory_barriers, tensor_maps, warp
from bitwise_nvidia_ptx.parser import parse
from bitwise_nvidia_ptx.writer import write

SHARED_BASE = 1024
"""Dynamic shared memory starts here: what is below is the system's, and 1024-byte alignment is what swizzles need."""

COMMON = OpcodeTable(
    asynchronous.TABLE, atomics.TABLE, compare.TABLE, control.TABLE, floating.TABLE, integer.TABLE, logic.TABLE,
    memory.TABLE, memory_barriers.TABLE, tensor_maps.TABLE, warp.TABLE,
)  # fmt: skip


def nvidia_arch(
    name: str,
    targets: tuple[str, ...],
    own: OpcodeTable,
    bits: BitSupport,
    same_steps: Mapping[str, str] | None = None,
) -> Arch:
    """An architecture of NVIDIA's with its own opcodes beside the common ones.

    `same_steps` names the family whose fused steps mma.sync runs, by result, operand and k: `f32 f16 k16`.
    """
    opcodes = OpcodeTable(COMMON, matrix_sync.table(same_steps or {}), own)
    return Arch(
        name=name,
        extension=".ptx",
        targets=targets,
        warp=32,
        opcodes=opcodes,
        parse=parse,
        write=write,
        granule=granule,
        special=special_registers,
        prepare=prepare,
        audit_contraction=partial(audit_contraction, opcodes),
        every_launch=EVERY_LAUNCH,
        bits=bits,
    )


_BYTES = ("b8", "u8", "s8", "e4m3", "e5m2", "e4m3x2", "e5m2x2", "prmt")
_HALVES = ("b16", "u16", "s16", "f16", "bf16", "f16x2", "bf16x2")


def granule(kernel: Kernel) -> int:
    """The least unit, in bytes, in which the kernel's instructions look at data."""
    found = 4
    for opcode in {instruction.opcode for instruction in kernel.instructions}:
        parts = opcode.split(".")
        if any(each in _BYTES for each in parts):
            return 1
        if any(each in _HALVES for each in parts):
            found = 2
    return found


def special_registers(machine: Machine, launch: Launch) -> None:
    """Fills the special registers that the launch fixes; `machine.special["block"]` holds the blocks' numbers."""
    block = machine.special["block"].astype(np.uint32)
    thread = np.arange(machine.threads, dtype=np.uint32)[None]
    size = machine.block
    grid = launch.grid
    special = machine.special
    for axis, value in zip("xyz", _coordinates(block, grid), strict=True):
        special[f"%ctaid.{axis}"] = value
    for axis, value in zip("xyz", _coordinates(thread, size), strict=True):
        special[f"%tid.{axis}"] = value
    for index, axis in enumerate("xyz"):
        special[f"%ntid.{axis}"] = literal(size[index], 32)
        special[f"%nctaid.{axis}"] = literal(grid[index], 32)
        special[f"%cluster_ctaid.{axis}"] = literal(0, 32)
        special[f"%cluster_nctaid.{axis}"] = literal(1, 32)
        special[f"%clusterid.{axis}"] = special[f"%ctaid.{axis}"]
        special[f"%nclusterid.{axis}"] = literal(grid[index], 32)
    special["%laneid"] = thread & np.uint32(31)
    special["%warpid"] = thread >> np.uint32(5)
    special["%nwarpid"] = literal(-(-machine.threads // 32), 32)
    special["%cluster_ctarank"] = literal(0, 32)
    special["%cluster_nctarank"] = literal(1, 32)
    lane = thread & np.uint32(31)
    special["%lanemask_lt"] = (np.uint32(1) << lane) - np.uint32(1)
    special["%lanemask_eq"] = np.uint32(1) << lane
    special["%lanemask_le"] = special["%lanemask_lt"] | special["%lanemask_eq"]
    special["%lanemask_gt"] = ~special["%lanemask_le"]
    special["%lanemask_ge"] = ~special["%lanemask_lt"]
    special["WARP_SZ"] = literal(32, 32)


def _coordinates(number: Array, extent: tuple[int, int, int]) -> list[Array]:
    x, y, _ = (np.uint32(each) for each in extent)
    values = [number % x, number // x % y, number // (x * y)]
    return [literal(0, 32) if extent[index] == 1 else value for index, value in enumerate(values)]


def prepare(machine: Machine, module: Module, kernel: Kernel, launch: Launch) -> None:
    """Lays out shared arrays and gives every kernel parameter its value.  Raises Unsupported."""
    _place_arrays(machine, module, kernel)
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
        address = tensor_maps.PARAMETER_MAP_BASE + index * tensor_maps.TENSOR_MAP_BYTES
        machine.symbols[parameter.name] = address
        tensor_maps.maps_of(machine)[address] = host_tensor_map(argument.tensor_map, machine.buffers)
        return literal(address, 64)
    return value_of(machine, argument, parameter)


_WIDTH = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "bf16": 2,
    "i64": 8,
    "u64": 8,
    "i32": 4,
    "u32": 4,
    "i16": 2,
    "u16": 2,
}


def host_tensor_map(argument: TensorMapArgument, buffers: Mapping[str, int]) -> tensor_maps.TensorMap:
    """The fields of a tensor map that the host encodes from shape, strides and block."""
    element = argument.element_bytes or _WIDTH.get(argument.dtype, 1)
    modes = {0: 0, 32: 1, 64: 2, 128: 3}
    if argument.padding != "zero" or argument.swizzle not in modes:
        raise Unsupported("a tensor map with this padding or swizzle is not modelled")
    rank = len(argument.shape)
    numbers = {"address": (buffers[argument.buffer] << POINTER_SHIFT) + argument.offset, "element bytes": element,
               "swizzle": modes[argument.swizzle]}  # fmt: skip
    for dimension in range(rank):
        place = rank - 1 - dimension
        numbers[f"size {dimension}"] = argument.shape[place]
        numbers[f"stride {dimension}"] = argument.strides[place] * element
        numbers[f"box {dimension}"] = argument.block[place]
    return tensor_maps.TensorMap({name: np.full((1, 1), number, dtype=np.uint64) for name, number in numbers.items()})


def _place_arrays(machine: Machine, module: Module, kernel: Kernel) -> None:
    place = LOCAL_BASE
    for array in kernel.local:
        place = -(-place // 16) * 16
        machine.symbols[array.name] = place
        place += max(array.size, 1)
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
    """Static shared arrays first, then the dynamic one, as the assembler lays them out up to their order."""
    place = SHARED_BASE
    for array in (*module.shared, *kernel.shared):
        if array.size:
            place = -(-place // array.align) * array.align
            machine.symbols[array.name] = place
            place += array.size
    place = -(-place // 1024) * 1024
    for array in (*module.shared, *kernel.shared):
        if not array.size:
            machine.symbols[array.name] = place


EVERY_LAUNCH = ParametricSupport(
    layout=_place_arrays,
    block=("%ctaid.x", "%ctaid.y", "%ctaid.z"),
    grid=("%nctaid.x", "%nctaid.y", "%nctaid.z"),
    fixed=fixed_by_launch,
    of_grid=GRID_DEPENDENT,
)
