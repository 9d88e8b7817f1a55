"""Descriptors of tcgen05.mma: of a tile in shared memory, and of the shapes and types of an instruction.

Source: PTX ISA 8.8, "tcgen05: Shared memory descriptor" and "Instruction descriptor".  A field with another value than
those listed here is not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_nvidia_ptx.opcodes.matrix_tiles import TileLayout

_SWIZZLES = {0: 0, 2: 128, 4: 64, 6: 32}


def tile_layout(descriptor: int) -> TileLayout:
    """Return what the descriptor of a tile states.

    Its bits: 0-13 address / 16; 16-29 leading byte offset / 16; 32-45 stride byte offset / 16; 46-48 the constant 1;
    49-51 base offset; 52 mode of the leading offset; 61-63 swizzle mode (0 none, 2 of 128, 4 of 64, 6 of 32 bytes).
    Raises Unsupported for a base offset, an absolute leading address, and a swizzle of units of 32 bytes.
    """
    start, leading, stride = ((descriptor >> low & 0x3FFF) << 4 for low in (0, 16, 32))
    if descriptor >> 46 & 7 != 1:
        raise Unsupported("bits 46 to 48 of a matrix descriptor are not 1, as tcgen05 requires")
    if descriptor >> 49 & 7:
        raise Unsupported("a matrix descriptor with a base offset is not modelled")
    if descriptor >> 52 & 1:
        raise Unsupported("a matrix descriptor with an absolute leading address is not modelled")
    if descriptor >> 53 & 0xFF or descriptor >> 14 & 3 or descriptor >> 30 & 3:
        raise Unsupported("a matrix descriptor has bits that the ISA does not define")
    mode = descriptor >> 61
    if mode not in _SWIZZLES:
        raise Unsupported(f"a matrix descriptor with the swizzle mode {mode} is not modelled")
    return TileLayout(start, leading, stride, _SWIZZLES[mode])


@dataclass(frozen=True, slots=True)
class Shape:
    """What the descriptor of an instruction states: extents, types as PTX spells them, and which tiles are transposed.

    `saturates`: integer results are clamped.
    """

    m: int
    n: int
    result: str
    left: str
    right: str
    transposes_a: bool
    transposes_b: bool
    saturates: bool


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of tcgen05.mma: its native k, and the types by their numbers in the descriptor."""

    k: int
    results: dict[int, str]
    elements: dict[int, str]


KINDS = {
    "f16": Kind(16, {0: "f16", 1: "f32"}, {0: "f16", 1: "bf16"}),
    "tf32": Kind(8, {1: "f32"}, {2: "tf32"}),
    "f8f6f4": Kind(32, {0: "f16", 1: "f32"}, {0: "e4m3", 1: "e5m2"}),
    "i8": Kind(32, {2: "s32"}, {0: "u8", 1: "s8"}),
}
"""The kinds that are modelled, without block scales.  Of f8f6f4, only the types of 8 bits are."""

_UNDEFINED_BITS = {6, 23, 29}


def instruction_shape(kind: str, descriptor: int) -> Shape:
    """Return what the descriptor of an instruction of a kind states.

    Its bits: 0-2 sparsity; 3 saturation; 4-5 result type; 7-9 and 10-12 types of A and B; 13 and 14 negations; 15 and
    16 transposes; 17-22 N / 8; 24-28 M / 16; 30-31 shift.  Raises Unsupported for what is not modelled.
    """

    def number(low: int, count: int) -> int:
        return descriptor >> low & (1 << count) - 1

    types = KINDS[kind]
    refused = {
        "sparse operands": number(0, 3) != 0,
        "saturation of floating-point results": number(3, 1) != 0 and kind != "i8",
        "bits that the ISA does not define": any(number(low, 1) for low in _UNDEFINED_BITS),
        "a negated operand": number(13, 2) != 0,
        "a shift of B": number(30, 2) != 0,
    }
    for what, present in refused.items():
        if present:
            raise Unsupported(f"the descriptor of a matrix instruction states {what}, which is not modelled")
    chosen = types.results.get(number(4, 2)), types.elements.get(number(7, 3)), types.elements.get(number(10, 3))
    result, left, right = chosen
    if result is None or left is None or right is None:
        raise Unsupported(f"the descriptor of a matrix instruction states types of kind::{kind} that are not modelled")
    if kind == "f16" and (left != right or (left == "bf16" and result == "f16")):
        raise Unsupported(f"a matrix instruction of {left} by {right} with {result} results is not modelled")
    m, n = number(24, 5) << 4, number(17, 6) << 3
    transposes = bool(number(15, 1)), bool(number(16, 1))
    if m not in (64, 128) or not 8 <= n <= 256 or (m == 128 and n % 16) or (kind == "i8" and n > 32 and n % 16):
        raise Unsupported(f"a matrix instruction of {m} rows by {n} columns is not modelled")
    if kind == "tf32" and any(transposes):
        raise Unsupported("a transposed operand of 32 bits is not modelled")
    if kind in ("f8f6f4", "i8") and transposes[1] and n % 16:
        raise Unsupported(f"a transposed operand of 8 bits with {n} columns is not modelled")
    return Shape(m, n, result, left, right, *transposes, bool(number(3, 1)))
