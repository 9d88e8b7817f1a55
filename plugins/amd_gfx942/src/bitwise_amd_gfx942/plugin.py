"""The hooks of this distribution: the architectures gfx942 and gfx950, their matrix units and a launcher."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_amd_gfx942.matrix_units import ROWS
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.references import ArchReference, Deferred, LauncherReference
from bitwise_core.plugins.tools import Tool

PARSE = Deferred("bitwise_amd_gfx942.text.parser:parse")


def _reference(name: str, record: str) -> ArchReference:
    return ArchReference(
        name, Deferred(f"bitwise_amd_gfx942.architecture:{record}").load, ".amdgcn", (name,), PARSE, bits=True
    )


@hookimpl
def bitwise_arches() -> Iterable[ArchReference]:
    """The architectures gfx942 and gfx950."""
    return [_reference("gfx942", "GFX942"), _reference("gfx950", "GFX950")]


@hookimpl
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """The matrix-unit rows of gfx942, and those of integers of gfx950."""
    return ROWS


@hookimpl
def bitwise_tools() -> Iterable[Tool]:
    """The GPU that ROCm uses."""
    look = Deferred("bitwise_amd_gfx942.tools:gpu")
    return [Tool("AMD GPU", "products on a gfx942, through hip-python and ROCm", look)]


@hookimpl
def bitwise_launchers() -> Iterable[LauncherReference]:
    """The launcher of matrix products on gfx942."""
    missing = Deferred("bitwise_amd_gfx942.requirements:missing")
    return [LauncherReference("products_gfx942", Deferred("bitwise_amd_gfx942.launcher:Products"), missing)]
