"""Compilation targets by name, and their launch limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bitwise_triton.errors import CaptureError, SharedMemoryLimitError


@dataclass(frozen=True, slots=True)
class TargetLimits:
    """Maximum shared memory of a block in bytes, and maximum number of threads."""

    shared_bytes: int
    threads: int = 1024


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": 164, 100 or 228 KiB of shared
# memory per multiprocessor, less 1 KiB reserved for each block. CDNA3 has 64 KiB of LDS, CDNA4 160 KiB.
LIMITS = {
    "sm_80": TargetLimits(163 * 1024),
    "sm_86": TargetLimits(99 * 1024),
    "sm_89": TargetLimits(99 * 1024),
    "sm_90": TargetLimits(227 * 1024),
    "sm_100": TargetLimits(227 * 1024),
    "sm_103": TargetLimits(227 * 1024),
    "sm_120": TargetLimits(99 * 1024),
    "gfx942": TargetLimits(64 * 1024),
    "gfx950": TargetLimits(160 * 1024),
}
TENSOR_MEMORY_COLUMNS = 512


def gpu_target(target: Any) -> Any:
    """Triton's GPUTarget for a name such as "sm_90" or "gfx942"; a GPUTarget is returned unchanged.

    Raises CaptureError for a name not in `LIMITS`.
    """
    from triton.backends.compiler import GPUTarget

    if isinstance(target, GPUTarget):
        return target
    if target not in LIMITS:
        raise CaptureError(f"Unknown target {target!r}; the known ones are {', '.join(LIMITS)}.")
    if target.startswith("sm_"):
        return GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    return GPUTarget("hip", target, 64)


def target_name(target: Any) -> str:
    """The name of a Triton GPUTarget: "sm_90" for GPUTarget("cuda", 90, 32)."""
    return f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch)


def check_limits(what: str, target: str, shared_bytes: int, threads: int, tensor_memory_columns: int) -> None:
    """Raise CaptureError if a block exceeds the target's known limits. `what` starts the message."""
    limits = LIMITS.get(target)
    if limits is None:
        return
    if shared_bytes > limits.shared_bytes:
        raise SharedMemoryLimitError(
            f"{what} needs {shared_bytes} bytes of shared memory and {target} has {limits.shared_bytes} per block; "
            "use smaller blocks or fewer stages."
        )
    if threads > limits.threads:
        raise CaptureError(
            f"{what} needs {threads} threads per block and {target} has {limits.threads}; use fewer warps."
        )
    if tensor_memory_columns > TENSOR_MEMORY_COLUMNS:
        raise CaptureError(
            f"{what} needs {tensor_memory_columns} columns of tensor memory and {target} has {TENSOR_MEMORY_COLUMNS}; "
            "use smaller blocks."
        )
