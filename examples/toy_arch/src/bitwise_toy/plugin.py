"""The hooks of this plugin.  Every command imports it, so that it refers to the architecture and does not import it."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.references import ArchReference, Deferred
from bitwise_toy.matrix_units import MAC


@hookimpl
def bitwise_arches() -> Iterable[ArchReference]:
    """Return toy1."""
    load, parse = Deferred("bitwise_toy.architecture:TOY1").load, Deferred("bitwise_toy.text:parse")
    return [ArchReference("toy1", load, ".toy", ("toy1",), parse, bits=True, approximations=True)]


@hookimpl
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """Return the matrix unit of toy1."""
    return [MAC]
