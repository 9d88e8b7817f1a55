"""PyTorch's settings that select cuBLAS kernels: the workspaces, reductions in reduced precision, and tf32."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from bitwise_cublas_profiles.query import FP8, CublasError, GemmQuery
from bitwise_cublas_profiles.workspaces import BIAS_WORKSPACE, WORKSPACE

_KIBIBYTE = 1 << 10

WORKSPACE_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
"""Its value is a list of :SIZE:COUNT, in KiB; PyTorch's workspace is the sum of their products."""
BIAS_WORKSPACE_VARIABLE = "CUBLASLT_WORKSPACE_SIZE"
"""The workspace of a GEMM with a fused bias in KiB; it is at most the other workspace."""
_UNIFIED_VARIABLE = "TORCH_CUBLASLT_UNIFIED_WORKSPACE"
_UNFUSED_VARIABLE = "DISABLE_ADDMM_CUDA_LT"

FULL_PRECISION = 2
"""The mask of REDUCTION_SCHEMEs that PyTorch allows without reductions in reduced precision: fp32 only."""
NO_REDUCTION = 0
"""The mask that PyTorch allows without split K."""


def _environment_at_start() -> Mapping[str, str] | None:
    """The environment variables with which the process started, None if they are unknown."""
    try:
        text = Path("/proc/self/environ").read_bytes().decode(errors="replace")
    except OSError:
        return None
    return dict(each.split("=", 1) for each in text.split("\0") if "=" in each)


AT_START = _environment_at_start()


_FP16_ACCUMULATION = "torch.backends.cuda.matmul.allow_fp16_accumulation"


@dataclass(frozen=True, slots=True)
class PyTorchSettings:
    """The settings of one moment. Workspaces are in bytes; a mask of REDUCTION_SCHEMEs is None without a restriction.

    `bias_workspace` is the workspace of a GEMM with a fused bias; None stands for that of this process's environment.
    With `lt_products`, `torch.backends.cuda.preferred_blas_library("cublaslt")`, every GEMM has that workspace, and
    split K may be disallowed for all of them. With `fp16_accumulation`, products of fp16 are accumulated in fp16.
    """

    workspace: int = WORKSPACE
    fp16_reductions: int | None = None
    bf16_reductions: int | None = None
    tf32: bool = False
    fp16_accumulation: bool = False
    bias_workspace: int | None = None
    lt_products: bool = False

    @property
    def lt_workspace(self) -> int:
        """The workspace limit of PyTorch's calls of cuBLASLt. Raises CublasError."""
        given = bias_workspace(self.workspace) if self.bias_workspace is None else self.bias_workspace
        return min(given, self.workspace)

    def applied(self, query: GemmQuery, *, vector: bool = False, dot: bool = False) -> GemmQuery:
        """The query that PyTorch makes under these settings for a query under its defaults. Raises CublasError.

        With `vector`, a matrix is multiplied by a vector: that of fp32 runs cuBLAS, also where cuBLASLt is preferred.
        With `dot`, two vectors are multiplied by a function of cuBLAS that accumulates in fp32.
        """
        if dot:
            return replace(self, lt_products=False, fp16_accumulation=False).applied(query)
        if vector and self.lt_products and query.a == "fp32":
            return replace(self, lt_products=False).applied(query)
        workspace = self.workspace
        if query.a in FP8:
            if workspace != WORKSPACE:
                raise CublasError(f"{WORKSPACE_VARIABLE} is set: fp8 products were measured without it")
            return query
        if query.epilogue == "bias" or self.lt_products:
            workspace = self.lt_workspace
        mask = {"fp16": self.fp16_reductions, "bf16": self.bf16_reductions}.get(query.a)
        if mask == NO_REDUCTION and query.epilogue == "none" and not self.lt_products:
            raise CublasError(f"PyTorch does not multiply {query.a} matrices without a bias if split K is disallowed")
        compute = "tf32" if self.tf32 and query.a == "fp32" else query.compute
        if self.fp16_accumulation and query.a == "fp16":
            if query.c != "fp16" or self.lt_products:
                raise CublasError(
                    f"{_FP16_ACCUMULATION} is True: with it products of fp16 were measured with outputs of fp16, in "
                    "cuBLAS"
                )
            compute = "fp16"
        return replace(query, workspace=workspace, reductions=mask, compute=compute)


def current_settings() -> PyTorchSettings:
    """PyTorch's current settings. Raises CublasError, with the setting, where no product was measured."""
    import torch

    matmul = torch.backends.cuda.matmul
    library = _measured_library(torch.backends.cuda.preferred_blas_library())
    return PyTorchSettings(
        _workspace(), _reductions(matmul, "fp16"), _reductions(matmul, "bf16"), _allows_tf32(matmul),
        bool(getattr(matmul, "allow_fp16_accumulation", False)), lt_products=library == "Cublaslt",
    )  # fmt: skip


