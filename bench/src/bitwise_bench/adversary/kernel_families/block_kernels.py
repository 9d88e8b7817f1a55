# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels for sm_90 whose threads work together, in families of small changes of one kernel.

Each family exercises a part of the analysis: loops that data ends, copies through shared memory, chains of matrix steps,
products of a warpgroup, branches that whole warps or blocks take, and blocks that leave a loop early.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 .ptr .global .align 16 in_{kind}, .param .u64 .ptr .global .align 16 out_fp32) .reqntid {threads}
{{ .reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<100>; .reg .b64 %d<50>; .shared .align 1024 .b8 room[8192];
ld.param.u64 %d0, [out_fp32]; ld.param.u64 %d1, [in_{kind}]; mov.u32 %r0, %tid.x; mov.u32 %r9, %ctaid.x; mov.u64 %d8, room;
mad.lo.u32 %r1, %r9, {threads}, %r0; mul.wide.u32 %d5, %r1, 16; add.s64 %d7, %d0, %d5; add.s64 %d6, %d1, %d5;
mul.wide.u32 %d4, %r9, {block}; add.s64 %d2, %d1, %d4; mul.wide.u32 %d3, %r0, 16; add.s64 %d9, %d8, %d3;
ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%d6];
"""
"""%r10 to %r13: the words of this thread; %d2: the input of the block; %d7: the output; %d9: the own 16 bytes of shared memory."""
END = "st.global.v4.b32 [%d7], {%r20, %r21, %r22, %r23};\nret; }\n"
FRAME = Frame(LANGUAGES["ptx"], HEAD, END)

_STEP = "fma.rn.f32 %r20, %r20, 0f3F780000, 0f3C800000;"


def mixing(dice: random.Random, names: Sequence[str]) -> Slot:
    """Return a slot that changes one of some registers."""
    one, other, third = (dice.choice(names) for _ in range(3))
    return pick(
        dice,
        f"add.rn.f32 {one}, {other}, {third};",
        f"add.rn.f32 {one}, {third}, {other};",
        f"add.rn.f32 {one}, {one}, {other};",
        f"max.f32 {one}, {other}, {third};",
        f"max.f32 {one}, {one}, {third};",
        f"fma.rn.f32 {one}, {other}, 0f3F000000, {third};",
        f"fma.rn.f32 {one}, 0f3F000000, {other}, {third};",
        f"mov.b32 {one}, {other};",
        f"xor.b32 {one}, {other}, 0x80000000;",
    )


def exchange(dice: random.Random, register: str, to: str) -> Slot:
    """Return a slot in which threads exchange values."""
    lanes = dice.choice((1, 2, 8, 16))
    return pick(
        dice,
        f"shfl.sync.bfly.b32 %r30, {register}, {lanes}, 31, -1; add.rn.f32 {to}, {register}, %r30;",
        f"shfl.sync.bfly.b32 %r30, {register}, {lanes}, 31, -1; add.rn.f32 {to}, %r30, {register};",
        f"shfl.sync.bfly.b32 %r30, {register}, {lanes}, 31, -1; add.rn.f32 {to}, {to}, %r30;",
        f"shfl.sync.bfly.b32 %r30, {register}, {lanes}, 31, -1; max.f32 {to}, {register}, %r30;",
        f"shfl.sync.idx.b32 %r30, {register}, {lanes}, 31, -1; add.rn.f32 {to}, {to}, %r30;",
        f"shfl.sync.down.b32 %r30, {register}, {lanes}, 31, -1; add.rn.f32 {to}, {to}, %r30;",
    )


BLOCK_ANY = (
    "vote.sync.any.pred %p1, %p1, -1; selp.b32 %r60, 1, 0, %p1; shr.u32 %r61, %r0, 5; shl.b32 %r61, %r61, 2; cvt.u64.u32 %d20, %r61; add.s64 %d20, %d8, %d20;"
    "bar.sync 0; st.shared.b32 [%d20+8000], %r60; bar.sync 0; ld.shared.v2.b32 {%r62, %r63}, [room+8000]; or.b32 %r62, %r62, %r63; setp.ne.u32 %p1, %r62, 0;"
)
_ENDS = {"thread": "", "warp": "vote.sync.any.pred %p1, %p1, -1;", "block": BLOCK_ANY}


def _long_loop(dice: random.Random) -> Shape:
    """A loop that data ends, after up to 90 iterations, for each thread, warp or block."""
    scope = dice.choice(tuple(_ENDS))
    names = ("%r20", "%r21", "%r22", "%r23")
    starts = ("%r10", "%r11", "%r11", "%r12", "0f00000000", "0f3F800000")
    slots: list[Slot] = [
        ("mov.b32 %r20, %r10;",),
        *(tuple(f"mov.b32 %r2{place}, {start};" for start in dice.sample(starts, 4)) for place in (1, 2, 3)),
        ("mov.b32 %r31, 0; setp.lt.u32 %p7, %r0, 8; AGAIN:",),
    ]
    for _ in range(dice.randint(1, 3)):
        kinds = [mixing(dice, names)] * 2 + [
            pick(
                dice,
                "@%p7 mov.b32 %r21, %r22;",
                "@%p7 add.rn.f32 %r22, %r22, %r20;",
                "@!%p7 mov.b32 %r21, %r22;",
                "@%p7 mov.b32 %r40, %r20;",
                "setp.lt.f32 %p6, %r21, %r22; @%p6 mov.b32 %r23, %r21;",
                "setp.lt.f32 %p6, %r21, %r22; selp.b32 %r23, %r21, %r23, %p6;",
                "setp.lt.f32 %p6, %r21, %r22; @%p6 bra OVER; mov.b32 %r23, %r22; OVER:",
            ),
            pick(
                dice,
                *(
                    f"add.u32 %r41, %r31, {first}; and.b32 %r41, %r41, 31; mul.wide.u32 %d30, %r41, 4; add.s64 %d31, %d2, %d30; ld.global.b32 %r45, [%d31]; {what}"
                    for first in (0, 1)
                    for what in (
                        "add.rn.f32 %r22, %r22, %r45;",
                        "add.rn.f32 %r22, %r45, %r22;",
                        "max.f32 %r23, %r23, %r45;",
                    )
                ),
            ),
            pick(
                dice,
                "max.f32 %r46, %r20, %r21; max.f32 %r47, %r21, %r22; max.f32 %r23, %r46, %r47;",
                "max.f32 %r46, %r20, %r22; max.f32 %r47, %r21, %r22; max.f32 %r23, %r46, %r47;",
                "max.f32 %r46, %r20, %r21; max.f32 %r23, %r46, %r22;",
                "max.f32 %r46, %r20, %r21; max.f32 %r47, %r21, %r23; max.f32 %r23, %r46, %r47;",
                "and.b32 %r46, %r20, %r21; and.b32 %r47, %r21, %r22; and.b32 %r23, %r46, %r47;",
                "and.b32 %r46, %r20, %r22; and.b32 %r23, %r46, %r21;",
            ),
            pick(
                dice, *(f"setp.gt.u32 %p6, %r31, {each}; selp.b32 %r22, %r20, %r22, %p6;" for each in (0, 20, 70, 88))
            ),
        ]
        if scope != "thread":
            kinds += 2 * [exchange(dice, dice.choice(names), dice.choice(names))]
        if scope == "block":
            kinds += 3 * [pick(dice, *_THROUGH_SHARED)]
        slots.append(dice.choice(kinds))
    if dice.random() < 0.7:
        slots.append(
            (
                _STEP,
                _STEP.replace("%r20, %r20, 0f3F780000", "%r20, 0f3F780000, %r20"),
                _STEP.replace("0f3C80", "0f3CC0"),
            )
        )
    limit = tuple(
        f"add.u32 %r31, %r31, 1; setp.gt.f32 %p1, %r20, {limit};{_ENDS[scope]} setp.lt.u32 %p2, %r31, {count}; and.pred %p1, {both}; @%p1 bra AGAIN;"
        for limit, count, both in (
            ("0f3F400000", 90, "%p1, %p2"),
            ("0f3F400000", 90, "%p2, %p1"),
            ("0f3F000000", 90, "%p1, %p2"),
            ("0f3F400000", 89, "%p1, %p2"),
        )
    )
    return Shape([*slots, limit, dice.choice((_FEW_LANES, ("mov.b32 %r81, 0;",)))], 64, fixed=(5, 2))


_FEW_LANES = ("setp.lt.u32 %p9, %r0, 4;" + "".join(f"selp.b32 %r2{each}, %r2{each}, 0, %p9;" for each in range(4)),)
"""Other threads than the first four return nothing, so that they have no effect but on these."""


_THROUGH_SHARED = tuple(
    f"bar.sync 0; st.shared.b32 [%d9+{place}], {register}; bar.sync 0; xor.b32 %r50, %r0, {other}; mul.wide.u32 %d21, %r50, 16; add.s64 %d21, %d8, %d21; ld.shared.b32 %r51, [%d21+{place}]; add.rn.f32 %r22, %r22, %r51;"
    for place, register, other in ((0, "%r20", 1), (4, "%r20", 1), (0, "%r21", 1), (0, "%r20", 33))
)


def _at(text: str, offset: int) -> str:
    """Return a text whose places `#` and `#+8` are relative to an offset."""
    return text.replace("#+8", f"+{offset + 8}").replace("#", f"+{offset}" if offset else "")


def _copies(dice: random.Random) -> Shape:
    """Copies from global to shared memory in units of 4, 8 and 16 bytes, other stores into them, and reads of any width."""
    whole = [
        "st.shared.v4.b32 [%d9#], {%r10, %r11, %r12, %r13};",
        "st.shared.v2.b32 [%d9#], {%r10, %r11}; st.shared.v2.b32 [%d9#+8], {%r12, %r13};",
        "mov.b64 %d22, {%r10, %r11}; mov.b64 %d23, {%r12, %r13}; st.shared.v2.b64 [%d9#], {%d22, %d23};",
        "ld.global.v2.b64 {%d22, %d23}, [%d6]; st.shared.b64 [%d9#], %d22; st.shared.b64 [%d9#+8], %d23;",
        "ld.global.v2.b64 {%d22, %d23}, [%d6]; st.shared.v2.b64 [%d9#], {%d22, %d23};",
        "ld.global.v2.b64 {%d22, %d23}, [%d6]; st.shared.v2.b64 [%d9#], {%d23, %d22};",
        "st.shared.v4.b32 [%d9#], {%r12, %r13, %r10, %r11};",
        "st.shared.v4.b32 [%d9#], {%r10, %r12, %r11, %r13};",
        "mov.b32 %r52, 0; st.shared.v4.b32 [%d9#], {%r10, %r11, %r52, %r52};",
        "cp.async.ca.shared.global [%d9#], [%d6], 16; cp.async.wait_all;",
        "cp.async.ca.shared.global [%d9#], [%d6], 8; cp.async.ca.shared.global [%d9#+8], [%d6+8], 8; cp.async.wait_all;",
        "cp.async.ca.shared.global [%d9#], [%d6], 16, 0; cp.async.wait_all;",
    ]
    other = dice.choice((1, 5, 32))
    swapped = f"xor.b32 %r50, %r0, {other}; mul.wide.u32 %d21, %r50, 16; add.s64 %d21, %d8, %d21; ld.global.v4.b32 {{%r14, %r15, %r16, %r17}}, [%d6]; st.shared.v4.b32 [%d21#], {{%r14, %r15, %r16, %r17}};"
    first = pick(dice, *(_at(each, 0) for each in (*whole, swapped)))
    second = pick(dice, *(_at(each, 4096) for each in whole))
    changes = [
        "st.shared.b32 [%d9+4], %r11;", "st.shared.b32 [%d9+4], %r12;", "st.shared.b16 [%d9+6], 0;", "st.shared.b8 [%d9+3], %r0;",
        "st.shared.b64 [%d9+8], 0;", "st.shared.v2.b32 [%d9+8], {%r12, %r13};", "st.shared.b32 [%d9], 0;", "mov.b32 %r53, 0;",
        "setp.lt.u32 %p3, %r0, 16; @%p3 st.shared.v2.b32 [%d9], {%r12, %r13};", "setp.lt.u32 %p3, %r0, 16; @!%p3 st.shared.v2.b32 [%d9], {%r12, %r13};",
        "setp.lt.f32 %p3, %r10, %r11; @%p3 st.shared.v2.b32 [%d9], {%r12, %r13};", "setp.lt.f32 %p3, %r10, %r11; @%p3 st.shared.b32 [%d9+4], %r13;",
        "setp.eq.u32 %p3, %r9, 1; @%p3 st.shared.v2.b32 [%d9+8], {%r10, %r11};", "setp.ne.u32 %p3, %r9, 1; @%p3 bra NOT#; st.shared.v2.b32 [%d9+8], {%r10, %r11}; NOT#:",
    ]  # fmt: skip
    reads = [
        "ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%d21];", "ld.shared.v2.b64 {%d22, %d23}, [%d21]; mov.b64 {%r20, %r21}, %d22; mov.b64 {%r22, %r23}, %d23;",
        "ld.shared.b64 %d22, [%d21]; ld.shared.b64 %d23, [%d21+8]; mov.b64 {%r20, %r21}, %d22; mov.b64 {%r22, %r23}, %d23;",
        "ld.shared.b32 %r20, [%d21]; ld.shared.b32 %r21, [%d21+4]; ld.shared.b32 %r22, [%d21+8]; ld.shared.b32 %r23, [%d21+12];",
        "ld.shared.b32 %r20, [%d21+4]; ld.shared.b32 %r21, [%d21]; ld.shared.b32 %r22, [%d21+12]; ld.shared.b32 %r23, [%d21+8];",
        "ld.shared.b16 %h0, [%d21]; ld.shared.b16 %h1, [%d21+2]; mov.b32 %r20, {%h0, %h1}; ld.shared.v2.b32 {%r21, %r22}, [%d21+8]; ld.shared.b32 %r23, [%d21+4];",
        "ld.shared.b32 %r20, [%d21+8]; ld.shared.v2.b32 {%r21, %r22}, [%d21]; ld.shared.u8 %r23, [%d21+3];",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%d21];",
    ]  # fmt: skip
    change = [tuple(each.replace("#", str(number)) for each in dice.sample(changes, 5)) for number in range(2)]
    lanes = tuple(
        f"xor.b32 %r50, %r0, {each}; mul.wide.u32 %d21, %r50, 16; add.s64 %d21, %d8, %d21; {further}"
        for each in (0, 3, 33)
        for further in ("", "add.s64 %d21, %d21, 4096;")
    )
    slots: list[Slot] = [
        first,
        ("bar.sync 0;",),
        change[0],
        ("bar.sync 0;",),
        second,
        change[1],
        ("bar.sync 0;",),
        pick(dice, *lanes),
        pick(dice, *reads),
    ]
    return Shape(slots, 64, fixed=(1, 3))


_UNITS = {
    "m16n8k16.row.col.f32.f16.f16.f32": (4, 2), "m16n8k16.row.col.f32.bf16.bf16.f32": (4, 2), "m16n8k8.row.col.f32.f16.f16.f32": (2, 1),
    "m16n8k8.row.col.f32.tf32.tf32.f32": (4, 2), "m16n8k32.row.col.f32.e4m3.e5m2.f32": (4, 2), "m16n8k16.row.col.s32.s8.s8.s32": (2, 1),
}  # fmt: skip
"""The matrix instructions, and how many registers of A and B a lane has."""


def _matrix_chain(dice: random.Random) -> Shape:
    """Chains of matrix steps with operands in registers, whose accumulators are moved, read or used as operands between."""
    words = [f"%r{10 + each}" for each in range(4)] + [f"%r{14 + each}" for each in range(4)]
    unit = dice.choice(list(_UNITS))
    of_a, of_b = _UNITS[unit]

    def step(a: Sequence[str], b: Sequence[str], c: Sequence[str], kind: str = unit) -> str:
        rows, columns = ", ".join(a), ", ".join(b)
        return f"mma.sync.aligned.{kind} {{%r20, %r21, %r22, %r23}}, {{{rows}}}, {{{columns}}}, {{{', '.join(c)}}};"

    own = ["%r20", "%r21", "%r22", "%r23"]

    def texts() -> Slot:
        a, b = dice.sample(words, of_a), dice.sample(words, of_b)
        again = dice.sample(words, of_b)
        others = dice.choice([each for each in _UNITS if _UNITS[each] == (of_a, of_b)])
        zeros = ["%r80"] * of_a
        return pick(
            dice,
            step(a, b, own), step([*a[1::2], *a[0::2]], b, own), step(a, b[::-1], own), step(a, again, own),
            step(a, b, own, others), step(zeros, b, own), step(zeros, zeros[:of_b], own), step(a, b, own[::-1]),
            step([*own, *own][:of_a], b, own), step(a[:1] * of_a, a[:1] * of_b, own), step(b * 2 if of_a > of_b else b, b, own),
        )  # fmt: skip

    between = pick(
        dice,
        "mov.b32 %r81, 0;",
        "mov.b32 %r81, %r20; mov.b32 %r20, %r21; mov.b32 %r21, %r81;",
        "add.rn.f32 %r20, %r20, 0f80000000;",
        "shfl.sync.bfly.b32 %r20, %r20, 1, 31, -1;",
        "mul.rn.f32 %r22, %r22, 0f3F800000;",
        "xor.b32 %r23, %r23, 0x80000000;",
        "setp.lt.f32 %p3, %r10, %r11; selp.b32 %r20, %r20, %r21, %p3;",
        "setp.lt.u32 %p3, %r0, 5; selp.b32 %r20, %r20, %r21, %p3;",
        "max.f32 %r20, %r20, %r21; max.f32 %r21, %r21, %r20;",
        "add.rn.f32 %r20, %r20, %r21;",
    )
    start = tuple("".join(f"mov.b32 %r2{place}, {each};" for place, each in enumerate(values)) for values in (
        ("0", "0", "0", "0"), ("0", "0x80000000", "0", "0x80000000"), ("%r10", "%r11", "%r12", "%r13"), ("%r10", "%r10", "%r10", "%r10"),
    ))  # fmt: skip
    slots: list[Slot] = [
        (
            "ld.global.v4.b32 {%r14, %r15, %r16, %r17}, [%d2]; mov.b32 %r80, 0;",
            "ld.global.v4.b32 {%r14, %r15, %r16, %r17}, [%d2+16]; mov.b32 %r80, 0;",
        ),
        pick(dice, *start),
        texts(),
        texts(),
        between,
        texts(),
        texts(),
    ]
    slots.insert(
        2,
        dice.choice(
            (
                ("mov.b32 %r81, 1;",),
                (
                    "setp.lt.u32 %p3, %r9, 2; @%p3 mov.b32 %r14, %r10;",
                    "setp.ge.u32 %p3, %r9, 2; @!%p3 mov.b32 %r14, %r10;",
                ),
            )
        ),
    )
    kind = {"f16": "h2", "bf16": "b2"}.get(unit.split(".")[4], "f32")
    return Shape(slots, dice.choice((32, 64)), kind, (2, 0))


_GROUP = "{%r20, %r21, %r22, %r23}"


def _multiply(a: str, b: str, of_a: int, of_b: int) -> str:
    """Return a product of two tiles, each of which may be transposed."""
    return (
        f"wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {_GROUP}, {a}, {b}, 1, 1, 1, {of_a}, {of_b}; "
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    )


def _warpgroup(dice: random.Random) -> Shape:
    """Products of a warpgroup of tiles in shared memory, on both sides of a branch on data or in a loop that data ends."""
    places = "shr.u64 %d11, %d8, 4; and.b64 %d11, %d11, 16383; or.b64 %d24, %d11, 68720001024; add.s64 %d25, %d24, 128; add.s64 %d26, %d24, 32; add.s64 %d27, %d24, 144;"
    stores = [
        "st.shared.v4.b32 [%d9], {%r10, %r11, %r12, %r13};", "st.shared.v4.b32 [%d9], {%r12, %r13, %r10, %r11};",
        "st.shared.v2.b32 [%d9+8], {%r10, %r11};", "st.shared.v4.b32 [%d9+2048], {%r10, %r11, %r12, %r13};",
        "st.shared.b32 [%d9+4], %r13;", "ld.global.v2.b64 {%d22, %d23}, [%d6]; st.shared.v2.b64 [%d9+2048], {%d22, %d23};",
    ]  # fmt: skip

    def written() -> Slot:
        return tuple(
            f"bar.sync 0; {each} fence.proxy.async.shared::cta; bar.sync 0;" for each in dice.sample(stores, 4)
        )

    def product() -> Slot:
        pairs = [
            ("%d24", "%d25", 0, 0),
            ("%d24", "%d27", 0, 0),
            ("%d26", "%d25", 0, 0),
            ("%d25", "%d24", 0, 0),
            ("%d24", "%d25", 1, 0),
            ("%d24", "%d25", 0, 1),
        ]
        return tuple(_multiply(*each) for each in dice.sample(pairs, 4))

    begin = (
        places
        + "mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0; mov.b32 %r23, 0; bar.sync 0; st.shared.v4.b32 [%d9], {%r10, %r11, %r12, %r13}; st.shared.v4.b32 [%d9+2048], {%r12, %r13, %r11, %r10}; st.shared.v4.b32 [%d9+4096], {%r11, %r11, %r12, %r12}; fence.proxy.async.shared::cta; bar.sync 0; ld.global.b32 %r55, [%d2+8];"
    )
    slots: list[Slot] = [(begin,), product()]
    if dice.random() < 0.5:
        slots += [
            (
                "setp.lt.u32 %p3, %r55, 0x40000000; @%p3 bra OTHER;",
                "setp.ge.u32 %p3, %r55, 0x40000000; @!%p3 bra OTHER;",
            )
        ]
        slots += [written(), product(), ("bra DONE; OTHER:",), written(), product(), ("DONE:",)]
        return Shape(slots, 128, "h2", (3, 1))
    change = (
        "add.rn.f16x2 %r10, %r10, %r11;",
        "add.rn.f16x2 %r10, %r11, %r10;",
        "mul.rn.f16x2 %r11, %r11, %r12;",
        "mov.b32 %r10, %r11;",
        "mov.b32 %r12, %r13;",
        "xor.b32 %r10, %r10, 0x80008000;",
    )
    slots += [("and.b32 %r55, %r55, 3; mov.b32 %r31, 0; AGAIN:",), written(), product(), pick(dice, *change)]
    slots += [
        (
            "add.u32 %r31, %r31, 1; setp.lt.u32 %p3, %r31, %r55; @%p3 bra AGAIN;",
            "add.u32 %r31, %r31, 1; setp.le.u32 %p3, %r31, %r55; @%p3 bra AGAIN;",
        )
    ]
    return Shape(slots, 128, "h2", (3, 1))


def _branches(dice: random.Random) -> Shape:
    """Branches that each warp or block takes as a whole by data: votes, shuffles, barriers and shared memory on their sides."""
    of_block = dice.random() < 0.5
    test = dice.choice(("setp.lt.f32 %p1, %r10, %r11;", "setp.gt.f32 %p1, %r10, 0f3F000000;"))
    place = "%d2" if of_block else "%d21"
    warp = "shr.u32 %r61, %r0, 5; mul.wide.u32 %d20, %r61, 512; add.s64 %d21, %d2, %d20;"
    choice = pick(
        dice,
        f"{warp} ld.global.b32 %r55, [{place}]; setp.lt.f32 %p4, %r55, 0f3F000000;",
        f"{warp} ld.global.b32 %r55, [{place}]; setp.geu.f32 %p4, %r55, 0f3F000000; not.pred %p4, %p4;",
        f"{warp} ld.global.b32 %r55, [{place}+4]; setp.lt.f32 %p4, %r55, 0f3F000000;",
    )
    names = ("%r20", "%r21", "%r22", "%r23")

    def inside() -> Slot:
        votes = [
            *(f"{test} vote.sync.{kind}.pred %p5, {sign}%p1, -1; selp.b32 %r21, %r22, %r21, %p5;" for kind in ("any", "all") for sign in ("", "!")),
            f"{test} vote.sync.ballot.b32 %r56, %p1, -1; and.b32 %r56, %r56, 255; setp.ne.u32 %p5, %r56, 0; selp.b32 %r21, %r22, %r21, %p5;",
            "setp.lt.u32 %p1, %r0, 7; vote.sync.ballot.b32 %r23, %p1, -1;", "activemask.b32 %r23;",
            f"{test} vote.sync.any.pred %p5, %p1, -1; @%p5 mov.b32 %r23, %r20;",
        ]  # fmt: skip
        kinds = [
            tuple(dice.sample(votes, 4)),
            exchange(dice, dice.choice(names), dice.choice(names)),
            mixing(dice, names),
        ]
        if of_block:
            kinds += [pick(dice, *_THROUGH_SHARED), ("bar.sync 0;", "mov.b32 %r81, 0;")]
        return dice.choice(kinds)

    begin = (
        "mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13;"
        + "".join(f"st.shared.b32 [%d9+{each}], %r10;" for each in (0, 4))
        + "bar.sync 0;"
    )
    slots: list[Slot] = [
        (begin,),
        choice,
        ("@%p4 bra OTHER;", "@!%p4 bra OTHER;"),
        inside(),
        inside(),
        ("bra DONE; OTHER:",),
        inside(),
        inside(),
        ("DONE:",),
        inside() if of_block else mixing(dice, names),
    ]
    return Shape(slots, 64, fixed=(3, 2))


def _early_blocks(dice: random.Random) -> Shape:
    """Blocks that leave a loop after different numbers of iterations, with matrix steps, copies and exchanges inside."""
    names = ("%r20", "%r21", "%r22", "%r23")
    begin = "mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13; mov.b32 %r31, 0; mov.b32 %r40, %r13; mov.b32 %r14, %r10; mov.b32 %r15, %r11;"
    kinds = [
        mixing(dice, names), exchange(dice, "%r20", "%r21"), pick(dice, *_THROUGH_SHARED),
        pick(dice, *(f"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {_GROUP}, {{{a}}}, {{{b}}}, {_GROUP};" for a, b in (("%r10, %r11", "%r12"), ("%r11, %r10", "%r12"), ("%r14, %r11", "%r12"), ("%r10, %r11", "%r15")))),
        pick(dice, "setp.gt.u32 %p6, %r31, %r9; @%p6 mov.b32 %r14, %r20;", "@%p6 mov.b32 %r14, %r21;", "setp.eq.u32 %p6, %r9, 1; @%p6 mov.b32 %r15, %r12;", "mov.b32 %r40, %r20;", "mov.b32 %r22, %r40;"),
    ]  # fmt: skip
    ends = tuple(
        f"add.u32 %r31, %r31, 1; {count} setp.lt.u32 %p2, %r31, %r57; @%p2 bra AGAIN;"
        for count in ("add.u32 %r57, %r9, 1;", "sub.u32 %r57, 4, %r9;", "xor.b32 %r57, %r9, 2; add.u32 %r57, %r57, 1;")
    )
    slots: list[Slot] = [
        (begin + "setp.ne.u32 %p6, %r9, %r9; AGAIN:",),
        *(dice.choice(kinds) for _ in range(3)),
        pick(dice, *ends),
        dice.choice(kinds[:3]),
    ]
    return Shape(slots, dice.choice((32, 64)), fixed=(1, 2))


def _zero_products(dice: random.Random) -> Shape:
    """Products of a warpgroup of tiles of zeros or of data, whose accumulators are loaded, scaled or products."""
    begin = (
        "shr.u64 %d11, %d8, 4; and.b64 %d11, %d11, 16383; or.b64 %d24, %d11, 68720001024; add.s64 %d25, %d24, 128; add.s64 %d26, %d24, 256;"
        "mov.b32 %r50, 0; mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13;"
        "st.shared.v4.b32 [%d9], {%r10, %r11, %r12, %r13}; st.shared.v4.b32 [%d9+2048], {%r12, %r13, %r11, %r10};"
        "st.shared.v4.b32 [%d9+4096], {%r50, %r50, %r50, %r50}; fence.proxy.async.shared::cta; bar.sync 0;"
    )

    def product(types: str, a: str, b: str) -> str:
        transposes = "" if types == "e4m3" else ", 0, 0"
        return (
            f"wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k{32 if types == 'e4m3' else 16}.f32.{types}.{types} {_GROUP}, {a}, {b}, 1, 1, 1{transposes};"
            "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
        )

    def step() -> Slot:
        texts = [
            "",
            *(
                product(types, *tiles)
                for types in ("e4m3", "e4m3", "f16", "bf16")
                for tiles in (("%d26", "%d26"), ("%d24", "%d25"))
            ),
        ]
        return (
            *dice.sample(texts, 4),
            *dice.sample(
                ("mul.rn.f32 %r20, %r20, 0f3FC00000;", "add.rn.f32 %r20, %r20, 0f00000000;", "mov.b32 %r20, %r21;"), 1
            ),
        )

    return Shape([(begin,), *(step() for _ in range(dice.randint(2, 4)))], 128, fixed=(1, 0))


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        name: Family(FRAME, make)
        for name, make in (
            ("long loops", _long_loop), ("copies", _copies), ("matrix chains", _matrix_chain),
            ("warpgroups", _warpgroup), ("branches of warps and blocks", _branches),
            ("blocks that leave early", _early_blocks), ("products of zeros", _zero_products),
        )
    }
)  # fmt: skip
"""The families by name."""
