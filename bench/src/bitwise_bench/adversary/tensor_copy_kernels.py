# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels for sm_90 whose blocks make a tensor map each, and copy boxes of their input through it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_kernels import END, HEAD, mixing
from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.languages import LANGUAGES

_MAP, _BARRIER, _MAPS = 6144, 8128, 4096
"""The offsets of the map and of an mbarrier in shared memory, and of the maps of all blocks behind the input."""
_HEAD = HEAD + (
    f"add.s64 %d10, %d8, {_MAP}; add.s64 %d11, %d8, {_BARRIER}; mul.wide.u32 %d12, %r9, 128; add.s64 %d12, %d12, %d1; add.s64 %d12, %d12, {_MAPS};"
    "setp.eq.u32 %p1, %r0, 0; setp.lt.u32 %p2, %r0, 32; mul.wide.u32 %d13, %r0, 4; add.s64 %d13, %d13, %d10; mov.b32 %r80, 0;"
    "mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13;"
    "@%p2 st.shared.b32 [%d13], %r80; @%p1 mbarrier.init.shared.b64 [%d11], 1; fence.proxy.async.shared::cta; bar.sync 0;\n"
)
"""%d10: the map; %d11: the mbarrier; %d12: where the map is published."""
_FRAME = Frame(LANGUAGES["ptx"], _HEAD, END)
_PUBLISHED = (
    "@%p2 tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d12], [%d10], 128;"
    "bar.sync 0; fence.proxy.tensormap::generic.acquire.gpu [%d12], 128;"
)


def _field(name: str, value: str, kind: str = "b32") -> str:
    return f"@%p1 tensormap.replace.tile.{name}.shared::cta.b1024.{kind} [%d10], {value};"


def _copies(dice: random.Random) -> Shape:
    """Boxes of a tensor of two dimensions, of which parts may be outside, with swizzles, in types of one width."""
    width, rows = dice.choice(((8, 8), (8, 16), (16, 8)))
    size = 4 * width * rows
    fixed = [
        _field("rank", "0x1"),
        _field("element_stride", "0x0, 1"),
        _field("element_stride", "0x1, 1"),
        _field("interleave_layout", "0x0"),
        _field("fill_mode", "0x0"),
    ]
    modes = [mode for mode, bytes_of in ((0, 256), (1, 32), (2, 64), (3, 128)) if 4 * width <= bytes_of]
    slots: list[Slot] = [
        ("".join([*fixed, _field("box_dim", f"0x0, {width}"), _field("box_dim", f"0x1, {rows}")]),),
        (_field("global_address", "%d2", "b64"), "add.s64 %d14, %d2, 64; " + _field("global_address", "%d14", "b64")),
        tuple(_field("global_dim", f"0x0, {each}") for each in dice.sample((8, 12, 16), 2)),
        tuple(_field("global_dim", f"0x1, {each}") for each in dice.sample((5, 12, 14), 2)),
        tuple(_field("global_stride", f"0x0, {each}", "b64") for each in (64, 48)),
        tuple(_field("elemtype", each) for each in dice.sample(("0x2", "0x3", "0x7"), 3)),
        tuple(_field("swizzle_mode", hex(each)) for each in dice.sample(modes, min(2, len(modes)))),
        (_PUBLISHED,),
    ]  # fmt: skip
    coordinates = dice.sample([(0, 0), (4, 0), (0, 3), (0, -2), (8, 1), (-4, 0), (0, 9)], 3)
    copy = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    for turn in range(dice.choice((1, 2))):
        expect = f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%d11], {size};"
        slots.append(
            tuple(
                f"mov.b32 %r81, {x}; mov.b32 %r82, {y}; {expect} @%p1 {copy} [%d8], [%d12, {{%r81, %r82}}], [%d11];"
                for x, y in coordinates
            )
        )
        slots.append((f"W{turn}: mbarrier.try_wait.parity.shared.b64 %p10, [%d11], {turn}; @!%p10 bra W{turn};",))
        lane = dice.choice((0, 1, 3))
        place = f"xor.b32 %r83, %r0, {lane}; and.b32 %r83, %r83, {size // 16 - 1}; mul.wide.u32 %d15, %r83, 16; add.s64 %d15, %d15, %d8;"
        slots.append(
            pick(
                dice,
                f"{place} ld.shared.v4.b32 {{%r24, %r25, %r26, %r27}}, [%d15];", f"{place} ld.shared.v2.b32 {{%r24, %r25}}, [%d15]; ld.shared.v2.b32 {{%r26, %r27}}, [%d15+8];",
                f"{place} ld.shared.v4.b32 {{%r25, %r24, %r27, %r26}}, [%d15];", f"{place} xor.b64 %d15, %d15, 16; ld.shared.v4.b32 {{%r24, %r25, %r26, %r27}}, [%d15];",
            )
        )  # fmt: skip
        slots.append(
            (
                "add.rn.f32 %r20, %r20, %r24; add.rn.f32 %r21, %r21, %r25; max.f32 %r22, %r22, %r26; mov.b32 %r23, %r27; bar.sync 0;",
            )
        )
        slots.append(mixing(dice, ("%r20", "%r21", "%r22", "%r23")))
    return Shape(slots, 64, fixed=(1, 0), repeats=2)


FAMILIES: Mapping[str, Family] = MappingProxyType({"tensor copies": Family(_FRAME, _copies)})
"""The families by name."""
