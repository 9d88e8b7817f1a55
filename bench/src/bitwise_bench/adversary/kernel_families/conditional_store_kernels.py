# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels for sm_90 whose threads store to shared elements under conditions on their data, in some order or none."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernel_families.block_kernels import HEAD

_FRAME = Frame(LANGUAGES["ptx"], HEAD, "st.global.b32 [%d7+12], %r20;\nret; }\n")
_CELLS = ("[%d30]", "[%d30]", "[%d30]", "[%d30+4]", "[%d0]")
"""Elements of the block, and one of all blocks; threads have their own at [%d7+12]."""
_CONTENTS = ("%r41", "%r41", "%r42", "%r43", "%r10")
_TESTS = (
    "setp.lt.f32 %p1, %r10, 0f00000000;",
    "setp.ge.f32 %p1, %r10, 0f00000000;",
    "setp.eq.b32 %p1, %r11, 0;",
    "setp.gt.s32 %p1, %r12, 0;",
    "and.b32 %r30, %r12, 1; setp.ne.b32 %p1, %r30, 0;",
    "setp.lt.f32 %p1, %r43, 0f00000000;",
)
"""Conditions on words of the thread; the last one is on a word of the block."""


def _stores(dice: random.Random, place: int, usual: Mapping[str, str]) -> Slot:
    """Return a slot in which threads store, or of what orders and reads their stores; each cell has a usual content."""
    cells = [*usual, next(iter(usual))]

    def store() -> str:
        cell = dice.choice(cells)
        return f"st.global.b32 {cell}, {usual[cell] if dice.random() < 0.85 else dice.choice(_CONTENTS)};"

    def guarded() -> str:
        alone = dice.choice(("", "", "and.pred %p1, %p1, %p11;"))
        return f"{dice.choice(_TESTS)} {alone} @{dice.choice(('', '', '!'))}%p1 {store()}"

    def sides() -> str:
        text = f"setp.lt.f32 %p2, %r43, 0f00000000; @%p2 bra ELSE{place}; {dice.choice((store, guarded))()}"
        if dice.random() < 0.5:
            return f"{text} bra JOIN{place}; ELSE{place}: {dice.choice((store, guarded))()} JOIN{place}:"
        return f"{text} ELSE{place}:"

    def read() -> str:
        return f"bar.sync 0; ld.global.b32 {dice.choice(('%r20', '%r20', '%r10'))}, {dice.choice(cells)};"

    kinds = (
        guarded,
        guarded,
        guarded,
        guarded,
        guarded,
        lambda: f"@%p11 {store()}",
        lambda: "bar.sync 0;",
        sides,
        read,
    )
    made = dice.choice(kinds)
    texts = dict.fromkeys([made(), made(), made()])
    while len(texts) < 4:
        texts[dice.choice(kinds)()] = None
    return pick(dice, *texts)


def _shape(dice: random.Random) -> Shape:
    """Stores, barriers and loads one after another."""
    threads = dice.choice((32, 64))
    begin = (
        f"mul.wide.u32 %d30, %r9, {16 * threads}; add.s64 %d30, %d0, %d30; setp.eq.u32 %p11, %r0, 0; ld.global.b32 %r43, [%d2+4];"
        "mov.b32 %r41, 0f3F800000; mov.b32 %r42, 0f40000000; mov.b32 %r20, %r10;"
    )
    usual = {dice.choice(_CELLS): dice.choice(_CONTENTS[:4]) for _ in range(2)}
    slots: list[Slot] = [(begin,), *(_stores(dice, place, usual) for place in range(dice.randint(2, 4)))]
    return Shape(slots, threads, fixed=(1, 0))


FAMILIES: Mapping[str, Family] = MappingProxyType({"stores under conditions": Family(_FRAME, _shape)})
"""The family by name."""
