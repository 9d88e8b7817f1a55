# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels on bytes, halves and bits of words: packs, narrow conversions, byte permutes, and exchanges of them.

Each slot has texts that return the same bits and near-misses: other bytes, signs, guards, lanes, stages of a ring.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Shape, Slot, pick
from bitwise_bench.adversary.kernel_families.block_kernels import FRAME

_WORDS = ("%r20", "%r21", "%r22", "%r23")
_START = (
    "mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13; mov.b16 %h9, 0; mov.b32 %r19, 0;"
)


def _halves(dice: random.Random) -> Slot:
    """Two halves of a word to %h0 and %h1, then extended to %r30 and %r31, and put together to a word."""
    word, to = dice.choice(_WORDS), dice.choice(_WORDS)
    apart = dice.choice((
        f"mov.b32 {{%h0, %h1}}, {word};", f"cvt.u16.u32 %h0, {word}; shr.u32 %r30, {word}, 16; cvt.u16.u32 %h1, %r30;",
        f"cvt.u16.u32 %h0, {word}; prmt.b32 %r30, {word}, 0, 0x4432; cvt.u16.u32 %h1, %r30;",
        f"cvt.u16.u32 %h0, {word}; bfe.u32 %r30, {word}, 16, 16; mov.b32 {{%h1, %h8}}, %r30;",
    ))  # fmt: skip
    return pick(dice, *(f"{apart} {each}" for each in (
        f"mov.b32 {to}, {{%h0, %h1}};", f"mov.b32 {to}, {{%h1, %h0}};",
        f"cvt.u32.u16 %r30, %h0; cvt.u32.u16 %r31, %h1; shl.b32 %r31, %r31, 16; or.b32 {to}, %r30, %r31;",
        f"cvt.s32.s16 %r30, %h0; cvt.u32.u16 %r31, %h1; prmt.b32 {to}, %r30, %r31, 0x5410;",
        f"cvt.u32.u16 %r30, %h0; cvt.s32.s16 %r31, %h1; bfi.b32 {to}, %r31, %r30, 16, 16;",
        f"cvt.u32.u16 %r30, %h0; cvt.u32.u16 %r31, %h1; shf.l.wrap.b32 {to}, %r30, %r31, 16;",
        f"mov.b32 %r30, {{%h0, %h9}}; mov.b32 %r31, {{%h9, %h1}}; or.b32 {to}, %r30, %r31;",
        f"cvt.u32.u16 %r30, %h0; cvt.u32.u16 %r31, %h1; mad.lo.u32 {to}, %r31, 65536, %r30;",
        f"mul.wide.u16 %r30, %h1, %h9; mov.b32 %r31, {{%h0, %h1}}; add.u32 {to}, %r30, %r31;",
    )))  # fmt: skip


def _extended(dice: random.Random) -> Slot:
    """A half or a byte of a word, extended by zeros or by its sign."""
    word, to = dice.choice(_WORDS), dice.choice(_WORDS)
    half = f"mov.b32 {{%h2, %h3}}, {word};"
    return pick(dice, *(
        f"{half} cvt.u32.u16 {to}, %h2;", f"and.b32 {to}, {word}, 0xffff;", f"bfe.u32 {to}, {word}, 0, 16;",
        f"prmt.b32 {to}, {word}, 0, 0x4410;", f"{half} mov.b32 {to}, {{%h2, %h9}};", f"{half} cvt.s32.s16 {to}, %h2;",
        f"bfe.s32 {to}, {word}, 0, 16;", f"shl.b32 %r32, {word}, 16; shr.s32 {to}, %r32, 16;",
        f"prmt.b32 {to}, {word}, 0, 0x9910;", f"{half} cvt.u16.u8 %h4, %h2; cvt.u32.u16 {to}, %h4;",
        f"and.b32 {to}, {word}, 255;", f"prmt.b32 {to}, {word}, 0, 0x4440;", f"bfe.s32 {to}, {word}, 0, 8;",
        f"{half} cvt.s16.s8 %h4, %h2; cvt.s32.s16 {to}, %h4;", f"prmt.b32 {to}, {word}, 0, 0x8880;",
        f"{half} cvt.u32.u8 {to}, %h2;", f"{half} cvt.s32.s8 {to}, %h2;", f"{half} shl.b16 %h4, %h2, 8; shr.s16 %h4, %h4, 8; cvt.s32.s16 {to}, %h4;",
        f"{half} and.b16 %h4, %h2, 255; mov.b32 {to}, {{%h4, %h9}};",
    ))  # fmt: skip


