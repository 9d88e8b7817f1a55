"""What a machine lacks to run the launcher: Triton, hip-python, ROCm and a gfx942."""

from __future__ import annotations

from importlib.util import find_spec

from bitwise_amd_gfx942.device import missing_device

ARCHITECTURE = "gfx942"
"""The architecture whose products the launcher computes."""


def missing() -> str | None:
    """Return what this machine lacks, as a clause; None where nothing is missing."""
    return "triton is not installed" if find_spec("triton") is None else missing_device(ARCHITECTURE)
