"""Descriptors of tcgen05.mma: of a tile in shared memory, and of the shapes and types of an instruction.

Source: PTX ISA 8.8, "tcgen05: Shared memory descriptor" and "Instruction descriptor".  A field with another value than
those listed here is not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.numerics.mma import ScaleFormat
from bitwise_nvidia_ptx.opcodes.matrices.matrix_tiles import TileLayout, tile_addresses
from bitwise_nvidia_sm100.scaled_kinds import SCALED_KINDS

_SWIZZLES = {0: (0, 16), 1: (128, 32), 2: (128, 16), 4: (64, 16), 6: (32, 16)}
"""The width of each mode of swizzle, and the bytes that it moves together."""


def tile_layout(descriptor: int) -> TileLayout:
    """Return what the descriptor of a tile states.

    Its bits: 0-13 address / 16; 16-29 leading byte offset / 16; 32-45 stride byte offset / 16; 46-48 the constant 1;
    49-51 base offset, which only a swizzle has; 52 mode of the leading offset; 61-63 swizzle mode (0 none, 2 of 128,
    4 of 64, 6 of 32 bytes, 1 of 128 bytes in units of 32).  Raises Unsupported for a base offset of a swizzle, and an
    absolute leading address.
    """
    start, leading, stride = ((descriptor >> low & 0x3FFF) << 4 for low in (0, 16, 32))
    if descriptor >> 46 & 7 != 1:
        raise Unsupported("bits 46 to 48 of a matrix descriptor are not 1, as tcgen05 requires")
    if descriptor >> 49 & 7 and descriptor >> 61:
        raise Unsupported("a matrix descriptor with a swizzle and a base offset is not modelled")
    if descriptor >> 52 & 1:
        raise Unsupported("a matrix descriptor with an absolute leading address is not modelled")
    if descriptor >> 53 & 0xFF or descriptor >> 14 & 3 or descriptor >> 30 & 3:
        raise Unsupported("a matrix descriptor has bits that the ISA does not define")
    mode = descriptor >> 61
    if mode not in _SWIZZLES:
        raise Unsupported(f"a matrix descriptor with the swizzle mode {mode} is not modelled")
    return TileLayout(start, leading, stride, *_SWIZZLES[mode])


def check_unit(layout: TileLayout, *, wide: bool) -> None:
    """Raise Unsupported for a swizzle whose units are not those of a tile.

    `wide`: the tile has elements of 32 bits along M or N.  Only such tiles have units of 32 bytes, and no others.
    """
    if (layout.unit == 32) != wide:
        units = "of 32 bits along M or N without" if wide else "with"
        raise Unsupported(f"a tile {units} a swizzle in units of 32 bytes is not modelled")


@dataclass(frozen=True, slots=True)
class Scales:
    """The block scales of an instruction: its kind, their format, and the number of elements that share one.

    A row has `count` scales, one byte each.  They begin at these bytes of the words of tensor memory.
    """

    kind: str
    form: ScaleFormat
    block: int
    count: int
    left_byte: int
    right_byte: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What the descriptor of an instruction states: extents, types as PTX spells them, and which tiles are transposed.

    `saturates`: integer results are clamped.  `scales` is None for an instruction without block scales.
    `weight_stationary`: tcgen05.mma.ws, whose results fill all lanes.
    """

    m: int
    n: int
    result: str
    left: str
    right: str
    transposes_a: bool
    transposes_b: bool
    saturates: bool
    scales: Scales | None = None
    weight_stationary: bool = False

    @property
    def packed(self) -> bool:
        """Whether the operands are bytes of packed elements: block scales, or elements of 4 or 6 bits."""
        narrow = any(FLOAT_FORMATS[each].bits < 8 for each in (self.left, self.right) if each in FLOAT_FORMATS)
        return self.scales is not None or narrow


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of tcgen05.mma: its native k, and the types by their numbers in the descriptor."""

    k: int
    results: dict[int, str]
    elements: dict[int, str]


KINDS = {
    "f16": Kind(16, {0: "f16", 1: "f32"}, {0: "f16", 1: "bf16"}),
    "tf32": Kind(8, {1: "f32"}, {2: "tf32"}),
    "f8f6f4": Kind(32, {0: "f16", 1: "f32"}, {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}),
    "i8": Kind(32, {2: "s32"}, {0: "u8", 1: "s8"}),
}
"""The kinds without block scales."""

_UNDEFINED_BITS = {6, 23, 29}


def instruction_shape(kind: str, descriptor: int, *, of_pair: bool = False, weight_stationary: bool = False) -> Shape:
    """Return what the descriptor of an instruction of a kind states.

    `of_pair`: it works on a pair of blocks.  `weight_stationary`: it is tcgen05.mma.ws.

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
    if of_pair:
        exists = m in (128, 256) and 32 <= n <= 256 and n % 32 == 0
    elif weight_stationary:
        exists = m in (32, 64, 128) and n in (64, 128, 256)
    else:
        unit = 16 if m == 128 or (kind == "i8" and n > 32) else 8
        exists = m in (64, 128) and 8 <= n <= 256 and n % unit == 0
    if not exists:
        raise Unsupported(f"a matrix instruction of {m} rows by {n} columns is not modelled")
    if kind in ("f8f6f4", "i8"):
        _check_transposes(left, right, transposes, n)
    return Shape(m, n, result, left, right, *transposes, bool(number(3, 1)), weight_stationary=weight_stationary)


