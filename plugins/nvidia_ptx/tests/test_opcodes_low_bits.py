"""Sums with neutral numbers, the low bits of sums and of masked integers, and places that warps exchange, in one form."""
# ruff: noqa: E501 - PTX is easier to check without line breaks

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from random import Random

import numpy as np
import pytest

from bitwise_core.execution.values import packing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.integers import linear_hash, stored_bounds
from ptx_programs import hashes, simulated

THREADS = 64
SHARED = ".shared .align 16 .b8 room[1024];"
LOADS = """
    mad.wide.u32 %d5, %r0, 16, %d1; ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d5]; and.b32 %r5, %r0, 1; xor.b32 %r6, %r5, 1;
    mul.wide.u32 %d6, %r0, 8; add.s64 %d7, %d0, %d6; mov.u64 %d8, room; add.s64 %d9, %d8, %d6; xor.b64 %d10, %d6, 256;
    add.s64 %d10, %d8, %d10; setp.lt.f32 %p1, %r1, %r2; mul.lo.s32 %r10, %r1, %r2;
"""
"""%r1 to %r4: words of this thread; %r5: whether it is odd; %d9 and %d10: its place and that of the other warp; %r10: a term."""
END = "st.global.b32 [%d7], %r9;"
BYTE = "st.global.b8 [%d7], %h9;"
PLACE = "and.b32 %r7, %r1, 63; and.b32 %r8, %r2, 63; selp.b32 %r9, %r7, %r8, %p1;"
EXCHANGED = "st.shared.b32 [%d9], %r9; bar.sync 0; ld.shared.b32 %r9, [%d10]; bar.sync 0; st.shared.b32 [%d9], %r9; bar.sync 0; ld.shared.b32 %r9, [%d10];"
SIGNED, UNSIGNED = (
    "cvt.s64.s32 %d11, %r9; st.global.b64 [%d7], %d11;",
    "cvt.u64.u32 %d11, %r9; st.global.b64 [%d7], %d11;",
)

EQUAL = {
    "a product with 1": ("mov.b32 %r7, 1; mul.lo.s32 %r8, %r1, %r7; xor.b32 %r9, %r8, %r2;" + END, "xor.b32 %r9, %r1, %r2;" + END),
    "a product with 0": ("mul.lo.s32 %r8, %r1, 0; or.b32 %r9, %r8, %r2;" + END, "mov.b32 %r9, %r2;" + END),
    "products with 0 and 1 in turn": (
        "mul.lo.s32 %r7, %r1, %r5; mul.lo.s32 %r8, %r2, %r6; add.s32 %r9, %r7, %r8; xor.b32 %r9, %r9, %r3;" + END,
        "setp.eq.u32 %p2, %r5, 1; selp.b32 %r9, %r1, %r2, %p2; xor.b32 %r9, %r9, %r3;" + END,
    ),
    "a sum with 0": ("mul.lo.s32 %r7, %r3, 0; add.s32 %r8, %r7, %r1; xor.b32 %r9, %r8, %r2;" + END, "xor.b32 %r9, %r1, %r2;" + END),
    "a difference of itself": ("sub.s32 %r8, %r1, %r1; or.b32 %r9, %r8, %r2;" + END, "mov.b32 %r9, %r2;" + END),
    "numbers of a byte": (
        "add.s32 %r9, %r10, 248; cvt.u16.u32 %h9, %r9;" + BYTE, "cvt.u16.u32 %h9, %r10; add.s16 %h9, %h9, -8;" + BYTE
    ),
    "a masked byte": (
        "add.s32 %r9, %r10, 248; and.b32 %r9, %r9, 255; cvt.u16.u32 %h9, %r9;" + BYTE,
        "cvt.u16.u32 %h9, %r10; add.s16 %h9, %h9, -8;" + BYTE,
    ),
    "a byte of a difference": (
        "sub.s32 %r9, %r10, 8; cvt.u16.u32 %h9, %r9;" + BYTE, "add.s32 %r9, %r10, 4088; cvt.u16.u32 %h9, %r9;" + BYTE
    ),
    "a byte of a number less a value": (
        "sub.s32 %r9, 254, %r10; cvt.u16.u32 %h9, %r9;" + BYTE, "sub.s32 %r9, -2, %r10; cvt.u16.u32 %h9, %r9;" + BYTE
    ),
    "a place that another warp has stored": (PLACE + EXCHANGED + SIGNED, PLACE + EXCHANGED + UNSIGNED),
}  # fmt: skip

