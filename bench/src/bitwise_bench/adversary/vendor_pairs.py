# ruff: noqa: E501 - a line of assembly is read as one
"""Pairs of kernels of one computation for sm_90 and gfx942, each with an instruction of its own for every operation.

Some instructions of an operation differ from others for zeros, NaNs, subnormal or large numbers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from bitwise_bench.adversary.block_programs import BlockProgram, Frame
from bitwise_bench.adversary.kernel_families import block_kernels, wave_kernels

SOURCE = "pairs of vendors"
_FIRST, _LAST = 40, 60
"""The registers of results in between."""


@dataclass(frozen=True, slots=True)
class _Operation:
    """The texts of an operation for each vendor, some of which may be others; @ is the result, $0 the first operand."""

    operands: int
    ptx: tuple[str, ...]
    gfx942: tuple[str, ...]


def _two(ptx: str, gfx942: str) -> _Operation:
    return _Operation(2, (f"{ptx} @, $0, $1;", f"{ptx} @, $1, $0;"), (f"{gfx942} @, $0, $1;", f"{gfx942} @, $1, $0;"))


_QUIET = "v_max_f32_e32 v31, $0, $0; v_max_f32_e32 v32, $1, $1;"
_ROUNDED = (
    "v_bfe_u32 v31, $0, 16, 1; s_movk_i32 s20, 0x7fff; v_add3_u32 v31, $0, v31, s20; v_mov_b32_e32 v32, 0x7fff0000;"
)
_OPERATIONS = (
    _two("add.rn.f32", "v_add_f32_e32"), _two("mul.rn.f32", "v_mul_f32_e32"), _two("sub.rn.f32", "v_sub_f32_e32"),
    _two("add.u32", "v_add_u32_e32"), _two("and.b32", "v_and_b32_e32"),
    _Operation(3, ("fma.rn.f32 @, $0, $1, $2;", "fma.rn.f32 @, $1, $0, $2;"), ("v_fma_f32 @, $0, $1, $2;", "v_fma_f32 @, $1, $0, $2;")),
    _Operation(2, ("max.f32 @, $0, $1;", "max.NaN.f32 @, $0, $1;"), ("v_max_f32_e32 @, $0, $1;", f"{_QUIET} v_max_f32_e32 @, v31, v32;")),
    _Operation(2, ("min.f32 @, $0, $1;", "min.NaN.f32 @, $0, $1;"), ("v_min_f32_e32 @, $0, $1;", f"{_QUIET} v_min_f32_e32 @, v31, v32;")),
    _Operation(3, ("max.f32 @, $0, $1; max.f32 @, @, $2;",), ("v_max3_f32 @, $0, $1, $2;", f"{_QUIET} v_max3_f32 @, v31, v32, $2;")),
    _Operation(1, ("neg.f32 @, $0;", "xor.b32 @, $0, 0x80000000;"), ("v_xor_b32_e32 @, 0x80000000, $0;", "v_sub_f32_e32 @, 0, $0;", "v_mul_f32_e32 @, -1.0, $0;")),
    _Operation(1, ("abs.f32 @, $0;", "and.b32 @, $0, 0x7fffffff;"), ("v_and_b32_e32 @, 0x7fffffff, $0;", "v_max_f32_e64 @, |$0|, |$0|;")),
    _Operation(
        2, ("setp.lt.f32 %p1, $0, $1; selp.b32 @, $0, $1, %p1;", "setp.gt.f32 %p1, $0, $1; selp.b32 @, $0, $1, %p1;", "setp.geu.f32 %p1, $0, $1; selp.b32 @, $1, $0, %p1;"),
        ("v_cmp_lt_f32_e32 vcc, $0, $1; v_cndmask_b32_e32 @, $1, $0, vcc;", "v_cmp_gt_f32_e32 vcc, $0, $1; v_cndmask_b32_e32 @, $1, $0, vcc;", "v_cmp_nlt_f32_e32 vcc, $0, $1; v_cndmask_b32_e32 @, $0, $1, vcc;"),
    ),
    _Operation(1, ("cvt.rn.f16.f32 %h1, $0; cvt.f32.f16 @, %h1;",), ("v_cvt_f16_f32_e32 @, $0; v_cvt_f32_f16_e32 @, @;",)),
    _Operation(1, ("cvt.rn.bf16.f32 %h1, $0; mov.b32 @, {%h1, %h1}; and.b32 @, @, 0xffff0000;",), (f"{_ROUNDED} v_cmp_u_f32_e32 vcc, $0, $0; v_cndmask_b32_e32 @, v31, v32, vcc; v_and_b32_e32 @, 0xffff0000, @;", "v_and_b32_e32 @, 0xffff0000, $0;")),
    _Operation(1, ("cvt.rzi.s32.f32 @, $0; cvt.rn.f32.s32 @, @;",), ("v_cvt_i32_f32_e32 @, $0; v_cvt_f32_i32_e32 @, @;", "v_trunc_f32_e32 @, $0;")),
    _Operation(1, ("cvt.rni.f32.f32 @, $0;", "cvt.rmi.f32.f32 @, $0;"), ("v_rndne_f32_e32 @, $0;", "v_floor_f32_e32 @, $0;")),
    _Operation(1, ("shr.s32 @, $0, 3;", "shr.u32 @, $0, 3;"), ("v_ashrrev_i32_e32 @, 3, $0;", "v_lshrrev_b32_e32 @, 3, $0;")),
    _Operation(2, ("add.rn.f16x2 @, $0, $1;", "mul.rn.f16x2 @, $0, $1;", "max.f16x2 @, $0, $1;"), ("v_pk_add_f16 @, $0, $1;", "v_pk_mul_f16 @, $0, $1;", "v_pk_max_f16 @, $0, $1;")),
    _Operation(2, ("add.rn.sat.f32 @, $0, $1;", "add.rn.ftz.f32 @, $0, $1;"), ("v_add_f32_e64 @, $0, $1 clamp;", "v_add_f32_e32 @, $0, $1;")),
)  # fmt: skip


def vendor_pair(dice: random.Random) -> tuple[BlockProgram, BlockProgram]:
    """Return two kernels of one random expression, with instructions of each operation that may differ."""
    texts: tuple[list[str], list[str]] = ([], [])
    depth, register = dice.choice((1, 2, 2, 3)), _FIRST
    exact = dice.random() < 0.5

    def made(level: int) -> int:
        nonlocal register
        if level == 0 or (level < depth and dice.random() < 0.2):
            return dice.choice((10, 11, 12, 13))
        operation = dice.choice(_OPERATIONS)
        operands = [made(level - 1) for _ in range(operation.operands)]
        register = register + 1 if register < _LAST else _FIRST
        for text, choices, letter in ((texts[0], operation.ptx, "%r"), (texts[1], operation.gfx942, "v")):
            chosen = choices[0] if exact else dice.choice(choices)
            for place, each in enumerate(operands):
                chosen = chosen.replace(f"${place}", f"{letter}{each}")
            text.append(chosen.replace("@", f"{letter}{register}"))
        return register

    result = made(depth)
    threads = 64
    moved = [(20, result), (21, 11), (22, 12), (23, 13)]
    ptx = "".join(f"mov.b32 %r{to}, %r{each};" for to, each in moved)
    gfx942 = "".join(f"v_mov_b32_e32 v{to}, v{each};" for to, each in moved)

    def program(frame: Frame, lines: list[str], last: str) -> BlockProgram:
        chosen = (*lines, last)
        return BlockProgram(SOURCE, chosen, tuple((each,) for each in chosen), threads, "f32", (0, 1), frame)

    return program(block_kernels.FRAME, texts[0], ptx), program(wave_kernels.FRAME, texts[1], gfx942)