def _bytes(dice: random.Random) -> Slot:
    """Four bytes of two words in some order."""
    one, other, to = dice.choice(_WORDS), dice.choice(_WORDS), dice.choice(_WORDS)
    selector = dice.choice(("5140", "7362", "3715", "6240", "4051", "7531"))
    low, high = (
        f"prmt.b32 %r{40 + at}, {one}, {other}, 0x44{pair}; " for at, pair in ((0, selector[2:]), (1, selector[:2]))
    )
    digits = [int(each) for each in reversed(selector)]
    parts = [f"bfe.u32 %r{40 + at}, {(one, other)[each > 3]}, {8 * (each & 3)}, 8; " for at, each in enumerate(digits)]
    signed = [each.replace("bfe.u32", "bfe.s32") for each in parts]
    joined = f"shl.b32 %r41, %r41, 8; shl.b32 %r42, %r42, 16; shl.b32 %r43, %r43, 24; or.b32 %r40, %r40, %r41; or.b32 %r42, %r42, %r43; or.b32 {to}, %r40, %r42;"
    return pick(dice, *(
        f"prmt.b32 {to}, {one}, {other}, 0x{selector};", f"prmt.b32 {to}, {other}, {one}, 0x{''.join('%x' % (int(each) ^ 4) for each in selector)};",
        f"{low}{high}prmt.b32 {to}, %r40, %r41, 0x5410;", f"{low}{high}mov.b32 {{%h5, %h8}}, %r40; mov.b32 {{%h6, %h8}}, %r41; mov.b32 {to}, {{%h5, %h6}};",
        "".join(parts) + joined, "".join(signed) + joined, "".join(parts[:3]) + signed[3] + joined,
        "".join(parts) + f"bfi.b32 %r40, %r41, %r40, 8, 8; bfi.b32 %r40, %r42, %r40, 16, 8; bfi.b32 {to}, %r43, %r40, 24, 8;",
        "".join(signed) + f"bfi.b32 %r40, %r41, %r40, 8, 8; bfi.b32 %r40, %r42, %r40, 16, 8; bfi.b32 {to}, %r43, %r40, 24, 8;",
        f"prmt.b32 {to}, {one}, {other}, 0x{selector[:3]}{int(selector[3]) | 8:x};",
    ))  # fmt: skip


def _extrema(dice: random.Random) -> Slot:
    """Extrema of halves, in 16 and in 32 bits, by instructions and by selections."""
    one, other, to = dice.choice(_WORDS), dice.choice(_WORDS), dice.choice(_WORDS)
    verb, test = dice.choice((("min", "lt"), ("max", "gt")))
    narrow = f"mov.b32 {{%h2, %h3}}, {one}; mov.b32 {{%h4, %h5}}, {other};"
    return pick(dice, *(f"{narrow} {each}" for each in (
        f"{verb}.s16 %h6, %h2, %h4; cvt.s32.s16 {to}, %h6;", f"{verb}.u16 %h6, %h2, %h4; cvt.u32.u16 {to}, %h6;",
        f"cvt.s32.s16 %r30, %h2; cvt.s32.s16 %r31, %h4; {verb}.s32 {to}, %r30, %r31;",
        f"cvt.u32.u16 %r30, %h2; cvt.u32.u16 %r31, %h4; {verb}.s32 {to}, %r30, %r31;",
        f"cvt.u32.u16 %r30, %h2; cvt.u32.u16 %r31, %h4; {verb}.u32 {to}, %r30, %r31;",
        f"setp.{test}.s16 %p3, %h2, %h4; selp.b16 %h6, %h2, %h4, %p3; cvt.s32.s16 {to}, %h6;",
        f"setp.{test}.u16 %p3, %h2, %h4; selp.b16 %h6, %h2, %h4, %p3; cvt.s32.s16 {to}, %h6;",
        f"{verb}.s16x2 %r30, {one}, {other}; bfe.s32 {to}, %r30, 0, 16;",
        f"{verb}.u16x2 %r30, {one}, {other}; and.b32 {to}, %r30, 0xffff;",
        f"{verb}.s16 %h6, %h2, %h4; {verb}.s16 %h6, %h6, %h2; cvt.s32.s16 {to}, %h6;",
    )))  # fmt: skip


