"""Dot products of fp32, which cuBLAS computes by a function of its own (`cublasSdot`)."""

from __future__ import annotations

from bitwise_core.descriptors import GEMMDesc, strided_blocks
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_cublas_profiles.describe import starting_from_zero
from bitwise_cublas_profiles.profile import Profile, RowNotCovered

THREADS = 128
"""Threads of a block."""


def dot_of(problem: GEMMProblem, known: Profile) -> GEMMDesc:
    """The descriptor of a dot product: a block of 128 threads for each tile of k, two values of k a thread.

    A second kernel adds the blocks' sums to +0. Raises RowNotCovered.
    """
    row = known.row("dots", dtype=problem.a)
    if row is None or problem.b != problem.a or problem.out != problem.a:
        raise RowNotCovered(f"{problem.words} by {known.description} is not described: it is not measured")
    if problem.k > row["longest"]:
        raise RowNotCovered(
            f"{problem.words} by {known.description} is not described: at most {row['longest']} values are measured"
        )
    blocks = -(-problem.k // int(row["tile"]))
    return GEMMDesc(
        k=problem.k, left_dtype=problem.a, right_dtype=problem.b, output_dtype=problem.out, path="fma",
        k_cuts=starting_from_zero(strided_blocks(blocks, int(row["tile"]) // THREADS)),
    )  # fmt: skip