def stated_settings(
    workspace: str | None = None, lt_workspace: int | None = None, reductions: int | None = None, *,
    lt_products: bool = False, tf32: bool = False,
) -> PyTorchSettings:  # fmt: skip
    """The settings of a process that starts with these values, independent of the present process.

    `workspace` is a value of CUBLAS_WORKSPACE_CONFIG, `lt_workspace` one of CUBLASLT_WORKSPACE_SIZE in KiB; None stands
    for a variable that is not set. `reductions` is the mask of REDUCTION_SCHEMEs of fp16 and bf16 products. Raises
    CublasError.
    """
    limit = _workspace_of(workspace)
    if lt_workspace is not None and lt_workspace < 0:
        raise CublasError(f"{BIAS_WORKSPACE_VARIABLE} is {lt_workspace}: give a number of KiB")
    given = BIAS_WORKSPACE if lt_workspace is None else lt_workspace * _KIBIBYTE
    return PyTorchSettings(limit, reductions, reductions, tf32, False, min(given, limit), lt_products)


def settings_token() -> Hashable:
    """A token of everything that `current_settings` reads; see `bitwise_core.plugins.profiles.CacheableProfile`.

    Every cached product asks for it: it calls PyTorch's C functions, which are faster than its attributes. The value of
    the backend takes two thirds of the time of int().
    """
    try:
        accumulation, fp16, bf16, backend, tf32, variable = _readers()
        return accumulation(), fp16(), bf16(), backend().value, tf32(), variable(_ENCODED_WORKSPACE)
    except (AttributeError, KeyError, RuntimeError, TypeError):  # another version of PyTorch or Python
        try:
            return current_settings()
        except CublasError as error:
            return str(error)


@cache
def _readers() -> tuple[Callable[..., Any], ...]:
    """The functions that read the settings of a token.

    The last one looks into the dictionary behind os.environ, whose own look-up raises and catches two exceptions for a
    variable that is not set.
    """
    import torch

    known = torch._C
    return (
        known._get_cublas_allow_fp16_accumulation, known._get_cublas_allow_fp16_reduced_precision_reduction,
        known._get_cublas_allow_bf16_reduced_precision_reduction, known._get_blas_preferred_backend,
        known._get_cublas_allow_tf32, vars(os.environ)["_data"].get,
    )  # fmt: skip


_ENCODED_WORKSPACE = os.environ.encodekey(WORKSPACE_VARIABLE)


def _reductions(matmul: Any, dtype: str) -> int | None:
    """The mask of REDUCTION_SCHEMEs for an operand type."""
    if getattr(matmul, f"allow_{dtype}_reduced_precision_reduction", True):
        return None
    split = getattr(matmul, f"allow_{dtype}_reduced_precision_reduction_split_k", True)
    return FULL_PRECISION if split else NO_REDUCTION


def _allows_tf32(matmul: Any) -> bool:
    try:
        return bool(matmul.allow_tf32)
    except RuntimeError:  # the settings of this and of another interface were mixed
        return str(getattr(matmul, "fp32_precision", "ieee")) == "tf32"


def _workspace() -> int:
    given = os.environ.get(WORKSPACE_VARIABLE)
    found = _workspace_of(given)
    if AT_START is not None and found != _workspace_of(AT_START.get(WORKSPACE_VARIABLE)):
        raise CublasError(
            f"{WORKSPACE_VARIABLE} was changed to {given!r} after Python started, and PyTorch may have read it before: "
            "set it before Python starts"
        )
    return found


def _workspace_of(value: str | None) -> int:
    if value is None:
        return WORKSPACE
    if not re.fullmatch(r"(:\d+:\d+)+", value):
        raise CublasError(f"{WORKSPACE_VARIABLE} is {value!r}: products were measured with values such as :4096:8")
    numbers = [int(each) for each in value.split(":")[1:]]
    return sum(size * count for size, count in zip(numbers[::2], numbers[1::2], strict=True)) * _KIBIBYTE


def bias_workspace(workspace: int) -> int:
    """PyTorch's workspace limit for a GEMM with a fused bias, given that of other GEMMs. Raises CublasError."""
    for name in (BIAS_WORKSPACE_VARIABLE, _UNIFIED_VARIABLE, _UNFUSED_VARIABLE):
        if AT_START is not None and os.environ.get(name) != AT_START.get(name):
            raise CublasError(
                f"{name} was changed after Python started, and PyTorch may have read it before: set it before Python "
                "starts"
            )
    if _UNFUSED_VARIABLE in os.environ:
        raise CublasError(f"{_UNFUSED_VARIABLE} is set: biases were measured without it")
    given = os.environ.get(BIAS_WORKSPACE_VARIABLE)
    if given is not None and not given.isdecimal():
        raise CublasError(f"{BIAS_WORKSPACE_VARIABLE} is {given!r}: give a number of KiB")
    found = BIAS_WORKSPACE if given is None else int(given) * _KIBIBYTE
    if os.environ.get(_UNIFIED_VARIABLE, "1") != "1" and found > workspace:
        raise CublasError(f"{_UNIFIED_VARIABLE} is set: biases were measured without it for this workspace")
    return min(found, workspace)


@lru_cache(maxsize=16)
def _measured_library(library: Any) -> str:
    """The name of a preferred BLAS library. Cached: converting it to text is slow. Raises CublasError for another."""
    name = str(library).rsplit(".", 1)[-1]
    if name not in ("Cublas", "Default", "Cublaslt"):
        raise CublasError(f"PyTorch prefers {library} for products: they were measured with cuBLAS and cuBLASLt")
    return name
