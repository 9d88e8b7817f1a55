# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels for sm_90 with asynchronous work behind branches that whole blocks take by data.

Each side copies through shared memory by threads or in lines, with memory barriers of its own or of the kernel, some of
which end phases on one side only.  Copies may be in flight over the branch.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernel_families.block_kernels import END, HEAD, exchange, mixing

_NAMES = ("%r20", "%r21", "%r22", "%r23")
_HEAD = HEAD + (
    "setp.eq.u32 %p15, %r0, 0; add.s64 %d11, %d8, 8128; add.s64 %d12, %d8, 8144; mov.b32 %r80, 0;"
    "@%p15 mbarrier.init.shared.b64 [%d12], 1; fence.proxy.async.shared::cta; bar.sync 0;\n"
)
"""%p15: the first thread; %d11: a place for mbarriers of the sides; %d12: an mbarrier of the kernel."""
_LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


def _wait(place: str, parity: int) -> str:
    return f"{{ .reg .pred %done; WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [{place}], {parity}; @!%done bra WAIT; }}"


def _line(place: str, parity: int, size: int = 1024, offset: int = 0) -> str:
    """Return a copy of neighbouring bytes for which all threads wait, with a parity of the phase."""
    return (
        f"fence.proxy.async.shared::cta; bar.sync 0; @%p15 mbarrier.arrive.expect_tx.shared.b64 _, [{place}], {size};"
        f"@%p15 {_LOAD} [%d8], [%d2+{offset}], {size}, [{place}]; {_wait(place, parity)} bar.sync 0;"
    )


def _own(line: str) -> str:
    """Return a copy with an mbarrier that is initialised before it and invalidated after it."""
    return f"bar.sync 0; @%p15 mbarrier.init.shared.b64 [%d11], 1; bar.sync 0; {line} @%p15 mbarrier.inval.shared.b64 [%d11];"


def _inside(dice: random.Random) -> Slot:
    """Return what a side may do, in several forms."""
    one, other = dice.sample(_NAMES, 2)
    lane = dice.choice((1, 3, 33))
    place = f"xor.b32 %r51, %r0, {lane}; mul.wide.u32 %d21, %r51, 16; add.s64 %d21, %d8, %d21;"
    read = f"ld.shared.v2.b32 {{{one}, {other}}}, [%d21];"
    copies = [
        f"bar.sync 0; cp.async.ca.shared.global [%d9], [%d6], 16; cp.async.wait_all; bar.sync 0; {place} {read}",
        f"bar.sync 0; cp.async.cg.shared.global [%d9], [%d6], 16; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; {place} {read}",
        f"bar.sync 0; st.shared.v4.b32 [%d9], {{%r10, %r11, %r12, %r13}}; bar.sync 0; {place} {read}",
        f"bar.sync 0; cp.async.ca.shared.global [%d9], [%d6], 16; cp.async.wait_all; {place} bar.sync 0; ld.shared.v2.b32 {{{other}, {one}}}, [%d21];",
        f"bar.sync 0; cp.async.ca.shared.global [%d9], [%d6], 8; cp.async.ca.shared.global [%d9+8], [%d6+8], 8; cp.async.wait_all; bar.sync 0; {place} {read}",
        f"{place} {_own(_line('%d11', 0))} {read}",
        f"{_own(_line('%d11', 0, 512) + _line('%d11', 1, 1024))} {place} {read}",
        f"{_line('%d12', 0)} {place} {read} {_line('%d12', 1)}",
        f"{_line('%d12', 0)} {place} ld.shared.v2.b32 {{{other}, {one}}}, [%d21]; {_line('%d12', 1, 16)}",
        f"bar.sync 0; cp.async.ca.shared.global [%d9], [%d6], 16; cp.async.wait_all; {place} {read}",
    ]  # fmt: skip
    kinds = [
        tuple(dice.sample(copies, 5)), tuple(dice.sample(copies, 4)),
        exchange(dice, one, other), mixing(dice, _NAMES),
        pick(dice, f"bar.sync 0; st.shared.b32 [%d9], {one}; bar.sync 0; {place} ld.shared.b32 {other}, [%d21]; bar.sync 0;", f"bar.sync 0; st.shared.b32 [%d9], {one}; bar.sync 0; ld.shared.b32 {other}, [%d9]; bar.sync 0;"),
    ]  # fmt: skip
    return dice.choice(kinds)


