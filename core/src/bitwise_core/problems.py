"""Which matrix product a library is asked for: shapes, types, how the operands lie, and what is added at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import StrictBool, model_validator

from bitwise_core.descriptors import GEMMDesc, Record
from bitwise_core.descriptors.cuts import FloatName, Positive
from bitwise_core.errors import BitwiseError

if TYPE_CHECKING:
    import torch

DTYPES = {
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
}  # fmt: skip
"""PyTorch's names of the types of descriptors."""
NAMES = {f"torch.{theirs}": ours for ours, theirs in DTYPES.items()}
"""Names of the types of descriptors, by what `str` gives of PyTorch's."""

Epilogue = Literal["none", "bias"]


class ProblemError(BitwiseError, ValueError):
    """Operands that are no product a library could be asked for: the message says which, and what to do."""


class Problem(Record):
    """out[m, n] = a[m, k] b[k, n], or `batch` of them: what a lock's entries are found by.

    `a`, `b` and `out` name types.  A transposed operand lies in memory as [k, m] or [n, k], a vector never.  Leading
    dimensions are in elements, None where rows follow one another without gaps.  `batch` is None for a product without
    a batch; the matrices of a batch follow one another, or stand `stride_a` and `stride_b` elements apart.  With the
    epilogue `bias`, out is that of the sums and a bias of n elements.  The device, the library and where
    memory begins are no part of it.
    """

    m: Positive
    n: Positive
    k: Positive
    a: FloatName
    b: FloatName
    out: FloatName
    transpose_a: StrictBool = False
    transpose_b: StrictBool = False
    ld_a: Positive | None = None
    ld_b: Positive | None = None
    batch: Positive | None = None
    stride_a: int | None = None
    stride_b: int | None = None
    epilogue: Epilogue = "none"

    @model_validator(mode="before")
    @classmethod
    def _vectors(cls, fields: Any) -> Any:
        """A vector without gaps lies as its other form does: it is no transpose."""
        if not isinstance(fields, dict):
            return fields
        found = dict(fields)
        for name, (rows, columns) in (("a", ("m", "k")), ("b", ("k", "n"))):
            if 1 in (found.get(rows), found.get(columns)) and found.get(f"ld_{name}") is None:
                found.pop(f"transpose_{name}", None)
        return found

    @model_validator(mode="after")
    def _consistent(self) -> Problem:
        for name in ("a", "b"):
            rows, columns = self.stored(name)
            leading = getattr(self, f"ld_{name}")
            if leading is not None and leading <= columns:
                raise ValueError(
                    f"ld_{name} = {leading} is no gap behind rows of {columns} elements: leave it out, or give more"
                )
            stride = getattr(self, f"stride_{name}")
            if stride is not None and (self.batch is None or stride == rows * (leading or columns)):
                raise ValueError(f"stride_{name} = {stride} says nothing here: leave it out")
        return self

    def stored(self, name: str) -> tuple[int, int]:
        """Rows and columns of the operand `a` or `b` as it lies in memory."""
        shape = (self.m, self.k) if name == "a" else (self.k, self.n)
        return shape[::-1] if getattr(self, f"transpose_{name}") else shape

    @property
    def letters(self) -> str:
        """How A and B lie: N for rows that are dense, T for columns that are."""
        return "".join("T" if each else "N" for each in (self.transpose_a, self.transpose_b))

    @property
    def words(self) -> str:
        """The problem in short."""
        types = self.a if self.a == self.b else f"{self.a} x {self.b}"
        batch = f"{self.batch} of " if self.batch is not None else ""
        gaps = "".join(f" {name}={value}" for name, value in (
            ("ld_a", self.ld_a), ("ld_b", self.ld_b), ("stride_a", self.stride_a), ("stride_b", self.stride_b),
        ) if value is not None)  # fmt: skip
        added = " with bias" if self.epilogue == "bias" else ""
        return f"{batch}{self.m}x{self.n}x{self.k} {types} {self.letters} to {self.out}{gaps}{added}"


class BiasedProduct(Record):
    """What a library runs for a problem with a bias: the descriptor of its product, and when that is rounded.

    The bias is added in fp32, to nearest even: to the sum itself, or with `rounded_first` to what it is after its
    rounding to the output's type.  The result is rounded to the output's type.
    """

    product: GEMMDesc
    rounded_first: StrictBool = False


def problem_of(
    a: torch.Tensor, b: torch.Tensor, out: torch.dtype | None = None, epilogue: Epilogue = "none"
) -> Problem:
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
    return Problem(
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
