"""The parameters of products by warpgroups, and the names of their types in PTX."""

from __future__ import annotations

from bitwise_nvidia_sm90.gemm.kernels.block_scales import COLUMN_SCALES, ROW_SCALES, SCALE_PARAMETERS
from bitwise_nvidia_sm90.gemm.kernels.finish import OperandLayout
from bitwise_nvidia_sm90.gemm.kernels.gathering import LINE_PARAMETERS
from bitwise_nvidia_sm90.gemm.kernels.pipeline_text import Lines
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import OUTPUT_BYTES, WarpgroupTiles

PARAMETERS = ("A", "B", "C", "M", "N", "K", "slice_k", "slices", "stride_cs", "stride_cm", "stride_cn")
"""The parameters in order: tensor maps A and B, a tensor map or a pointer C, 32-bit integers, 64-bit strides."""
MAPS, INTEGERS = 2, 5
"""The maps before C, and the integers after it."""
OPERAND_PARAMETERS = ("O{}", "o{}_row", "o{}_column")
"""The parameters of each operand of an epilogue, which follow: a pointer, and its strides in elements."""
ELEMENT_TYPES = {"fp16": "f16", "bf16": "bf16", "e4m3": "e4m3", "e5m2": "e5m2"}
"""The name of a type of elements in an instruction."""


def parameters(tiles: WarpgroupTiles) -> tuple[str, ...]:
    """Return the names of the parameters in order."""
    operands = (each.format(index) for index, _ in operand_layouts(tiles) for each in OPERAND_PARAMETERS)
    others = (*(LINE_PARAMETERS if tiles.gathering else ()), *(SCALE_PARAMETERS if tiles.scales else ()))
    return (*PARAMETERS, *operands, *others)


def operand_layouts(tiles: WarpgroupTiles) -> tuple[tuple[int, OperandLayout], ...]:
    """Return the operands of the epilogue, with their indices."""
    return () if tiles.finish is None else tuple(enumerate(tiles.finish.layouts))


def declared_parameters(tiles: WarpgroupTiles) -> Lines:
    """Return the declaration of each parameter."""
    for index, each in enumerate(PARAMETERS):
        if index < MAPS and tiles.gathering:
            yield f".param .u64 .ptr .global .align 2 {each}"
        elif index < MAPS or (each == "C" and tiles.stores_through_map):
            yield f".param .align 64 .b8 {each}[128]"
        elif each == "C":
            alignment = OUTPUT_BYTES[tiles.output] * (2 if tiles.store == "pairs" else 1)
            yield f".param .u64 .ptr .global .align {alignment} {each}"
        else:
            yield f".param .{'u32' if index <= MAPS + INTEGERS else 'u64'} {each}"
    mapped = None if tiles.mapped_operand is None else OPERAND_PARAMETERS[0].format(tiles.mapped_operand)
    maps = {mapped, *mapped_scales(tiles)}
    for each in parameters(tiles)[len(PARAMETERS) :]:
        yield f".param .align 64 .b8 {each}[128]" if each in maps else f".param .u64 {each}"


def mapped_scales(tiles: WarpgroupTiles) -> tuple[str, ...]:
    """Return the parameters of scales that are tensor maps."""
    given = (ROW_SCALES, tiles.maps_row_scales), (COLUMN_SCALES, tiles.maps_column_scales)
    return tuple(name for name, is_map in given if is_map)


def map_address(name: str) -> Lines:
    """Read the address of a tensor map among the parameters."""
    yield f"mov.b64 %d_param_{name}, {name};"
    yield f"cvta.param.u64 %d_{name}, %d_param_{name};"