def _check_transposes(left: str, right: str, transposes: tuple[bool, bool], n: int) -> None:
    """Raise Unsupported for transposed operands of 8 bits or fewer that are not modelled."""
    for element, transposed in ((left, transposes[0]), (right, transposes[1])):
        if transposed and element in FLOAT_FORMATS and FLOAT_FORMATS[element].bits < 8:
            raise Unsupported(f"a transposed operand of {element} is not modelled")
    if transposes[1] and n % 16:
        raise Unsupported(f"a transposed operand of 8 bits with {n} columns is not modelled")


def scale_vector(kind: str, suffix: str) -> int | None:
    """Return the number of scales of a row that an opcode of a kind states, None for one that does not exist.

    `suffix` is scale_vec::NX, block16, block32, or empty.
    """
    known = SCALED_KINDS[kind]
    number = known.default
    if suffix in ("block16", "block32"):
        number = known.k // int(suffix[5:])
    elif suffix:
        number = {f"scale_vec::{each}X": each for each in (1, 2, 4)}.get(suffix, 0)
    return number if number in known.scales else None


def scaled_shape(kind: str, vector: int, descriptor: int, *, of_pair: bool = False) -> Shape:
    """Return what the descriptor of an instruction with block scales states; `vector` is the number of a row's scales.

    `of_pair`: it works on a pair of blocks.

    Its bits: 2 sparsity; 4-5 byte of the scales of B; 7-9 and 10-12 types of A and B (10-11 with types of 4 bits); 13
    and 14 negations; 15 and 16 transposes; 17-22 N / 8; 23 type of the scales; 27-28 M / 128; 29-30 byte of the scales
    of A; 31 another k with types of 4 bits.  Raises Unsupported for what is not modelled.
    """

    def number(low: int, count: int) -> int:
        return descriptor >> low & (1 << count) - 1

    known, packed = SCALED_KINDS[kind], kind != "mxf8f6f4"
    undefined = {0, 1, 3, 6, 24, 25, 26} | ({12} if packed else {31})
    refused = {
        "sparse operands": number(2, 1) != 0,
        "bits that the ISA does not define": any(number(low, 1) for low in undefined),
        "a negated operand": number(13, 2) != 0,
        "96 products at once": packed and number(31, 1) != 0,
    }
    for what, present in refused.items():
        if present:
            raise Unsupported(f"the descriptor of a matrix instruction states {what}, which is not modelled")
    left, right = known.elements.get(number(7, 3)), known.elements.get(number(10, 3))
    form = known.scales[vector].get(number(23, 1))
    if left is None or right is None or form is None:
        raise Unsupported(f"the descriptor of a matrix instruction states types of kind::{kind} that do not exist")
    m, n = number(27, 2) << 7, number(17, 6) << 3
    exists = 8 <= n <= 256 and ((m == 256 and n % 32 == 0) if of_pair else m == 128)
    if not exists:
        raise Unsupported(f"a matrix instruction of {m} rows by {n} columns with block scales is not modelled")
    transposes = bool(number(15, 1)), bool(number(16, 1))
    _check_transposes(left, right, transposes, n)
    left_byte, right_byte = number(29, 2), number(4, 2)
    if left_byte % vector or right_byte % vector:
        raise Unsupported(f"{vector} scales of a row begin at byte {max(left_byte, right_byte)} of a word")
    scales = Scales(kind, form, known.k // vector, vector, left_byte, right_byte)
    return Shape(m, n, "f32", left, right, *transposes, saturates=False, scales=scales)


@lru_cache(maxsize=512)
def element_places(layout: TileLayout, rows: int, element: str, k: int, k_major: bool, padded: bool) -> Array:
    """Return the addresses of the bytes that hold the k elements of each row of a tile, shape (rows, bytes).

    `padded`: 16 elements of 4 or 6 bits are packed at the beginning of 16 bytes.
    """
    bits = FLOAT_FORMATS[element].bits
    if bits == 8 or not padded:
        return tile_addresses(layout, rows, k * bits // 8, 1, k_major)
    whole = tile_addresses(layout, rows, k, 1, k_major)
    found: Array = np.ascontiguousarray(whole[:, np.flatnonzero(np.arange(k) % 16 < 2 * bits)])
    found.setflags(write=False)
    return found
