"""A masked GEMM whose shape is no multiple of the tile, with blocks ordered in groups of rows for cache locality.

CHAINS partial sums run interleaved over the tiles of K, as in kernels that keep the matrix units busy.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from bitwise_triton.arguments import Buffer
from bitwise_triton.samples.sample import Sample

M, N, K = 200, 184, 328


@triton.jit
def masked_gemm(
    a, b, c, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, CHAINS: tl.constexpr,
):  # fmt: skip
    """C = A B, both operands row-major fp16, accumulated in fp32."""
    block = tl.program_id(0)
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = block // (GROUP * columns)
    first = group * GROUP
    height = min(rows - first, GROUP)
    row = (first + block % (GROUP * columns) % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = (block % (GROUP * columns) // height) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for chain in tl.static_range(CHAINS):
        partial = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(chain * BLOCK_K, K, CHAINS * BLOCK_K):
            k = start + tl.arange(0, BLOCK_K)
            left = tl.load(a + row[:, None] * K + k[None, :], mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
            inside = (k[:, None] < K) & (column[None, :] < N)
            right = tl.load(b + k[:, None] * N + column[None, :], mask=inside, other=0.0)
            partial = tl.dot(left, right, partial)
        total = partial if chain == 0 else total + partial
    tl.store(
        c + row[:, None] * N + column[None, :],
        total.to(tl.float16),
        mask=(row[:, None] < M) & (column[None, :] < N),
    )


def configurations() -> list[Any]:
    """The tuning space."""
    tiles = [(64, 64, 32), (64, 64, 64), (128, 64, 32), (64, 128, 64), (128, 128, 64), (32, 64, 32), (64, 32, 128)]
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": group, "CHAINS": chains},
            num_warps=warps,
            num_stages=stages,
        )
        for m, n, k in tiles
        for group, warps, stages, chains in ((8, 4, 3, 1), (1, 4, 2, 1), (4, 8, 3, 1), (8, 8, 4, 2), (2, 4, 3, 2))
    ]


def grid(meta: dict[str, Any]) -> tuple[int]:
    """One block for each tile of the result."""
    return (-(-int(meta["M"]) // int(meta["BLOCK_M"])) * -(-int(meta["N"]) // int(meta["BLOCK_N"])),)


SAMPLE = Sample(
    name="masked_gemm",
    title=f"Matrix product of {M} x {K} and {K} x {N}, fp16 with fp32 sums",
    kernel=masked_gemm,
    configurations=configurations(),
    arguments={"a": Buffer("A", "fp16"), "b": Buffer("B", "fp16"), "c": Buffer("C", "fp16"), "M": M, "N": N, "K": K},
    grid=grid,
    element="C[0]",
)
