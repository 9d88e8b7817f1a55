"""Matrix products by a weight of N x K, whose number of rows M varies, as PyTorch's functions run them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from bitwise_core.descriptors import DescriptorError
from bitwise_core.descriptors.problem import GEMMProblem, ProblemError
from bitwise_cublas_profiles.pytorch_settings import PyTorchSettings
from bitwise_cublas_profiles.query import CublasError, GemmQuery, query_of_problem

Operator = Literal["linear", "mm", "addmm"]
OPERATORS: tuple[Operator, ...] = get_args(Operator)

DTYPES = ("bf16", "fp16", "fp32", "tf32")
"""Types of the operands. Products of fp8 are scaled, and those of PyTorch are not described."""


@dataclass(frozen=True, slots=True)
class Product:
    """out[M, N] = x[M, K] by a weight, for every M.

    `linear` is `torch.nn.functional.linear(x, weight)` without a bias, that is `torch.mm(x, weight.t())`; `mm` is
    `torch.mm(x, weight)` with dense rows of weight[K, N]; `addmm` is `torch.nn.functional.linear` with a bias, that is
    `torch.addmm(bias, x, weight.t())`. Raises CublasError for an invalid product.
    """

    n: int
    k: int
    dtype: str = "bf16"
    operator: Operator = "linear"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise CublasError(f"--dtype: {self.dtype!r} is not one of {', '.join(DTYPES)}")
        if self.operator not in OPERATORS:
            raise CublasError(f"--op: {self.operator!r} is not one of {', '.join(OPERATORS)}")
        for name in ("n", "k"):
            if not 1 <= getattr(self, name) < 1 << 24:
                raise CublasError(f"{name.upper()} is {getattr(self, name)}; give a number from 1 to {(1 << 24) - 1}")

    @property
    def words(self) -> str:
        """The product on one line."""
        return f"{self.operator} N={self.n} K={self.k} {self.dtype}"

    def query(self, m: int, settings: PyTorchSettings) -> GemmQuery:
        """The query that PyTorch makes for M rows, of operands whose addresses are multiples of 256.

        Raises CublasError.
        """
        out = "fp32" if self.dtype == "tf32" else self.dtype
        # A column or a row of contiguous elements is stored alike in both layouts.
        transposed = self.operator != "mm" and min(self.n, self.k) > 1
        try:
            problem = GEMMProblem(
                m=m, n=self.n, k=self.k, a=self.dtype, b=self.dtype, out=out, transpose_b=transposed,
                epilogue="bias" if self.operator == "addmm" else "none",
            )  # fmt: skip
        except (DescriptorError, ProblemError) as error:
            raise CublasError(str(error)) from None
        return settings.applied(query_of_problem(problem), vector=problem.vector)
