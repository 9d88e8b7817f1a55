"""The names of the plans of `bitwise gemm`, which its help lists without importing descriptors."""

from __future__ import annotations

PLAN_NAMES = (
    "single-pass", "split-k", "per-mma", "split-k-per-mma", "three-level-chain", "lane-tree-gemv",
    "contiguous-slice-gemv", "workspace-gemv",
)  # fmt: skip
"""The names of the plans that `gemm_command` makes descriptors of."""
