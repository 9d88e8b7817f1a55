"""The limits of workspaces that PyTorch passes to cuBLASLt's heuristic."""

from __future__ import annotations

MEBIBYTE = 1 << 20

WORKSPACE = 32 * MEBIBYTE
"""PyTorch's workspace limit on sm_90, in bytes."""

BIAS_WORKSPACE = MEBIBYTE
"""PyTorch's workspace limit for a GEMM with a fused bias, in bytes."""