NEAR_MISSES = {
    "a product with 3": ("mul.lo.s32 %r9, %r1, 3;" + END, "mov.b32 %r9, %r1;" + END),
    "the other factor": (
        "mul.lo.s32 %r7, %r1, %r5; mul.lo.s32 %r8, %r2, %r6; add.s32 %r9, %r7, %r8; xor.b32 %r9, %r9, %r3;" + END,
        "setp.eq.u32 %p2, %r5, 0; selp.b32 %r9, %r1, %r2, %p2; xor.b32 %r9, %r9, %r3;" + END,
    ),
    "a difference from 0": ("mul.lo.s32 %r7, %r3, 0; sub.s32 %r9, %r7, %r1;" + END, "mov.b32 %r9, %r1;" + END),
    "another number of a byte": (
        "add.s32 %r9, %r10, 247; cvt.u16.u32 %h9, %r9;" + BYTE, "cvt.u16.u32 %h9, %r10; add.s16 %h9, %h9, -8;" + BYTE
    ),
    "the highest bit of a byte": (
        "add.s32 %r9, %r10, 120; cvt.u16.u32 %h9, %r9;" + BYTE, "cvt.u16.u32 %h9, %r10; add.s16 %h9, %h9, -8;" + BYTE
    ),
    "two bytes": (
        "add.s32 %r9, %r10, 248; cvt.u16.u32 %h9, %r9; st.global.b16 [%d7], %h9;",
        "cvt.u16.u32 %h9, %r10; add.s16 %h9, %h9, -8; st.global.b16 [%d7], %h9;",
    ),
    "a mask that takes a bit": (
        "and.b32 %r9, %r10, 127; cvt.u16.u32 %h9, %r9;" + BYTE, "cvt.u16.u32 %h9, %r10;" + BYTE
    ),
    "a place that may be negative": (
        PLACE.replace("and.b32 %r8, %r2, 63", "mov.b32 %r8, %r2") + EXCHANGED + SIGNED,
        PLACE.replace("and.b32 %r8, %r2, 63", "mov.b32 %r8, %r2") + EXCHANGED + UNSIGNED,
    ),
}  # fmt: skip


@cache
def contents() -> tuple[dict[str, np.ndarray], ...]:
    """Return the buffers of each draw."""
    generator = np.random.default_rng(5)
    words = [generator.integers(0, 1 << 32, 4 * THREADS, dtype=np.uint32).view(np.uint8) for _ in range(8)]
    return tuple({"out": np.zeros(8 * THREADS, dtype=np.uint8), "in": each} for each in words)


def form(body: str) -> dict[int, tuple[int, int, int]]:
    """Return the canonical forms of the output."""
    return hashes(LOADS + body, threads=THREADS, shared=SHARED)


def returned(body: str) -> list[bytes]:
    """Return the output of each draw."""
    return simulated(LOADS + body, contents(), threads=THREADS, shared=SHARED)


@pytest.mark.parametrize("name", EQUAL)
def test_both_have_one_form_and_return_the_same_bytes(name: str) -> None:
    one, other = EQUAL[name]
    assert form(one) == form(other)
    assert returned(one) == returned(other)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_have_other_forms_and_other_bytes(name: str) -> None:
    one, other = NEAR_MISSES[name]
    assert form(one) != form(other)
    assert returned(one) != returned(other)