def _floats(dice: random.Random) -> Slot:
    """Conversions of two numbers to pairs of 16 or 8 bits, at once or one by one."""
    one, other, to = dice.choice(_WORDS), dice.choice(_WORDS), dice.choice(_WORDS)
    form = dice.choice(("f16", "bf16"))
    single = f"cvt.rn.{form}.f32 %h2, {one}; cvt.rn.{form}.f32 %h3, {other};"
    kind = dice.choice(("e4m3x2", "e5m2x2"))
    return pick(dice, *(
        f"cvt.rn.{form}x2.f32 {to}, {one}, {other};", f"{single} mov.b32 {to}, {{%h3, %h2}};", f"{single} mov.b32 {to}, {{%h2, %h3}};",
        f"cvt.rn.{form}x2.f32 %r30, {other}, {one}; prmt.b32 {to}, %r30, 0, 0x1032;",
        f"cvt.rn.satfinite.{kind}.f32 %h2, {one}, {other}; mov.b32 {to}, {{%h2, %h9}};",
        f"cvt.rn.satfinite.{kind}.f32 %h2, {other}, {one}; cvt.u32.u16 %r30, %h2; prmt.b32 {to}, %r30, 0, 0x4401;",
        f"cvt.rn.f16x2.f32 %r30, {one}, {other}; cvt.rn.satfinite.{kind}.f16x2 %h2, %r30; mov.b32 {to}, {{%h2, %h9}};",
        f"cvt.rn.satfinite.{kind}.f32 %h2, {one}, {other}; cvt.rn.f16x2.{kind} {to}, %h2;",
        f"cvt.rn.satfinite.{kind}.f32 %h2, {one}, {other}; cvt.rn.f16x2.{kind} %r30, %h2; mov.b32 {{%h3, %h4}}, %r30; cvt.f32.f16 {to}, %h4;",
        f"cvt.rn.satfinite.{kind}.f32 %h2, {one}, {one}; cvt.rn.f16x2.{kind} %r30, %h2; mov.b32 {{%h3, %h4}}, %r30; cvt.f32.f16 {to}, %h3;",
        f"{single} cvt.f32.{form} {to}, %h2;", f"cvt.rn.{form}x2.f32 %r30, {one}, {other}; mov.b32 {{%h2, %h3}}, %r30; cvt.f32.{form} {to}, %h3;",
        f"cvt.rn.bf16x2.f32 %r30, {one}, {other}; and.b32 {to}, %r30, 0xffff0000;", f"cvt.rn.bf16.f32 %h2, {one}; mov.b32 {to}, {{%h9, %h2}};",
    ))  # fmt: skip


def _guarded(dice: random.Random) -> Slot:
    """A move or a pack that data guards, also as a selection and with the negated comparison."""
    one, other, third, to = (dice.choice(_WORDS) for _ in range(4))
    kind, test, reverse = dice.choice(
        (("s32", "lt", "ge"), ("u32", "lt", "ge"), ("f32", "lt", "geu"), ("f32", "gt", "leu"))
    )
    holds, fails = f"setp.{test}.{kind} %p3, {one}, {other};", f"setp.{reverse}.{kind} %p3, {one}, {other};"
    packed = f"mov.b32 {{%h2, %h3}}, {third};"
    return pick(dice, *(
        f"{holds} @%p3 mov.b32 {to}, {third};", f"{fails} @!%p3 mov.b32 {to}, {third};", f"{holds} selp.b32 {to}, {third}, {to}, %p3;",
        f"{fails} selp.b32 {to}, {to}, {third}, %p3;", f"{packed} {holds} @%p3 mov.b32 {to}, {{%h2, %h3}};",
        f"{packed} mov.b32 {{%h4, %h5}}, {to}; {holds} selp.b16 %h4, %h2, %h4, %p3; selp.b16 %h5, %h3, %h5, %p3; mov.b32 {to}, {{%h4, %h5}};",
        f"{packed} mov.b32 {{%h4, %h5}}, {to}; {holds} @%p3 mov.b16 %h4, %h2; @%p3 mov.b16 %h5, %h3; mov.b32 {to}, {{%h4, %h5}};",
        f"{packed} mov.b32 {{%h4, %h5}}, {to}; {holds} @%p3 mov.b16 %h4, %h2; {fails} @!%p3 mov.b16 %h5, %h3; mov.b32 {to}, {{%h4, %h5}};",
        f"{holds} selp.u32 %r30, 1, 0, %p3; setp.ne.u32 %p4, %r30, 0; @%p4 mov.b32 {to}, {third};",
        f"{holds} selp.b32 %r30, -1, 0, %p3; and.b32 %r31, {third}, %r30; not.b32 %r30, %r30; and.b32 %r32, {to}, %r30; or.b32 {to}, %r31, %r32;",
        f"{holds} @!%p3 mov.b32 {to}, {third};", f"{fails} @%p3 mov.b32 {to}, {third};",
    ))  # fmt: skip


