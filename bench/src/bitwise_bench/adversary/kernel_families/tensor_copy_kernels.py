# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels for sm_90 whose blocks make a tensor map each, and copy boxes of their input or output through it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernel_families.block_kernels import END, HEAD, mixing

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


_FIXED = "".join(
    [_field("rank", "0x1"), *(_field("element_stride", f"{axis}, 1") for axis in ("0x0", "0x1")), _field("interleave_layout", "0x0"), _field("fill_mode", "0x0")]
)  # fmt: skip


def _modes(width: int) -> list[int]:
    """Return the modes of swizzling that a box of this many words in a row may have."""
    return [mode for mode, most in ((0, 256), (1, 32), (2, 64), (3, 128)) if 4 * width <= most]


def _own_box(width: int, rows: int) -> list[Slot]:
    """Fields of a tensor map of the block's part of the output, which a box covers or of which it has lines outside."""
    return [
        (_FIXED + _field("box_dim", f"0x0, {width}") + _field("box_dim", f"0x1, {rows}"),),
        ("mul.wide.u32 %d14, %r9, 1024; add.s64 %d14, %d0, %d14; " + _field("global_address", "%d14", "b64"),),
        tuple(_field("global_dim", f"0x0, {each}") for each in (width, width - 4)),
        tuple(_field("global_dim", f"0x1, {each}") for each in (rows, rows - 3)),
        (_field("global_stride", f"0x0, {4 * width}", "b64"),),
    ]  # fmt: skip


def _stores(dice: random.Random) -> Shape:
    """Boxes that are copied to the block's part of the output, of which parts may be outside."""
    width, rows = dice.choice(((8, 32), (16, 16), (32, 8)))
    lane = dice.choice((1, 3, 7))
    place = "mul.wide.u32 %d15, %r83, 16; add.s64 %d15, %d15, %d8;"
    chunk = "st.shared.v4.b32 [%d15], {%r20, %r21, %r22, %r23};"
    slots: list[Slot] = [
        *_own_box(width, rows),
        tuple(_field("elemtype", each) for each in dice.sample(("0x2", "0x3", "0x7"), 3)),
        tuple(_field("swizzle_mode", hex(each)) for each in dice.sample(_modes(width), min(2, len(_modes(width))))),
        (_PUBLISHED,),
        mixing(dice, ("%r20", "%r21", "%r22", "%r23")),
        pick(
            dice,
            f"mov.b32 %r83, %r0; {place} {chunk}", f"xor.b32 %r83, %r0, {lane}; {place} {chunk}", f"xor.b32 %r83, %r0, {lane}; xor.b32 %r83, %r83, {lane}; {place} {chunk}",
            f"mov.b32 %r83, %r0; {place} st.shared.v2.b32 [%d15], {{%r20, %r21}}; st.shared.v2.b32 [%d15+8], {{%r22, %r23}};", f"shr.u32 %r84, %r0, 3; and.b32 %r84, %r84, 7; xor.b32 %r83, %r0, %r84; {place} {chunk}",
        ),
        ("fence.proxy.async.shared::cta; bar.sync 0;",),
    ]  # fmt: skip
    begin = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d12, {%r81, %r82}], [%d8]; @%p1 cp.async.bulk.commit_group;"
    places = dice.sample([(0, 0), (0, 0), (0, 1), (0, 2), (4, 0)], 3)
    slots.append(tuple(f"mov.b32 %r81, {x}; mov.b32 %r82, {y}; @%p1 {begin}" for x, y in places))
    slots.append(("@%p1 cp.async.bulk.wait_group.read 0;", "@%p1 cp.async.bulk.wait_group 0;"))
    return Shape(slots, 64, fixed=(8, 2), repeats=2)


_CLUSTER_HEAD = _HEAD.replace(
    ".reqntid {threads}", ".reqntid {threads} .explicitcluster .reqnctapercluster 2, 1, 1"
) + (
    "mov.u32 %r72, %cluster_ctarank; mov.u32 %r70, room; mov.u32 %r79, room; add.u32 %r79, %r79, 8128; setp.eq.u32 %p8, %r72, 0;"
    "fence.mbarrier_init.release.cluster; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
)
"""%r72: the rank; %r70: shared memory; %r79: the mbarrier; %p8: rank 0."""


