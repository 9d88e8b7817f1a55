"""The product of one tile, compiled to the matrix instruction of its types and shape."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def tile_product(
    a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr, RESULT: tl.constexpr
):  # fmt: skip
    """C = A B, dense, from an accumulator of +0."""
    row, column, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + row[:, None] * K + inner[None, :])
    right = tl.load(b + inner[:, None] * N + column[None, :])
    out = tl.dot(left, right, input_precision=PRECISION, out_dtype=RESULT)
    tl.store(c + row[:, None] * N + column[None, :], out)


def assembly(
    dtypes: tuple[str, str], shape: tuple[int, int, int], precision: str, side: int, target: str = "gfx942"
) -> str:
    """Compile the kernel for one wave; return its assembly."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource

    is_integer = dtypes[0] == "i8"
    result: Any = tl.int32 if is_integer else tl.float32
    names = ("M", "N", "K", "PRECISION", "RESULT")
    signature = {"a": f"*{dtypes[0]}", "b": f"*{dtypes[1]}", "c": "*i32" if is_integer else "*fp32"}
    constants = dict(zip(names, (*shape, precision, result), strict=True))
    source = ASTSource(tile_product, {**signature, **dict.fromkeys(names, "constexpr")}, constants, {})
    options = {"num_warps": 1, "matrix_instr_nonkdim": side}
    return str(triton.compile(source, target=GPUTarget("hip", target, 64), options=options).asm["amdgcn"])
