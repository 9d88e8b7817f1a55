# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels for sm_100 that compute in tensor memory: loads, stores, products of tiles, and waits."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernel_families.block_kernels import END, HEAD, mixing

_HEAD = HEAD.replace(".version 8.7\n.target sm_90a", ".version 8.8\n.target sm_100a").replace(
    "room[8192]", "room[16384]"
) + (
    "mov.u32 %r70, room; shr.u32 %r61, %r0, 5; and.b32 %r5, %r61, 3; shl.b32 %r6, %r5, 21; setp.lt.u32 %p14, %r0, 32; setp.eq.u32 %p15, %r0, 0;"
    "mov.pred %p16, -1; mov.pred %p17, 0; add.u32 %r71, %r70, 16368;"
    "@%p14 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r71], 128; bar.sync 0; ld.shared.b32 %r3, [%r71];"
    "@%p14 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; add.s32 %r7, %r3, %r6;"
    "mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13;\n"
)
"""%r3: the first column of tensor memory; %r7: with the lanes of the warp."""
_END = f"bar.sync 0; @%p14 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 128;\n{END}"
_FRAME = Frame(replace(LANGUAGES["ptx"], name="sm_100", architecture="sm_100"), _HEAD, _END)
_NAMES = ("%r20", "%r21", "%r22", "%r23")
_WORDS, _SWAPPED = "{%r20, %r21, %r22, %r23}", "{%r22, %r23, %r20, %r21}"
_STORED, _LOADED = "tcgen05.wait::st.sync.aligned;", "tcgen05.wait::ld.sync.aligned;"


def _moved(dice: random.Random) -> Shape:
    """Values that are stored in tensor memory and loaded in other shapes, widths and columns."""
    at = dice.choice((0, 8))
    st, ld = "tcgen05.st.sync.aligned.", "tcgen05.ld.sync.aligned."

    def stores() -> Slot:
        return tuple(
            dice.sample(
                [
                    f"{st}32x32b.x4.b32 [%r7+{at}], {_WORDS}; {_STORED}", f"{st}32x32b.x4.b32 [%r7+{at}], {_SWAPPED}; {_STORED}",
                    f"{st}32x32b.x2.b32 [%r7+{at}], {{%r20, %r21}}; {st}32x32b.x2.b32 [%r7+{at + 2}], {{%r22, %r23}}; {_STORED}",
                    f"{st}32x32b.x2.b32 [%r7+{at + 2}], {{%r22, %r23}}; {st}32x32b.x2.b32 [%r7+{at}], {{%r20, %r21}}; {_STORED}",
                    f"{st}32x32b.x1.b32 [%r7+{at + 1}], {{%r23}}; {_STORED}", f"{st}16x64b.x4.b32 [%r7+{at}], {_WORDS}; {_STORED}",
                    f"{st}16x128b.x2.b32 [%r7+{at}], {_WORDS}; {_STORED}", f"{st}16x256b.x1.b32 [%r7+{at}], {_WORDS}; {_STORED}",
                    f"{st}16x64b.x4.b32 [%r7+{at + (16 << 16)}], {_WORDS}; {_STORED}", f"@%p14 {st}32x32b.x2.b32 [%r7+{at}], {{%r22, %r23}}; {_STORED}",
                    f"{st}32x32b.x4.unpack::16b.b32 [%r7+{at}], {_WORDS}; {_STORED}",
                ],
                4,
            )
        )  # fmt: skip

    def loads() -> Slot:
        return tuple(
            dice.sample(
                [
                    f"{ld}32x32b.x4.b32 {_WORDS}, [%r7+{at}]; {_LOADED}", f"{ld}32x32b.x4.b32 {_SWAPPED}, [%r7+{at}]; {_LOADED}",
                    f"{ld}32x32b.x2.b32 {{%r20, %r21}}, [%r7+{at}]; {ld}32x32b.x2.b32 {{%r22, %r23}}, [%r7+{at + 2}]; {_LOADED}",
                    f"{ld}32x32b.x1.b32 {{%r20}}, [%r7+{at}]; {ld}32x32b.x1.b32 {{%r21}}, [%r7+{at + 1}]; {_LOADED}",
                    f"{ld}16x64b.x4.b32 {_WORDS}, [%r7+{at}]; {_LOADED}", f"{ld}16x128b.x2.b32 {_WORDS}, [%r7+{at}]; {_LOADED}",
                    f"{ld}16x256b.x1.b32 {_WORDS}, [%r7+{at}]; {_LOADED}", f"{ld}16x64b.x4.b32 {_WORDS}, [%r7+{at + (16 << 16)}]; {_LOADED}",
                    f"{ld}32x32b.x1.pack::16b.b32 {{%r20}}, [%r7+{at}]; {_LOADED}",
                ],
                5,
            )
        )  # fmt: skip

    first = (f"{st}32x32b.x8.b32 [%r7+{at}], {{%r10, %r11, %r12, %r13, %r13, %r12, %r11, %r10}}; {_STORED}",)
    slots: list[Slot] = [
        first,
        stores(),
        pick(dice, "bar.sync 0;", "mov.b32 %r81, 0;"),
        loads(),
        mixing(dice, _NAMES),
        stores(),
        loads(),
        mixing(dice, _NAMES),
    ]
    return Shape(slots, 128, fixed=(1, 0))


