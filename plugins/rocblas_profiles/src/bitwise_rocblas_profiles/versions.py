"""The library versions with tables in this distribution."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

VERSIONS: Mapping[tuple[str, str], tuple[str, int]] = MappingProxyType(
    {("rocblas", "6.2"): ("ROCm/rocBLAS", 128), ("hipblaslt", "2024-10"): ("ROCm/hipBLASLt", 76)}
)
"""The repository of each library version, by name and version, and the workspace in MiB that it allows by default."""

ARCHITECTURE = "gfx942"
"""The architecture of the tables."""
