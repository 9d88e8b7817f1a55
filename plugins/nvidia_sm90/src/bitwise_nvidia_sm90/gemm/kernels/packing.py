"""The packing of the operands of a product: a copy of each value of 16 bits to the place where an instruction takes it.

`packed_operands` states the order of the packed values.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _sources(packed_k, offset, K, slice_k, span, SHORT_FIRST: tl.constexpr, INSTRUCTION_K8: tl.constexpr):
    """Return the k of the packed values at packed_k + offset, and which of them are no zeros of the padding.

    All are in the slice of packed_k.  `span` is the number of packed values of a slice.
    """
    TAKEN: tl.constexpr = 8 if INSTRUCTION_K8 else 16
    slice_index = packed_k // span
    start = slice_index * slice_k
    length = min(slice_k, K - start)
    position = packed_k - slice_index * span + offset
    inside = position
    if INSTRUCTION_K8:
        inside = position // 16 * TAKEN + position % 16
    real = inside < length
    if SHORT_FIRST:
        # The instructions after the first iteration start at its end, not at the end of its last group.
        first = length % SHORT_FIRST
        groups = tl.cdiv(first, TAKEN)
        leads = position < groups * 16
        inside = tl.where(leads, inside, inside - groups * TAKEN + first)
        real = inside < tl.where(leads, first, length)
    if INSTRUCTION_K8:
        real &= position % 16 < TAKEN
    return start + inside, real


@triton.jit
def _pack(
    X, P, program, rows, K, slice_k, span, packed_k, stride_row, stride_k, ROWS_INNERMOST: tl.constexpr,
    SHORT_FIRST: tl.constexpr, INSTRUCTION_K8: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Pack BLOCK values of k of BLOCK rows: block `program`, counted along k first.

    ROWS_INNERMOST: neighbours in memory are in neighbouring rows of X, not at neighbouring k.
    """
    across = packed_k // BLOCK
    start_k = program % across * BLOCK
    start_row = program // across * BLOCK
    # With one axis, Triton chooses the layout of the loads by themselves: neighbouring threads load neighbours, also
    # where unaligned rows forbid the vectors of the stores.
    place = tl.arange(0, BLOCK * BLOCK)
    outer, inner = place // BLOCK, place % BLOCK
    row = start_row + (inner if ROWS_INNERMOST else outer)
    k, real = _sources(start_k, outer if ROWS_INNERMOST else inner, K, slice_k, span, SHORT_FIRST, INSTRUCTION_K8)
    source = X.to(tl.pointer_type(tl.int16)) + row.to(tl.int64) * stride_row + k.to(tl.int64) * stride_k
    values = tl.reshape(tl.load(source, mask=real & (row < rows), other=0), (BLOCK, BLOCK))
    if ROWS_INNERMOST:
        values = tl.trans(values)
    position = tl.arange(0, BLOCK)
    row = start_row + position
    target = P.to(tl.pointer_type(tl.int16)) + row.to(tl.int64)[:, None] * packed_k
    tl.store(target + (start_k + position)[None, :], values, mask=(row < rows)[:, None])


@triton.jit
def pack(
    X, Y, PACKED_X, PACKED_Y, x_rows, y_rows, K, slice_k, span, packed_k, x_stride_row, x_stride_k, y_stride_row,
    y_stride_k, X_ROWS_INNERMOST: tl.constexpr, Y_ROWS_INNERMOST: tl.constexpr, SHORT_FIRST: tl.constexpr,
    INSTRUCTION_K8: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Pack each row of X and Y, K values of k, into a row of packed_k values.  y_rows is 0 if only X is packed.

    Slice s holds slice_k values of k from s * slice_k, the last slice the remainder; packed, it starts at s * `span`.
    SHORT_FIRST: the remainder of the slice modulo SHORT_FIRST is an iteration of its own, the first one (0: none).
    INSTRUCTION_K8: an instruction takes 8 values, otherwise 16.  The first programs pack X, the others Y.
    """
    gdc_wait()
    gdc_launch_dependents()
    program = tl.program_id(0)
    programs_of_x = tl.cdiv(x_rows, BLOCK) * (packed_k // BLOCK)
    if program < programs_of_x:
        _pack(X, PACKED_X, program, x_rows, K, slice_k, span, packed_k, x_stride_row, x_stride_k, X_ROWS_INNERMOST,
              SHORT_FIRST, INSTRUCTION_K8, BLOCK)  # fmt: skip
    else:
        _pack(Y, PACKED_Y, program - programs_of_x, y_rows, K, slice_k, span, packed_k, y_stride_row, y_stride_k,
              Y_ROWS_INNERMOST, SHORT_FIRST, INSTRUCTION_K8, BLOCK)  # fmt: skip
