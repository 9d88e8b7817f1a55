"""Matrix instructions with block scales, as rows of data.

An operand vector of such an instruction is bytes: its elements, packed without gaps from the lowest bit on, and then
one byte for each scale, which multiplies the elements of one block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.numerics.mma.spec import EXACT_BITS, STATUSES, MatrixError, MmaSpec, Status

ScaleFormat: TypeAlias = Literal["ue8m0", "ue4m3"]
"""A power of two (255 is NaN); e4m3 without a sign (127 is NaN, and the highest bit is ignored)."""
SCALE_FORMATS: tuple[ScaleFormat, ...] = ("ue8m0", "ue4m3")

_GROUP_BITS = 12
"""The bits of the integer part of a group's sum, significands of its scales included: 16 products of e2m1."""


@dataclass(frozen=True, slots=True)
class BlockScaledSpec:
    """A row: one instruction of a matrix unit with block scales and fp32 results.  Raises MatrixError if inconsistent.

    An instruction contracts `k` products; `block` consecutive elements share a scale.  The sums of `group` products
    enter one sum with the accumulator.  Every term is cut towards zero at `fraction_bits` bits below the largest
    exponent, and the exact sum is rounded towards zero to fp32.  The exponent of a single product (`group` 1) is the
    sum of the exponents of its elements and scales; that of a group, whose products are summed exactly, is the sum of
    the exponents of its scales.
    """

    architecture: str
    family: str
    left: str
    right: str
    k: int
    block: int
    scale: ScaleFormat
    group: int
    fraction_bits: int
    status: Status
    source: str

    def __post_init__(self) -> None:
        for name in (self.left, self.right):
            form = FLOAT_FORMATS.get(name)
            if form is None or form.bits > 8 or not form.signed:
                raise MatrixError(f"{self.name}: elements with block scales have signed formats of at most 8 bits")
            if self.k * form.bits % 8:
                raise MatrixError(f"{self.name}: {self.k} elements of {name} do not fill bytes")
        if self.scale not in SCALE_FORMATS:
            raise MatrixError(f"{self.name}: scales are {' or '.join(SCALE_FORMATS)}, not {self.scale!r}")
        if self.status not in STATUSES:
            raise MatrixError(f"{self.name}: the status {self.status!r} is not one of {', '.join(STATUSES)}")
        if self.block < 1 or self.k % self.block or self.group < 1 or self.block % self.group:
            raise MatrixError(f"{self.name}: k must be a multiple of the block, and the block one of the group")
        if self.group > 1 and ({self.left, self.right} != {"e2m1"} or self.group > 16):
            raise MatrixError(f"{self.name}: only groups of at most 16 products of e2m1 are summed exactly")
        if self.group == 1 and self.scale != "ue8m0":
            raise MatrixError(f"{self.name}: single products are scaled by powers of two only")
        terms = self.k // self.group + 1
        if self.fraction_bits + (2 if self.group == 1 else _GROUP_BITS) + terms.bit_length() > EXACT_BITS:
            raise MatrixError(f"{self.name}: a sum at {self.fraction_bits} bits needs more than {EXACT_BITS} bits")

    @property
    def name(self) -> str:
        """The name, which determines the bits."""
        types = f"fp32_{self.left}_{self.right}_fp32"
        return f"{self.family}_k{self.k}_{types}_{self.scale}_block{self.block}_{self.architecture}"

    @property
    def scales(self) -> int:
        """The number of scales of an operand vector."""
        return self.k // self.block

    def operand_bytes(self, side: Literal["left", "right"]) -> int:
        """Return the number of bytes of an operand vector."""
        return self.k * FLOAT_FORMATS[self.left if side == "left" else self.right].bits // 8 + self.scales


MatrixUnit: TypeAlias = MmaSpec | BlockScaledSpec
"""A row of a matrix unit, with or without block scales."""
