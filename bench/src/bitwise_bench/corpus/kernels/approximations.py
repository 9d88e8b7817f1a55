"""Kernels that apply one instruction to bit patterns, element by element."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def unary(first, output, count, OPCODE: tl.constexpr, BLOCK: tl.constexpr):
    """output = OPCODE(first)."""
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    operand = tl.load(first + where, mask=where < count, other=0)
    result = tl.inline_asm_elementwise(OPCODE, "=r,r", [operand], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(output + where, result, mask=where < count)


@triton.jit
def binary(first, second, output, count, OPCODE: tl.constexpr, BLOCK: tl.constexpr):
    """output = OPCODE(first, second)."""
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(first + where, mask=where < count, other=0)
    right = tl.load(second + where, mask=where < count, other=0)
    result = tl.inline_asm_elementwise(OPCODE, "=r,r,r", [left, right], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(output + where, result, mask=where < count)
