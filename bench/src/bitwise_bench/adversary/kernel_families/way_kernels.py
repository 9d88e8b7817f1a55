# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels for sm_90 whose blocks take one of two ways by their data, with barriers, copies and exchanges on a way.

A kernel is one fork and what follows its join.  Its variants exchange the ways behind the negated test, replace a piece
of one way by one that returns the same or by another one, and test something else.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernel_families.block_kernels import BLOCK_ANY, END, HEAD

_BEGIN = """ld.global.b32 %r43, [%d2+4]; ld.global.b32 %r44, [%d2+8]; mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13;
xor.b32 %r50, %r0, 1; mul.wide.u32 %d21, %r50, 16; add.s64 %d21, %d8, %d21; xor.b32 %r51, %r0, 33; mul.wide.u32 %d22, %r51, 16; add.s64 %d22, %d8, %d22;
setp.eq.u32 %p9, %r0, 0; add.s64 %d11, %d8, 8128; @%p9 mbarrier.init.shared.b64 [%d11], 1; @%p9 mbarrier.init.shared.b64 [%d11+8], 64; fence.proxy.async.shared::cta;
st.shared.v4.b32 [%d9], {%r10, %r11, %r12, %r13}; st.shared.v4.b32 [%d9+2048], {%r13, %r12, %r11, %r10}; bar.sync 0;
"""
"""%r43, %r44: words of the block; %d21, %d22: the places of other threads; %d11: a memory barrier of one arrival, and one of all threads."""
_FRAME = Frame(LANGUAGES["ptx"], HEAD, END)
_NAMES = ("%r20", "%r21", "%r22", "%r23")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A text of a way, and others: those that return the same first (`equal` of them), then those that may not."""

    text: str
    others: tuple[str, ...]
    equal: int = 1


_TESTS = (
    ("setp.lt.f32 %p2, %r43, 0f00000000;", "setp.gt.f32 %p2, 0f00000000, %r43;", "setp.geu.f32 %p3, %r43, 0f00000000; not.pred %p2, %p3;", "setp.ltu.f32 %p2, %r43, 0f00000000;", "setp.lt.f32 %p2, %r44, 0f00000000;", "setp.lt.s32 %p2, %r43, 0;", "setp.le.f32 %p2, %r43, 0f00000000;"),
    ("add.rn.f32 %r42, %r43, %r44; setp.gt.f32 %p2, %r42, 0f3F000000;", "add.rn.f32 %r42, %r44, %r43; setp.lt.f32 %p2, 0f3F000000, %r42;", "setp.gt.f32 %p2, %r43, 0f3F000000;", "add.rn.f32 %r42, %r43, %r44; setp.ge.f32 %p2, %r42, 0f3F000000;", "sub.rn.f32 %r42, %r43, %r44; setp.gt.f32 %p2, %r42, 0f3F000000;"),
    ("ld.shared.b32 %r45, [room+4]; setp.gt.f32 %p2, %r45, %r43; bar.sync 0;", "ld.shared.b32 %r45, [room+4]; setp.lt.f32 %p2, %r43, %r45; bar.sync 0;", "mov.b32 %r45, %r44; setp.gt.f32 %p2, %r45, %r43; bar.sync 0;", "ld.shared.b32 %r45, [room+20]; setp.gt.f32 %p2, %r45, %r43; bar.sync 0;"),
    (f"setp.gt.f32 %p1, %r10, 0f40000000; {BLOCK_ANY} mov.pred %p2, %p1; bar.sync 0;", f"setp.lt.f32 %p1, 0f40000000, %r10; {BLOCK_ANY} mov.pred %p2, %p1; bar.sync 0;", f"setp.gt.f32 %p1, %r11, 0f40000000; {BLOCK_ANY} mov.pred %p2, %p1; bar.sync 0;", f"setp.gt.f32 %p1, %r10, 0f40000000; {BLOCK_ANY} mov.pred %p2, %p1;"),
    ("and.b32 %r46, %r43, 1; setp.eq.u32 %p2, %r46, 0;", "and.b32 %r46, %r43, 1; setp.ne.u32 %p3, %r46, 1; mov.pred %p2, %p3;", "and.b32 %r46, %r43, 2; setp.eq.u32 %p2, %r46, 0;", "and.b32 %r46, %r44, 1; setp.eq.u32 %p2, %r46, 0;"),
)  # fmt: skip
"""Tests of the block: some that are one, then others."""


def _compute(dice: random.Random) -> _Piece:
    one, other, third = (dice.choice(_NAMES) for _ in range(3))
    return _Piece(
        f"add.rn.f32 {one}, {other}, {third};",
        (f"add.rn.f32 {one}, {third}, {other};", f"add.rn.f32 {one}, {one}, {third};", f"max.f32 {one}, {other}, {third};", f"fma.rn.f32 {one}, {other}, {third}, {one};", "mov.b32 %r81, 0;"),
    )  # fmt: skip


def _exchange(dice: random.Random) -> _Piece:
    """A store to shared memory, a barrier, and loads of other threads' words."""
    one, to, place = dice.choice(_NAMES), dice.choice(_NAMES), dice.choice((0, 4, 8, 12))
    other = dice.choice(("%d21", "%d22"))
    return _Piece(
        f"st.shared.b32 [%d9+{place}], {one}; bar.sync 0; ld.shared.b32 {to}, [{other}+{place}]; bar.sync 0;",
        (
            f"st.shared.b32 [%d9+{place}], {one}; bar.sync 0; mov.b32 %r52, {one}; ld.shared.b32 {to}, [{other}+{place}]; bar.sync 0;",
            f"bar.sync 0; st.shared.b32 [%d9+{place}], {one}; bar.sync 0; ld.shared.b32 {to}, [{other}+{place}]; bar.sync 0;",
            f"st.shared.b32 [%d9+{place}], {one}; bar.sync 0; ld.shared.b32 {to}, [{other}+{place}];",
            f"st.shared.b32 [%d9+{place}], {one}; ld.shared.b32 {to}, [{other}+{place}]; bar.sync 0;",
            f"bar.sync 0; ld.shared.b32 {to}, [{other}+{place}]; bar.sync 0; st.shared.b32 [%d9+{place}], {one}; bar.sync 0;",
            f"st.shared.b32 [%d9+{place}], {dice.choice(_NAMES)}; bar.sync 0; ld.shared.b32 {to}, [{other}+{place}]; bar.sync 0;",
            f"st.shared.b32 [%d9+{place ^ 4}], {one}; bar.sync 0; ld.shared.b32 {to}, [{other}+{place}]; bar.sync 0;",
            f"@%p9 st.shared.b32 [%d9+{place}], {one}; bar.sync 0; ld.shared.b32 {to}, [{other}+{place}]; bar.sync 0;",
        ),
        2,
    )  # fmt: skip


