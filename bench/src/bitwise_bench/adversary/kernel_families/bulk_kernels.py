# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels for sm_90 that copy bytes: by threads under conditions, in lines, and between the blocks of a cluster."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernel_families.block_kernels import END, HEAD, mixing
from bitwise_bench.adversary.kernel_families.cluster_kernels import cluster_head

_NAMES = ("%r20", "%r21", "%r22", "%r23")
_MOVED = "mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13;"
_READS = (
    "ld.shared.v4.b32 {{%r20, %r21, %r22, %r23}}, [{0}];",
    "ld.shared.v2.b32 {{%r20, %r21}}, [{0}]; ld.shared.v2.b32 {{%r22, %r23}}, [{0}+8];",
    "ld.shared.v4.b32 {{%r21, %r20, %r23, %r22}}, [{0}];",
    "ld.shared.b32 %r20, [{0}]; ld.shared.b64 %d33, [{0}+8]; mov.b64 {{%r22, %r23}}, %d33; ld.shared.b32 %r21, [{0}+4];",
)


def _conditional(dice: random.Random) -> Shape:
    """Copies by threads that read all bytes or none, by their number or by data, and the loads and stores for them."""
    test = dice.choice(
        (
            "setp.lt.f32 %p1, %r10, %r11;", "setp.lt.u32 %p1, %r0, 9;", "setp.eq.u32 %p1, %r9, 1;",
            "setp.lt.u32 %p1, %r10, 0x3F000000;",
        )
    )  # fmt: skip
    sign = dice.choice(("16, 0", "0, 16"))
    zeros = "mov.b32 %r52, 0;"
    of_true, of_false = sign.split(", ")
    one, none = ("%p1", "!%p1") if of_true == "16" else ("!%p1", "%p1")
    chosen = "".join(
        f"selp.b32 %r{54 + each}, {f'%r{10 + each}, 0' if of_true == '16' else f'0, %r{10 + each}'}, %p1;"
        for each in range(4)
    )
    stored = f"{{0}}st.shared.v4.b32 [%d9{{1}}], {{{{%r10, %r11, %r12, %r13}}}};{zeros} {{2}}st.shared.v4.b32 [%d9{{1}}], {{{{%r52, %r52, %r52, %r52}}}};"

    def copied(at: str) -> list[str]:
        return [
            f"selp.b32 %r50, {sign}, %p1; cp.async.ca.shared.global [%d9{at}], [%d6], 16, %r50; cp.async.wait_all;",
            f"selp.b32 %r50, {sign}, %p1; cp.async.cg.shared.global [%d9{at}], [%d6], 16, %r50; cp.async.commit_group; cp.async.wait_group 0;",
            f"selp.b32 %r50, {of_false}, {of_true}, %p1; cp.async.cg.shared.global [%d9{at}], [%d6], 16, %r50; cp.async.wait_all;",
            f"selp.b32 %r50, {sign.replace('16', '8')}, %p1; cp.async.ca.shared.global [%d9{at}], [%d6], 8, %r50; cp.async.ca.shared.global [%d9{at or '+0'}+8], [%d6+8], 8, %r50; cp.async.wait_all;".replace("+0+8", "+8").replace("+4096+8", "+4104"),
            f"{chosen} st.shared.v4.b32 [%d9{at}], {{%r54, %r55, %r56, %r57}};",
            stored.format(f"@{one} ", at, f"@{none} "),
            f"{zeros} st.shared.v4.b32 [%d9{at}], {{%r52, %r52, %r52, %r52}}; @{one} st.shared.v4.b32 [%d9{at}], {{%r10, %r11, %r12, %r13}};",
            f"cp.async.ca.shared.global [%d9{at}], [%d6], 16; cp.async.wait_all;",
        ]  # fmt: skip

    places = tuple(
        f"xor.b32 %r51, %r0, {each}; mul.wide.u32 %d21, %r51, 16; add.s64 %d21, %d8, %d21;" for each in (0, 3, 33)
    )
    slots: list[Slot] = [
        (test + _MOVED,),
        tuple(dice.sample(copied(""), 5)),
        ("bar.sync 0;",),
        dice.choice((("mov.b32 %r81, 0;",), tuple(dice.sample(copied("+4096"), 4)))),
        ("bar.sync 0;",),
        pick(dice, *places),
        tuple(each.format("%d21") for each in _READS[:3]),
        mixing(dice, _NAMES),
    ]
    return Shape(slots, 64, fixed=(1, 0))


