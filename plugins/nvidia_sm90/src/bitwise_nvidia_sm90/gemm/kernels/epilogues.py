"""Epilogues in Triton functions: the PTX of `finish` as inline assembly on each element of a block."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_operand(operand, stride_row, stride_column, rows, columns, rows_inside, columns_inside):
    """Return an operand's elements as integers of its width, 0 for an operand that is None.

    `rows` and `columns` are indices whose shapes broadcast to that of the result.  A stride that is None is 0, and
    needs no index.
    """
    if operand is None:
        return 0
    else:
        if operand.dtype.element_ty.primitive_bitwidth == 32:
            place = operand.to(tl.pointer_type(tl.int32))
        else:
            place = operand.to(tl.pointer_type(tl.int16))
        if stride_row is None and stride_column is None:
            return tl.load(place + columns.to(tl.int64) * 0, mask=columns_inside, other=0)
        elif stride_row is None:
            return tl.load(place + columns.to(tl.int64) * stride_column, mask=columns_inside, other=0)
        elif stride_column is None:
            return tl.load(place + rows.to(tl.int64) * stride_row, mask=rows_inside, other=0)
        else:
            place += rows.to(tl.int64) * stride_row + columns.to(tl.int64) * stride_column
            return tl.load(place, mask=rows_inside & columns_inside, other=0)


@triton.jit
def quotient(element, N, count):
    """Return element // N and element % N, in 32 bits where `count`, the number of elements, has as many."""
    # Triton compiles an argument of 1 as a constant, which has no type.
    if (count + tl.program_id(0) * 0).dtype == tl.int32:
        element = element.to(tl.int32)
    return element // N, element % N


@triton.jit
def finished(
    x, O0, O1, O2, first, second, third, KIND: tl.constexpr, EPILOGUE: tl.constexpr, CONSTRAINTS: tl.constexpr,
):  # fmt: skip
    """Return the elements of type KIND that are stored for sums x in fp32: x rounded, or EPILOGUE of x.

    O0 to O2 are the operands of the epilogue, None for those that it has not; the next are their elements, which
    `load_operand` returned.
    """
    if EPILOGUE == "":
        return x.to(KIND)
    else:
        bits = x.to(tl.int32, bitcast=True)
        if O0 is None:
            found = tl.inline_asm_elementwise(EPILOGUE, CONSTRAINTS, [bits], tl.int32, True, 1)
        elif O1 is None:
            found = tl.inline_asm_elementwise(EPILOGUE, CONSTRAINTS, [bits, first], tl.int32, True, 1)
        elif O2 is None:
            found = tl.inline_asm_elementwise(EPILOGUE, CONSTRAINTS, [bits, first, second], tl.int32, True, 1)
        else:
            found = tl.inline_asm_elementwise(EPILOGUE, CONSTRAINTS, [bits, first, second, third], tl.int32, True, 1)
        if KIND.primitive_bitwidth == 8:
            return found.to(tl.int8).to(KIND, bitcast=True)
        elif KIND.primitive_bitwidth == 16:
            return found.to(tl.int16).to(KIND, bitcast=True)
        else:
            return found.to(KIND, bitcast=True)


@triton.jit
def rounded(x, KIND: tl.constexpr, PRODUCT: tl.constexpr):
    """Return x, in fp32, rounded to the type of the product: PRODUCT, or KIND without an epilogue."""
    if PRODUCT == "fp16":
        return x.to(tl.float16).to(tl.float32)
    elif PRODUCT == "bf16":
        return x.to(tl.bfloat16).to(tl.float32)
    elif PRODUCT == "fp32":
        return x
    else:
        return x.to(KIND).to(tl.float32)


@triton.jit
def apply(
    X, C, N, count, stride_xm, stride_xn, stride_cm, stride_cn,
    O0=None, o0_row=None, o0_column=None, O1=None, o1_row=None, o1_column=None, O2=None, o2_row=None, o2_column=None,
    EPILOGUE: tl.constexpr = "", CONSTRAINTS: tl.constexpr = "", PRODUCT: tl.constexpr = "", BLOCK: tl.constexpr = 512,
):  # fmt: skip
    """C = the epilogue of X, matrices of N columns and `count` elements."""
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = where < count
    rows, columns = quotient(where, N, count)
    first = load_operand(O0, o0_row, o0_column, rows, columns, inside, inside)
    second = load_operand(O1, o1_row, o1_column, rows, columns, inside, inside)
    third = load_operand(O2, o2_row, o2_column, rows, columns, inside, inside)
    rows, columns = rows.to(tl.int64), columns.to(tl.int64)
    x = tl.load(X + rows * stride_xm + columns * stride_xn, mask=inside, other=0.0).to(tl.float32)
    found = finished(x, O0, O1, O2, first, second, third, C.dtype.element_ty, EPILOGUE, CONSTRAINTS)
    tl.store(C + rows * stride_cm + columns * stride_cn, found, mask=inside)
