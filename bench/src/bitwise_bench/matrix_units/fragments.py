"""mma.sync.m16n8k*: the text of the instruction, and the layout of its fragments (PTX ISA, matrix fragments).

A 32-bit register holds elements of A or B that are adjacent along k; a 64-bit register holds one element.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics.mma import IntegerSum, MmaSpec

Words: TypeAlias = npt.NDArray[Any]

ROWS, COLUMNS, LANES = 16, 8, 32
_PTX = {"fp64": "f64", "fp32": "f32", "fp16": "f16"}


def _names(spec: MmaSpec) -> tuple[str, ...]:
    return tuple(_PTX.get(each, each) for each in (spec.result, spec.left, spec.right, spec.accumulator))


def registers(spec: MmaSpec) -> tuple[int, int, int]:
    """Return the numbers of registers per lane for A, B and C."""
    per_register = max(1, 32 // spec.form("left").bits)
    a = ROWS * spec.k // (LANES * per_register)
    return a, a // 2, 2 if spec.result == "fp16" else 4


def assembly(spec: MmaSpec) -> tuple[str, str]:
    """Return the instruction as inline assembly, and its constraints: results, then A, B and C."""
    a, b, c = registers(spec)
    groups, start = [], 0
    for count in (c, a, b, c):
        groups.append("{" + ", ".join(f"${start + index}" for index in range(count)) + "}")
        start += count
    clamped = ".satfinite" if isinstance(spec.arithmetic, IntegerSum) and spec.arithmetic.saturate else ""
    types = ".".join(_names(spec))
    text = f"mma.sync.aligned.m16n8k{spec.k}.row.col{clamped}.{types} {', '.join(groups)};"
    wide = "d" if spec.left == "fp64" else "r"
    held = {"fp64": "d", "fp32": "f"}.get(spec.result, "r")
    return text, ",".join([f"={held}"] * c + [wide] * (a + b) + [held] * c)


def _places(spec: MmaSpec, count: int) -> tuple[Words, Words, Words]:
    """Return the row group, the k position and the register index, for each register, lane and element."""
    per_register = max(1, 32 // spec.form("left").bits)
    register = np.arange(count)[:, None, None]
    lane = np.arange(LANES)[None, :, None]
    element = np.arange(per_register)[None, None, :]
    return lane // 4, per_register * (lane % 4) + element, register


def pack_left(spec: MmaSpec, a: Words) -> Words:
    """Pack A (..., 16, k) into words (..., registers, 32)."""
    count = registers(spec)[0]
    group, k, register = _places(spec, count)
    width = 4 * k.shape[-1]
    return _joined(a[..., group + 8 * (register % 2), k + width * (register // 2)])


def pack_right(spec: MmaSpec, b: Words) -> Words:
    """Pack B (..., k, 8) into words (..., registers, 32)."""
    count = registers(spec)[1]
    group, k, register = _places(spec, count)
    return _joined(b[..., k + 4 * k.shape[-1] * register, group + 0 * register])


def _joined(elements: Words) -> Words:
    """Pack the elements of each register, the first in the lowest bits."""
    joined = np.ascontiguousarray(elements)
    kind = np.dtype(np.uint64 if joined.dtype.itemsize == 8 else np.uint32)
    return joined.view(kind)[..., 0]


def _accumulator_places(spec: MmaSpec) -> tuple[Words, Words]:
    """Return rows and columns of the elements of each register and lane."""
    packed = spec.result == "fp16"
    register, lane = np.arange(2 if packed else 4)[:, None], np.arange(LANES)[None, :]
    if packed:
        element = np.arange(2)
        rows = np.broadcast_to((lane // 4 + 8 * register)[..., None], (2, LANES, 2))
        return rows, (2 * (lane % 4))[..., None] + element + 0 * rows
    return lane // 4 + 8 * (register // 2), 2 * (lane % 4) + register % 2


def pack_accumulator(spec: MmaSpec, c: Words) -> Words:
    """Pack C (..., 16, 8) into words (..., registers, 32)."""
    rows, columns = _accumulator_places(spec)
    elements = c[..., rows, columns]
    return _joined(elements) if spec.result == "fp16" else np.ascontiguousarray(elements)


def unpack_accumulator(spec: MmaSpec, words: Words) -> Words:
    """Unpack words (..., registers, 32) into D (..., 16, 8)."""
    rows, columns = _accumulator_places(spec)
    words = np.ascontiguousarray(words)
    elements = words[..., None].view(np.uint16) if spec.result == "fp16" else words
    d = np.empty((*words.shape[:-2], ROWS, COLUMNS), dtype=elements.dtype)
    d[..., rows, columns] = elements
    return d
