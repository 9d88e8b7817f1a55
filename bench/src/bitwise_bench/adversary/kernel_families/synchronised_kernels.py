# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels for sm_90 whose blocks synchronise with each other, or do so wrongly.

Tickets, turns, flags, barriers of the grid, decoupled look-back, locks, and atomic operations in several orders.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES

THREADS = 32
HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 .ptr .global .align 16 in_{kind}, .param .u64 .ptr .global .align 16 out_fp32, .param .u64 .ptr .global .align 16 cells, .param .u64 .ptr .global .align 16 parts) .reqntid {threads}
{{ .reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<100>; .reg .b64 %d<60>; .shared .align 16 .b8 room[8192];
ld.param.u64 %d0, [out_fp32]; ld.param.u64 %d1, [in_{kind}]; ld.param.u64 %d50, [cells]; ld.param.u64 %d51, [parts]; mov.u32 %r0, %tid.x; mov.u32 %r9, %ctaid.x; mov.u64 %d8, room;
mad.lo.u32 %r1, %r9, {threads}, %r0; mul.wide.u32 %d5, %r1, 16; add.s64 %d7, %d0, %d5; add.s64 %d6, %d1, %d5; add.s64 %d52, %d51, %d5;
mul.wide.u32 %d3, %r0, 16; add.s64 %d9, %d8, %d3; add.s64 %d10, %d0, %d3; add.s64 %d53, %d51, %d3; setp.eq.u32 %p9, %r0, 0;
mul.wide.u32 %d4, %r9, 4; add.s64 %d54, %d50, %d4; add.s64 %d55, %d1, %d3; add.s64 %d56, %d7, 0;
ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%d6]; mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13; mov.u32 %r70, 0; mov.u32 %r71, 0;
"""
"""%d7: the own output; %d10: the output of this lane in the first block; %d52 and %d53: the same of the parts; %d54: the cell of the block."""
END = "st.global.v4.b32 [%d56], {%r20, %r21, %r22, %r23};\nOVER: ret; }\n"
FRAME = Frame(LANGUAGES["ptx"], HEAD, END, cells=256)

_PART = "st.global.v4.b32 [%d52], {%r10, %r11, %r12, %r13};"
_BARRIERS = ("bar.sync 0;", "bar.sync 0;", "bar.sync 0;", "membar.gl; bar.sync 0;", "fence.acq_rel.gpu; bar.sync 0;", "bar.sync 0; fence.acq_rel.gpu;", "bar.warp.sync -1;", "")  # fmt: skip


def _gather(count: int, first: int, last: int, step: int, use: str, load: str = "ld.global") -> str:
    """Return the sum or another function of the parts of blocks in an order."""
    return "".join(
        f"{load}.v4.b32 {{%r30, %r31, %r32, %r33}}, [%d53+{each * 16 * THREADS}];" + "".join(use.replace("#", str(place)) for place in range(4))
        for each in range(first, last, step) if 0 <= each < count
    )  # fmt: skip


_USES = ("add.rn.f32 %r2#, %r2#, %r3#;", "max.f32 %r2#, %r2#, %r3#;", "add.u32 %r2#, %r2#, %r3#;", "mad.lo.u32 %r2#, %r2#, 3, %r3#;", "xor.b32 %r2#, %r2#, %r3#;")  # fmt: skip


def _gathers(dice: random.Random, count: int) -> Slot:
    use = dice.choice(_USES)
    return (
        _gather(count, 0, count, 1, use), _gather(count, 0, count, 1, use), _gather(count, count - 1, -1, -1, use),
        _gather(count, 0, count - 1, 1, use), _gather(count, 0, count, 1, dice.choice(_USES)),
        _gather(count, 0, count, 1, use, "ld.volatile.global"),
        _gather(count, 0, count, 1, use, "ld.global.nc"),
    )  # fmt: skip


_FLAGS = ("atom.acq_rel.gpu.global.{0};",) * 4 + ("atom.release.gpu.global.{0};", "atom.acquire.gpu.global.{0};", "atom.relaxed.gpu.global.{0};", "atom.global.{0};", "fence.acq_rel.gpu; atom.relaxed.gpu.global.{0}; fence.acq_rel.gpu;", "atom.acq_rel.cta.global.{0};", "atom.acq_rel.sys.global.{0};", "membar.gl; atom.global.{0}; membar.gl;")  # fmt: skip


def _atoms(operation: str, guard: str = "@%p9 ") -> list[str]:
    """Return an atomic operation by one thread with several orders and scopes."""
    return ["".join(f"{guard}{part.strip()}; " if part.strip().startswith("atom") else f"{part.strip()}; " for part in text.format(operation).split(";") if part.strip()) for text in _FLAGS]  # fmt: skip


_SHARE = ("@%p9 st.shared.b32 [room+8000], {0}; bar.sync 0; ld.shared.b32 {0}, [room+8000];", "shfl.sync.idx.b32 {0}, {0}, 0, 31, -1;", "shfl.sync.idx.b32 {0}, {0}, 0, 31, -1; bar.sync 0;", "shfl.sync.idx.b32 {0}, {0}, 0, 31, -1; bar.warp.sync -1;")  # fmt: skip


def _tickets(dice: random.Random) -> Shape:
    """The block that arrives last gathers the parts of all."""
    count = dice.choice((2, 3, 4))
    takes = [*_atoms("add.u32 %r70, [%d50], 1"), *_atoms(f"inc.u32 %r70, [%d50], {count - 1}")]
    slots: list[Slot] = [
        (_PART, _PART, f"@%p9 {_PART}", "st.global.v2.b32 [%d52], {%r10, %r11}; st.global.v2.b32 [%d52+8], {%r12, %r13};", _PART.replace("%r10", "%r11")),
        _BARRIERS,
        tuple(takes),
        tuple(each.format("%r70") for each in _SHARE),
        (f"setp.ne.u32 %p10, %r70, {count - 1}; @%p10 bra OVER;",) * 3 + (f"setp.lt.u32 %p10, %r70, {count - 1}; @%p10 bra OVER;", f"setp.ne.u32 %p10, %r70, {count - 2}; @%p10 bra OVER;", f"add.u32 %r71, %r70, 1; and.b32 %r71, %r71, {count - 1}; setp.ne.u32 %p10, %r71, 0; @%p10 bra OVER;"),
        ("", "bar.sync 0;", "fence.acq_rel.gpu;"),
        ("mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0; mov.b32 %r23, 0;",) * 3 + ("", "mov.b32 %r20, %r70; mov.b32 %r21, 0; mov.b32 %r22, 0; mov.b32 %r23, 0;"),
        _gathers(dice, count),
        ("mov.u64 %d56, %d10;",) * 3 + ("@%p9 st.global.u32 [%d50], 0; mov.u64 %d56, %d10;", "", "@%p9 st.global.u32 [%d50+4], %r70; mov.u64 %d56, %d10;"),
    ]  # fmt: skip
    return Shape(slots, THREADS, fixed=(0, 0), blocks=count, first=True)


def _waits(cell: str, test: str, number: int) -> tuple[str, ...]:
    """Return waits for a cell that one or all threads read in a loop; `test` is true while they wait."""
    found = []
    for load, after in (
        ("ld.acquire.gpu.global.u32 %r72, [{0}];", "bar.sync 0;"), ("ld.acquire.gpu.global.u32 %r72, [{0}];", ""), ("atom.acq_rel.gpu.global.add.u32 %r72, [{0}], 0;", "bar.sync 0;"),
        ("ld.relaxed.gpu.global.u32 %r72, [{0}];", "bar.sync 0;"), ("ld.relaxed.gpu.global.u32 %r72, [{0}];", "fence.acq_rel.gpu; bar.sync 0;"), ("ld.volatile.global.u32 %r72, [{0}];", "bar.sync 0;"),
        ("ld.acquire.cta.global.u32 %r72, [{0}];", "bar.sync 0;"), ("ld.acquire.gpu.global.u32 %r72, [{0}]; add.u32 %r71, %r71, 1;", "bar.sync 0;"),
    ):  # fmt: skip
        for one in (True, True, False):
            skip = f"@!%p9 bra AFTER{number};" if one else ""
            found.append(
                f"{skip} WAIT{number}: {load.format(cell)} {test} @%p11 bra WAIT{number}; AFTER{number}: {after}"
            )
    return tuple(found)


def _turns(dice: random.Random) -> Shape:
    """Blocks take turns by their index, in an ascending order, and update the elements of one block."""
    count = dice.choice((2, 3, 4))
    use = dice.choice(_USES)
    update = "ld.global.v4.b32 {%r30, %r31, %r32, %r33}, [%d53];" + "".join(use.replace("#", str(each)) for each in range(4)) + "st.global.v4.b32 [%d53], {%r20, %r21, %r22, %r23};"  # fmt: skip
    passes = ["add.u32 %r73, %r9, 1; @%p9 st.release.gpu.global.u32 [%d50], %r73;", "add.u32 %r73, %r9, 1; @%p9 st.relaxed.gpu.global.u32 [%d50], %r73;", "add.u32 %r73, %r9, 1; fence.acq_rel.gpu; @%p9 st.relaxed.gpu.global.u32 [%d50], %r73;", "add.u32 %r73, %r9, 1; @%p9 st.global.u32 [%d50], %r73;", "add.u32 %r73, %r9, 1; @%p9 st.volatile.global.u32 [%d50], %r73;", *_atoms("add.u32 %r74, [%d50], 1")]  # fmt: skip
    slots: list[Slot] = [
        _waits("%d50", dice.choice(("setp.ne.u32 %p11, %r72, %r9;", "setp.lt.u32 %p11, %r72, %r9;")), 0),
        ("", "bar.sync 0;"),
        (update, update, update.replace("ld.global", "ld.volatile.global"), update.replace("ld.global", "ld.global.cg"), update.replace("[%d53]", "[%d53+16]", 1)),
        _BARRIERS,
        tuple(passes),
        ("", "mov.b32 %r20, %r71;", "mov.b32 %r20, %r10;", "mov.u64 %d56, %d10;"),
    ]  # fmt: skip
    return Shape(slots, THREADS, fixed=(0, 0), blocks=count, first=True)


def _grid_barrier(dice: random.Random) -> Shape:
    """Blocks meet once or twice at a barrier of the grid and read what others have stored."""
    count = dice.choice((2, 3, 4))
    test = f"setp.lt.u32 %p11, %r72, {count};"
    other = dice.choice((1, 2, 3))
    neighbour = f"add.u32 %r75, %r9, {other}; rem.u32 %r75, %r75, {count}; mad.lo.u32 %r75, %r75, {THREADS}, %r0; mul.wide.u32 %d57, %r75, 16; add.s64 %d57, %d51, %d57; ld.global.v4.b32 {{%r30, %r31, %r32, %r33}}, [%d57];"  # fmt: skip
    use = dice.choice(_USES)
    read = neighbour + "".join(use.replace("#", str(each)) for each in range(4))
    slots: list[Slot] = [
        (_PART, _PART, _PART.replace("%r10", "%r11")),
        _BARRIERS,
        (*_atoms("add.u32 %r70, [%d50], 1"), "@%p9 red.release.gpu.global.add.u32 [%d50], 1;", "@%p9 red.relaxed.gpu.global.add.u32 [%d50], 1;", "@%p9 atom.release.gpu.global.add.u32 %r70, [%d50], 2;"),
        (*_waits("%d50", test, 0), *_waits("%d50", test.replace(f"{count};", f"{count - 1};"), 0)[:2], *_waits("%d50", test.replace("lt", "ne"), 0)[:3]),
        (read, read, read.replace("ld.global", "ld.global.nc"), read.replace("ld.global", "ld.volatile.global"), _gather(count, 0, count, 1, use)),
    ]  # fmt: skip
    if dice.random() < 0.5:
        cell = dice.choice(("%d50+4", "%d50+4", "%d50+4", "%d50"))
        slots += [
            ("bar.sync 0;", "", "st.global.v4.b32 [%d52], {%r20, %r21, %r22, %r23}; bar.sync 0;"),
            tuple(_atoms(f"add.u32 %r70, [{cell}], 1")),
            _waits(cell, test if cell != "%d50" else f"setp.lt.u32 %p11, %r72, {2 * count};", 1),
            ("st.global.v4.b32 [%d52], {%r20, %r21, %r22, %r23};", read, ""),
        ]
    slots.append(("", "mov.b32 %r20, %r70;", "mov.b32 %r20, %r71;"))
    return Shape(slots, THREADS, fixed=(0, 0), blocks=count, first=True)


def _look_back(dice: random.Random) -> Shape:
    """A scan: a block publishes its number, looks back over earlier blocks, and publishes its prefix."""
    count = dice.choice((2, 3, 4))
    # A cell holds a number and its flag: 1 for the number of a block, 2 for a prefix.
    one = dice.random() < 0.5
    store = dice.choice(
        ("atom.relaxed.gpu.global.exch.b64 %d40, [%d54], %d59;",) * 3
        + (
            "atom.release.gpu.global.exch.b64 %d40, [%d54], %d59;",
            "st.release.gpu.global.u64 [%d54], %d59;",
            "st.relaxed.gpu.global.u64 [%d54], %d59;",
            "st.volatile.global.u64 [%d54], %d59;",
            "st.global.u64 [%d54], %d59;",
        )
    )
    load = dice.choice(("ld.acquire.gpu.global.u64",) * 5 + ("ld.relaxed.gpu.global.u64", "ld.volatile.global.u64"))
    guard, skip = ("@%p9 ", "@!%p9 bra SEEN;") if one else ("", "")
    verbs = dice.choice(
        (
            ("add.u32", "add.u32"),
            ("add.u32", "add.u32"),
            ("max.u32", "max.u32"),
            ("xor.b32", "xor.b32"),
            ("add.u32", "max.u32"),
            ("sub.u32", "add.u32"),
            ("add.rn.f32", "add.rn.f32"),
        )
    )
    own = "mov.b32 %r74, %r10; mov.u32 %r76, 0; setp.eq.u32 %p12, %r9, 0; selp.b32 %r77, 2, 1, %p12; mul.wide.u32 %d41, %r9, 8; add.s64 %d54, %d50, %d41;"
    publish = f"mov.b64 %d59, {{%r74, %r77}}; {guard}{store}"
    first = "mov.u32 %r79, %r9; sub.s64 %d58, %d54, 8; LOOK: setp.eq.u32 %p13, %r79, 0; @%p13 bra SEEN;"
    look = f"SPIN: {load} %d42, [%d58]; mov.b64 {{%r82, %r81}}, %d42; setp.eq.u32 %p14, %r81, 0; @%p14 bra SPIN;"
    following = (
        "setp.eq.u32 %p15, %r81, 2; @%p15 bra SEEN; sub.u32 %r79, %r79, 1; sub.s64 %d58, %d58, 8; bra LOOK; SEEN:"
    )
    meet = ("",) if one else ("bar.sync 0;", "")
    prefix = f"{{0}} %r83, %r76, %r74; mov.u32 %r85, 2; mov.b64 %d59, {{%r83, %r85}}; {guard}{store}"
    slots: list[Slot] = [
        (own, own, own.replace("selp.b32 %r77, 2, 1, %p12", "mov.b32 %r77, 1")),
        (publish, publish, "fence.acq_rel.gpu;" + publish, publish.replace("%r74", "%r11"), ""),
        ("bar.sync 0;", "bar.sync 0;", ""),
        (skip + first,),
        (look, look, look.replace("SPIN:", "SPIN: add.u32 %r71, %r71, 1;"), look.replace("@%p14 bra SPIN;", "")),
        meet,
        tuple(f"{verb} %r76, %r76, %r82;" for verb in (verbs[0], verbs[0], verbs[1])),
        (following, following, following.replace("%r81, 2", "%r81, 3")),
        tuple(prefix.replace("{0}", verb) for verb in (verbs[0], verbs[0], verbs[1])),
        ("mov.b32 %r20, %r76;", "mov.b32 %r20, %r83;", "mov.b32 %r20, %r79;", "mov.b32 %r20, %r71;", "shfl.sync.idx.b32 %r20, %r76, 0, 31, -1;") if one else ("mov.b32 %r20, %r76;", "mov.b32 %r20, %r79;", "mov.b32 %r20, %r71;"),
    ]  # fmt: skip
    return Shape(slots, THREADS if one else 1, fixed=(0, 0), blocks=count, first=True)


def _later_blocks(dice: random.Random) -> Shape:
    """Blocks wait for flags of others, also of later ones, and add their parts, as products that are cut along k do."""
    count = dice.choice((2, 3, 4))
    use = dice.choice(_USES)
    kind = dice.choice(("first", "pairs", "chain", "all"))
    owner, waited = {  # which blocks do not wait, and for which blocks the others wait
        "first": ("setp.ne.u32 %p10, %r9, 0;", list(range(1, count))),
        "pairs": (f"and.b32 %r71, %r9, 1; setp.ne.u32 %p10, %r71, 0; add.u32 %r70, %r9, 1; setp.ge.u32 %p12, %r70, {count}; or.pred %p10, %p10, %p12;", [1]),
        "chain": (f"setp.eq.u32 %p10, %r9, {count - 1};", [1]),
        "all": ("setp.gt.u32 %p10, %r9, 1000;", list(range(count))),
    }[kind]  # fmt: skip
    relative = kind in ("pairs", "chain")
    cell = ("%d54+{0}" if relative else "%d50+{0}").format
    part = "%d52+{0}" if relative else "%d53+{0}"
    size = 16 * THREADS

    def gather(each: int, verb: str, load: str = "ld.global") -> str:
        return f"{load}.v4.b32 {{%r30, %r31, %r32, %r33}}, [{part.format(each * size)}];" + "".join(verb.replace("#", str(at)) for at in range(4))  # fmt: skip

    def wait(each: int, number: int, at: int) -> str:
        texts = _waits(cell(4 * each), f"setp.{dice.choice(('eq', 'eq', 'lt', 'ne'))}.u32 %p11, %r72, {'0' if at == 0 else '1'};".replace("lt.u32 %p11, %r72, 0", "lt.u32 %p11, %r72, 1").replace("ne.u32 %p11, %r72, 0", "ne.u32 %p11, %r72, 1").replace("eq.u32 %p11, %r72, 1", "ne.u32 %p11, %r72, 1"), number)  # fmt: skip
        return texts[0] if dice.random() < 0.7 else dice.choice(texts)

    def whole(order: list[int], verb: str, *, apart: bool, load: str = "ld.global") -> str:
        waits = [wait(each, number, dice.randrange(2)) for number, each in enumerate(order)]
        adds = [gather(each, verb, load) for each in order]
        text = " ".join(a + b for a, b in zip(waits, adds, strict=True)) if not apart else " ".join([*waits, *adds])
        return f"@%p10 bra ALONE; {text} ALONE:"

    other = dice.choice(_USES)
    ways = [
        whole(waited, use, apart=False), whole(waited, use, apart=True), whole(waited[::-1], use, apart=False), whole(waited[::-1], use, apart=True),
        whole(waited, other, apart=False), whole(waited, use, apart=True, load="ld.volatile.global"), whole(waited, use, apart=True, load="ld.global.nc"), whole(waited[: max(1, len(waited) - 1)], use, apart=True),
    ]  # fmt: skip
    flag = ("st.release.gpu.global.u32 [%d54], 1;", "st.relaxed.gpu.global.u32 [%d54], 1;", "st.global.u32 [%d54], 1;", "st.volatile.global.u32 [%d54], 1;")  # fmt: skip
    sets = [
        *(f"@%p9 {each}" for each in flag),
        f"fence.acq_rel.gpu; @%p9 {flag[1]}",
        *_atoms("exch.b32 %r70, [%d54], 1"),
    ]
    first, second = dice.choice(sets[:1] * 4 + sets), dice.choice(sets)
    clear = "mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0; mov.b32 %r23, 0;"
    own = _PART if kind != "chain" else "mov.b32 %r81, 0;"
    last = "st.global.v4.b32 [%d52], {%r20, %r21, %r22, %r23};"
    slots: list[Slot] = [
        (own, own, own.replace("%r10", "%r11"), f"@%p9 {own}"),
        _BARRIERS if kind != "chain" else ("",),
        (first, first, second) if kind != "chain" else ("",),
        (owner,),
        (clear, "") if kind == "all" else ("",),
        tuple(ways),
        (last, last, "") if kind == "chain" else ("", "", "@%p9 st.global.u32 [%d54], 0;" if kind == "first" else ""),
        _BARRIERS if kind == "chain" else ("",),
        (first, first, second) if kind == "chain" else ("",),
        ("", "", "mov.b32 %r20, %r72;", "mov.b32 %r20, %r71;"),
    ]
    return Shape(slots, THREADS, fixed=(0, 0), blocks=count, first=True)


def _locks(dice: random.Random) -> Shape:
    """A lock that blocks take in any order, around an update that commutes or does not."""
    count = dice.choice((2, 3))
    use = dice.choice(_USES)
    take = dice.choice(("atom.acq_rel.gpu.global.cas.b32 %r72, [%d50], 0, 1;", "atom.acquire.gpu.global.exch.b32 %r72, [%d50], 1;", "atom.relaxed.gpu.global.cas.b32 %r72, [%d50], 0, 1;"))  # fmt: skip
    free = dice.choice(("atom.release.gpu.global.exch.b32 %r73, [%d50], 0;", "st.release.gpu.global.u32 [%d50], 0;", "st.global.u32 [%d50], 0;"))  # fmt: skip
    update = "ld.global.v4.b32 {%r30, %r31, %r32, %r33}, [%d53];" + "".join(use.replace("#", str(each)) for each in range(4)) + "st.global.v4.b32 [%d53], {%r20, %r21, %r22, %r23};"  # fmt: skip
    slots: list[Slot] = [
        (f"@!%p9 bra HELD; LOCK: {take} setp.ne.u32 %p11, %r72, 0; @%p11 bra LOCK; HELD: bar.sync 0;",),
        (update, update, update.replace("[%d53]", "[%d52]"), _PART),
        ("bar.sync 0;", "fence.acq_rel.gpu; bar.sync 0;"),
        (f"@%p9 {free}",),
        ("mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13;", ""),
    ]
    return Shape(slots, THREADS, fixed=(0, 0), blocks=count, first=True)


_ORDERS = ("", ".relaxed.gpu", ".release.gpu", ".relaxed.cta", ".relaxed.sys")


def _atomics(dice: random.Random) -> Shape:
    """Atomic operations of several kinds, widths and orders on elements that other threads and blocks update, load or store."""
    count = dice.choice((1, 2, 3))
    places = ("%d53", "%d53", "%d52", "%d51", "%d53+4")

    def one() -> Slot:
        place, source = dice.choice(places), dice.choice(("%r10", "%r11", "1", "0"))
        texts = [
            f"red{dice.choice(_ORDERS)}.global.{verb} [{place}], {source};"
            for verb in ("add.u32", "add.s32", "min.s32", "max.s32", "min.u32", "max.u32", "and.b32", "or.b32", "xor.b32", "inc.u32", "dec.u32")
        ]  # fmt: skip
        texts += [
            f"red{dice.choice(_ORDERS)}.global.add.f32 [{place}], %r11;",
            f"atom{dice.choice(_ORDERS)}.global.exch.b32 %r21, [{place}], {source};",
            f"atom{dice.choice(_ORDERS)}.global.add.u32 %r22, [{place}], {source};",
            f"atom{dice.choice(_ORDERS)}.global.cas.b32 %r21, [{place}], 0, {source};",
            f"st.global.u32 [{place}], {source};", f"ld.global.u32 %r22, [{place}];", f"ld.volatile.global.u32 %r22, [{place}];",
            f"@%p9 red{dice.choice(_ORDERS)}.global.add.u32 [{place}], {source};", f"setp.lt.f32 %p11, %r10, %r11; @%p11 red.global.max.u32 [{place}], {source};",
            "mov.b64 %d57, {%r10, %r11}; red.global.add.u64 [%d53+8], %d57;", "mov.b64 %d57, {%r10, %r11}; red.global.max.s64 [%d53+8], %d57;", "red.global.add.u32 [%d53+8], 1;",
            f"red.global.add.noftz.f16x2 [{place}], %r11;", "st.global.u16 [%d53+2], 7;", "st.global.u8 [%d53], %r10;",
        ]  # fmt: skip
        return tuple(dice.sample(texts, 5))

    between = ("bar.sync 0;", "bar.sync 0;", "bar.warp.sync -1;", "fence.acq_rel.gpu;", "")
    slots: list[Slot] = []
    for _ in range(dice.randint(1, 3)):
        slots += [one(), between]
    slots += [
        one(),
        between,
        (
            "ld.global.v4.b32 {%r20, %r21, %r22, %r23}, [%d53];",
            "ld.global.v4.b32 {%r20, %r21, %r22, %r23}, [%d52];",
            "",
        ),
    ]
    return Shape(slots, dice.choice((32, 64)), fixed=(0, 0), blocks=count)


def _aliased_widths(dice: random.Random) -> Shape:
    """Stores and loads of global memory in several widths, by a thread or by its neighbours, into the parts."""
    xor = dice.choice((0, 1, 3))
    neighbour = f"xor.b32 %r75, %r1, {xor}; mul.wide.u32 %d57, %r75, 16; add.s64 %d57, %d51, %d57;"

    def at(width: int, base: str = "%d52") -> str:
        return f"{base}+{dice.randrange(0, 16, width)}"

    def store() -> str:
        source = dice.choice(("%r10", "%r11", "%r12", "%r13"))
        return dice.choice(
            (
                f"st.global.u8 [{at(1)}], {source};", f"cvt.u16.u32 %h1, {source}; st.global.b16 [{at(2)}], %h1;", f"st.global.b32 [{at(4)}], {source};",
                f"mov.b64 %d58, {{{source}, %r10}}; st.global.b64 [{at(8)}], %d58;", "st.global.v4.b32 [%d52], {%r11, %r12, %r13, %r10};",
                f"cvt.u16.u32 %h1, {source}; st.global.v2.u16 [{at(4)}], {{%h1, %h1}};", f"st.global.v4.u8 [{at(4)}], {{%r10, %r11, %r12, %r13}};",
                f"setp.lt.f32 %p11, %r10, %r11; @%p11 st.global.b32 [{at(4)}], {source};", f"setp.lt.u32 %p11, %r0, 9; @%p11 st.global.u8 [{at(1)}], {source};",
                f"@%p9 st.global.b32 [{at(4)}], {source};",
            )
        )  # fmt: skip

    def load(base: str) -> str:
        to = dice.choice(("%r20", "%r21", "%r22", "%r23"))
        return dice.choice(
            (
                f"ld.global.u8 {to}, [{at(1, base)}];", f"ld.global.s8 {to}, [{at(1, base)}];", f"ld.global.s16 {to}, [{at(2, base)}];", f"ld.global.u16 {to}, [{at(2, base)}];",
                f"ld.global.b32 {to}, [{at(4, base)}];", f"ld.global.b64 %d58, [{at(8, base)}]; mov.b64 {{%r20, %r21}}, %d58;", f"ld.global.v4.b32 {{%r20, %r21, %r22, %r23}}, [{base}];",
                f"ld.global.v2.u16 {{%h1, %h2}}, [{at(4, base)}]; mov.b32 {to}, {{%h2, %h1}};", f"ld.global.v4.u8 {{%r20, %r21, %r22, %r23}}, [{at(4, base)}];",
            )
        )  # fmt: skip

    base = dice.choice(("%d52", "%d57"))
    slots: list[Slot] = [(neighbour,), ("st.global.v4.b32 [%d52], {%r10, %r11, %r12, %r13};", "")]
    slots += [tuple(store() for _ in range(4)) for _ in range(dice.randint(1, 4))]
    slots.append(("bar.sync 0;", "bar.sync 0;", "bar.warp.sync -1;", "") if base == "%d57" else ("", "bar.sync 0;"))
    slots += [tuple(load(base) for _ in range(3)) for _ in range(dice.randint(1, 3))]
    if dice.random() < 0.4:
        slots += [("bar.sync 0;", ""), tuple(store() for _ in range(4)), tuple(load("%d52") for _ in range(3))]
    return Shape(slots, dice.choice((32, 64)), fixed=(1, 0), blocks=dice.choice((1, 2)))


def _tile_loop(dice: random.Random) -> Shape:
    """Blocks take several tiles in a loop, by a step, by a counter, or by a counter of their own."""
    count, tiles = dice.choice((1, 2, 3)), dice.choice((3, 4, 5))
    use = dice.choice(_USES)
    first = ("mov.u32 %r60, %r9;",) * 3 + ("mov.u32 %r60, 0;", *_atoms("add.u32 %r60, [%d50], 1"), *_atoms("add.u32 %r60, [%d54], 1")[:2])  # fmt: skip
    share = ("",) * 3 + tuple(each.format("%r60") for each in _SHARE)
    where = f"rem.u32 %r61, %r60, {count}; mad.lo.u32 %r61, %r61, {THREADS}, %r0; mul.wide.u32 %d57, %r61, 16; add.s64 %d58, %d1, %d57; add.s64 %d57, %d51, %d57; ld.global.v4.b32 {{%r30, %r31, %r32, %r33}}, [%d58];"  # fmt: skip
    body = "".join(use.replace("#", str(each)) for each in range(4))
    store = ("st.global.v4.b32 [%d57], {%r30, %r31, %r32, %r33};",) * 2 + ("st.global.v4.b32 [%d57], {%r20, %r21, %r22, %r23};", "", "red.global.add.u32 [%d57], %r60;")  # fmt: skip
    following = (f"add.u32 %r60, %r60, {count};",) * 3 + ("add.u32 %r60, %r60, 1;", *_atoms("add.u32 %r60, [%d50], 1"))
    slots: list[Slot] = [
        first, share, (f"TILE: setp.ge.u32 %p11, %r60, {tiles}; @%p11 bra OUT;",),
        (where,), (body, "", "cvt.rn.f32.u32 %r62, %r60; add.rn.f32 %r30, %r30, %r62;"), store, following, share, ("bra TILE; OUT:",),
        ("", "mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13;"),
    ]  # fmt: skip
    return Shape(slots, THREADS, fixed=(0, 0), blocks=count, first=True)


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        name: Family(FRAME, make)
        for name, make in (
            ("tickets of blocks", _tickets), ("turns of blocks", _turns), ("barriers of a grid", _grid_barrier),
            ("look-back", _look_back), ("later blocks", _later_blocks), ("locks", _locks), ("atomic operations", _atomics),
            ("widths of global memory", _aliased_widths), ("loops over tiles", _tile_loop),
        )
    }
)  # fmt: skip
"""The families by name."""
