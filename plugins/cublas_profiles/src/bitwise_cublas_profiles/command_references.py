"""The commands that this distribution adds to `bitwise`; their modules are imported when they run."""

from __future__ import annotations

from bitwise_core.cli.lazy_commands import CommandReference

CUBLAS = CommandReference(
    "bitwise_cublas_profiles.commands:app",
    "Query cuBLASLt's heuristic: products whose sums drop values, and batch invariance of products.",
)
