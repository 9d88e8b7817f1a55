"""The errors of this distribution, and the names of everything that the published parameters leave open."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OPEN: Mapping[str, str] = MappingProxyType(
    {
        "vector ALU": "the kernel has no matrix instruction, and the order of its scalar sums is not published",
        "custom kernel": "the kernel is hand-written assembly, of which the logic file has only the name",
        "other kernel": "the kernel is not assembly of the usual form",
        "stream-k": "the work is distributed over the compute units at run time, so that the order of the sum is open",
        "stochastic rounding": "the result is rounded at random",
        "type": "products of these types are not described",
        "rounded operands": "the operands are rounded to a narrower type before they are multiplied; how is open",
        "output conversion": "how the result is converted to the output's type is open",
        "direct to registers": (
            "an operand is loaded past the shared memory and read in wide vectors: in which order its k are multiplied "
            "is open"
        ),
        "vector width": "the width of reads from shared memory is no multiple of what an instruction takes",
        "depth": "an iteration is no whole number of matrix instructions for each wave",
        "tail": "the kernel has no loop for the last k, and k is no multiple of its iteration",
        "slices": "how the slices of k are assigned to iterations is open",
        "atomics": "the slices of k are added by atomic operations, in no fixed order",
        "tree of slices": (
            "a power of two of at least 128 slices is added in four chains and by exchanges between lanes, or in one "
            "chain, which depends on the output's size and the number of compute units"
        ),
        "stagger": "the start of the loop over k is shifted by a rule that is not described",
        "stagger by batch": "the start of the loop over k depends on the number of the matrix in its batch",
        "stagger axis": (
            "the loop over k starts elsewhere for each tile of the output, and of the rows and the columns it is open "
            "which count: earlier and later generated kernels differ; choose with stagger, N as the source of 2024-10 "
            "reads or M as in later kernels"
        ),
        "beta": "whether alpha * sum + beta * C is rounded once or twice is open",
        "alpha": "whether alpha * sum + bias is rounded once or twice is open",
    }
)
"""What is not described, by name, and why."""


class RocblasError(ValueError):
    """A wrong argument, file or table; the message says what to do."""


class NotSelected(RocblasError):
    """The tables select no kernel for a problem, or leave it open; the message says why."""


class Declined(RocblasError):
    """A kernel that is not described: `reason` is a key of OPEN."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {OPEN[reason]}{f' ({detail})' if detail else ''}")
        self.reason = reason
