"""The algorithm families of matrix products, as constructors of descriptors.

`dtype` is the operands' type, or a pair of types; `output_dtype` is the left operand's by default.  All raise
DescriptorError.
"""

from __future__ import annotations

from typing import TypeAlias

from bitwise_core.descriptors.cuts import Cut, Group, Remainder
from bitwise_core.descriptors.gemm import GEMMDesc, Instruction

Types: TypeAlias = str | tuple[str, str]


def _operands(dtype: Types, output_dtype: str | None) -> dict[str, str]:
    left, right = (dtype, dtype) if isinstance(dtype, str) else dtype
    return {"left_dtype": left, "right_dtype": right, "output_dtype": output_dtype or left}


def single_pass(
    k: int,
    dtype: Types,
    instruction: Instruction,
    *,
    output_dtype: str | None = None,
    accumulator_dtype: str = "fp32",
    use_fast_accum: bool = True,
    block: int | None = None,
    k_dropped: int = 0,
    operand_scales: bool = False,
) -> GEMMDesc:
    """Plain GEMM: one accumulator over the whole k axis, in full instructions.

    With `block`, a new accumulator starts every `block` k, and the block totals are added in order, in the
    accumulator's type.
    """
    return GEMMDesc(
        k=k,
        **_operands(dtype, output_dtype),
        path="matrix",
        instruction=instruction,
        instruction_k=instruction.k,
        accumulator_dtype=accumulator_dtype,
        use_fast_accum=use_fast_accum,
        k_cuts=_block(block, accumulator_dtype),
        k_dropped=k_dropped,
        operand_scales=operand_scales,
    )


def _block(block: int | None, accumulator: str) -> tuple[Cut, ...]:
    return () if block is None else (Cut(span=block, partial_dtype=accumulator, merge_dtype=accumulator),)


def _slices(count: int, tile: int, remainder: Remainder, partial: str, merge: str) -> Cut:
    return Cut(count=count, tile=tile, remainder=remainder, partial_dtype=partial, merge_dtype=merge)


def split_k(
    k: int,
    dtype: Types,
    instruction: Instruction,
    *,
    slices: int,
    tile: int = 1,
    remainder: Remainder = "short-last",
    partial_dtype: str = "fp32",
    merge_dtype: str = "fp32",
    output_dtype: str | None = None,
    accumulator_dtype: str = "fp32",
    use_fast_accum: bool = True,
    block: int | None = None,
    k_dropped: int = 0,
    operand_scales: bool = False,
) -> GEMMDesc:
    """`slices` threadblocks take contiguous slices of whole tiles of k; a second kernel adds them in order."""
    outer = _slices(slices, tile, remainder, partial_dtype, merge_dtype)
    return GEMMDesc(
        k=k,
        **_operands(dtype, output_dtype),
        path="matrix",
        instruction=instruction,
        instruction_k=instruction.k,
        accumulator_dtype=accumulator_dtype,
        use_fast_accum=use_fast_accum,
        k_cuts=(outer, *_block(block, accumulator_dtype)),
        k_dropped=k_dropped,
        operand_scales=operand_scales,
    )


def per_mma(
    k: int,
    dtype: Types,
    instruction: Instruction,
    *,
    k_loop_step: int,
    instruction_k: int | None = None,
    output_dtype: str | None = None,
    accumulator_dtype: str = "fp32",
    k_dropped: int = 0,
) -> GEMMDesc:
    """Per-MMA accumulation: the short iteration of the loop runs first, in its own groups of `instruction_k` k."""
    return GEMMDesc(
        k=k,
        **_operands(dtype, output_dtype),
        path="matrix",
        instruction=instruction,
        instruction_k=instruction_k or instruction.k,
        accumulator_dtype=accumulator_dtype,
        k_loop_step=k_loop_step,
        short_iteration="first",
        k_dropped=k_dropped,
    )


def split_k_per_mma(
    k: int,
    dtype: Types,
    instruction: Instruction,
    *,
    slices: int,
    k_loop_step: int,
    tile: int = 1,
    remainder: Remainder = "short-last",
    instruction_k: int | None = None,
    partial_dtype: str = "fp32",
    merge_dtype: str = "fp32",
    output_dtype: str | None = None,
    accumulator_dtype: str = "fp32",
    k_dropped: int = 0,
) -> GEMMDesc:
    """Split-K whose slices accumulate per MMA, each with its own short iteration first."""
    outer = _slices(slices, tile, remainder, partial_dtype, merge_dtype)
    return GEMMDesc(
        k=k,
        **_operands(dtype, output_dtype),
        path="matrix",
        instruction=instruction,
        instruction_k=instruction_k or instruction.k,
        accumulator_dtype=accumulator_dtype,
        k_loop_step=k_loop_step,
        short_iteration="first",
        k_cuts=(outer,),
        k_dropped=k_dropped,
    )


def _scalar(
    k: int, dtype: Types, output_dtype: str | None, accumulator_dtype: str, cuts: tuple[Cut, ...], fused: bool
) -> GEMMDesc:
    return GEMMDesc(
        k=k,
        **_operands(dtype, output_dtype),
        path="fma" if fused else "mul_add",
        accumulator_dtype=accumulator_dtype,
        k_cuts=cuts,
    )


