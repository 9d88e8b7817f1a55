"""The product of one tile of fp8, compiled by Triton."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_product(a, b, c):
    """C = A B, 16x64 times 64x16, dense."""
    row, column, inner = tl.arange(0, 16), tl.arange(0, 16), tl.arange(0, 64)
    left = tl.load(a + row[:, None] * 64 + inner[None, :])
    right = tl.load(b + inner[:, None] * 16 + column[None, :])
    tl.store(c + row[:, None] * 16 + column[None, :], tl.dot(left, right))


def ptx(target: str) -> str:
    """Return the PTX for one warp."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource

    source = ASTSource(tile_product, {"a": "*fp8e4nv", "b": "*fp8e4nv", "c": "*fp32"}, {}, {})
    gpu = GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    return str(triton.compile(source, target=gpu, options={"num_warps": 1}).asm["ptx"])
