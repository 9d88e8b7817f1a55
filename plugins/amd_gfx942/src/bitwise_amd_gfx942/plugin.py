"""The hook implementations of this distribution."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_amd_gfx942.architecture import GFX942, GFX950
from bitwise_amd_gfx942.launcher import Products
from bitwise_amd_gfx942.matrix_units import ROWS
from bitwise_amd_gfx942.tools import TOOLS
from bitwise_core.execution.architecture import Arch
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.launchers import Launcher
from bitwise_core.plugins.tools import Tool


@hookimpl
def bitwise_arches() -> Iterable[Arch]:
    """The architectures gfx942 and gfx950."""
    return [GFX942, GFX950]


@hookimpl
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """The matrix-unit rows of gfx942, and those of integers of gfx950."""
    return ROWS


@hookimpl
def bitwise_tools() -> Iterable[Tool]:
    """The GPU that ROCm uses."""
    return TOOLS


@hookimpl
def bitwise_launchers() -> Iterable[Launcher]:
    """The launcher of matrix products on gfx942."""
    return [Products()]
