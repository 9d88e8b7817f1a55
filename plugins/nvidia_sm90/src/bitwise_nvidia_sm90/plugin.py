"""What this distribution hands over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bitwise_core.hookspecs import hookimpl
from bitwise_core.machine.arch import Arch
from bitwise_nvidia_ptx.architecture import nvidia_arch
from bitwise_nvidia_sm90 import wgmma

SM90 = nvidia_arch("sm_90", ("sm_90", "sm_90a"), wgmma.TABLE, {f"mma.sync {kind} k16": wgmma.FAMILY for kind in ("f16", "bf16")})
"""On Hopper mma.sync m16n8k16 and wgmma k16 of fp16 and bf16 run the same fused step (16 products, 25 fraction bits)."""


@hookimpl
def bitwise_arches() -> Iterable[Arch]:
    """sm_90."""
    return [SM90]


@hookimpl(optionalhook=True)
def bitwise_samples(arch: Arch) -> Iterable[dict[str, Any]]:
    """Small kernels for the conformance suite."""
    from bitwise_nvidia_sm90.samples import samples

    return list(samples()) if arch is SM90 else []
