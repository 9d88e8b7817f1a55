"""What readings of compiled kernels assume.

The corpus and the public kernels are compiled by Triton 3.6.0, which leaves out the proxy fences between copies by
threads and the matrix instructions that read them.  Where copies need the fence, the kernels are read as if they were
visible, so that the records say what the kernels compute.  `missing_fences` counts the kernels that lack a fence.
"""

from __future__ import annotations

from collections.abc import Collection

from bitwise_core.checker.sources import Options
from bitwise_core.execution.assumptions import PROXIES_TOGETHER

BLACKWELL = frozenset({"sm_100", "sm_103", "sm_120"})


def assumed(targets: Collection[str]) -> frozenset[str]:
    """Return the assumptions of readings for these architectures."""
    return frozenset({PROXIES_TOGETHER}) if BLACKWELL & set(targets) else frozenset()


def reading(*targets: str) -> Options:
    """Return the options of readings for these architectures."""
    return Options(assume=assumed(targets))
