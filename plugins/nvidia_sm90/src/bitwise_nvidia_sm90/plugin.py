"""The hooks of this distribution: the architecture sm_90, its matrix units and its launchers."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.references import ArchReference, Deferred, LauncherReference
from bitwise_nvidia_ptx.references import nvidia_reference
from bitwise_nvidia_sm90 import matrix_units


@hookimpl
def bitwise_arches() -> Iterable[ArchReference]:
    """sm_90."""
    return [nvidia_reference(("sm_90", "sm_90a"), "bitwise_nvidia_sm90.architecture:SM90", approximations=True)]


@hookimpl
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """mma.sync and wgmma of sm_90."""
    return matrix_units.ROWS


@hookimpl
def bitwise_launchers() -> Iterable[LauncherReference]:
    """The launchers of matrix products and of attention on sm_90."""
    missing = Deferred("bitwise_nvidia_sm90.requirements:missing")
    return [
        LauncherReference("products_sm_90", Deferred("bitwise_nvidia_sm90.launcher:GEMMLauncher"), missing),
        LauncherReference(
            "attention_sm_90", Deferred("bitwise_nvidia_sm90.attention.launcher:AttentionKernels"), missing
        ),
    ]