_STEPS = (
    "add.s32 {d}, {a}, {n};", "sub.s32 {d}, {a}, {b};", "sub.s32 {d}, {n}, {a};", "add.s32 {d}, {a}, {b};",
    "mul.lo.s32 {d}, {a}, {m};", "mul.lo.s32 {d}, {a}, %r5;", "shl.b32 {d}, {a}, {s};", "and.b32 {d}, {a}, {k};",
    "cvt.u16.u32 %h1, {a}; add.s16 %h1, %h1, {n}; cvt.u32.u16 {d}, %h1;",
    "cvt.u16.u32 %h1, {a}; and.b16 %h1, %h1, 255; cvt.u32.u16 {d}, %h1;", "xor.b32 {d}, {a}, {b};",
    "selp.b32 {d}, {a}, {b}, %p1;", "selp.b32 {d}, {a}, {n}, %p1;", "cvt.s32.s8 {d}, {a};", "cvt.s32.s16 {d}, {a};",
    "st.shared.b32 [%d9], {a}; bar.sync 0; ld.shared.b32 {d}, [%d9];", "neg.s32 {d}, {a};",
    "st.shared.b8 [%d9], {a}; bar.sync 0; ld.shared.u8 {d}, [%d9];",
)  # fmt: skip
_RESULTS = 12


def program(random: Random) -> str:
    """Return a program of random steps that stores all its results, as bytes, halves and words."""
    names = ["%r1", "%r2", "%r10"]
    lines, stores = [], []
    for place in range(_RESULTS):
        new = f"%r{20 + place}"
        step = random.choice(_STEPS).format(
            d=new, a=random.choice(names), b=random.choice(names), n=random.choice([0, 1, -8, 120, 248, 255, 256, 65528]),
            m=random.choice([0, 1, 2, 256, -1]), s=random.choice([0, 1, 8]), k=random.choice([255, 127, 65535, 511, 1]),
        )  # fmt: skip
        lines.append(step)
        names.append(new)
    for place in range(_RESULTS):
        address = f"mad.wide.u32 %d12, %r0, {8 * _RESULTS}, %d0;"
        stores.append(
            f"{address} st.global.b32 [%d12+{8 * place}], %r{20 + place}; cvt.u16.u32 %h2, %r{20 + place};"
            f" st.global.b8 [%d12+{8 * place + 4}], %h2; st.global.b16 [%d12+{8 * place + 6}], %h2;"
        )
    return " ".join((*lines, *stores))


def clashes(count: int) -> Iterator[int]:
    """Yield the seeds of random programs of which two results have one form and other bits."""
    for seed in range(count):
        body = program(Random(seed))
        forms = hashes(LOADS + body, threads=4, shared=SHARED)
        size = 4 * 8 * _RESULTS
        draws = tuple({"out": np.zeros(size, dtype=np.uint8), "in": each["in"][:64]} for each in contents())
        found = [np.frombuffer(each, np.uint8) for each in simulated(LOADS + body, draws, threads=4, shared=SHARED)]
        patterns: dict[tuple[int, ...], tuple[bytes, ...]] = {}
        for offset, (width, *words) in forms.items():
            bits = tuple(bytes(each[offset : offset + width]) for each in found)
            if patterns.setdefault((width, *words), bits) != bits:
                yield seed


def test_values_of_one_form_are_equal_in_random_programs() -> None:
    assert list(clashes(40)) == []


def _any_number_is_neutral(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(linear_hash, "_NEUTRAL", {"add": 1, "sub": 1, "mul": 2, "shl": 1})


def _sums_of_other_low_bits(patch: pytest.MonkeyPatch) -> None:
    kept = linear_hash.with_least_number
    patch.setattr(packing, "with_least_number", lambda form, number, bits: kept(form, number, bits - 1))


def _any_mask_keeps(patch: pytest.MonkeyPatch) -> None:
    kept = packing._masked
    patch.setattr(packing, "_masked", lambda value, bits: kept(value, 1))


def _no_bound_is_exceeded(patch: pytest.MonkeyPatch) -> None:
    def note(self: stored_bounds.StoredBounds, value: L.Value) -> None:
        if isinstance(value, L.SymbolicVector) and value.maximum is None:
            value.maximum = 63
        _NOTE(self, value)

    _NOTE = stored_bounds.StoredBounds.note
    patch.setattr(stored_bounds.StoredBounds, "note", note)


@pytest.mark.parametrize(
    "mutate", [_any_number_is_neutral, _sums_of_other_low_bits, _any_mask_keeps, _no_bound_is_exceeded]
)
def test_wrong_rules_are_found(mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    assert any(form(one) == form(other) for one, other in NEAR_MISSES.values()) or any(True for _ in clashes(40))
