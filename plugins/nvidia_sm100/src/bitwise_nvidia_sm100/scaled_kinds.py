"""The kinds of tcgen05.mma with block scales."""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_core.numerics.mma import ScaleFormat


@dataclass(frozen=True, slots=True)
class ScaledKind:
    """A kind of tcgen05.mma with block scales: its native k, its types, and its scales.

    `scales` maps the number after scale_vec to the formats of the scales by their numbers in the descriptor; `default`
    is the number of an opcode without one, 0 where PTX demands one.
    """

    k: int
    elements: dict[int, str]
    scales: dict[int, dict[int, ScaleFormat]]
    default: int


SCALED_KINDS = {
    "mxf8f6f4": ScaledKind(32, {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}, {1: {1: "ue8m0"}}, 1),
    "mxf4": ScaledKind(64, {1: "e2m1"}, {2: {1: "ue8m0"}}, 2),
    "mxf4nvf4": ScaledKind(64, {1: "e2m1"}, {2: {1: "ue8m0"}, 4: {0: "ue4m3", 1: "ue8m0"}}, 0),
}
