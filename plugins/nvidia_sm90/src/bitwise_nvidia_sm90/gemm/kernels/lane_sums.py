"""PTX that adds the lanes of one element in their order."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from bitwise_nvidia_sm90.gemm.plan import LaneSum


def added_lanes(order: LaneSum, values: Sequence[str]) -> Generator[str, None, str]:
    """Yield the lines that add the fp32 registers of the lanes.  Return the register that holds their sum."""
    if order.sequence:
        total = values[order.sequence[0]]
        for lane in order.sequence[1:]:
            yield f"add.rn.f32 {total}, {total}, {values[lane]};"
        values = [total]
    for bit in order.rounds:
        kept = [lane for lane in range(len(values)) if not lane >> bit & 1]
        for lane in kept:
            yield f"add.rn.f32 {values[lane]}, {values[lane]}, {values[lane + (1 << bit)]};"
        values = [values[lane] for lane in kept]
    (total,) = values
    return total
