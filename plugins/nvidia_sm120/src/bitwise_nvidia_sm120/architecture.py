"""The architecture sm_120.  All of its opcodes are shared with other architectures."""

from __future__ import annotations

from bitwise_core.execution.architecture import BitSupport, OpcodeTable
from bitwise_nvidia_ptx.architecture import nvidia_arch
from bitwise_nvidia_sm120.matrix_units import NAME, ROWS

SM120 = nvidia_arch(NAME, (NAME, "sm_120a", "sm_120f"), OpcodeTable(), BitSupport(matrix_units=ROWS))