def _exchanged(dice: random.Random) -> Slot:
    """Words, halves and predicates that lanes exchange, in whole warps and in lanes that a guard selects."""
    one, other, to = (dice.choice(_WORDS) for _ in range(3))
    lane, warp = dice.choice((1, 2, 16)), dice.choice(("setp.lt.u32 %p5, %r0, 32;", "setp.ge.u32 %p5, %r0, 32;"))
    halves = f"mov.b32 {{%h2, %h3}}, {one}; mov.b32 {{%h4, %h5}}, {other};"
    return pick(dice, *(
        f"shfl.sync.bfly.b32 %r30, {one}, {lane}, 31, -1; mov.b32 {to}, %r30;", f"xor.b32 %r31, %r0, {lane}; shfl.sync.idx.b32 {to}, {one}, %r31, 31, -1;",
        f"shfl.sync.bfly.b32 %r30, {one}, {lane}, 31, -1; setp.lt.s32 %p3, {one}, %r30; selp.b32 {to}, {one}, %r30, %p3;",
        f"shfl.sync.bfly.b32 %r30, {one}, {lane}, 31, -1; min.s32 {to}, {one}, %r30;", f"shfl.sync.bfly.b32 %r30, {one}, {lane}, 31, -1; min.s32 {to}, %r30, {one};",
        f"{halves} mov.b32 %r30, {{%h2, %h5}}; shfl.sync.bfly.b32 %r31, %r30, {lane}, 31, -1; mov.b32 {{%h6, %h7}}, %r31; mov.b32 {to}, {{%h7, %h6}};",
        f"{halves} mov.b32 %r30, {{%h5, %h2}}; shfl.sync.bfly.b32 {to}, %r30, {lane}, 31, -1;",
        f"{warp} @%p5 shfl.sync.bfly.b32 {to}, {one}, {lane}, 31, -1;", f"{warp} shfl.sync.bfly.b32 %r30, {one}, {lane}, 31, -1; selp.b32 {to}, %r30, {to}, %p5;",
        f"shfl.sync.down.b32 %r30|%p6, {one}, {lane}, 31, -1; @%p6 add.u32 {to}, {to}, %r30;", f"shfl.sync.down.b32 %r30|%p6, {one}, {lane}, 31, -1; selp.b32 %r31, %r30, 0, %p6; add.u32 {to}, {to}, %r31;",
        f"setp.lt.f32 %p3, {one}, {other}; vote.sync.ballot.b32 %r30, %p3, -1; popc.b32 {to}, %r30;",
        f"setp.lt.f32 %p3, {one}, {other}; selp.u32 %r30, 1, 0, %p3; redux.sync.add.u32 {to}, %r30, -1;",
        f"setp.lt.f32 %p3, {one}, {other}; vote.sync.any.pred %p4, %p3, -1; @%p4 mov.b32 {to}, {one};",
        f"setp.lt.f32 %p3, {one}, {other}; vote.sync.ballot.b32 %r30, %p3, -1; setp.ne.u32 %p4, %r30, 0; @%p4 mov.b32 {to}, {one};",
        f"redux.sync.min.s32 {to}, {one}, -1;", f"redux.sync.max.u32 {to}, {one}, -1;", f"redux.sync.xor.b32 {to}, {one}, -1;",
    ))  # fmt: skip


