# ruff: noqa: E501 - a line of PTX or of a table is read as one
"""Random straight-line programs, as PTX and as functions on bit patterns.

A program is a list of statements; each makes one value from earlier ones.  Every value is stored, so that one run
of the reading gives the canonical form of all of them, in every lane; where two forms agree, the functions must.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bitwise_core import numeric
from ptx_programs import hashes

LANES = 4
Bits = npt.NDArray[np.generic]
UNSIGNED = {1: np.bool_, 16: np.uint16, 32: np.uint32, 64: np.uint64}
PREFIX = {"f32": "%f", "f64": "%g", "f16": "%h", "bf16": "%h", "f16x2": "%r", "i32": "%r", "i64": "%d", "pred": "%p"}
WIDTH = {"f32": 32, "f64": 64, "f16": 16, "bf16": 16, "f16x2": 32, "i32": 32, "i64": 64, "pred": 1}
FORMAT = {"f32": "fp32", "f64": "fp64", "f16": "fp16", "bf16": "bf16"}
SLOT = 8

LITERALS = {
    "f32": (0, 0x80000000, 0x3F800000, 0xBF800000, 0xFF800000, 0x7F800000, 0x40000000, 0x00000001, 0x477FE000),
    "f64": (0, 1 << 63, 0x3FF0000000000000, 0xBFF0000000000000, 0xFFF0000000000000),
    "f16": (0, 0x8000, 0x3C00, 0xBC00, 0xFC00, 0x7C00),
    "bf16": (0, 0x8000, 0x3F80, 0xBF80, 0xFF80),
    "i32": (0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 2, 31, 0x10000),
    "i64": (0, 1, 2**64 - 1, 1 << 63, 63, 1 << 40),
    "f16x2": (0, 0x80008000, 0x3C003C00, 0xFC00FC00),
    "pred": (0, 1),
}
SPECIAL = {
    "f32": (0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 1, 0x80000001, 0x00800000, 0x80800000,
            0x3F800000, 0xBF800000, 0x7F7FFFFF, 0x33800000, 0x3F800001, 0x477FE000, 0x1E3CE508),
    "f16": (0, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 1, 0x8001, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0x3C01, 0x1400),
    "bf16": (0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0xFFC1, 1, 0x8001, 0x0080, 0x3F80, 0xBF80, 0x7F7F, 0x1E3C),
    "i32": (0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 31, 32, 0x8000, 0xFFFF0000),
    "i64": (0, 1, 2**64 - 1, 1 << 63, 2**63 - 1, 63, 64, 1 << 32),
}  # fmt: skip
LEAVES = ("f32", "f32", "f32", "f16", "f16", "bf16", "bf16", "i32", "i32", "i64", "i64")


@dataclass
class Value:
    """One value: its register, what it is, and its bits by lane and sample, shape (lanes, samples)."""

    kind: str
    register: str
    bits: Bits


@dataclass
class Program:
    """A program under construction: its text and its values."""

    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def register(self, kind: str) -> str:
        """A register of that kind that nothing uses yet."""
        prefix = PREFIX[kind]
        self.counts[prefix] = self.counts.get(prefix, {"%p": 8, "%d": 2, "%r": 1}.get(prefix, 0)) + 1
        return f"{prefix}{self.counts[prefix]}"

    def add(self, kind: str, bits: Bits, *lines: str) -> None:
        """A new value, whose register the lines name as @."""
        register = self.register(kind)
        self.lines += [line.replace("@@", register) for line in lines]
        assert bits.dtype == UNSIGNED[WIDTH[kind]], (kind, bits.dtype)
        self.values.append(Value(kind, register, bits))

    def pick(self, kind: str, number: int) -> Value | None:
        """One of the values of a kind, newest first for small numbers, or a literal."""
        found = [value for value in self.values if value.kind == kind]
        choices = len(found) + len(LITERALS[kind]) // 2
        if not choices:
            return None
        number %= choices
        if number < len(found):
            return found[-1 - number]
        literal = LITERALS[kind][(number * 7919) % len(LITERALS[kind])]
        return Value(kind, spelled(kind, literal), np.full((LANES, 1), literal, dtype=UNSIGNED[WIDTH[kind]]))


def spelled(kind: str, literal: int) -> str:
    """A literal as PTX writes it."""
    if kind == "f32":
        return f"0f{literal:08X}"
    if kind == "f64":
        return f"0d{literal:016X}"
    return str(literal) if kind != "pred" else f"{literal}"


def evaluate(name: str, *operands: Value | Bits) -> Bits:
    """An operation of core's grammar on patterns."""
    arrays = [each.bits if isinstance(each, Value) else each for each in operands]
    return numeric.operation(name).evaluate(*np.broadcast_arrays(*arrays))