_LINE_HEAD = HEAD + (
    "setp.eq.u32 %p1, %r0, 0; add.s64 %d11, %d8, 8128; @%p1 mbarrier.init.shared.b64 [%d11], 1; fence.proxy.async.shared::cta; bar.sync 0;"
    "mov.u32 %r70, room; mul.wide.u32 %d12, %r9, 1024; add.s64 %d12, %d12, %d0;\n"
)
"""%d11: an mbarrier; %d12: the output of the block."""


def _lines(dice: random.Random) -> Shape:
    """Copies of neighbouring bytes to shared memory and back, whole or in parts, by one thread or by several."""
    load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    expect = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%d11], {};"
    cut = dice.choice((16, 256, 512))
    offset = dice.choice((0, 16, 1008))
    whole = expect.format(1024)
    loads = [
        f"{whole} @%p1 {load} [%d8], [%d2], 1024, [%d11];",
        f"{whole} @%p1 {load} [%d8], [%d2], {cut}, [%d11]; @%p1 {load} [%d8+{cut}], [%d2+{cut}], {1024 - cut}, [%d11];",
        f"{whole} @%p1 {load} [%d8+{cut}], [%d2+{cut}], {1024 - cut}, [%d11]; @%p1 {load} [%d8], [%d2], {cut}, [%d11];",
        f"{whole} @%p1 {load} [%d8+{cut}], [%d2], {1024 - cut}, [%d11]; @%p1 {load} [%d8], [%d2+{1024 - cut}], {cut}, [%d11];",
        f"{whole} @%p1 {load} [%d8], [%d2+{offset}], 1024, [%d11];",
        f"st.shared.v4.b32 [%d9], {{%r10, %r11, %r12, %r13}}; {expect.format(16)} @%p1 {load} [%d8+2048], [%d2], 16, [%d11];",
    ]  # fmt: skip
    changes = [
        "mov.b32 %r81, 0;", "st.shared.b32 [%d9+4], %r12;", "@%p1 st.shared.b32 [%d8+4], %r12;", "setp.lt.f32 %p3, %r10, %r11; @%p3 st.shared.b32 [%d9], %r13;",
        "add.rn.f32 %r24, %r10, %r12; st.shared.b32 [%d9+8], %r24;", "st.shared.v2.b32 [%d9], {%r10, %r11};",
    ]  # fmt: skip
    store = "cp.async.bulk.global.shared::cta.bulk_group"
    ends = "@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;"
    fence = "fence.proxy.async.shared::cta; bar.sync 0;"
    stores = [
        f"{fence} @%p1 {store} [%d12], [%d8], 1024; {ends}",
        f"{fence} @%p1 {store} [%d12], [%d8], {cut}; @%p1 {store} [%d12+{cut}], [%d8+{cut}], {1024 - cut}; {ends}",
        f"{fence} @%p1 {store} [%d12+{cut}], [%d8+{cut}], {1024 - cut}; @%p1 {store} [%d12], [%d8], {cut}; {ends}",
        f"{fence} @%p1 {store} [%d12], [%d8+{offset}], 1024; {ends}",
        "bar.sync 0; ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%d9]; st.global.v4.b32 [%d7], {%r20, %r21, %r22, %r23};",
        "bar.sync 0; ld.shared.v2.b32 {%r20, %r21}, [%d9]; ld.shared.v2.b32 {%r22, %r23}, [%d9+8]; st.global.v4.b32 [%d7], {%r20, %r21, %r22, %r23};",
    ]  # fmt: skip
    slots: list[Slot] = [
        tuple(dice.sample(loads, 4)),
        ("W: mbarrier.try_wait.parity.shared.b64 %p10, [%d11], 0; @!%p10 bra W;",),
        ("bar.sync 0;", "", "fence.proxy.async.shared::cta; bar.sync 0;"),
        tuple(dice.sample(changes, 4)),
        tuple(dice.sample(stores, 4)),
    ]
    return Shape(slots, 64, fixed=(2, 1), repeats=2)