def _bits(dice: random.Random) -> Slot:
    """A loop over the bits of a word, which data ends, and counts of bits."""
    one, to = dice.choice(_WORDS), dice.choice(_WORDS)
    name = f"BITS{dice.randrange(1 << 30)}"
    start = f"and.b32 %r30, {one}, 0xff; mov.b32 %r31, 0;"
    return pick(dice, *(
        f"{start} {name}: setp.eq.u32 %p3, %r30, 0; @%p3 bra {name}E; add.s32 %r32, %r30, -1; and.b32 %r30, %r30, %r32; add.u32 %r31, %r31, 1; bra {name}; {name}E: mov.b32 {to}, %r31;",
        f"{start} {name}: and.b32 %r32, %r30, 1; add.u32 %r31, %r31, %r32; shr.u32 %r30, %r30, 1; setp.ne.u32 %p3, %r30, 0; @%p3 bra {name}; mov.b32 {to}, %r31;",
        f"{start} {name}: setp.eq.u32 %p3, %r30, 0; @%p3 bra {name}E; shr.u32 %r30, %r30, 1; add.u32 %r31, %r31, 1; bra {name}; {name}E: mov.b32 {to}, %r31;",
        f"{start} clz.b32 %r32, %r30; sub.u32 {to}, 32, %r32;", f"{start} popc.b32 {to}, %r30;", f"{start} bfind.u32 %r32, %r30; add.u32 {to}, %r32, 1;",
        f"{start} {name}: shr.u32 %r30, %r30, 1; add.u32 %r31, %r31, 1; setp.ne.u32 %p3, %r30, 0; @%p3 bra {name}; mov.b32 {to}, %r31;",
    ))  # fmt: skip


def _updated(dice: random.Random) -> Slot:
    """Atomic operations on integers of shared memory whose contents do not depend on their order."""
    one, to = dice.choice(_WORDS), dice.choice(_WORDS)
    first = "bar.sync 0; st.shared.b32 [%d9+4096], {}; bar.sync 0;"
    last = f"bar.sync 0; ld.shared.b32 {to}, [room+4112];"
    return pick(dice, *(f"{first.format(start)} {each} {last}" for start, each in (
        ("0", f"red.shared.add.u32 [room+4112], {one};"), ("0", f"atom.shared.add.u32 %r30, [room+4112], {one};"),
        ("0", f"mul.lo.u32 %r31, {one}, 2; red.shared.add.u32 [room+4112], %r31;"), ("0", f"red.shared.add.u32 [room+4112], {one}; red.shared.add.u32 [room+4112], {one};"),
        ("0", f"red.shared.max.u32 [room+4112], {one};"), ("0", f"red.shared.max.s32 [room+4112], {one};"), ("0", f"and.b32 %r31, {one}, 0x7fffffff; red.shared.max.u32 [room+4112], %r31;"),
        ("0", f"and.b32 %r31, {one}, 0x7fffffff; red.shared.max.s32 [room+4112], %r31;"), ("-1", f"red.shared.min.u32 [room+4112], {one};"), ("-1", f"red.shared.and.b32 [room+4112], {one};"),
        ("0", f"red.shared.or.b32 [room+4112], {one};"), ("0", f"setp.lt.s32 %p3, {one}, 0; @%p3 red.shared.add.u32 [room+4112], 1;"),
        ("0", f"shr.u32 %r31, {one}, 31; red.shared.add.u32 [room+4112], %r31;"), ("0", f"redux.sync.add.u32 %r31, {one}, -1; and.b32 %r32, %r0, 31; setp.eq.u32 %p3, %r32, 0; @%p3 red.shared.add.u32 [room+4112], %r31;"),
        ("0", f"red.shared.add.u32 [room+4112], {one}; atom.shared.add.u32 %r30, [room+4112], 0; mov.b32 {to}, %r30;"),
    )))  # fmt: skip


def _mixed(dice: random.Random) -> Shape:
    makers: tuple[Callable[[random.Random], Slot], ...] = (
        _halves, _extended, _bytes, _extrema, _floats, _floats, _guarded, _guarded, _exchanged, _bits, _updated,
    )  # fmt: skip
    chosen = dice.sample(makers, dice.choice((1, 2)))
    slots = [dice.choice(chosen if dice.random() < 0.7 else makers)(dice) for _ in range(dice.randint(2, 5))]
    return Shape([(_START,), *slots], 64, dice.choice(("f32", "f32", "h2", "b2")), (1, 0))