Maker = Callable[[Program, tuple[int, int, int, int]], None]
MAKERS: list[Maker] = []


def maker(weight: int = 1) -> Callable[[Maker], Maker]:
    """Registers a kind of statement, to be drawn `weight` times as often as one of weight 1."""

    def register(function: Maker) -> Maker:
        MAKERS.extend([function] * weight)
        return function

    return register


FLOATS = ("f32", "f32", "f32", "f32", "f16", "f16", "bf16", "f64")


def operands(program: Program, kind: str, numbers: Sequence[int]) -> list[Value] | None:
    found = [program.pick(kind, number) for number in numbers]
    return None if any(each is None for each in found) else [each for each in found if each is not None]


def in_register(program: Program, value: Value) -> Value:
    """The value in a register, where an instruction takes no literal."""
    if value.register.startswith("%"):
        return value
    bits = WIDTH[value.kind]
    if value.kind == "pred":
        program.add("pred", value.bits, f"setp.ne.u32 @@, {value.register}, 0;")
    else:
        program.add(value.kind, value.bits, f"mov.b{bits} @@, {value.register};")
    return program.values[-1]


@maker(8)
def binary(program: Program, n: tuple[int, int, int, int]) -> None:
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


@maker(4)
def fused(program: Program, n: tuple[int, int, int, int]) -> None:
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


@maker(5)
def extremum(program: Program, n: tuple[int, int, int, int]) -> None:
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