def _descriptor(offset: int) -> int:
    """Return the descriptor of a tile without a swizzle, without its address in shared memory."""
    return (offset >> 4) | 128 >> 4 << 16 | 256 >> 4 << 32 | 1 << 46


_FORM = 1 << 4 | 8 >> 3 << 17 | 64 >> 4 << 24
"""The descriptor of a product of fp16 with a result of fp32, of 64 rows and 8 columns."""


def _multiplied(dice: random.Random) -> Shape:
    """Products of tiles that start from nothing, from a former product or from what was stored, and what is read of them."""
    st, ld = "tcgen05.st.sync.aligned.32x32b.x4.b32", "tcgen05.ld.sync.aligned.32x32b.x4.b32"
    tiles = "st.shared.v4.b32 [%d9], {%r10, %r11, %r12, %r13}; st.shared.v4.b32 [%d9+2048], {%r12, %r13, %r10, %r11}; st.shared.v4.b32 [%d9+4096], {%r11, %r11, %r12, %r12};"
    begin = (
        f"{tiles} add.u32 %r72, %r70, 16352; @%p15 mbarrier.init.shared::cta.b64 [%r72], 1; fence.proxy.async.shared::cta; bar.sync 0; cvt.u64.u32 %d20, %r72;"
        f"shr.u64 %d11, %d8, 4; and.b64 %d11, %d11, 16383; or.b64 %d24, %d11, {_descriptor(0)}; add.s64 %d25, %d24, 128; add.s64 %d26, %d24, 256; mov.b32 %r30, {_FORM};"
        f"{st} [%r7], {{%r10, %r11, %r12, %r13}}; {st} [%r7+4], {{%r13, %r12, %r11, %r10}}; {_STORED} bar.sync 0;"
    )

    def product() -> Slot:
        pairs = [("%d24", "%d25"), ("%d24", "%d26"), ("%d26", "%d25"), ("%d25", "%d24")]
        made = [
            f"@%p15 tcgen05.mma.cta_group::1.kind::f16 [%r3{column}], {a}, {b}, %r30, {adds};"
            for a, b in dice.sample(pairs, 2)
            for adds in ("%p16", "%p17")
            for column in ("", "+8")
        ]
        return tuple(dice.sample(made, 4))

    def committed(turn: int) -> Slot:
        wait = f"@%p15 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%d20]; W{turn}: mbarrier.try_wait.parity.shared.b64 %p10, [%r72], {turn}; @!%p10 bra W{turn};"
        return (wait,)

    between = pick(
        dice,
        f"{ld} {_WORDS}, [%r7]; {_LOADED} bar.sync 0;",
        f"{ld} {_WORDS}, [%r7+4]; {_LOADED} bar.sync 0;",
        f"{st} [%r7], {{%r20, %r21, %r22, %r23}}; {_STORED} bar.sync 0;",
        "st.shared.v4.b32 [%d9+2048], {%r10, %r12, %r11, %r13}; fence.proxy.async.shared::cta; bar.sync 0;",
        "bar.sync 0;",
    )
    last = pick(
        dice,
        f"{ld} {_WORDS}, [%r7]; {_LOADED}",
        f"{ld} {_WORDS}, [%r7+4]; {_LOADED}",
        f"{ld} {_SWAPPED}, [%r7]; {_LOADED}",
    )
    rows = "and.b32 %r73, %r0, 16; setp.ne.u32 %p12, %r73, 0; selp.b32 %r20, 0, %r20, %p12; selp.b32 %r21, 0, %r21, %p12; selp.b32 %r22, 0, %r22, %p12; selp.b32 %r23, 0, %r23, %p12;"
    slots: list[Slot] = [(begin,), product(), product(), committed(0), between, product(), committed(1), last, (rows,)]
    return Shape(slots, 128, "h2", (1, 1))


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {"tensor memory": Family(_FRAME, _moved), "products in tensor memory": Family(_FRAME, _multiplied)}
)
"""The families by name."""
