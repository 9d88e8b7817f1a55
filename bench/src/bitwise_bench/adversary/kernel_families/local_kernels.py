# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels for sm_90 whose threads keep numbers in local memory, which they write under conditions on data."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernel_families.block_kernels import HEAD, mixing

_HEAD = HEAD.replace("{{ .reg", "{{ .local .align 16 .b8 own[32]; .reg", 1) + (
    "mov.u64 %d30, own; mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13;"
    "st.local.v4.b32 [own], {{%r10, %r11, %r12, %r13}}; st.local.b32 [own+16], %r12; st.local.b32 [own+20], %r11; st.local.b32 [own+24], 0; st.local.b32 [own+28], %r10;\n"
)
_FRAME = Frame(LANGUAGES["ptx"], _HEAD, "st.global.v4.b32 [%d7], {%r20, %r21, %r22, %r23};\nret; }\n")
_NAMES = ("%r20", "%r21", "%r22", "%r23")


def _store(dice: random.Random) -> str:
    return f"st.local.b32 [own+{4 * dice.randrange(8)}], {dice.choice(_NAMES)};"


def _conditional(dice: random.Random, place: int) -> Slot:
    """Return a slot of one store under a condition, by a branch, a guard or a select, and of near misses."""
    at, value, other = 4 * dice.randrange(8), dice.choice(_NAMES), dice.choice(_NAMES)
    more = dice.choice(("", _store(dice), f"ld.local.b32 %r21, [own+{at}];"))
    test = dice.choice(
        ("setp.lt.f32 %p1, %r20, %r13;", "setp.gt.s32 %p1, %r11, 0;", "setp.lt.u32 %p1, %r0, 20;", "and.b32 %r30, %r12, 1; setp.ne.b32 %p1, %r30, 0;")
    )  # fmt: skip
    return pick(
        dice,
        f"{test} @!%p1 bra OVER{place}; st.local.b32 [own+{at}], {value}; {more} OVER{place}:",
        f"{test} @%p1 bra OVER{place}; st.local.b32 [own+{at}], {value}; {more} OVER{place}:",
        f"{test} @!%p1 bra ELSE{place}; st.local.b32 [own+{at}], {value}; {more} bra OVER{place}; ELSE{place}: ld.local.b32 %r31, [own+{at}]; st.local.b32 [own+{at}], %r31; OVER{place}:",
        f"{test} @!%p1 bra ELSE{place}; st.local.b32 [own+{at}], {value}; {more} bra OVER{place}; ELSE{place}: st.local.b32 [own+{at}], {other}; OVER{place}:",
        f"{test} ld.local.b32 %r31, [own+{at}]; selp.b32 %r31, {value}, %r31, %p1; st.local.b32 [own+{at}], %r31; {more and '@%p1 '}{more}",
        f"{test} ld.local.b32 %r31, [own+{at}]; selp.b32 %r31, %r31, {value}, %p1; st.local.b32 [own+{at}], %r31;",
    )


def _load(dice: random.Random) -> Slot:
    """Return a slot of loads from a known place or from one that depends on data."""
    to, at, low = dice.choice(_NAMES), dice.randrange(8), dice.choice((1, 3))
    chosen = f"and.b32 %r60, %r12, {low}; mul.wide.u32 %d31, %r60, 4; add.s64 %d31, %d30, %d31;"
    return pick(
        dice,
        f"ld.local.b32 {to}, [own+{4 * at}];", f"ld.local.b32 {to}, [own+{4 * (at ^ 1)}];",
        f"ld.local.v2.b32 {{%r32, %r33}}, [own+{4 * (at & 6)}]; mov.b32 {to}, %r3{2 + at % 2};",
        f"{chosen} ld.local.b32 {to}, [%d31];", f"{chosen} ld.local.b32 {to}, [%d31+4];",
        f"mov.b32 %r61, {low}; and.b32 %r60, %r61, %r12; cvt.u64.u32 %d31, %r60; shl.b64 %d31, %d31, 2; add.s64 %d31, %d31, %d30; ld.local.b32 {to}, [%d31];",
    )  # fmt: skip


def _shape(dice: random.Random) -> Shape:
    """Stores, loads and arithmetic one after another, and a loop around some of them."""
    slots: list[Slot] = [("",)]
    for place in range(dice.randint(2, 4)):
        slots += [
            _conditional(dice, place),
            mixing(dice, _NAMES),
            _load(dice),
            tuple(sorted({_store(dice), _store(dice)})),
        ]
    return Shape(slots, 32, fixed=(1, 0), first=True)


FAMILIES: Mapping[str, Family] = MappingProxyType({"local memory": Family(_FRAME, _shape)})
"""The family by name."""