def _store(dice: random.Random) -> _Piece:
    """A store that is read behind the join, or an element of the output."""
    one, place = dice.choice(_NAMES), dice.choice((0, 4, 8, 12, 2048, 2052))
    return _Piece(
        f"st.shared.b32 [%d9+{place}], {one};",
        (f"st.shared.b32 [%d9+{place}], %r10; st.shared.b32 [%d9+{place}], {one};", f"st.shared.b32 [%d9+{place}], {dice.choice(_NAMES)};", f"st.shared.b32 [%d9+{place}], {one}; bar.sync 0;", f"@%p9 st.shared.b32 [%d9+{place}], {one};", f"st.shared.b32 [%d9+{place ^ 4}], {one};", f"st.shared.b32 [%d21+{place}], {one};", "mov.b32 %r81, 0;", f"st.global.b32 [%d7], {one};"),
    )  # fmt: skip


def _shuffle(dice: random.Random) -> _Piece:
    one, to, lanes = dice.choice(_NAMES), dice.choice(_NAMES), dice.choice((1, 2, 16))
    return _Piece(
        f"shfl.sync.bfly.b32 %r30, {one}, {lanes}, 31, -1; add.rn.f32 {to}, {one}, %r30;",
        (f"shfl.sync.bfly.b32 %r30, {one}, {lanes}, 31, -1; add.rn.f32 {to}, %r30, {one};", f"shfl.sync.bfly.b32 %r30, {one}, {lanes ^ 3}, 31, -1; add.rn.f32 {to}, {one}, %r30;", f"shfl.sync.bfly.b32 %r30, {to}, {lanes}, 31, -1; add.rn.f32 {to}, {one}, %r30;", f"shfl.sync.up.b32 %r30, {one}, {lanes}, 0, -1; add.rn.f32 {to}, {one}, %r30;"),
    )  # fmt: skip