def _choice(dice: random.Random, offset: int) -> Slot:
    """Return conditions of the block on a word of its input, or on a greatest one of its words."""
    greatest = (
        "bar.sync 0; max.f32 %r60, %r10, %r11; shfl.sync.bfly.b32 %r61, %r60, 16, 31, -1; max.f32 %r60, %r60, %r61; shfl.sync.bfly.b32 %r61, %r60, 8, 31, -1; max.f32 %r60, %r60, %r61;"
        "shfl.sync.bfly.b32 %r61, %r60, 4, 31, -1; max.f32 %r60, %r60, %r61; shfl.sync.bfly.b32 %r61, %r60, 2, 31, -1; max.f32 %r60, %r60, %r61; shfl.sync.bfly.b32 %r61, %r60, 1, 31, -1; max.f32 %r60, %r60, %r61;"
        "shr.u32 %r62, %r0, 5; mul.wide.u32 %d22, %r62, 4; add.s64 %d22, %d8, %d22; st.shared.b32 [%d22+7936], %r60; bar.sync 0; ld.shared.v2.b32 {%r62, %r63}, [room+7936]; max.f32 %r55, %r62, %r63;"
    )
    word = f"ld.global.b32 %r55, [%d2+{offset}];"
    return pick(
        dice,
        f"{word} setp.lt.f32 %p4, %r55, 0f3F000000;",
        f"{word} setp.geu.f32 %p4, %r55, 0f3F000000; not.pred %p4, %p4;",
        f"{greatest} setp.lt.f32 %p4, %r55, 0f3F800000;",
        f"{greatest} setp.gt.f32 %p4, %r55, 0f3F800000; not.pred %p4, %p4;",
    )


def _sides(dice: random.Random) -> Shape:
    """Branches of whole blocks, nested in some, with copies in flight over them in some."""
    begin = "mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13;"
    other = "xor.b32 %r52, %r0, 35; mul.wide.u32 %d23, %r52, 16; add.s64 %d23, %d8, %d23;"
    flies = dice.random() < 0.5
    early: Slot = (
        ("cp.async.ca.shared.global [%d9+2048], [%d6], 16; cp.async.commit_group;",) if flies else ("mov.b32 %r81, 0;",)
    )
    late: Slot = (
        (
            f"cp.async.wait_group 0; bar.sync 0; {other} ld.shared.b32 %r30, [%d23+2048]; add.rn.f32 %r20, %r20, %r30;",
            f"cp.async.wait_all; bar.sync 0; {other} ld.shared.b32 %r30, [%d23+2048]; add.rn.f32 %r20, %r30, %r20;",
            "cp.async.wait_group 0; bar.sync 0; ld.shared.b32 %r30, [%d9+2048]; add.rn.f32 %r20, %r20, %r30;",
        )
        if flies
        else _inside(dice)
    )
    nested = dice.random() < 0.4
    inner: list[Slot] = (
        [_choice(dice, 8), ("@%p4 bra INNER;", "@!%p4 bra INNER;"), _inside(dice), ("INNER:",)] if nested else []
    )
    slots: list[Slot] = [
        (begin,),
        early,
        _choice(dice, 0),
        ("@%p4 bra OTHER;", "@!%p4 bra OTHER;"),
        _inside(dice),
        *inner,
        ("bra DONE; OTHER:",),
        _inside(dice),
        ("DONE:",),
        late,
        _inside(dice),
    ]
    return Shape(slots, 64, fixed=(2, 2))


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {"asynchronous work behind branches": Family(Frame(LANGUAGES["ptx"], _HEAD, END), _sides)}
)
"""The families by name."""