def _multicast(dice: random.Random) -> Shape:
    """Boxes that the blocks of a cluster copy to both of them."""
    width, rows = 8, dice.choice((8, 16))
    size = 4 * width * rows
    slots: list[Slot] = [
        (_FIXED + _field("box_dim", f"0x0, {width}") + _field("box_dim", f"0x1, {rows}"),),
        (_field("global_address", "%d2", "b64"), "add.s64 %d14, %d2, 64; " + _field("global_address", "%d14", "b64")),
        (_field("global_dim", "0x0, 8") + _field("global_dim", f"0x1, {rows}"),), (_field("global_stride", "0x0, 32", "b64"),),
        (_field("elemtype", "0x7"),), tuple(_field("swizzle_mode", hex(each)) for each in dice.sample((0, 1), 2)), (_PUBLISHED,),
    ]  # fmt: skip
    copy = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    many = f"{copy}.multicast::cluster [%r85], [%d12, {{%r81, %r82}}], [%r79], %h1;"
    place = f"mad.lo.u32 %r85, %r72, {size}, %r70; mov.b32 %r81, 0;"
    both = f"@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r79], {2 * size};"
    alone = f"@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r79], {size}; mov.b32 %r85, %r70; mov.b32 %r81, 0;"
    rank = "and.pred %p11, %p1, %p8; not.pred %p12, %p8; and.pred %p12, %p1, %p12;"
    of_both = dice.random() < 0.5
    to_both = tuple(
        f"{both} {place} {row} mov.b16 %h1, 3; @%p1 {many}"
        for row in ("mov.b32 %r82, 0;", "mul.lo.u32 %r82, %r72, 2;", "mov.b32 %r82, 1;")
    )
    of_one = (
        f"{alone} mov.b32 %r82, 0; mov.b16 %h1, 3; {rank} @%p11 {many}",
        f"{alone} mov.b32 %r82, 0; mov.b16 %h1, 3; {rank} @%p12 {many}",
        f"{alone} mov.b32 %r82, 0; xor.b32 %r86, %r72, 1; add.u32 %r86, %r86, 1; cvt.u16.u32 %h1, %r86; @%p1 {many}",
        f"{alone} mov.b32 %r82, 0; add.u32 %r86, %r72, 1; cvt.u16.u32 %h1, %r86; @%p1 {many}",
        f"{alone} mov.b32 %r82, 0; @%p1 {copy} [%r70], [%d12, {{%r81, %r82}}], [%r79];",
    )
    slots.append(to_both if of_both else of_one)
    slots.append(("W: mbarrier.try_wait.parity.shared.b64 %p10, [%d11], 0; @!%p10 bra W;",))
    for _ in range(2):
        lane = dice.choice((0, 1, 3))
        shared = f"xor.b32 %r83, %r0, {lane}; and.b32 %r83, %r83, {size // 16 - 1}; mul.wide.u32 %d15, %r83, 16; add.s64 %d15, %d15, %d8;"
        used = dice.choice(
            ("add.rn.f32 %r20, %r20, %r24; max.f32 %r22, %r22, %r26;", "mov.b32 %r21, %r25; mov.b32 %r23, %r27;")
        )
        slots.append(
            tuple(
                f"{shared} ld.shared.v4.b32 {{%r24, %r25, %r26, %r27}}, [%d15{at}]; {used}"
                for at in ("", f"+{size}")[: 1 + of_both]
            )
        )
    slots += [
        mixing(dice, ("%r20", "%r21", "%r22", "%r23")),
        ("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",),
    ]
    return Shape(slots, 64, fixed=(7, 1), repeats=2)


_BEFORE_COPY = "fence.proxy.async.shared::cta; bar.sync 0;"
"""What orders the loads of all threads before the next copy to the same place."""


