"""The split-K defect: some heuristic results leave the last values of k out of the sum.

A kernel of ALGO_ID 66 splits k into s slices of whole k steps of b values, each of length ceil(floor(k / s) / b) * b.
The division k / s is rounded down first. If s slices of that length end before k, the remaining values are dropped.

Let q be the number of whole steps in k and t the remainder. For s <= b this is the published condition: the t values
are dropped exactly when t is not 0, s divides q, and s > t. It had no false positive and no false negative over
1,542,555 GEMMs for each of cuBLASLt 12.8.5 and 13.1.1 on an H100 (https://github.com/facebookexperimental/triton,
folder bitequiv/cublas_match). For s > b whole steps are dropped too, even if k is a multiple of the step: 15 x 8 x
274624 in 65 slices drops 64 values.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from bitwise_cublas_profiles.query import Configuration

ALGORITHM = 66
"""The only ALGO_ID that drops values. CUTLASS kernels that meet the arithmetic conditions drop none."""

K_STEP = MappingProxyType({35: 64, 36: 128})
"""Values of k in one step of the kernels of ALGORITHM, by STAGES_ID."""


@dataclass(frozen=True, slots=True)
class DroppedK:
    """How many of the last values of k a heuristic result leaves out. `count` is None if unknown; `reason` says why."""

    count: int | None
    reason: str

    @property
    def verdict(self) -> str:
        """`complete`, `drops 8`, or `unknown`."""
        if self.count is None:
            return "unknown"
        return f"drops {self.count}" if self.count else "complete"


def dropped_k(k: int, configuration: Configuration) -> DroppedK:
    """The number of values of k that a configuration drops, from the configuration alone."""
    split = configuration.split_k
    if configuration.algorithm != ALGORITHM:
        return DroppedK(0, f"algorithm {configuration.algorithm} drops no value; only {ALGORITHM} does")
    if split <= 1:
        return DroppedK(0, "k is not split")
    step = K_STEP.get(configuration.stages)
    if step is None:
        return DroppedK(None, f"the k step of STAGES_ID {configuration.stages} is not measured")
    if k < split:
        return DroppedK(None, f"{split} slices of {k} values are not measured")
    whole, over = divmod(k, step)
    length = -(-(k // split) // step)
    dropped = max(0, k - split * length * step)
    steps = f"{whole} steps of {step} and a remainder of {over}"
    if dropped:
        return DroppedK(dropped, f"{steps}; {split} slices of {length} steps end at {k - dropped} of {k}")
    return DroppedK(0, f"{steps}, in {split} slices")
