"""The defect at the end of split k: which answers of the heuristic leave the last values of k out of the sum.

A kernel of ALGO_ID 66 cuts k into s slices of whole k steps of b values, each of ceil(floor(k / s) / b) b: the division
is rounded down first, and where s slices of that length end before k, what follows is in none of them.

With q whole steps in k and t values over, and s <= b, that is the published condition: the t values are lost exactly
when t is not 0, s divides q, and s > t: no false positive and no false negative over 1,542,555 products per library on
an H100, for cuBLASLt 12.8.5 and 13.1.1 (https://github.com/facebookexperimental/triton, folder bitequiv/cublas_match).
With more slices than a step has values it is more: whole steps are lost too, even of a k that is whole steps, such as
64 of 15 x 8 x 274624 in 65 slices.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from bitwise_cublas_profiles.question import Configuration

ALGORITHM = 66
"""The one ALGO_ID that loses values; CUTLASS kernels that meet the arithmetic conditions keep every one."""

K_STEP = MappingProxyType({35: 64, 36: 128})
"""Values of k in one step of the kernels of ALGORITHM, by STAGES_ID."""


@dataclass(frozen=True, slots=True)
class Tail:
    """How many of the last values of k an answer leaves out: None where that is not known, and then why."""

    dropped: int | None
    reason: str

    @property
    def verdict(self) -> str:
        """`whole`, `loses 8`, or `unknown`."""
        if self.dropped is None:
            return "unknown"
        return f"loses {self.dropped}" if self.dropped else "whole"


def tail(k: int, configuration: Configuration) -> Tail:
    """What becomes of the last values of k, from the heuristic's answer alone."""
    split = configuration.split_k
    if configuration.algorithm != ALGORITHM:
        return Tail(0, f"algorithm {configuration.algorithm} keeps every value; {ALGORITHM} alone loses some")
    if split <= 1:
        return Tail(0, "k is not split")
    step = K_STEP.get(configuration.stages)
    if step is None:
        return Tail(None, f"the k step of STAGES_ID {configuration.stages} is not measured")
    if k < split:
        return Tail(None, f"{split} slices of {k} values are not measured")
    whole, over = divmod(k, step)
    length = -(-(k // split) // step)
    dropped = max(0, k - split * length * step)
    steps = f"{whole} steps of {step} and {over} values over"
    if dropped:
        return Tail(dropped, f"{steps}; {split} slices of {length} steps end at {k - dropped} of {k}")
    return Tail(0, f"{steps}, in {split} slices")
