# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels whose lanes exchange values while some of them are elsewhere: shuffles, votes, matches and reductions."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernel_families.block_kernels import END, HEAD, mixing

_NAMES = ("%r20", "%r21", "%r22", "%r23")
_BEGIN = (
    "mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13; and.b32 %r62, %r0, 31;"
    "setp.lt.u32 %p3, %r62, 8; and.b32 %r63, %r62, 1; setp.eq.u32 %p4, %r63, 0; setp.lt.u32 %p6, %r0, 32;"
    "shr.u32 %r61, %r0, 5; mul.wide.u32 %d20, %r61, 512; add.s64 %d21, %d2, %d20; ld.global.b32 %r55, [%d21];"
)
"""%r62: the lane; %p3: lanes 0 to 7; %p4: even lanes; %p6: the first warp; %r55: a word of the warp."""
_REGIONS = (
    ("", "", "-1"),
    ("@!%p3 bra SKIP{};", "SKIP{}:", "255"),
    ("setp.ge.u32 %p7, %r62, 8; @%p7 bra SKIP{};", "SKIP{}:", "0xff"),
    ("@!%p4 bra SKIP{};", "SKIP{}:", "0x55555555"),
    ("@%p4 bra SKIP{};", "SKIP{}:", "0xaaaaaaaa"),
    ("@!%p6 bra SKIP{};", "SKIP{}:", "-1"),
    ("setp.lt.f32 %p7, %r55, 0f3F000000; @%p7 bra SKIP{};", "SKIP{}:", "-1"),
    ("setp.geu.f32 %p7, %r55, 0f3F000000; @!%p7 bra SKIP{};", "SKIP{}:", "-1"),
)
"""Ways for lanes to take part: what goes around an exchange, and the mask of its lanes."""


def _exchanges(dice: random.Random, mask: str) -> list[str]:
    one, to = dice.choice(_NAMES), dice.choice(_NAMES)
    uses = (
        f"add.rn.f32 {to}, {to}, %r30;",
        f"add.rn.f32 {to}, {one}, %r30;",
        f"max.f32 {to}, {to}, %r30;",
        f"mov.b32 {to}, %r30;",
        f"xor.b32 {to}, {to}, %r30;",
    )
    use = dice.choice(uses)
    return [
        f"shfl.sync.bfly.b32 %r30, {one}, 2, 31, {mask}; {use}",
        f"xor.b32 %r64, %r62, 2; shfl.sync.idx.b32 %r30, {one}, %r64, 31, {mask}; {use}",
        f"shfl.sync.bfly.b32 %r30, {one}, 2, 0x181f, {mask}; {use}",
        f"shfl.sync.up.b32 %r30, {one}, 2, 0, {mask}; {use}",
        f"shfl.sync.up.b32 %r30, {one}, 2, 0x1800, {mask}; {use}",
        f"shfl.sync.up.b32 %r30|%p5, {one}, 2, 0, {mask}; @%p5 {use}",
        f"shfl.sync.down.b32 %r30, {one}, 2, 31, {mask}; {use}",
        f"shfl.sync.down.b32 %r30|%p5, {one}, 2, 31, {mask}; @!%p5 mov.b32 %r30, {one}; {use}",
        f"shfl.sync.down.b32 %r30, {one}, 2, 0x181f, {mask}; {use}",
        f"shfl.sync.down.b32 %r30, {one}, 2, 7, {mask}; {use}",
        f"shfl.sync.idx.b32 %r30, {one}, 0, 31, {mask}; {use}",
        f"shfl.sync.idx.b32 %r30, {one}, 32, 31, {mask}; {use}",
        f"shfl.sync.idx.b32 %r30, {one}, 4, 0x181f, {mask}; {use}",
        f"shfl.sync.idx.b32 %r30|%p5, {one}, 5, 3, {mask}; @%p5 {use}",
        f"shfl.sync.bfly.b32 %r30, {one}, 16, 31, {mask}; {use}",
        f"shfl.sync.bfly.b32 %r30|%p5, {one}, 16, 15, {mask}; @%p5 {use}",
    ]