def _ring(dice: random.Random) -> Shape:
    """A ring of stages of shared memory, which copies by threads fill ahead of the reads of other threads."""
    stages, ahead = dice.choice((2, 3, 4)), dice.choice((1, 2, 3))
    size = dice.choice((4, 8, 16))
    whole = "".join(f"cp.async.ca.shared.global [%d31+{at}], [%d30+{at}], {size};" for at in range(0, 16, size))
    begin = (
        f"{_START} mov.b32 %r40, 0; "
        + "".join(
            f"mul.wide.u32 %d30, {number}, 1024; add.s64 %d30, %d2, %d30; add.s64 %d30, %d30, %d3; mov.b64 %d31, %d9; add.s64 %d31, %d31, {1024 * (number % stages)}; {whole} cp.async.commit_group;"
            for number in range(ahead)
        )
        + "RING:"
    )
    waits = pick(
        dice,
        *(
            f"cp.async.wait_group {each}; {rest}"
            for each in {max(0, ahead - 1), max(0, ahead - 2), ahead}
            for rest in ("bar.sync 0;", "")
        ),
    )
    place = (
        f"rem.u32 %r41, %r40, {stages}; mul.lo.u32 %r41, %r41, 1024; cvt.u64.u32 %d32, %r41; add.s64 %d32, %d8, %d32;"
    )
    reads = pick(dice, *(
        f"{place} xor.b32 %r42, %r0, {lane}; mul.wide.u32 %d33, %r42, 16; add.s64 %d33, %d32, %d33; ld.shared.v4.b32 {{%r44, %r45, %r46, %r47}}, [%d33]; {what}"
        for lane in (0, 1, 33) for what in (
            "add.rn.f32 %r20, %r20, %r44; add.rn.f32 %r21, %r21, %r45; max.f32 %r22, %r22, %r46; xor.b32 %r23, %r23, %r47;",
            "add.rn.f32 %r20, %r44, %r20; add.rn.f32 %r21, %r45, %r21; max.f32 %r22, %r46, %r22; xor.b32 %r23, %r47, %r23;",
            "mov.b32 {%h2, %h3}, %r44; mov.b32 {%h4, %h5}, %r45; mov.b32 %r48, {%h2, %h5}; add.rn.f32 %r20, %r20, %r48;",
        )
    ))  # fmt: skip
    issued = (
        f"add.u32 %r43, %r40, {ahead}; rem.u32 %r41, %r43, {stages}; mul.lo.u32 %r41, %r41, 1024; cvt.u64.u32 %d34, %r41; add.s64 %d31, %d9, %d34;"
        "mul.wide.u32 %d30, %r43, 1024; add.s64 %d30, %d2, %d30; add.s64 %d30, %d30, %d3; "
    )
    issues = pick(
        dice,
        f"bar.sync 0; {issued} setp.lt.u32 %p3, %r43, 4; " + whole.replace("cp.async", "@%p3 cp.async") + " cp.async.commit_group;",
        f"{issued} setp.lt.u32 %p3, %r43, 4; " + whole.replace("cp.async", "@%p3 cp.async") + " cp.async.commit_group;",
        f"bar.sync 0; {issued} setp.lt.u32 %p3, %r43, 4; selp.u32 %r49, {size}, 0, %p3; min.u32 %r43, %r43, 3; mul.wide.u32 %d30, %r43, 1024; add.s64 %d30, %d2, %d30; add.s64 %d30, %d30, %d3; "
        + whole.replace(f"], {size};", f"], {size}, %r49;") + " cp.async.commit_group;",
    )  # fmt: skip
    count = dice.choice((3, 4))
    again = tuple(
        f"add.u32 %r40, %r40, 1; setp.lt.u32 %p2, %r40, {each}; @%p2 bra RING; cp.async.wait_all;"
        for each in (count, count, count - 1)
    )
    return Shape([(begin,), waits, reads, issues, again], 64, "f32", (1, 1), repeats=4)


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {"bytes and halves": Family(FRAME, _mixed), "rings of copies": Family(FRAME, _ring)}
)
"""The families by name."""
