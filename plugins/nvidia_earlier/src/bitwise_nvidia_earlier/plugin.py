"""The hooks of this distribution: matrix-unit rows."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_nvidia_earlier.matrix_units import ROWS


@hookimpl
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """The matrix units of sm_70, sm_75, sm_80, sm_86 and sm_89."""
    return ROWS
