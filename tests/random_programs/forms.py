"""Random straight-line programs, as PTX and as functions on bit patterns.

A program is a list of statements; each computes one value from earlier ones.  Every value is stored, so that one
analysis returns the canonical forms of all values in every lane.  Values of equal forms must be equal functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ptx_programs import hashes
from random_programs import floats, integers, rows
from random_programs.values import FORMAT, LANES, LEAVES, SLOT, SPECIAL, UNSIGNED, WIDTH, Bits, Draw, Program, Value

Maker: TypeAlias = Callable[[Program, Draw], None]
WEIGHTED: tuple[tuple[int, Maker], ...] = (
    (8, floats.binary),
    (4, floats.fused),
    (5, floats.extremum),
    (4, floats.sign),
    (5, floats.convert),
    (3, integers.choose),
    (2, integers.compare),
    (1, integers.logic_of_predicates),
    (5, integers.integers),
    (2, integers.integer_widths),
    (4, floats.packed),
    (4, floats.reinterpret),
    (1, integers.through_shared),
    (1, rows.exponential),
    (3, rows.padded),
    (2, integers.predicates_in_bits),
    (3, integers.predicates_as_numbers),
    (1, integers.counted_predicates),
    (1, integers.averages),
    (2, integers.codes),
)
MAKERS = tuple(maker for weight, maker in WEIGHTED for _ in range(weight))
"""The kinds of statement, the common ones several times."""

Statement: TypeAlias = tuple[int, int, int, int, int]


def samples(kind: str, count: int, generator: np.random.Generator) -> Bits:
    """Return random patterns of a leaf: special values, arbitrary ones, and some of similar magnitude."""
    unsigned = UNSIGNED[WIDTH[kind]]
    special = np.array(SPECIAL[kind], dtype=np.uint64)
    found = special[generator.integers(0, special.size, count)]
    anything = generator.integers(0, 2**64, count, dtype=np.uint64)
    if kind in FORMAT:
        near = {"f32": (0x3F000000, 0x02000000), "f16": (0x3800, 0x1000), "bf16": (0x3F00, 0x0200)}[kind]
        close = np.uint64(near[0]) + anything % np.uint64(near[1]) | (anything >> np.uint64(63)) << np.uint64(
            WIDTH[kind] - 1
        )
        anything = np.where(generator.integers(0, 2, count) == 0, anything, close)
    mixed = np.where(generator.integers(0, 2, count) == 0, found, anything)
    return mixed.astype(unsigned)[None]


def build(statements: Sequence[Statement], count: int = 256, seed: int = 0) -> Program:
    """Return the program of these statements, evaluated on `count` draws of its leaves."""
    generator = np.random.default_rng(seed)
    program = Program()
    for index, kind in enumerate(LEAVES):
        bits = WIDTH[kind]
        program.add(kind, samples(kind, count, generator), f"ld.global.b{bits} @@, [%d1+{8 * index}];")
    lane = np.arange(LANES)[:, None]
    program.add("pred", lane == 1, "setp.eq.u32 @@, %r0, 1;")
    program.add("pred", lane < 2, "setp.lt.u32 @@, %r0, 2;")
    limit = {"%p": 39, "%d": 79, "%r": 79, "%f": 89, "%g": 39, "%h": 89}
    for statement in statements:
        if any(program.counts.get(prefix, 0) > most - 4 for prefix, most in limit.items()):
            break
        MAKERS[statement[0] % len(MAKERS)](program, statement[1:])
    return program


def read(program: Program) -> dict[tuple[int, int], tuple[tuple[int, int, int, int], ...]]:
    """Return the stored values by (value, lane), from the analysis: offsets within the slot, widths and hashes."""
    lines = list(program.lines)
    total = len(program.values)
    lines.append(f"mul.lo.u32 %r80, %r0, {SLOT * total}; cvt.u64.u32 %d80, %r80; add.s64 %d80, %d0, %d80;")
    for index, value in enumerate(program.values):
        if value.kind == "pred":
            lines.append(f"selp.b32 %r81, 1, 2, {value.register};")
            lines.append(f"st.global.b32 [%d80+{SLOT * index}], %r81;")
        else:
            lines.append(f"st.global.b{WIDTH[value.kind]} [%d80+{SLOT * index}], {value.register};")
    found = hashes("\n".join(lines), threads=LANES, shared=".shared .align 16 .b8 room[64];")
    result: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
    for offset, (size, low, high) in sorted(found.items()):
        slot = offset // SLOT
        result.setdefault((slot % total, slot // total), []).append((offset % SLOT, size, low, high))
    return {place: tuple(parts) for place, parts in result.items()}


def bits_of(value: Value, lane: int) -> Bits:
    """Return the value's bits in one lane; those of a NaN from arithmetic are the canonical ones."""
    row = np.broadcast_to(value.bits, (LANES, value.bits.shape[1]))[lane]
    return np.where(row, np.uint32(1), np.uint32(2)) if value.kind == "pred" else row


@dataclass(frozen=True)
class Clash:
    """Two values that the analysis identifies, and a draw on which they differ."""

    left: tuple[int, int]
    right: tuple[int, int]
    left_bits: int
    right_bits: int


def clashes(program: Program) -> list[Clash]:
    """Return the pairs of values of equal canonical form that differ on a draw."""
    forms: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for place, parts in read(program).items():
        forms.setdefault(parts, []).append(place)
    found = []
    for places in forms.values():
        first = places[0]
        for other in places[1:]:
            left, right = program.values[first[0]], program.values[other[0]]
            a, b = np.broadcast_arrays(bits_of(left, first[1]), bits_of(right, other[1]))
            wrong = np.flatnonzero(a != b) if a.dtype == b.dtype else np.arange(1)
            if wrong.size:
                found.append(Clash(first, other, int(a[wrong[0]]), int(b[wrong[0]])))
    return found
