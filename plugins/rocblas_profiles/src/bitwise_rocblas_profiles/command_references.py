"""The commands that this distribution adds to `bitwise`; their modules are imported when they run."""

from __future__ import annotations

from bitwise_core.cli.lazy_commands import CommandReference

ROCBLAS = CommandReference(
    "bitwise_rocblas_profiles.commands:app",
    "Show which kernel rocBLAS or hipBLASLt selects on gfx942, and which bits follow; derived, not measured.",
)
