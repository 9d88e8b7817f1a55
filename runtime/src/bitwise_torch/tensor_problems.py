"""The matrix product of two PyTorch tensors as a GEMMProblem, the record that profiles and lock files use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors.problem import DTYPES, NAMES, Epilogue, GEMMProblem, ProblemError

if TYPE_CHECKING:
    import torch

__all__ = ["alignment_of", "library_layout", "problem_of", "storage_layout"]


def problem_of(
    a: torch.Tensor, b: torch.Tensor, out: torch.dtype | None = None, epilogue: Epilogue = "none", *,
    row_stride: bool = False,
) -> GEMMProblem:  # fmt: skip
    """Return the problem of a[m, k] b[k, n], or of a[batch, m, k] b[batch, k, n].

    `out` is the output's type, by default that of `a` (bf16 for fp8).  A matrix in which neither rows nor columns are
    dense is described as row-major without gaps, since a library receives such a copy.  With `row_stride`, and with a
    bias, the leading dimension of a single row of a is its stride, which PyTorch then passes to the library.  Raises
    ProblemError for tensors that have no product and for unsupported types.
    """
    if a.dim() != b.dim() or a.dim() not in (2, 3):
        raise ProblemError(f"a has {a.dim()} axes and b has {b.dim()}: both need 2, or 3 with a batch")
    if 0 in a.shape or 0 in b.shape:
        raise ProblemError(f"{tuple(a.shape)} times {tuple(b.shape)} is an empty product: there is nothing to describe")
    names = [NAMES.get(str(each)) for each in (a.dtype, b.dtype, out or _default_output_dtype(a.dtype))]
    for each, name in zip((a.dtype, b.dtype, out), names, strict=True):
        if name is None:
            raise ProblemError(f"matrices of {each} are not supported; the types are {', '.join(DTYPES.values())}")
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise ProblemError(f"{tuple(a.shape)} times {tuple(b.shape)}: the shapes do not match")
    if a.dim() == 3 and a.shape[1] == b.shape[2] == 1 < a.shape[2] and _is_view_of_transposed(a, b):
        raise ProblemError(
            f"{tuple(a.shape)} times {tuple(b.shape)}: an operand is a view of transposed vectors, for which PyTorch "
            "asks the library otherwise; pass it with .clone(memory_format=torch.contiguous_format)"
        )
    transpose_a, ld_a, stride_a = storage_layout(a)
    transpose_b, ld_b, stride_b = storage_layout(b)
    batch = int(a.shape[0]) if a.dim() == 3 else None
    if (row_stride or epilogue == "bias") and batch is None and a.shape[0] == 1 and not transpose_a:
        stride = int(a.stride(0))
        ld_a = stride if stride > a.shape[1] else None
    return GEMMProblem(
        m=int(a.shape[-2]), n=int(b.shape[-1]), k=int(a.shape[-1]), a=names[0], b=names[1], out=names[2],
        transpose_a=transpose_a, transpose_b=transpose_b, ld_a=ld_a, ld_b=ld_b, batch=batch, stride_a=stride_a,
        stride_b=stride_b, epilogue=epilogue,
    )  # fmt: skip


def _is_view_of_transposed(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether PyTorch takes the row of a, or the column of b, of each product for a transposed one."""
    (row, _), (step, column) = (tuple(map(int, each.stride()[1:])) for each in (a, b))
    return row == 1 or (step == 1 and column >= int(b.shape[1]))


def _default_output_dtype(dtype: Any) -> Any:
    if NAMES.get(str(dtype)) not in ("e4m3", "e5m2"):
        return dtype
    import torch

    return torch.bfloat16


def alignment_of(matrix: torch.Tensor) -> int:
    """Return the largest power of two, at most 256, that divides the matrix's address in bytes."""
    address = int(matrix.data_ptr())
    return min(address & -address, 256) if address else 256


def library_layout(matrix: torch.Tensor) -> torch.Tensor:
    """Return the matrix if its rows or its columns are dense, as libraries require, else a contiguous copy."""
    return matrix if _dense_layout(matrix) is not None else matrix.contiguous()


def storage_layout(matrix: torch.Tensor) -> tuple[bool, int | None, int | None]:
    """Return whether a matrix is stored transposed, its leading dimension, and its batch stride, both in elements.

    The leading dimension and the batch stride are None where there is no gap.
    """
    layout = _dense_layout(matrix)
    if layout is None:
        return False, None, None
    transposed, leading = layout
    rows, columns = (int(each) for each in matrix.shape[-2:])
    if transposed:
        rows, columns = columns, rows
    leading = columns if rows == 1 else leading
    stride = int(matrix.stride(0)) if matrix.dim() == 3 and matrix.shape[0] > 1 else None
    if stride == rows * leading:
        stride = None
    return transposed, None if leading == columns else leading, stride


def _dense_layout(matrix: torch.Tensor) -> tuple[bool, int] | None:
    """Return whether a matrix is stored transposed and its leading dimension; None without dense rows or columns."""
    rows, columns = (int(each) for each in matrix.shape[-2:])
    row, column = (int(each) for each in matrix.stride()[-2:])
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return False, row if rows > 1 else columns
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return True, column if columns > 1 else rows
    return None
