"""The hooks of this distribution: the architecture sm_90, its matrix units and its launchers."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_core.execution.architecture import Arch, BitSupport
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.launchers import Launcher
from bitwise_nvidia_ptx.architecture import nvidia_arch
from bitwise_nvidia_sm90 import approximations, matrix_units, wgmma
from bitwise_nvidia_sm90.attention.launcher import AttentionKernels
from bitwise_nvidia_sm90.launcher import GEMMLauncher

SAME_STEPS = dict.fromkeys(wgmma.SAME_STEPS, wgmma.FAMILY)

SM90 = nvidia_arch(
    "sm_90",
    ("sm_90", "sm_90a"),
    wgmma.TABLE,
    BitSupport(approximations.FUNCTIONS, tuple(matrix_units.ROWS)),
    SAME_STEPS,
    largest_cluster=16,
)


@hookimpl
def bitwise_arches() -> Iterable[Arch]:
    """sm_90."""
    return [SM90]


@hookimpl
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """mma.sync and wgmma of sm_90."""
    return matrix_units.ROWS


@hookimpl
def bitwise_launchers() -> Iterable[Launcher]:
    """The launchers of matrix products and of attention on sm_90."""
    return [GEMMLauncher(), AttentionKernels()]
