"""Statements that compute floating-point values."""

from __future__ import annotations

import numpy as np

from random_programs.values import (
    FLOATS,
    FORMAT,
    UNSIGNED,
    WIDTH,
    Bits,
    Draw,
    Program,
    Value,
    evaluate,
    in_register,
    operands,
)


def binary(program: Program, n: Draw) -> None:
    kind = FLOATS[n[3] % len(FLOATS)]
    verb = ("add", "sub", "mul", "add")[n[3] // 8 % 4]
    rounding = ("rn", "rn", "rn", "rn", "rn", "rz", "rm", "rp")[n[3] // 32 % 8] if kind in ("f32", "f64") else "rn"
    ftz = ".ftz" if kind == "f32" and n[2] % 11 == 0 else ""
    found = operands(program, kind, n[:2])
    if found is None:
        return
    a, b = (in_register(program, each) if kind in ("f16", "bf16") else each for each in found)
    name = {"rm": "rd", "rp": "ru"}.get(rounding, rounding)
    program.add(
        kind,
        evaluate(f"{verb}.{name}{ftz}.{FORMAT[kind]}", a, b),
        f"{verb}.{rounding}{ftz}.{kind} @@, {a.register}, {b.register};",
    )


def fused(program: Program, n: Draw) -> None:
    kind = FLOATS[n[3] % len(FLOATS)]
    rounding = ("rn", "rn", "rn", "rz")[n[3] // 8 % 4] if kind in ("f32", "f64") else "rn"
    found = operands(program, kind, n[:3])
    if found is None:
        return
    a, b, c = (in_register(program, each) if kind in ("f16", "bf16") else each for each in found)
    program.add(
        kind,
        evaluate(f"fma.{rounding}.{FORMAT[kind]}", a, b, c),
        f"fma.{rounding}.{kind} @@, {a.register}, {b.register}, {c.register};",
    )


def extremum(program: Program, n: Draw) -> None:
    kind = FLOATS[n[3] % len(FLOATS)]
    verb = ("max", "min")[n[3] // 8 % 2]
    nan = n[3] // 16 % 3 == 0 and kind != "f64"
    found = operands(program, kind, n[:2])
    if found is None:
        return
    a, b = (in_register(program, each) if kind in ("f16", "bf16") else each for each in found)
    program.add(
        kind,
        evaluate(f"{verb}{'.nan' if nan else ''}.{FORMAT[kind]}", a, b),
        f"{verb}{'.NaN' if nan else ''}.{kind} @@, {a.register}, {b.register};",
    )


def sign(program: Program, n: Draw) -> None:
    kind = FLOATS[n[3] % len(FLOATS)]
    verb = ("neg", "abs")[n[3] // 8 % 2]
    found = operands(program, kind, n[:1])
    if found is None:
        return
    a = in_register(program, found[0])
    bits = WIDTH[kind]
    if n[2] % 3 == 0:
        mask = 1 << bits - 1 if verb == "neg" else (1 << bits - 1) - 1
        line = f"{'xor' if verb == 'neg' else 'and'}.b{bits} @@, {a.register}, {mask};"
        program.add(kind, a.bits ^ UNSIGNED[bits](mask) if verb == "neg" else a.bits & UNSIGNED[bits](mask), line)
        return
    program.add(kind, evaluate(f"{verb}.{FORMAT[kind]}", a), f"{verb}.{kind} @@, {a.register};")


CONVERSIONS = (
    ("f16", "f32", "convert.fp32.fp16", "cvt.f32.f16"),
    ("f32", "f16", "convert.rn.fp16.fp32", "cvt.rn.f16.f32"),
    ("bf16", "f32", "convert.fp32.bf16", "cvt.f32.bf16"),
    ("f32", "bf16", "convert.rn.bf16.fp32", "cvt.rn.bf16.f32"),
    ("f32", "f64", "convert.fp64.fp32", "cvt.f64.f32"),
    ("f64", "f32", "convert.rn.fp32.fp64", "cvt.rn.f32.f64"),
    ("f32", "f16", "convert.rz.fp16.fp32", "cvt.rz.f16.f32"),
    ("i32", "f32", "convert.rn.fp32.s32", "cvt.rn.f32.s32"),
    ("f32", "f32", "convert.rni.fp32.fp32", "cvt.rni.f32.f32"),
    ("f16", "f64", "convert.fp64.fp16", "cvt.f64.f16"),
)


def convert(program: Program, n: Draw) -> None:
    source, to, name, line = CONVERSIONS[n[3] % len(CONVERSIONS)]
    found = operands(program, source, n[:1])
    if found is None:
        return
    a = in_register(program, found[0])
    if line == "cvt.f32.bf16":  # which keeps the bits of a NaN
        line = "cvt.f32.bf16 @@, {};" if n[2] % 2 else "mov.b32 @@, {{0, {}}};"
        program.add(to, a.bits.astype(np.uint32) << np.uint32(16), line.format(a.register))
        return
    program.add(to, evaluate(name, a), f"{line} @@, {a.register};")


REINTERPRETED = (
    ("f16", "bf16"), ("bf16", "f16"), ("f32", "i32"), ("i32", "f32"), ("i32", "f16x2"), ("f16x2", "i32"),
    ("f32", "f16x2"), ("f16x2", "f32"),
)  # fmt: skip


def reinterpret(program: Program, n: Draw) -> None:
    """The bits of a value as a value of another kind, or a half of it."""
    source, to = REINTERPRETED[n[3] % len(REINTERPRETED)]
    found = operands(program, source, n[:1])
    if found is None:
        return
    a = in_register(program, found[0])
    if WIDTH[source] == 32 and n[2] % 3 == 0:
        half, kind = n[2] // 3 % 2, ("f16", "bf16")[n[2] // 6 % 2]
        bits = (a.bits >> np.uint32(16 * half)).astype(np.uint16)
        split = f"mov.b32 {{lo, hi}}, {a.register}; mov.b16 @@, {('lo', 'hi')[half]};"
        program.add(kind, bits, f"{{ .reg .b16 lo, hi; {split} }}")
        return
    program.add(to, a.bits, f"mov.b{WIDTH[source]} @@, {a.register};")


def packed(program: Program, n: Draw) -> None:
    choice = n[3] % 6
    if choice in (0, 1):
        found = operands(program, "f16", n[:2])
        if found is None:
            return
        a, b = (in_register(program, each) for each in found)
        bits = b.bits.astype(np.uint32) << np.uint32(16) | a.bits.astype(np.uint32)
        program.add("f16x2", bits, f"mov.b32 @@, {{{a.register}, {b.register}}};")
        return
    found = operands(program, "f16x2", n[:3])
    if found is None:
        return
    a, b, c = (in_register(program, each) for each in found)

    def half(value: Value, index: int) -> Bits:
        return (value.bits >> np.uint32(16 * index)).astype(np.uint16)

    if choice == 2:
        index = n[2] % 2
        program.add(
            "f16",
            half(a, index),
            f"{{ .reg .b16 lo, hi; mov.b32 {{lo, hi}}, {a.register}; mov.b16 @@, {('lo', 'hi')[index]}; }}",
        )
        return
    if choice == 3:
        name = ("add.rn", "mul.rn", "sub.rn", "max", "min", "max.nan")[n[2] % 6]
        opcode = {"max.nan": "max.NaN"}.get(name, name)
        low, high = (evaluate(f"{name}.fp16", half(a, i), half(b, i)) for i in range(2))
        line = f"{opcode}.f16x2 @@, {a.register}, {b.register};"
    elif choice == 4:
        low, high = (evaluate("fma.rn.fp16", half(a, i), half(b, i), half(c, i)) for i in range(2))
        line = f"fma.rn.f16x2 @@, {a.register}, {b.register}, {c.register};"
    else:
        selector = (0x5410, 0x7632, 0x1032, 0x5432, 0x7610, 0x3210)[n[2] % 6]
        chosen = [(selector >> 4 * place) & 7 for place in (0, 2)]
        low, high = (half(a if each < 4 else b, each % 4 // 2) for each in chosen)
        line = f"prmt.b32 @@, {a.register}, {b.register}, {selector};"
    program.add("f16x2", high.astype(np.uint32) << np.uint32(16) | low.astype(np.uint32), line)
