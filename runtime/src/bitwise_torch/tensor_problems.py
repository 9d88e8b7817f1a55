"""The matrix product that two PyTorch tensors ask for, as the record that profiles and lock files use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors.problem import DTYPES, NAMES, Epilogue, GEMMProblem, ProblemError

if TYPE_CHECKING:
    import torch

__all__ = ["dense", "lies", "problem_of"]


def problem_of(
    a: torch.Tensor, b: torch.Tensor, out: torch.dtype | None = None, epilogue: Epilogue = "none"
) -> GEMMProblem:
    """The problem that two tensors are, with an output of a type, that of `a` by default (bf16 for fp8).

    Both have 2 axes, or 3 with a batch.  A matrix of which neither rows nor columns are dense is one without gaps: a
    library is given a copy of it.  Raises ProblemError for what is no product, or of other types.
    """
    if a.dim() != b.dim() or a.dim() not in (2, 3):
        raise ProblemError(f"a has {a.dim()} axes and b {b.dim()}; both have 2, or 3 with a batch")
    if 0 in a.shape or 0 in b.shape:
        raise ProblemError(f"{tuple(a.shape)} times {tuple(b.shape)}: there is nothing to multiply")
    names = [NAMES.get(str(each)) for each in (a.dtype, b.dtype, out or _default(a.dtype))]
    for each, name in zip((a.dtype, b.dtype, out), names, strict=True):
        if name is None:
            raise ProblemError(f"matrices of {each} are not described; there are {', '.join(DTYPES.values())}")
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise ProblemError(f"{tuple(a.shape)} times {tuple(b.shape)}: the shapes do not fit")
    transpose_a, ld_a, stride_a = lies(a)
    transpose_b, ld_b, stride_b = lies(b)
    batch = int(a.shape[0]) if a.dim() == 3 else None
    return GEMMProblem(
        m=int(a.shape[-2]), n=int(b.shape[-1]), k=int(a.shape[-1]), a=names[0], b=names[1], out=names[2],
        transpose_a=transpose_a, transpose_b=transpose_b, ld_a=ld_a, ld_b=ld_b, batch=batch, stride_a=stride_a,
        stride_b=stride_b, epilogue=epilogue,
    )  # fmt: skip


def _default(dtype: Any) -> Any:
    if NAMES.get(str(dtype)) not in ("e4m3", "e5m2"):
        return dtype
    import torch

    return torch.bfloat16


def dense(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix itself where its rows or its columns are dense, as libraries take it; a copy without gaps else."""
    return matrix if _stored(matrix) is not None else matrix.contiguous()


def lies(matrix: torch.Tensor) -> tuple[bool, int | None, int | None]:
    """Whether a matrix lies transposed, its leading dimension, and the stride of a batch: None where without gaps."""
    found = _stored(matrix)
    if found is None:
        return False, None, None
    transposed, leading = found
    rows, columns = (int(each) for each in matrix.shape[-2:])
    if transposed:
        rows, columns = columns, rows
    leading = columns if rows == 1 else leading
    stride = int(matrix.stride(0)) if matrix.dim() == 3 and matrix.shape[0] > 1 else None
    if stride == rows * leading:
        stride = None
    return transposed, None if leading == columns else leading, stride


def _stored(matrix: torch.Tensor) -> tuple[bool, int] | None:
    rows, columns = (int(each) for each in matrix.shape[-2:])
    row, column = (int(each) for each in matrix.stride()[-2:])
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return False, row if rows > 1 else columns
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return True, column if columns > 1 else rows
    return None