def three_level_chain(
    k: int,
    dtype: Types,
    *,
    chunks: int,
    span: int | None = None,
    tile: int = 1,
    output_dtype: str | None = None,
    accumulator_dtype: str = "fp32",
    fused: bool = True,
) -> GEMMDesc:
    """Chained chunks on the scalar path.

    There are `chunks` contiguous chunks.  In a chunk a new accumulator starts every `span` k (None: one accumulator),
    each a chain of multiply-adds.  Every level is added in order.
    """
    kept = {"partial_dtype": accumulator_dtype, "merge_dtype": accumulator_dtype}
    cuts = (Cut(count=chunks, tile=tile, **kept), *_block(span, accumulator_dtype))
    return _scalar(k, dtype, output_dtype, accumulator_dtype, cuts, fused)


def _lanes(lanes: int, tile: int, count_down: bool, accumulator: str) -> Cut:
    merge = "halves" if count_down else "neighbours"
    return Cut(
        layout="strided", count=lanes, tile=tile, merge=merge, partial_dtype=accumulator, merge_dtype=accumulator
    )  # fmt: skip


def lane_tree_gemv(
    k: int,
    dtype: Types,
    *,
    lanes: int,
    tile: int = 1,
    chunk_tiles: int | None = None,
    count_down: bool = True,
    output_dtype: str | None = None,
    accumulator_dtype: str = "fp32",
    fused: bool = True,
) -> GEMMDesc:
    """GEMV with tiles of k distributed round-robin over the lanes of a warp.

    Shuffles reduce the lanes' totals; their offsets descend with `count_down` and ascend otherwise.
    With `chunk_tiles`, a lane starts a new accumulator every `chunk_tiles` of its tiles.
    """
    chunk = None if chunk_tiles is None else chunk_tiles * tile
    cuts = (_lanes(lanes, tile, count_down, accumulator_dtype), *_block(chunk, accumulator_dtype))
    return _scalar(k, dtype, output_dtype, accumulator_dtype, cuts, fused)


def contiguous_slice_gemv(
    k: int,
    dtype: Types,
    *,
    lanes: int,
    chunk: int,
    count_down: bool = True,
    output_dtype: str | None = None,
    accumulator_dtype: str = "fp32",
    fused: bool = True,
) -> GEMMDesc:
    """GEMV of one contiguous slice per lane, whole chunks of `chunk` k, with a new accumulator for each chunk."""
    merge = "halves" if count_down else "neighbours"
    kept = {"partial_dtype": accumulator_dtype, "merge_dtype": accumulator_dtype}
    cuts = (Cut(count=lanes, tile=chunk, merge=merge, **kept), *_block(chunk, accumulator_dtype))
    return _scalar(k, dtype, output_dtype, accumulator_dtype, cuts, fused)


def workspace_gemv(
    k: int,
    dtype: Types,
    *,
    slices: int,
    lanes: int,
    slice_tile: int = 1,
    tile: int = 1,
    count_down: bool = True,
    partial_dtype: str = "fp32",
    merge_dtype: str = "fp32",
    output_dtype: str | None = None,
    accumulator_dtype: str = "fp32",
    fused: bool = True,
) -> GEMMDesc:
    """Lane-tree GEMV over contiguous slices; their totals go to a workspace, and a second kernel adds them in order."""
    outer = Cut(count=slices, tile=slice_tile, partial_dtype=partial_dtype, merge_dtype=merge_dtype)
    cuts = (outer, _lanes(lanes, tile, count_down, accumulator_dtype))
    return _scalar(k, dtype, output_dtype, accumulator_dtype, cuts, fused)


def strided_lanes(lanes: int, tile: int, merge: str = "halves") -> Cut:
    """Tiles of k distributed round-robin over the lanes of one output element.

    With the merge `halves` and a number of lanes that is not a power of two, the lanes are the first ones of a tree
    whose other lanes are empty.
    """
    if merge != "halves" or not lanes & (lanes - 1):
        return Cut(layout="strided", count=lanes, tile=tile, merge=merge)
    return Cut(layout="strided", count=lanes, tile=tile, groups=(Group(count=2),) * (lanes.bit_length() - 1))


def strided_blocks(blocks: int, wide: int) -> tuple[Cut, ...]:
    """Tiles of 128 * `wide` k distributed round-robin over blocks of 128 threads; one more such block adds their sums.

    A nest of cuts where `blocks` is a power of two and at least 4, otherwise one cut with groups.
    """
    inner = (
        Cut(layout="strided", count=128, tile=wide, merge="halves"),
        *((Cut(layout="strided", count=wide),) if wide > 1 else ()),
    )
    if blocks < 4 or blocks & (blocks - 1):
        warps = (Group(count=2, merge="halves"),) * ((blocks > 32) + (blocks > 64))
        groups = (Group(count=4), Group(count=8), *warps)
        return (Cut(layout="strided", count=blocks, tile=128 * wide, groups=groups), *inner)
    # Block 128 m + 64 i + 32 j + 4 g + h: m is merged first, then i, j and g, and h last.
    above = max(1, blocks // 32)
    levels = (
        (4, "chain"), (min(8, blocks // 4), "chain"), (min(2, above), "halves"), (min(2, max(1, above // 2)), "halves"),
        (max(1, above // 4), "chain"),
    )  # fmt: skip
    outer = (Cut(layout="strided", count=count, tile=128 * wide, merge=merge) for count, merge in levels if count > 1)
    return (*outer, *inner)
