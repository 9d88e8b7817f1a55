# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels for sm_90 whose threads jump between basic blocks in any order, as their numbers or their data decide."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Shape, Slot
from bitwise_bench.adversary.kernel_families.block_kernels import FRAME, mixing

_NAMES = ("%r20", "%r21", "%r22", "%r23")
_BEGIN = (
    "mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13; mov.u32 %r30, 0; mov.u32 %r31, %r0;"
    "shr.u32 %r61, %r0, 5; mul.wide.u32 %d20, %r61, 512; add.s64 %d21, %d2, %d20; ld.global.b32 %r55, [%d21];"
)
"""%r30: how many jumps the thread has made; %r31: a number of its own; %r55: a word of its warp."""
_MOST_JUMPS = 7


def _tests(dice: random.Random, by_data: bool) -> list[str]:
    """Return tests of the thread's number and jumps, or of its data."""
    number = dice.randint(1, 3)
    found = [
        f"add.u32 %r32, %r31, %r30; and.b32 %r32, %r32, {number}; setp.eq.u32 %p1, %r32, 0;",
        f"setp.lt.u32 %p1, %r0, {dice.choice((1, 16, 32, 33))};",
        f"setp.gt.u32 %p1, %r30, {number};",
        f"xor.b32 %r32, %r9, %r30; setp.lt.u32 %p1, %r32, {number};",
    ]
    if by_data:
        found += [
            "setp.lt.f32 %p1, %r10, %r11;",
            "setp.gt.f32 %p1, %r20, 0f3F000000;",
            "setp.lt.f32 %p1, %r55, 0f3F000000;",
        ]
    return found


def _work(dice: random.Random) -> Slot:
    """Return a slot of what a basic block computes, reads or writes."""
    cells = ("[%d9]", "[%d9+4]", "[%d9+8]")
    one, cell = dice.choice(_NAMES), dice.choice(cells)
    return dice.choice(
        (
            mixing(dice, _NAMES),
            mixing(dice, _NAMES),
            (f"st.shared.b32 {cell}, {one};", f"st.shared.b32 {cell}, {dice.choice(_NAMES)};", ""),
            (f"ld.shared.b32 {one}, {cell};", f"ld.shared.b32 {one}, {dice.choice(cells)};", ""),
            (f"@%p1 mov.b32 {one}, %r10;", f"selp.b32 {one}, %r10, {one}, %p1;", f"@!%p1 mov.b32 {one}, %r10;"),
            ("add.u32 %r31, %r31, 1;", "xor.b32 %r31, %r31, 1;", ""),
            (f"st.global.b32 [%d7], {one};", f"@%p1 st.global.b32 [%d7], {one};", ""),
        )
    )


def _shape(dice: random.Random) -> Shape:
    """A few basic blocks, each of which may jump to any of them until the thread has made some jumps."""
    count, by_data = dice.randint(2, 4), dice.random() < 0.4
    zeros = "mov.u32 %r81, 0; st.shared.v4.b32 [%d9], {%r81, %r81, %r81, %r81}; setp.eq.u32 %p1, %r0, 0;"
    slots: list[Slot] = [(_BEGIN + zeros,)]
    for place in range(count):
        slots.append((f"B{place}:",))
        slots += [_work(dice) for _ in range(dice.randint(1, 2))]
        tests = _tests(dice, by_data)
        target = dice.randrange(count)
        limit = f"add.u32 %r30, %r30, 1; setp.gt.u32 %p2, %r30, {_MOST_JUMPS}; @%p2 bra DONE;"
        if by_data and target <= place:  # the ends of loops by data are in other families
            target = place + 1
        to = f"B{target}" if target < count else "DONE"
        slots.append(
            tuple(f"{test} {limit} @{sign}%p1 bra {to};" for test in dice.sample(tests, 2) for sign in ("", "!"))
        )
    slots.append(("DONE:",))
    return Shape(slots, dice.choice((32, 64)), fixed=(1, 1))


FAMILIES: Mapping[str, Family] = MappingProxyType({"jumps": Family(FRAME, _shape)})
"""The family by name."""
