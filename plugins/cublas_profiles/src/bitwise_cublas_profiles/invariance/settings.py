"""The settings of PyTorch that a certificate holds for, and a process that has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bitwise_cublas_profiles.pytorch_settings import (
    BIAS_WORKSPACE_VARIABLE,
    FULL_PRECISION,
    NO_REDUCTION,
    WORKSPACE_VARIABLE,
    PyTorchSettings,
    stated_settings,
)

Reductions = Literal["all", "fp32", "none"]
_MASKS: Mapping[Reductions, int | None] = {"all": None, "fp32": FULL_PRECISION, "none": NO_REDUCTION}


@dataclass(frozen=True, slots=True)
class Settings:
    """Values of CUBLAS_WORKSPACE_CONFIG and, in KiB, CUBLASLT_WORKSPACE_SIZE, None where a variable is not set; and
    flags.

    `reductions` says how fp16 and bf16 products may add the slices of split K: in any type, in fp32 only, or not at
    all. `prefer_cublaslt` stands for `torch.backends.cuda.preferred_blas_library("cublaslt")`.
    """

    workspace: str | None = None
    lt_workspace: int | None = None
    reductions: Reductions = "all"
    prefer_cublaslt: bool = False

    @property
    def pytorch(self) -> PyTorchSettings:
        """The settings as the profile reads them. Raises CublasError."""
        return stated_settings(
            self.workspace, self.lt_workspace, _MASKS[self.reductions], lt_products=self.prefer_cublaslt
        )

    @property
    def environment(self) -> dict[str, str | None]:
        """The environment variables of a process with these settings; None for one that is not set."""
        given = None if self.lt_workspace is None else str(self.lt_workspace)
        return {WORKSPACE_VARIABLE: self.workspace, BIAS_WORKSPACE_VARIABLE: given}

    @property
    def words(self) -> str:
        """The settings on one line."""
        found = [f"{name}={value}" for name, value in self.environment.items() if value is not None]
        found += {"all": [], "fp32": ["no reductions in reduced precision"], "none": ["no split K"]}[self.reductions]
        found += ["cuBLASLt preferred"] if self.prefer_cublaslt else []
        return ", ".join(found) or "PyTorch's defaults"

    def record(self) -> dict[str, Any]:
        """The settings as a JSON object."""
        return {
            **self.environment, "reductions": self.reductions, "prefer_cublaslt": self.prefer_cublaslt,
        }  # fmt: skip