def _copy(dice: random.Random) -> _Piece:
    """A copy by threads, its wait, and loads of other threads' words."""
    other, to, place = dice.choice(("%d21", "%d22")), dice.choice(_NAMES), dice.choice((0, 4, 8, 12))
    wait = "cp.async.commit_group; cp.async.wait_group 0;"
    read = f"bar.sync 0; ld.shared.b32 {to}, [{other}+{4096 + place}];"
    copy = "cp.async.cg.shared.global [%d9+4096], [%d6], 16;"
    return _Piece(
        f"{copy} {wait} {read}",
        (
            f"{copy} cp.async.wait_all; {read}", f"st.shared.v4.b32 [%d9+4096], {{%r10, %r11, %r12, %r13}}; {read}",
            f"{copy} {read}", f"{copy} bar.sync 0; cp.async.wait_all; ld.shared.b32 {to}, [{other}+{4096 + place}];", f"{copy} cp.async.commit_group; {read}", f"{copy} cp.async.commit_group;",
            f"{copy} {wait} ld.shared.b32 {to}, [{other}+{4096 + place}];", f"{copy.replace('[%d6]', '[%d2]')} {wait} {read}", f"{copy} cp.async.commit_group; cp.async.wait_group 1; {read}", f"{copy}",
        ),
        2,
    )  # fmt: skip


def _bulk(dice: random.Random, number: int) -> _Piece:
    """A copy of lines that a memory barrier counts, in its phase 0."""
    to, place, other = dice.choice(_NAMES), dice.choice((0, 4)), dice.choice(("%d21", "%d22"))
    load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    start = f"@%p9 mbarrier.arrive.expect_tx.shared.b64 _, [%d11], 1024; @%p9 {load} [%d8+5120], [%d2], 1024, [%d11];"
    wait = f"W{number}#: mbarrier.try_wait.parity.shared.b64 %p10, [%d11], 0; @!%p10 bra W{number}#;"
    read = f"ld.shared.b32 {to}, [{other}+{5120 + place}];"
    return _Piece(
        f"{start} {wait} {read}",
        (
            f"{start} {wait} bar.sync 0; {read}", f"{start} {wait.replace('try_wait', 'test_wait')} {read}",
            f"{start} {read}", f"{start} {wait}", f"{start} {wait} {read.replace(str(5120 + place), str(5120 + (place ^ 4)))}",
            f"{start} {wait.replace(', 0;', ', 1;')} {read}", start, f"{start.replace('[%d2]', '[%d2+16]')} {wait} {read}", f"st.shared.v4.b32 [%d9+5120], {{%r10, %r11, %r12, %r13}}; bar.sync 0; {read}",
        ),
        2,
    )  # fmt: skip


def _arrive(dice: random.Random, number: int) -> _Piece:
    """All threads meet at a memory barrier, in its phase 0."""
    one, to, other = dice.choice(_NAMES), dice.choice(_NAMES), dice.choice(("%d21", "%d22"))
    arrive, wait = "mbarrier.arrive.shared.b64 _, [%d11+8];", f"X{number}#: mbarrier.try_wait.parity.shared.b64 %p10, [%d11+8], 0; @!%p10 bra X{number}#;"  # fmt: skip
    store, read = f"st.shared.b32 [%d9+2048], {one};", f"ld.shared.b32 {to}, [{other}+2048];"
    return _Piece(
        f"{store} {arrive} {wait} {read}",
        (
            f"{store} {arrive} {wait} bar.sync 0; {read}", f"{store} bar.sync 0; {read}", f"{arrive} {store} {wait} {read}", f"{store} {arrive} {read}", f"{store} {arrive} {wait}",
            f"{store} {arrive}", f"{store} {arrive} {wait} {arrive} {wait.replace(f'X{number}#', f'Y{number}#').replace(', 0;', ', 1;')} {read}",
        ),
    )  # fmt: skip


def _piece(dice: random.Random, number: int) -> _Piece:
    return dice.choice(
        (
            lambda: _compute(dice), lambda: _compute(dice), lambda: _exchange(dice), lambda: _exchange(dice), lambda: _store(dice),
            lambda: _store(dice), lambda: _shuffle(dice), lambda: _copy(dice), lambda: _bulk(dice, number), lambda: _arrive(dice, number),
        )
    )()  # fmt: skip