def _parts(dice: random.Random) -> Shape:
    """Boxes of tensors of one and three dimensions, in types of 16 and 32 bits, with zeros outside."""
    rank, word = dice.choice((1, 3)), dice.choice((2, 4))
    box: tuple[int, ...] = (64,) if rank == 1 else dice.choice(((8, 2, 4), (8, 4, 2), (16, 2, 2)))
    size = word
    for each in box:
        size *= each
    types = ("0x1", "0x6", "0xa") if word == 2 else ("0x2", "0x3", "0x7")
    lengths = ((64, 60, 33), (2, 3, 4), (4, 3, 2)) if rank == 1 else ((box[0], box[0] - 3), (box[1], 3, 1), (box[2], 3))
    axes = range(rank)
    slots: list[Slot] = [
        (
            _field("rank", hex(rank - 1))
            + "".join(_field("element_stride", f"{hex(axis)}, 1") + _field("box_dim", f"{hex(axis)}, {box[axis]}") for axis in axes)
            + _field("interleave_layout", "0x0") + _field("swizzle_mode", "0x0"),
        ),
        (_field("global_address", "%d2", "b64"), "add.s64 %d14, %d2, 32; " + _field("global_address", "%d14", "b64")),
        *(tuple(_field("global_dim", f"{hex(axis)}, {each}") for each in lengths[axis][:2]) for axis in axes),
        *(tuple(_field("global_stride", f"{hex(axis)}, {each}", "b64") for each in ((64, 80), (128, 64))[axis]) for axis in range(rank - 1)),
        (_field("fill_mode", "0x0"),),
        tuple(_field("elemtype", each) for each in dice.sample(types, 2)),
        (_PUBLISHED,),
    ]  # fmt: skip
    copy = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
    starts = [(0,), (8,), (-8,), (32,)] if rank == 1 else [(0, 0, 0), (4, 0, 0), (0, 1, -1), (-4, 0, 1), (0, 2, 0)]
    begin = len(slots)
    for turn in range(dice.choice((1, 2))):
        expect = f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%d11], {size};"
        registers = ", ".join(f"%r{81 + axis}" for axis in axes)
        slots += [
            tuple(
                "".join(f"mov.b32 %r{81 + axis}, {start[axis]};" for axis in axes)
                + f"{expect} @%p1 {copy} [%d8], [%d12, {{{registers}}}], [%d11];"
                for start in dice.sample(starts, 3)
            ),
            (f"W{turn}: mbarrier.try_wait.parity.shared.b64 %p10, [%d11], {turn}; @!%p10 bra W{turn};",),
            tuple(
                f"xor.b32 %r86, %r0, {lane}; and.b32 %r86, %r86, {size // 8 - 1}; mul.wide.u32 %d15, %r86, 8; add.s64 %d15, %d15, %d8; {load}"
                for lane in (0, dice.choice((1, 2)))
                for load in ("ld.shared.v2.b32 {%r24, %r25}, [%d15];", "ld.shared.b64 %d16, [%d15]; mov.b64 {%r24, %r25}, %d16;")
            ),
            pick(
                dice,
                f"add.rn.f32 %r20, %r20, %r24; max.f32 %r21, %r21, %r25; {_BEFORE_COPY}", f"xor.b32 %r20, %r20, %r24; mov.b32 %r21, %r25; {_BEFORE_COPY}",
            ),
        ]  # fmt: skip
    return Shape(slots, 64, fixed=(begin, 0), repeats=2)


def _reductions(dice: random.Random) -> Shape:
    """Boxes that are combined with the block's part of the output, of which parts may be outside."""
    width, rows = dice.choice(((8, 32), (16, 16)))
    kind, verbs = dice.choice(
        (("0x2", ("add", "min", "max", "and", "or", "xor")), ("0x3", ("add", "min", "max")), ("0x7", ("add",)))
    )
    verb = dice.choice(verbs)
    lane = dice.choice((1, 3))
    place = "mul.wide.u32 %d15, %r83, 16; add.s64 %d15, %d15, %d8;"
    chunk = "st.shared.v4.b32 [%d15], {%r20, %r21, %r22, %r23};"
    slots: list[Slot] = [
        *_own_box(width, rows), (_field("elemtype", kind),), (_field("swizzle_mode", "0x0"),), (_PUBLISHED,),
        mixing(dice, ("%r20", "%r21", "%r22", "%r23")),
        (f"mov.b32 %r83, %r0; {place} {chunk}", f"xor.b32 %r83, %r0, {lane}; {place} {chunk}"),
        ("fence.proxy.async.shared::cta; bar.sync 0;",),
    ]  # fmt: skip
    reduce = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.{}.tile.bulk_group [%d12, {{%r81, %r82}}], [%d8];"
    places = dice.sample([(0, 0), (0, 0), (0, 1), (4, 0)], 3)
    reduced = tuple(
        f"mov.b32 %r81, {x}; mov.b32 %r82, {y}; @%p1 {reduce.format(each)}"
        for x, y in places
        for each in (verb, verb, dice.choice(verbs))
    )
    slots += [reduced] * dice.choice((1, 2))
    slots.append(("@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;",))
    return Shape(slots, 64, fixed=(8, 1), repeats=2)


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "tensor copies": Family(_FRAME, _copies), "tensor stores": Family(Frame(LANGUAGES["ptx"], _HEAD, "ret; }\n"), _stores),
        "parts of tensors": Family(_FRAME, _parts), "reductions into tensors": Family(Frame(LANGUAGES["ptx"], _HEAD, "ret; }\n"), _reductions),
        "copies to a cluster": Family(Frame(LANGUAGES["ptx"], _CLUSTER_HEAD, END), _multicast),
    }
)  # fmt: skip
"""The families by name."""