_ASYNC_INIT = (
    "add.u32 %r79, %r70, 8128; setp.eq.u32 %p9, %r0, 0; @%p9 mbarrier.init.shared::cta.b64 [%r79], 1; fence.mbarrier_init.release.cluster;"
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; mapa.shared::cluster.u32 %r80, %r79, %r73;"
)
_MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def _sent(dice: random.Random) -> Shape:
    """Words that the threads of a block store to the next block of their cluster, and lines that one thread copies there."""
    send = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
    expect = "@%p9 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r79], 1024;"
    other = "xor.b32 %r76, %r0, 33; mad.lo.u32 %r76, %r76, 16, %r70; mapa.shared::cluster.u32 %r76, %r76, %r73;"
    wait = "W{0}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p10, [%r79], {0}; @!%p10 bra W{0};"
    slots: list[Slot] = [(_ASYNC_INIT,)]
    for turn in range(dice.randint(1, 2)):
        at = 2048 * turn
        line = f"st.shared.v4.b32 [%d9+{4096 + at}], {{%r20, %r21, %r22, %r23}}; fence.proxy.async.shared::cta; bar.sync 0; add.u32 %r77, %r70, {4096 + at}; add.u32 %r78, %r70, {at}; mapa.shared::cluster.u32 %r78, %r78, %r73; @%p9 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r78], [%r77], 1024, [%r80];"
        slots += [
            (expect,),
            pick(
                dice,
                f"{send}.v4.b32 [%r74+{at}], {{%r20, %r21, %r22, %r23}}, [%r80];",
                f"{send}.v2.b32 [%r74+{at}], {{%r20, %r21}}, [%r80]; {send}.v2.b32 [%r74+{at + 8}], {{%r22, %r23}}, [%r80];",
                f"{send}.b32 [%r74+{at}], %r20, [%r80]; {send}.b32 [%r74+{at + 4}], %r21, [%r80]; {send}.v2.b32 [%r74+{at + 8}], {{%r22, %r23}}, [%r80];",
                f"mov.b64 %d30, {{%r20, %r21}}; mov.b64 %d31, {{%r22, %r23}}; {send}.v2.b64 [%r74+{at}], {{%d30, %d31}}, [%r80];",
                f"{send}.v4.b32 [%r74+{at}], {{%r21, %r20, %r22, %r23}}, [%r80];",
                f"{other} {send}.v4.b32 [%r76+{at}], {{%r20, %r21, %r22, %r23}}, [%r80];",
                line,
            ),
            (f"{wait.format(turn)} bar.sync 0;",),
            pick(
                dice,
                f"ld.shared.v4.b32 {{%r24, %r25, %r26, %r27}}, [%r71+{at}];", f"ld.shared::cluster.v4.b32 {{%r24, %r25, %r26, %r27}}, [%r75+{at}];",
                f"ld.shared.v4.b32 {{%r25, %r24, %r27, %r26}}, [%r71+{at}];", f"ld.shared.v2.b32 {{%r24, %r25}}, [%r71+{at}]; ld.shared.v2.b32 {{%r26, %r27}}, [%r71+{at + 8}];",
            ),
            pick(dice, "add.rn.f32 %r20, %r20, %r24; add.rn.f32 %r21, %r21, %r25;", "add.rn.f32 %r20, %r24, %r20; add.rn.f32 %r21, %r25, %r21;", "mov.b32 %r22, %r26; mov.b32 %r23, %r27;"),
            mixing(dice, _NAMES),
            (_MEET,),
        ]  # fmt: skip
    return Shape(slots, 64, fixed=(1, 1))


_PTX = LANGUAGES["ptx"]
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "copies under conditions": Family(Frame(_PTX, HEAD, END), _conditional),
        "copies of lines": Family(Frame(_PTX, _LINE_HEAD, "ret; }\n"), _lines),
        "words sent to a cluster": Family(Frame(_PTX, cluster_head(2), END), _sent),
    }
)
"""The families by name."""