def _fork(test: str, ways: Sequence[str], number: int, *, exchanged: bool) -> str:
    """Return a fork: the first way where the test holds."""
    first, second = (ways[1], ways[0]) if exchanged else ways
    return f"{test} @{'' if exchanged else '!'}%p2 bra ELSE{number}; {first.replace('#', 'A')} bra JOIN{number}; ELSE{number}: {second.replace('#', 'B')} JOIN{number}:"


def _slot(dice: random.Random, number: int, tests: tuple[str, ...]) -> Slot:
    """Return a fork and variants of it."""
    pieces = [[_piece(dice, number * 10 + each) for each in range(dice.randint(0 if way else 1, 2))] for way in (0, 1)]
    if dice.random() < 0.6:
        pieces[1] = list(pieces[0])  # the same way twice, but for its variants
    made = [" ".join(each.text for each in way) for way in pieces]
    texts = dict.fromkeys([_fork(tests[0], made, number, exchanged=False)])
    for _ in range(40):
        own, way, test = list(made), dice.randrange(2), dice.choice((tests[0], tests[0], *tests))
        if pieces[way] and dice.random() < 0.85:
            place = dice.randrange(len(pieces[way]))
            piece = pieces[way][place]
            other = dice.choice(piece.others[: piece.equal] if dice.random() < 0.4 else piece.others)
            own[way] = " ".join(other if at == place else each.text for at, each in enumerate(pieces[way]))
        texts[_fork(test, own, number, exchanged=dice.random() < 0.4)] = None
        if len(texts) == 8:
            break
    return tuple(texts)


_AFTER = (
    ("bar.sync 0; ld.shared.v4.b32 {%r20, %r21, %r24, %r25}, [%d21]; add.rn.f32 %r22, %r22, %r24;", "bar.sync 0; ld.shared.v2.b32 {%r20, %r21}, [%d21]; ld.shared.b32 %r24, [%d21+8]; add.rn.f32 %r22, %r24, %r22;", "ld.shared.v4.b32 {%r20, %r21, %r24, %r25}, [%d21]; add.rn.f32 %r22, %r22, %r24;", "bar.sync 0; ld.shared.v4.b32 {%r20, %r21, %r24, %r25}, [%d22]; add.rn.f32 %r22, %r22, %r24;"),
    ("bar.sync 0; ld.shared.b32 %r24, [%d22+2048]; add.rn.f32 %r23, %r23, %r24;", "bar.sync 0; ld.shared.b32 %r24, [%d22+2048]; add.rn.f32 %r23, %r24, %r23;", "ld.shared.b32 %r24, [%d22+2048]; add.rn.f32 %r23, %r23, %r24;", "bar.sync 0; ld.shared.b32 %r24, [%d22+2052]; add.rn.f32 %r23, %r23, %r24;"),
    ("cp.async.wait_all; bar.sync 0; ld.shared.b32 %r24, [%d22+4096]; add.rn.f32 %r23, %r23, %r24;", "cp.async.wait_group 0; bar.sync 0; ld.shared.b32 %r24, [%d22+4096]; add.rn.f32 %r23, %r24, %r23;", "bar.sync 0; ld.shared.b32 %r24, [%d22+4096]; add.rn.f32 %r23, %r23, %r24;"),
    ("@%p9 mbarrier.arrive.shared.b64 _, [%d11]; Z: mbarrier.try_wait.parity.shared.b64 %p10, [%d11], 1; @!%p10 bra Z;", "@%p9 mbarrier.arrive.shared.b64 _, [%d11]; bar.sync 0; Z: mbarrier.try_wait.parity.shared.b64 %p10, [%d11], 1; @!%p10 bra Z;", "@%p9 mbarrier.arrive.shared.b64 _, [%d11];", "bar.sync 0;"),
    ("mov.b32 %r81, 0;",),
)  # fmt: skip
"""What follows a join."""


def _ways(dice: random.Random) -> Shape:
    """One fork or two, and loads behind the joins."""
    slots: list[Slot] = [(_BEGIN,)]
    tests = dice.choice(_TESTS)
    for number in range(dice.choice((1, 1, 1, 2))):
        slots += [_slot(dice, number, tests), dice.choice(_AFTER if number == 0 else (_AFTER[0], _AFTER[1]))]
        if dice.random() < 0.6:
            tests = dice.choice(_TESTS)
    return Shape(slots, 64, fixed=(1, 0), first=True)


FAMILIES: Mapping[str, Family] = MappingProxyType({"ways of blocks": Family(_FRAME, _ways)})
"""The family by name."""
