# ruff: noqa: E501 - a line of assembly is read as one
"""Kernels on grids that are too large to be executed in full, whose blocks compute by their index, for sm_90 and gfx942.

Their first blocks are executed: nothing in them depends on the size of the grid.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Shape, Slot, pick
from bitwise_bench.adversary.kernel_families import block_kernels, wave_kernels

_BLOCKS = 40_000
"""More than the blocks of 64 threads that are executed in full."""


def _by_index(dice: random.Random) -> Slot:
    """Return a slot for sm_90 in which the values of a block depend on its index."""
    to, other = dice.sample(("%r10", "%r11", "%r12", "%r13"), 2)
    bit, number = dice.choice((1, 2)), dice.choice((1, 2, 3))
    own = "mul.wide.u32 %d40, %r90, 1024; add.s64 %d40, %d1, %d40;"
    return pick(
        dice,
        f"and.b32 %r90, %r9, {bit}; setp.eq.u32 %p10, %r90, 0; selp.b32 {to}, {to}, {other}, %p10;",
        f"and.b32 %r90, %r9, {bit}; setp.ne.u32 %p10, %r90, 0; selp.b32 {to}, {other}, {to}, %p10;",
        f"setp.lt.u32 %p10, %r9, {number}; @%p10 mov.b32 {to}, {other};", f"setp.ge.u32 %p10, %r9, {number}; @!%p10 mov.b32 {to}, {other};",
        f"setp.eq.u32 %p10, %r9, {number}; @%p10 mov.b32 {to}, {other};", f"cvt.rn.f32.u32 %r90, %r9; add.rn.f32 {to}, {to}, %r90;",
        f"cvt.rn.f32.u32 %r90, %r9; add.rn.f32 {to}, %r90, {to};", f"add.u32 {to}, {to}, %r9;", f"xor.b32 {to}, {to}, %r9;", f"mad.lo.u32 {to}, %r9, 3, {to};",
        f"xor.b32 %r90, %r9, {bit}; {own} ld.global.b32 {to}, [%d40];", f"mov.b32 %r90, %r9; {own} ld.global.b32 {to}, [%d40];",
        f"min.u32 %r90, %r9, {number}; {own} ld.global.b32 {to}, [%d40];", f"sub.u32 %r90, 39999, %r9; sub.u32 %r90, 39999, %r90; {own} ld.global.b32 {to}, [%d40];",
        f"and.b32 %r90, %r9, {bit}; setp.eq.u32 %p10, %r90, 0; @%p10 bra ODD{{}}; add.rn.f32 {to}, {to}, {other}; ODD{{}}:",
        f"mov.b32 %r90, 0; MORE{{}}: add.rn.f32 {to}, {to}, {other}; add.u32 %r90, %r90, 1; setp.lt.u32 %p10, %r90, {number}; @%p10 bra MORE{{}};",
    )  # fmt: skip


def _by_index_of_waves(dice: random.Random) -> Slot:
    """Return a slot for gfx942 in which the values of a block depend on its index."""
    to, other = dice.sample(("v10", "v11", "v12", "v13"), 2)
    bit, number = dice.choice((1, 2)), dice.choice((1, 2, 3))
    own = "s_lshl_b32 s20, s20, 10; v_mov_b32_e32 v31, s20;"
    load = f"global_load_dword {to}, v31, s[8:9]; s_waitcnt vmcnt(0);"
    return pick(
        dice,
        f"s_and_b32 s20, s2, {bit}; s_cmp_eq_u32 s20, 0; s_cselect_b64 vcc, -1, 0; v_cndmask_b32_e32 {to}, {other}, {to}, vcc;",
        f"s_and_b32 s20, s2, {bit}; s_cmp_lg_u32 s20, 0; s_cselect_b64 vcc, -1, 0; v_cndmask_b32_e32 {to}, {to}, {other}, vcc;",
        f"s_bitcmp1_b32 s2, {bit - 1}; s_cselect_b64 vcc, -1, 0; v_cndmask_b32_e32 {to}, {to}, {other}, vcc;",
        f"s_cmp_lt_u32 s2, {number}; s_cselect_b64 vcc, -1, 0; v_cndmask_b32_e32 {to}, {to}, {other}, vcc;",
        f"v_mov_b32_e32 v31, s2; v_cmp_gt_u32_e32 vcc, {number}, v31; v_cndmask_b32_e32 {to}, {to}, {other}, vcc;",
        f"s_cmp_eq_u32 s2, {number}; s_cselect_b64 vcc, -1, 0; v_cndmask_b32_e32 {to}, {to}, {other}, vcc;",
        f"v_cvt_f32_u32_e32 v31, s2; v_add_f32_e32 {to}, {to}, v31;", f"v_cvt_f32_u32_e32 v31, s2; v_add_f32_e32 {to}, v31, {to};",
        f"v_add_u32_e32 {to}, s2, {to};", f"v_xor_b32_e32 {to}, s2, {to};", f"s_mul_i32 s20, s2, 3; v_add_u32_e32 {to}, s20, {to};",
        f"s_xor_b32 s20, s2, {bit}; {own} {load}", f"s_mov_b32 s20, s2; {own} {load}",
        f"s_min_u32 s20, s2, {number}; {own} {load}", f"s_sub_u32 s20, 39999, s2; s_sub_u32 s20, 39999, s20; {own} {load}",
        f"s_and_b32 s20, s2, {bit}; s_cmp_eq_u32 s20, 0; s_cbranch_scc1 .LODD{{}}; v_add_f32_e32 {to}, {to}, {other}; .LODD{{}}:",
        f"s_mov_b32 s20, 0; .LMORE{{}}:; v_add_f32_e32 {to}, {to}, {other}; s_add_u32 s20, s20, 1; s_cmp_lt_u32 s20, {number}; s_cbranch_scc1 .LMORE{{}};",
    )  # fmt: skip


def _masked_of_waves(dice: random.Random) -> Slot:
    """Return a slot for gfx942 that loads in some lanes, at the offset of the own element, or at one out of bounds."""
    to, lanes = dice.choice(("v10", "v12")), dice.choice((8, 40, 63))
    begin = "s_mov_b32 s16, s8; s_and_b32 s17, s9, 0xffff; s_mov_b32 s18, 0x7ffffffe; s_mov_b32 s19, 0x27000;"
    found = []
    for number in ("0x80000000", "-2", "0"):
        for lower in (True, False):
            test = f"v_cmp_{'gt' if lower else 'le'}_u32_e32 vcc, {lanes}, v0;"
            sides = ("v32", "v2") if lower else ("v2", "v32")
            offset = f"{begin} v_mov_b32_e32 v32, {number}; {test} v_cndmask_b32_e32 v31, {sides[0]}, {sides[1]}, vcc;"
            found += [
                f"{offset} buffer_load_dword {to}, v31, s[16:19], 0 offen; s_waitcnt vmcnt(0);",
                f"{offset} buffer_load_dword {to}, v31, s[16:19], 0 offen offset:4; s_waitcnt vmcnt(0);",
                f"{offset} v_add_u32_e32 v31, 4, v31; buffer_load_dword {to}, v31, s[16:19], 0 offen; s_waitcnt vmcnt(0);",
                f"{offset} v_add_u32_e32 {to}, v31, {to};",
            ]
    return tuple(dice.sample(found, 8))


def _shape(
    dice: random.Random, by_index: Callable[[random.Random], Slot], mixing: Callable[[random.Random], Slot], moves: str
) -> Shape:
    """Return values that depend on the index of the block, and what is computed of them."""
    of_index = [tuple(each.replace("{}", str(place)) for each in by_index(dice)) for place in range(dice.randint(1, 3))]
    slots: list[Slot] = [("",), *of_index, (moves,), mixing(dice), mixing(dice)]
    return Shape(slots, 64, fixed=(1, 2), blocks=_BLOCKS)


def _blocks(dice: random.Random) -> Shape:
    """Blocks of sm_90."""
    moves = "".join(f"mov.b32 %r2{each}, %r1{each};" for each in range(4))
    names = ("%r20", "%r21", "%r22", "%r23")
    return _shape(dice, _by_index, lambda dice: block_kernels.mixing(dice, names), moves)


def _blocks_of_waves(dice: random.Random) -> Shape:
    """Blocks of gfx942."""
    moves = "".join(f"v_mov_b32_e32 v2{each}, v1{each};" for each in range(4))

    def by_index(dice: random.Random) -> Slot:
        return dice.choice((_by_index_of_waves, _by_index_of_waves, _masked_of_waves))(dice)

    return _shape(dice, by_index, wave_kernels.mixing, moves)


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "blocks of a large grid": Family(block_kernels.FRAME, _blocks),
        "blocks of a large grid of waves": Family(wave_kernels.FRAME, _blocks_of_waves),
    }
)
"""The families by name."""
