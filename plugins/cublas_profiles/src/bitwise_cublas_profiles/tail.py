"""The defect at the end of split k: which answers of the heuristic leave the last values of k out of the sum.

A kernel of ALGO_ID 66 cuts k into s slices of whole k steps.  With b the k step, q whole steps in k and t values over,
the t values are lost exactly when t is not 0, s divides q, and s > t: no false positive and no false negative over
1,542,555 products per library on an H100, published for cuBLASLt 12.8.5 and 13.1.1 (https://github.com/facebookexperimental/triton,
folder bitequiv/cublas_match).

That is what a slice of k divided by s, rounded down, and then rounded up to whole steps leaves over: s slices of
ceil(floor(k / s) / b) b values end before k.  Both forms say the same where s <= b; beyond it nobody has measured, and
where the two differ the answer is that it is not known.
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
    whole, over = divmod(k, step)
    by_condition = over if over and whole % split == 0 and split > over else 0
    by_slices = max(0, k - split * -(-(k // split) // step) * step)
    if by_condition != by_slices:
        return Tail(None, f"{split} slices are more than the {step} values of a k step, which is not measured")
    steps = f"{whole} steps of {step} and {over} values over"
    if by_condition:
        return Tail(over, f"{steps}; {split} slices of {whole // split} steps end at {whole * step} of {k}")
    return Tail(0, f"{steps}, in {split} slices")
