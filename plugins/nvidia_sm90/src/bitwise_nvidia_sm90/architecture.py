"""The architecture sm_90."""

from __future__ import annotations

from bitwise_core.execution.architecture import BitSupport
from bitwise_nvidia_ptx.architecture import nvidia_arch
from bitwise_nvidia_sm90 import approximations, matrix_units, wgmma

SAME_STEPS = dict.fromkeys(wgmma.SAME_STEPS, wgmma.FAMILY)

SM90 = nvidia_arch(
    "sm_90",
    ("sm_90", "sm_90a"),
    wgmma.TABLE,
    BitSupport(approximations.FUNCTIONS, tuple(matrix_units.ROWS)),
    SAME_STEPS,
    largest_cluster=16,
)
