"""The rows of tcgen05.mma of packed elements, which only the architectures use: no hook returns them."""

from __future__ import annotations

from itertools import product

from bitwise_core.numerics.mma import BlockScaledSpec
from bitwise_nvidia_ptx.matrix_rows import FP8, MODELS, PUBLISHED
from bitwise_nvidia_sm100.matrix_units import TCGEN05
from bitwise_nvidia_sm100.scaled_kinds import SCALED_KINDS


def _scaled_rows(architecture: str) -> tuple[BlockScaledSpec, ...]:
    """Return the rows of tcgen05.mma of packed elements: with block scales, and kind f8f6f4 as with scales of 1.

    16 products of e2m1 are summed exactly where k is 64.
    """
    rows = []
    for name, kind in SCALED_KINDS.items():
        group, fraction_bits = (1, 25) if name == "mxf8f6f4" else (16, 35)
        rows += [
            BlockScaledSpec(
                architecture,
                f"{TCGEN05}.{name}",
                left,
                right,
                kind.k,
                kind.k // vector,
                scale,
                group,
                fraction_bits,
                PUBLISHED,
                MODELS,
            )
            for left in kind.elements.values()
            for right in kind.elements.values()
            for vector, scales in kind.scales.items()
            for scale in scales.values()
        ]
    kind = SCALED_KINDS["mxf8f6f4"]
    for left, right in product(kind.elements.values(), repeat=2):
        if (left, right) not in FP8:  # those of 8 bits are not packed, see `matrix_units`
            family = f"{TCGEN05}.f8f6f4"
            rows.append(
                BlockScaledSpec(
                    architecture, family, left, right, kind.k, kind.k, "ue8m0", 1, 25, PUBLISHED, MODELS
                )
            )  # fmt: skip
    return tuple(rows)


BLOCK_SCALED_ROWS: tuple[BlockScaledSpec, ...] = (*_scaled_rows("sm_100"), *_scaled_rows("sm_103"))
