"""The hooks of this distribution: one profile for each data file, the GPUs and the library."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.references import Deferred, Reference
from bitwise_core.plugins.tools import Tool
from bitwise_cublas_profiles.data_files import data_files

LOAD = Deferred("bitwise_cublas_profiles.library_profile:profile_of")


@hookimpl
def bitwise_tools() -> Iterable[Tool]:
    """The GPUs, and the library."""
    return [
        Tool(
            "NVIDIA GPU", "products on the GPU, comparison of verdicts with its bytes, recording of locks",
            Deferred("bitwise_cublas_profiles.tools:gpus"),
        ),
        Tool(
            "cuBLASLt", "what the library would compute here (`bitwise cublas ask`); its profiles need none",
            Deferred("bitwise_cublas_profiles.tools:library"),
        ),
    ]  # fmt: skip


@hookimpl
def bitwise_profiles() -> Iterable[Reference]:
    """Every measured cuBLASLt profile, by version and architecture."""
    return [Reference(each.name, partial(LOAD, each)) for each in data_files()]
