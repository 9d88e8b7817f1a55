"""The hook of this distribution: one profile for each library version with a table."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.references import Deferred, Reference
from bitwise_rocblas_profiles.versions import ARCHITECTURE, VERSIONS

LOAD = Deferred("bitwise_rocblas_profiles.library_profile:TensileProfile")


@hookimpl
def bitwise_profiles() -> Iterable[Reference]:
    """Every library version with a table."""
    return [Reference(f"{name}_{version}_{ARCHITECTURE}", partial(LOAD, name, version)) for name, version in VERSIONS]
