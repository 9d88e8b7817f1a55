"""What an architecture adds to IEEE arithmetic: rows of matrix units, and functions whose bits the hardware decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from bitwise_core.numerics import Bits
from bitwise_core.numerics.mma import MmaSpec

Units: TypeAlias = Mapping[str, MmaSpec]
"""Rows of matrix units by their names."""

Functions: TypeAlias = Mapping[str, Callable[..., Bits]]
"""Functions from arrays of patterns to an array of patterns, by full name: ex2.approx.ftz.fp32@ARCHITECTURE."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Rows of matrix units and functions, both by name, that the evaluation of a descriptor may call."""

    matrix_units: Units = field(default_factory=lambda: MappingProxyType({}))
    functions: Functions = field(default_factory=lambda: MappingProxyType({}))


IEEE = Hardware()
"""No matrix units and no functions: IEEE arithmetic alone, which the scalar paths and reductions need."""
