# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels for sm_90 in which lanes of one warp store different values to one place by one instruction."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernel_families.block_kernels import END, HEAD, exchange, mixing

_HEAD = HEAD + (
    "mov.u32 %r70, room; mad.lo.u32 %r71, %r0, 16, %r70; and.b32 %r68, %r0, 31; xor.b32 %r69, %r0, %r68; mad.lo.u32 %r69, %r69, 16, %r70;"
    "mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13;\n"
)
"""%r71: the own 16 bytes of shared memory; %r68: the lane; %r69: the bytes of the warp."""
_NAMES = ("%r20", "%r21", "%r22", "%r23")
_WHOLE = ("{%r20, %r21, %r22, %r23}", "{%r21, %r20, %r23, %r22}")


def _places(dice: random.Random) -> Slot:
    """Return a slot that chooses the place of each lane, %r62."""
    kept, moved = dice.choice((0, 1, 3, 7)), dice.choice((1, 2, 4))
    size = dice.choice((16, 16, 32, 8))
    chosen = (
        f"and.b32 %r60, %r68, {kept};", f"shr.u32 %r60, %r68, {moved};", f"and.b32 %r60, %r68, {kept ^ 4};",
        f"and.b32 %r60, %r68, {kept}; xor.b32 %r60, %r60, {kept};",
    )  # fmt: skip
    return tuple(f"{each} mad.lo.u32 %r62, %r60, {size}, %r69;" for each in chosen)


def _store(dice: random.Random) -> Slot:
    """Return a slot of stores of several widths, under guards, and beside each other."""
    guard = dice.choice(
        ("", "", "setp.lt.u32 %p1, %r0, 20; @%p1 ", "and.b32 %r61, %r0, 5; setp.eq.u32 %p1, %r61, 1; @%p1 ")
    )
    plain = [
        f"{guard}st.shared.b32 [%r62], %r20;", f"{guard}st.shared.b32 [%r62], %r21;",
        f"{guard}st.shared.v2.b32 [%r62], {{%r20, %r21}};", f"{guard}st.shared.v4.b32 [%r62], {dice.choice(_WHOLE)};",
        f"mov.b64 %d30, {{%r20, %r21}}; {guard}st.shared.b64 [%r62], %d30;", f"{guard}st.shared.b8 [%r62], %r20;",
        f"cvt.u16.u32 %h1, %r20; {guard}st.shared.b16 [%r62+2], %h1;",
        f"{guard}st.shared.b32 [%r62], %r20; {guard.partition('; ')[2] and '@%p1 '}st.shared.b32 [%r62+4], %r21;",
        f"{guard}st.shared.b32 [%r62], %r20; bar.warp.sync -1; st.shared.b32 [%r62+4], %r21;",
    ]  # fmt: skip
    return plain[0], *dice.sample(plain[1:], 4)


def _before(dice: random.Random) -> Slot:
    """Return a slot of what may part the lanes of a warp."""
    turns = dice.choice((3, 7))
    return (
        "mov.b32 %r81, 0;",
        "div.rn.f32 %r20, %r20, %r21; bar.sync 0;",
        "sqrt.rn.f32 %r22, %r22;",
        f"and.b32 %r63, %r0, {turns}; TURN: add.rn.f32 %r21, %r21, %r20; sub.u32 %r63, %r63, 1; setp.gt.s32 %p2, %r63, 0; @%p2 bra TURN; bar.sync 0;",
        "setp.lt.u32 %p2, %r0, 9; @%p2 bra AWAY; add.rn.f32 %r23, %r23, %r20; AWAY: bar.sync 0;",
        "setp.lt.u32 %p2, %r0, 9; @%p2 bra AWAY; add.rn.f32 %r23, %r23, %r20; AWAY: shfl.sync.bfly.b32 %r82, %r20, 1, 31, -1; xor.b32 %r21, %r21, %r82;",
        "div.rn.f32 %r20, %r20, %r21; shfl.sync.idx.b32 %r82, %r20, 3, 31, -1; add.rn.f32 %r22, %r22, %r82;",
        "setp.lt.u32 %p2, %r0, 9; @%p2 bra AWAY; add.rn.f32 %r23, %r23, %r20; AWAY: shfl.sync.bfly.b32 %r82, %r20, 1, 31, -1;",
    )


def _collisions(dice: random.Random) -> Shape:
    """Values that lanes store to common places, and read again after a barrier."""
    slots: list[Slot] = [("st.shared.v4.b32 [%r71], {%r13, %r12, %r11, %r10}; bar.sync 0;",), _before(dice)]
    for _ in range(dice.randint(1, 2)):
        slots += [
            _places(dice), mixing(dice, _NAMES), _store(dice), (*["bar.sync 0;"] * 4, "bar.warp.sync -1;"),
            pick(
                dice,
                "ld.shared.v4.b32 {%r24, %r25, %r26, %r27}, [%r71];", "ld.shared.v2.b32 {%r24, %r25}, [%r71]; ld.shared.v2.b32 {%r26, %r27}, [%r71+8];",
                "ld.shared.v4.b32 {%r25, %r24, %r27, %r26}, [%r71];", "xor.b32 %r64, %r71, 16; ld.shared.v4.b32 {%r24, %r25, %r26, %r27}, [%r64];",
            ),
            pick(
                dice,
                "add.rn.f32 %r20, %r20, %r24; add.rn.f32 %r21, %r21, %r25; max.f32 %r22, %r22, %r26; mov.b32 %r23, %r27;",
                "add.rn.f32 %r20, %r24, %r20; add.rn.f32 %r21, %r25, %r21; max.f32 %r22, %r26, %r22; mov.b32 %r23, %r27;",
                "xor.b32 %r20, %r24, %r20; mov.b32 %r21, %r25; mov.b32 %r22, %r26; mov.b32 %r23, %r27;",
            ),
            ("bar.sync 0;",),
        ]  # fmt: skip
    slots.append(dice.choice((mixing(dice, _NAMES), exchange(dice, "%r20", "%r22"))))
    return Shape(slots, dice.choice((32, 64)), fixed=(1, 0), first=True)


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {"lanes that collide": Family(Frame(LANGUAGES["ptx"], _HEAD, END), _collisions)}
)
"""The family by name."""