@maker(4)
def sign(program: Program, n: tuple[int, int, int, int]) -> None:
    kind = FLOATS[n[3] % len(FLOATS)]
    verb = ("neg", "abs")[n[3] // 8 % 2]
    found = operands(program, kind, n[:1])
    if found is None:
        return
    a = in_register(program, found[0])
    bits = WIDTH[kind]
    if n[2] % 3 == 0 and kind != "bf16":
        mask = 1 << bits - 1 if verb == "neg" else (1 << bits - 1) - 1
        line = f"{'xor' if verb == 'neg' else 'and'}.b{bits} @@, {a.register}, {mask};"
        program.add(kind, a.bits ^ UNSIGNED[bits](mask) if verb == "neg" else a.bits & UNSIGNED[bits](mask), line)
        return
    program.add(kind, evaluate(f"{verb}.{FORMAT[kind]}", a), f"{verb}.{kind} @@, {a.register};")


@maker(5)
def convert(program: Program, n: tuple[int, int, int, int]) -> None:
    source, to, name, line = (
        ("f16", "f32", "convert.fp32.fp16", "cvt.f32.f16"), ("f32", "f16", "convert.rn.fp16.fp32", "cvt.rn.f16.f32"),
        ("bf16", "f32", "convert.fp32.bf16", "cvt.f32.bf16"), ("f32", "bf16", "convert.rn.bf16.fp32", "cvt.rn.bf16.f32"),
        ("f32", "f64", "convert.fp64.fp32", "cvt.f64.f32"), ("f64", "f32", "convert.rn.fp32.fp64", "cvt.rn.f32.f64"),
        ("f16", "f32", "convert.fp32.fp16", "cvt.f32.f16"), ("f32", "f16", "convert.rz.fp16.fp32", "cvt.rz.f16.f32"),
        ("i32", "f32", "convert.rn.fp32.s32", "cvt.rn.f32.s32"), ("f32", "f32", "convert.rni.fp32.fp32", "cvt.rni.f32.f32"),
        ("f16", "f64", "convert.fp64.fp16", "cvt.f64.f16"),
    )[n[3] % 11]  # fmt: skip
    found = operands(program, source, n[:1])
    if found is None:
        return
    a = in_register(program, found[0])
    if line == "cvt.f32.bf16" and n[2] % 2:
        program.add(to, evaluate(name, a), f"mov.b32 @@, {{0, {a.register}}};")
        return
    program.add(to, evaluate(name, a), f"{line} @@, {a.register};")


@maker(3)
def choose(program: Program, n: tuple[int, int, int, int]) -> None:
    kind = ("f32", "f32", "f16", "bf16", "f64", "i32", "i64")[n[3] % 7]
    found = operands(program, kind, n[:2])
    predicate = program.pick("pred", n[2])
    if found is None or predicate is None:
        return
    p = in_register(program, predicate)
    a, b = (in_register(program, each) for each in found)
    bits = np.where(p.bits, a.bits, b.bits)
    width = WIDTH[kind]
    if n[3] // 7 % 2:
        program.add(kind, bits, f"mov.b{width} @@, {b.register};", f"@{p.register} mov.b{width} @@, {a.register};")
    else:
        program.add(kind, bits, f"selp.b{width} @@, {a.register}, {b.register}, {p.register};")


@maker(2)
def compare(program: Program, n: tuple[int, int, int, int]) -> None:
    kind = ("f32", "f16", "i32", "f32")[n[3] % 4]
    found = operands(program, kind, n[:2])
    if found is None:
        return
    a, b = (in_register(program, each) for each in found)
    if kind == "i32":
        verb = ("lt", "le", "gt", "ge", "eq", "ne")[n[3] // 4 % 6]
        x, y = a.bits.view(np.int32), b.bits.view(np.int32)
        bits = {"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}[verb]
        program.add("pred", bits, f"setp.{verb}.s32 @@, {a.register}, {b.register};")
        return
    verb = ("lt", "le", "gt", "ge", "eq", "ne", "ltu", "leu", "gtu", "geu", "equ", "neu", "num", "nan")[n[3] // 4 % 14]
    x, y = (each.bits.view(np.float32 if kind == "f32" else np.float16) for each in (a, b))
    unordered = np.isnan(x) | np.isnan(y)
    with np.errstate(invalid="ignore"):
        base = {"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}
    if verb in ("num", "nan"):
        bits = ~unordered if verb == "num" else unordered
    else:
        bits = base[verb[:2]] & ~unordered | (unordered if verb.endswith("u") else False)
    program.add("pred", bits, f"setp.{verb}.{kind} @@, {a.register}, {b.register};")


@maker(1)
def logic_of_predicates(program: Program, n: tuple[int, int, int, int]) -> None:
    found = operands(program, "pred", n[:2])
    if found is None:
        return
    a, b = (in_register(program, each) for each in found)
    verb = ("and", "or", "xor", "not")[n[3] % 4]
    if verb == "not":
        program.add("pred", ~a.bits, f"not.pred @@, {a.register};")
        return
    bits = {"and": a.bits & b.bits, "or": a.bits | b.bits, "xor": a.bits ^ b.bits}[verb]
    program.add("pred", bits, f"{verb}.pred @@, {a.register}, {b.register};")


@maker(5)
def integers(program: Program, n: tuple[int, int, int, int]) -> None:
    kind = ("i32", "i64", "i64")[n[3] % 3]
    width = WIDTH[kind]
    unsigned = UNSIGNED[width]
    verb = (
        "add",
        "sub",
        "mul.lo",
        "and",
        "or",
        "xor",
        "shl",
        "shr",
        "neg",
        "min",
        "max",
        "not",
        "shl",
        "mul.lo",
        "sar",
    )[n[3] // 3 % 15]
    found = operands(program, kind, n[:2])
    if found is None:
        return
    a, b = (in_register(program, each) for each in found)
    x, y = a.bits, b.bits
    with np.errstate(over="ignore"):
        if verb in ("shl", "shr", "sar"):
            amount = (n[2] * 5) % (width + 2)
            count = unsigned(min(amount, width - 1))
            zero = unsigned(0)
            if verb == "sar":
                signed = x.view(f"int{width}")
                bits = (signed >> count.view(f"int{width}")).view(unsigned)
                program.add(kind, bits, f"shr.s{width} @@, {a.register}, {amount};")
                return
            bits = np.full_like(x, zero) if amount >= width else (x << count if verb == "shl" else x >> count)
            program.add(kind, bits, f"{verb}.{'b' if verb == 'shl' else 'u'}{width} @@, {a.register}, {amount};")
            return
        if verb in ("neg", "not"):
            bits = unsigned(0) - x if verb == "neg" else ~x
            program.add(kind, bits, f"{verb}.{'s' if verb == 'neg' else 'b'}{width} @@, {a.register};")
            return
        signed_x, signed_y = x.view(f"int{width}"), y.view(f"int{width}")
        bits = {
            "add": lambda: x + y, "sub": lambda: x - y, "mul.lo": lambda: x * y, "and": lambda: x & y, "or": lambda: x | y,
            "xor": lambda: x ^ y, "min": lambda: np.minimum(signed_x, signed_y).view(unsigned),
            "max": lambda: np.maximum(signed_x, signed_y).view(unsigned),
        }[verb]()  # fmt: skip
    letter = "s" if verb in ("add", "sub", "mul.lo", "min", "max") else "b"
    program.add(kind, bits, f"{verb}.{letter}{width} @@, {a.register}, {b.register};")


@maker(2)
def integer_widths(program: Program, n: tuple[int, int, int, int]) -> None:
    choice = n[3] % 4
    found = program.pick("i64" if choice == 2 else "i32", n[0])
    other = program.pick("i32", n[1])
    if found is None or other is None:
        return
    a, b = in_register(program, found), in_register(program, other)
    if choice == 0:
        program.add("i64", a.bits.astype(np.uint64), f"cvt.u64.u32 @@, {a.register};")
    elif choice == 1:
        program.add("i64", a.bits.view(np.int32).astype(np.int64).view(np.uint64), f"cvt.s64.s32 @@, {a.register};")
    elif choice == 2:
        program.add("i32", a.bits.astype(np.uint32), f"cvt.u32.u64 @@, {a.register};")
    else:
        bits = b.bits.astype(np.uint64) << np.uint64(32) | a.bits.astype(np.uint64)
        program.add("i64", bits, f"mov.b64 @@, {{{a.register}, {b.register}}};")


@maker(4)
def packed(program: Program, n: tuple[int, int, int, int]) -> None:
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


@maker(1)
def through_shared(program: Program, n: tuple[int, int, int, int]) -> None:
    kind = ("f32", "f16", "f16x2", "i32", "i64", "f64")[n[3] % 6]
    found = operands(program, kind, n[:1])
    if found is None:
        return
    a = in_register(program, found[0])
    bits = WIDTH[kind]
    lanes = [(lane + n[2]) % LANES for lane in range(LANES)]
    full = np.broadcast_to(a.bits, (LANES, a.bits.shape[1]))
    program.add(
        kind, np.ascontiguousarray(full[lanes]), "bar.sync 0; mul.lo.u32 %r88, %r0, 8; mov.u64 %d88, room; cvt.u64.u32 %d87, %r88; add.s64 %d87, %d87, %d88;",
        f"st.shared.b{bits} [%d87], {a.register}; bar.sync 0;",
        f"add.u32 %r88, %r0, {n[2] % LANES}; and.b32 %r88, %r88, {LANES - 1}; mul.lo.u32 %r88, %r88, 8; cvt.u64.u32 %d87, %r88; add.s64 %d87, %d87, %d88;",
        f"ld.shared.b{bits} @@, [%d87];",
    )  # fmt: skip


Statement = tuple[int, int, int, int, int]


def samples(kind: str, count: int, generator: np.random.Generator) -> Bits:
    """Random patterns of a leaf: half special ones, half any, and some of like size."""
    unsigned = UNSIGNED[WIDTH[kind]]
    special = np.array(SPECIAL[kind], dtype=np.uint64)
    found = special[generator.integers(0, special.size, count)]
    anything = generator.integers(0, 2**64, count, dtype=np.uint64)
    if kind in FORMAT:
        near = {"f32": (0x3F000000, 0x02000000), "f16": (0x3800, 0x1000), "bf16": (0x3F00, 0x0200)}[kind]
        close = np.uint64(near[0]) + anything % np.uint64(near[1]) | (anything >> np.uint64(63)) << np.uint64(
            WIDTH[kind] - 1
        )
        anything = np.where(generator.integers(0, 2, count) == 0, anything, close)
    mixed = np.where(generator.integers(0, 2, count) == 0, found, anything)
    return mixed.astype(unsigned)[None]


def build(statements: Sequence[Statement], count: int = 256, seed: int = 0) -> Program:
    """The program of these statements, evaluated on `count` draws of its leaves."""
    generator = np.random.default_rng(seed)
    program = Program()
    for index, kind in enumerate(LEAVES):
        bits = WIDTH[kind]
        program.add(kind, samples(kind, count, generator), f"ld.global.b{bits} @@, [%d1+{8 * index}];")
    lane = np.arange(LANES)[:, None]
    program.add("pred", lane == 1, "setp.eq.u32 @@, %r0, 1;")
    program.add("pred", lane < 2, "setp.lt.u32 @@, %r0, 2;")
    limit = {"%p": 39, "%d": 79, "%r": 79, "%f": 89, "%g": 39, "%h": 89}
    for statement in statements:
        if any(program.counts.get(prefix, 0) > most - 4 for prefix, most in limit.items()):
            break
        MAKERS[statement[0] % len(MAKERS)](program, statement[1:])
    return program


def read(program: Program) -> dict[tuple[int, int], tuple[tuple[int, int, int, int], ...]]:
    """(value, lane) -> what the reading says is stored: offsets within the slot, widths and hashes."""
    lines = list(program.lines)
    total = len(program.values)
    lines.append(f"mul.lo.u32 %r80, %r0, {SLOT * total}; cvt.u64.u32 %d80, %r80; add.s64 %d80, %d0, %d80;")
    for index, value in enumerate(program.values):
        if value.kind == "pred":
            lines.append(f"selp.b32 %r81, 1, 2, {value.register};")
            lines.append(f"st.global.b32 [%d80+{SLOT * index}], %r81;")
        else:
            lines.append(f"st.global.b{WIDTH[value.kind]} [%d80+{SLOT * index}], {value.register};")
    found = hashes("\n".join(lines), threads=LANES, shared=".shared .align 16 .b8 room[64];")
    result: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
    for offset, (size, low, high) in sorted(found.items()):
        slot = offset // SLOT
        result.setdefault((slot % total, slot // total), []).append((offset % SLOT, size, low, high))
    return {place: tuple(parts) for place, parts in result.items()}


def canonical(value: Value, lane: int) -> Bits:
    """The value's bits in one lane, all NaNs as one."""
    row = np.broadcast_to(value.bits, (LANES, value.bits.shape[1]))[lane]
    if value.kind == "pred":
        return np.where(row, np.uint32(1), np.uint32(2))
    return without_nan(row, value.kind)


def without_nan(row: Bits, kind: str) -> Bits:
    if kind == "f16x2":
        low, high = (without_nan((row >> np.uint32(shift)).astype(np.uint16), "f16") for shift in (0, 16))
        return (high.astype(np.uint32) << np.uint32(16)) | low
    if kind not in FORMAT:
        return row
    nan = {"f32": 0x7F800000, "f64": 0x7FF0000000000000, "f16": 0x7C00, "bf16": 0x7F80}[kind]
    bits = WIDTH[kind]
    unsigned = UNSIGNED[bits]
    return np.where((row & unsigned((1 << bits - 1) - 1)) > unsigned(nan), unsigned((1 << bits - 1) - 1), row)


@dataclass(frozen=True)
class Clash:
    """Two values that the reading takes for one, and a draw on which they differ."""

    left: tuple[int, int]
    right: tuple[int, int]
    left_bits: int
    right_bits: int


def clashes(program: Program) -> list[Clash]:
    """Where values of one form differ as functions."""
    forms: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for place, parts in read(program).items():
        forms.setdefault(parts, []).append(place)
    found = []
    for places in forms.values():
        first = places[0]
        for other in places[1:]:
            left, right = program.values[first[0]], program.values[other[0]]
            same = left.kind == right.kind
            a, b = np.broadcast_arrays(canonical(left, first[1]), canonical(right, other[1]))
            if same:
                wrong = np.flatnonzero(a != b)
            else:
                strange = nans(left, first[1]) | nans(right, other[1])
                wrong = np.flatnonzero((a != b) & ~strange) if a.dtype == b.dtype else np.arange(1)
            if wrong.size:
                found.append(Clash(first, other, int(a[wrong[0]]), int(b[wrong[0]])))
    return found


def nans(value: Value, lane: int) -> Bits:
    row = np.broadcast_to(value.bits, (LANES, value.bits.shape[1]))[lane]
    return np.asarray(without_nan(row, value.kind) != row)