def _votes(dice: random.Random, mask: str) -> list[str]:
    numbers = ("setp.lt.u32 %p1, %r62, 5;", "setp.gt.u32 %p1, %r62, 5;")
    test = dice.choice(
        numbers
        if mask != "-1"
        else (
            "setp.lt.f32 %p1, %r10, %r11;",
            "setp.gt.f32 %p1, %r20, 0f3F000000;",
            "setp.lt.u32 %p1, %r62, 5;",
            "setp.eq.u32 %p1, %r10, %r11;",
        )
    )
    select = "selp.b32 %r21, %r22, %r21, %p5;"
    return [
        f"{test} vote.sync.any.pred %p5, %p1, {mask}; {select}", f"{test} vote.sync.all.pred %p5, %p1, {mask}; {select}",
        f"{test} vote.sync.any.pred %p5, !%p1, {mask}; selp.b32 %r21, %r21, %r22, %p5;", f"{test} vote.sync.uni.pred %p5, %p1, {mask}; {select}",
        f"{test} vote.sync.ballot.b32 %r56, %p1, {mask}; setp.ne.u32 %p5, %r56, 0; {select}", f"{test} vote.sync.ballot.b32 %r56, %p1, {mask}; popc.b32 %r57, %r56; setp.gt.u32 %p5, %r57, 3; {select}",
        f"{test} vote.sync.ballot.b32 %r56, %p1, {mask}; and.b32 %r56, %r56, 0x0f; setp.ne.u32 %p5, %r56, 0; {select}", f"{test} vote.sync.ballot.b32 %r23, %p1, {mask};",
        "activemask.b32 %r23;", f"match.any.sync.b32 %r23, %r63, {mask};",
f"elect.sync %r56|%p5, {mask}; {select}", f"bar.warp.sync {mask};",
    ]  # fmt: skip


def _reductions(dice: random.Random, mask: str) -> list[str]:
    one = dice.choice(_NAMES)
    found = [
        f"redux.sync.{verb} %r23, {one}, {mask};"
        for verb in ("add.u32", "add.s32", "min.s32", "max.s32", "min.u32", "max.u32", "and.b32", "or.b32", "xor.b32")
    ]
    tree = "".join(
        f"shfl.sync.bfly.b32 %r31, %r30, {1 << place}, 31, {mask}; {{0}} %r30, %r30, %r31;" for place in range(5)
    )
    found += [
        f"mov.b32 %r30, {one}; {tree.format(verb)} mov.b32 %r23, %r30;"
        for verb in ("add.u32", "max.s32", "or.b32", "max.f32", "add.rn.f32")
    ]
    down = "".join(
        f"shfl.sync.bfly.b32 %r31, %r30, {1 << place}, 31, {mask}; {{0}} %r30, %r31, %r30;"
        for place in reversed(range(5))
    )
    return found + [
        f"mov.b32 %r30, {one}; {down.format(verb)} mov.b32 %r23, %r30;"
        for verb in ("add.u32", "max.s32", "max.f32", "add.rn.f32")
    ]


def _divergent(dice: random.Random) -> Shape:
    """Exchanges between lanes, each in a part of the lanes that a number or data of the warp chooses."""
    slots: list[Slot] = [(_BEGIN,)]
    for number in range(dice.randint(1, 4)):
        before, after, mask = dice.choice(_REGIONS)
        kinds = (_exchanges, _exchanges, _votes, *((_reductions,) if mask == "-1" else ()))
        texts = dice.choice(kinds)(dice, mask)
        if before:
            same = [each for each in _REGIONS if each[2] == mask and each[0]]
            slots.append(
                tuple(
                    dict.fromkeys(
                        each[0].format(number) for each in (same if dice.random() < 0.5 else [(before, "", "")])
                    )
                )
            )
        slots.append(tuple(dice.sample(texts, min(6, len(texts)))))
        if after:
            if dice.random() < 0.5:
                slots.append(mixing(dice, _NAMES))
            slots.append((after.format(number),))
        elif dice.random() < 0.5:
            slots.append(mixing(dice, _NAMES))
    return Shape([*slots, pick(dice, "bar.warp.sync -1;", "bar.sync 0;", "mov.b32 %r81, 0;")], 64, fixed=(1, 0))


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {"lanes that diverge": Family(Frame(LANGUAGES["ptx"], HEAD, END), _divergent)}
)
"""The families by name."""
