"""The PTX operations of the adversary: operand kinds, result kind and text of each.

In a text, @ is the destination, $0 is the first operand, and ~h0, ~r0, ~p0 are scratch registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from bitwise_bench.adversary.expressions import WIDTHS
from bitwise_bench.adversary.instruction_sets.ptx_forms import recorded_specs
from bitwise_bench.adversary.instruction_sets.vocabulary import Spec, vocabulary

IMMEDIATES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "#lut": ("0xc0", "0xfc", "0x3c", "0x96", "0xe8", "0xca", "0x80", "0xfe", "0xf8", "0x0c"),
        "#selector": ("0x3210", "0x5410", "0x7632", "0x1032", "0x5432", "0x7610", "0x7654", "0x3240", "0x0123",
                      "0xba98", "0x4440", "0x5140"),
        "#shift16": ("0", "1", "8", "15", "16"),
        "#shift32": ("0", "1", "8", "15", "16", "31", "32", "24"),
        "#shift64": ("0", "1", "16", "31", "32", "48", "63", "64"),
        "#length": ("0", "1", "8", "15", "16", "31", "32"),
        "#divisor": ("1", "2", "3", "7", "16", "255"),
        "#lane": ("0", "1", "2", "16"),
        "#byte": ("0", "1", "2", "3"),
        "#place": ("0", "1", "2", "3", "7", "8", "15", "16", "31"),
    }
)  # fmt: skip
"""The immediates of each kind."""


HIDDEN = "hidden"
"""The family of operations that return their operand, which the assembler does not know."""


def _default(opcode: str, count: int) -> str:
    return f"{opcode} @, {', '.join(f'${index}' for index in range(count))};"


def _floats() -> Iterator[Spec]:
    def plain(opcode: str, kind: str, arity: int, family: str) -> Spec:
        inline = kind in ("f32", "f64") and arity > 1
        return Spec(opcode, (kind,) * arity, kind, _default(opcode, arity), inline, family)

    for kind in ("f32", "f64"):
        for rounding in ("rn", "rz", "rm", "rp"):
            for flush in ("", ".ftz", ".sat", ".ftz.sat") if kind == "f32" else ("",):
                for verb in ("add", "sub", "mul"):
                    yield plain(f"{verb}.{rounding}{flush}.{kind}", kind, 2, f"{kind} arithmetic")
                yield plain(f"fma.{rounding}{flush}.{kind}", kind, 3, f"{kind} fma")
        for flush in ("", ".ftz") if kind == "f32" else ("",):
            for verb in ("min", "max"):
                for nan in ("", ".NaN") if kind == "f32" else ("",):
                    yield plain(f"{verb}{flush}{nan}.{kind}", kind, 2, f"{kind} extremum")
                    if kind == "f32":
                        yield plain(f"{verb}{flush}{nan}.xorsign.abs.{kind}", kind, 2, f"{kind} extremum")
            for verb in ("neg", "abs"):
                yield plain(f"{verb}{flush}.{kind}", kind, 1, f"{kind} sign")
            for opcode in (f"div.rn{flush}.{kind}",):
                yield plain(opcode, kind, 2, f"{kind} division")
            for verb in ("rcp", "sqrt"):
                yield plain(f"{verb}.rn{flush}.{kind}", kind, 1, f"{kind} division")
        yield plain(f"copysign.{kind}", kind, 2, f"{kind} sign")
    for opcode in ("ex2.approx.ftz", "ex2.approx", "rcp.approx.ftz", "rcp.approx", "rsqrt.approx.ftz", "rsqrt.approx",
                   "sqrt.approx.ftz", "sqrt.approx"):  # fmt: skip
        yield plain(f"{opcode}.f32", "f32", 1, "f32 approximation")
    yield plain("div.full.f32", "f32", 2, "f32 approximation")
    for kind, types in (("f16", ("f16",)), ("bf16", ("bf16",)), ("h2", ("f16x2",)), ("b2", ("bf16x2",))):
        for form in types:
            half = form.startswith("f16")
            for flush in ("", ".ftz", ".sat", ".ftz.sat") if half else ("",):
                for verb in ("add", "sub", "mul"):
                    yield plain(f"{verb}.rn{flush}.{form}", kind, 2, f"{kind} arithmetic")
                yield plain(f"fma.rn{flush}.{form}", kind, 3, f"{kind} fma")
            yield plain(f"fma.rn.relu.{form}", kind, 3, f"{kind} fma")
            for verb in ("min", "max"):
                for nan in ("", ".NaN"):
                    for flush in ("", ".ftz") if half else ("",):
                        yield plain(f"{verb}{flush}{nan}.{form}", kind, 2, f"{kind} extremum")
            for verb in ("neg", "abs"):
                for flush in ("", ".ftz") if half else ("",):
                    yield plain(f"{verb}{flush}.{form}", kind, 1, f"{kind} sign")


def _integers() -> Iterator[Spec]:
    def spec(opcode: str, operands: tuple[str, ...], result: str, family: str) -> Spec:
        inline = all(each not in ("i16", "h2", "b2", "f16", "bf16", "p") for each in operands) and len(operands) > 1
        return Spec(opcode, operands, result, _default(opcode, len(operands)), inline, family)

    for bits, kind in ((16, "i16"), (32, "i32"), (64, "i64")):
        for letter in "su":
            for verb in ("add", "sub"):
                yield spec(f"{verb}.{letter}{bits}", (kind, kind), kind, f"{kind} linear")
            for verb in ("mul.lo", "mul.hi", "min", "max"):
                yield spec(f"{verb}.{letter}{bits}", (kind, kind), kind, f"{kind} arithmetic")
            yield spec(f"mad.lo.{letter}{bits}", (kind, kind, kind), kind, f"{kind} linear")
            for verb in ("div", "rem"):
                yield spec(f"{verb}.{letter}{bits}", (kind, "#divisor"), kind, f"{kind} division")
            yield spec(f"shr.{letter}{bits}", (kind, f"#shift{bits}"), kind, f"{kind} shift")
            if bits < 64:
                wide = {16: "i32", 32: "i64"}[bits]
                yield spec(f"mul.wide.{letter}{bits}", (kind, kind), wide, f"{kind} arithmetic")
            if bits > 16:
                yield spec(f"bfe.{letter}{bits}", (kind, "#shift32", "#length"), kind, f"{kind} shift")
                yield spec(f"sad.{letter}{bits}", (kind, kind, kind), kind, f"{kind} arithmetic")
                yield spec(f"bfind.{letter}{bits}", (kind,), "i32", f"{kind} counts")
        yield spec(f"shl.b{bits}", (kind, f"#shift{bits}"), kind, f"{kind} shift")
        for verb in ("and", "or", "xor"):
            yield spec(f"{verb}.b{bits}", (kind, kind), kind, f"{kind} logic")
        yield spec(f"not.b{bits}", (kind,), kind, f"{kind} logic")
        for verb in ("neg", "abs"):
            yield spec(f"{verb}.s{bits}", (kind,), kind, f"{kind} linear")
        if bits > 16:
            yield spec(f"bfi.b{bits}", (kind, kind, "#shift32", "#length"), kind, f"{kind} shift")
            yield spec(f"popc.b{bits}", (kind,), "i32", f"{kind} counts")
            yield spec(f"clz.b{bits}", (kind,), "i32", f"{kind} counts")
            yield spec(f"brev.b{bits}", (kind,), kind, f"{kind} counts")
            for opcode in (f"shl.b{bits}", f"shr.u{bits}", f"shr.s{bits}"):
                yield Spec(f"{opcode} by", (kind, "i32"), kind, f"{opcode} @, $0, $1;", False, f"{kind} shift")
    yield spec("lop3.b32", ("i32", "i32", "i32", "#lut"), "i32", "i32 logic")
    yield spec("prmt.b32", ("i32", "i32", "#selector"), "i32", "i32 bytes")
    for mode in ("l.wrap", "l.clamp", "r.wrap", "r.clamp"):
        yield spec(f"shf.{mode}.b32", ("i32", "i32", "#shift32"), "i32", "i32 shift")
    for kinds in ("s32.s32", "s32.u32", "u32.s32", "u32.u32"):
        yield spec(f"dp4a.{kinds}", ("i32", "i32", "i32"), "i32", "i32 bytes")
    for letter in "su":
        for verb in ("add", "min", "max"):
            yield Spec(f"{verb}.{letter}16x2", ("h2", "h2"), "h2", f"{verb}.{letter}16x2 @, $0, $1;", False, "pairs")


def _conversions() -> Iterator[Spec]:
    def spec(opcode: str, source: str, result: str, family: str) -> Spec:
        return Spec(opcode, (source,), result, _default(opcode, 1), False, family)

    for form in ("f16", "bf16"):
        yield spec(f"cvt.f32.{form}", form, "f32", "half conversion")
        for rounding in ("rn", "rz"):
            yield spec(f"cvt.{rounding}.{form}.f32", "f32", form, "half conversion")
            yield spec(f"cvt.{rounding}.relu.{form}.f32", "f32", form, "half conversion")
            pair = {"f16": "h2", "bf16": "b2"}[form]
            for relu in ("", ".relu"):
                opcode = f"cvt.{rounding}{relu}.{form}x2.f32"
                yield Spec(opcode, ("f32", "f32"), pair, _default(opcode, 2), False, "half conversion")
    yield spec("cvt.rn.sat.f16.f32", "f32", "f16", "half conversion")
    yield spec("cvt.rn.ftz.f16.f32", "f32", "f16", "half conversion")
    yield spec("cvt.f64.f16", "f16", "f64", "half conversion")
    yield spec("cvt.f64.f32", "f32", "f64", "f64 conversion")
    yield spec("cvt.rna.tf32.f32", "f32", "f32", "f32 conversion")
    for rounding in ("rn", "rz", "rm", "rp"):
        yield spec(f"cvt.{rounding}.f32.f64", "f64", "f32", "f64 conversion")
        yield spec(f"cvt.{rounding}i.f32.f32", "f32", "f32", "f32 conversion")
        yield spec(f"cvt.{rounding}i.f16.f16", "f16", "f16", "half conversion")
        yield spec(f"cvt.{rounding}i.f64.f64", "f64", "f64", "f64 conversion")
        for letter in "su":
            for bits in (32, 64):
                yield spec(f"cvt.{rounding}.f32.{letter}{bits}", f"i{bits}", "f32", "to float")
                yield spec(f"cvt.{rounding}.f64.{letter}{bits}", f"i{bits}", "f64", "to float")
                yield spec(f"cvt.{rounding}i.{letter}{bits}.f32", "f32", f"i{bits}", "to integer")
                yield spec(f"cvt.{rounding}i.{letter}{bits}.f64", "f64", f"i{bits}", "to integer")
                yield spec(f"cvt.{rounding}i.{letter}{bits}.f16", "f16", f"i{bits}", "to integer")
            yield spec(f"cvt.{rounding}.f32.{letter}16", "i16", "f32", "to float")
            yield spec(f"cvt.{rounding}.f16.{letter}16", "i16", "f16", "to float")
            yield spec(f"cvt.{rounding}.f16.{letter}32", "i32", "f16", "to float")
            yield spec(f"cvt.{rounding}i.{letter}16.f16", "f16", "i16", "to integer")
            yield spec(f"cvt.{rounding}i.{letter}16.f32", "f32", "i16", "to integer")
    yield spec("cvt.sat.f32.f32", "f32", "f32", "f32 conversion")
    yield spec("cvt.ftz.f32.f32", "f32", "f32", "f32 conversion")
    for to, wide in (("i32", 32), ("i64", 64), ("i16", 16)):
        for source, narrow in (("i32", 32), ("i64", 64), ("i16", 16)):
            for left in "su":
                for right in "su":
                    if to != source:
                        yield spec(f"cvt.{left}{wide}.{right}{narrow}", source, to, "integer conversion")
                    # The assembler refuses a saturation that cannot happen.
                    if to != source and (wide < narrow or (left, right) == ("u", "s")):
                        yield spec(f"cvt.sat.{left}{wide}.{right}{narrow}", source, to, "integer conversion")
    for letter in "su":
        for wide in (16, 32):
            kind = f"i{wide}"
            yield spec(f"cvt.{letter}{wide}.{letter}8", kind, kind, "integer conversion")
            yield spec(f"cvt.{letter}8.{letter}{wide}", kind, kind, "integer conversion")
            yield spec(f"cvt.rn.f32.{letter}8", kind, "f32", "to float")
    for kind in ("s16", "u16"):
        opcode = f"cvt.pack.sat.{kind}.s32"
        yield Spec(opcode, ("i32", "i32"), "i32", _default(opcode, 2), False, "integer conversion")
    for kind in ("s8", "u8"):
        opcode = f"cvt.pack.sat.{kind}.s32.b32"
        yield Spec(opcode, ("i32", "i32", "i32"), "i32", _default(opcode, 3), False, "integer conversion")
    for form in ("e4m3", "e5m2"):
        for relu in ("", ".relu"):
            opcode = f"cvt.rn.satfinite{relu}.{form}x2.f32"
            yield Spec(opcode, ("f32", "f32"), "q2", _default(opcode, 2), False, "eight bits")
            yield spec(f"cvt.rn{relu}.f16x2.{form}x2", "q2", "h2", "eight bits")
            yield spec(f"cvt.rn.satfinite{relu}.{form}x2.f16x2", "h2", "q2", "eight bits")


def _choices() -> Iterator[Spec]:
    for kind, bits in (("f32", 32), ("f64", 64), ("f16", 16), ("bf16", 16), ("i32", 32), ("i64", 64), ("i16", 16),
                       ("h2", 32), ("b2", 32)):  # fmt: skip
        yield Spec(f"selp {kind}", (kind, kind, "p"), kind, f"selp.b{bits} @, $0, $1, $2;", False, "choice")
        yield Spec(
            f"guarded {kind}", (kind, kind, "p"), kind, f"mov.b{bits} @, $1; @$2 mov.b{bits} @, $0;", False, "choice"
        )
    guarded = "guarded {0}", "mov.b{1} @, $0; @$2 {0} @, $0, $1;", "mov.b{1} @, $0; @!$2 {0} @, $0, $1;"
    for opcode, kind, bits in (("add.rn.f32", "f32", 32), ("mul.rn.f32", "f32", 32), ("add.rn.f16", "f16", 16),
                               ("add.s32", "i32", 32), ("max.f32", "f32", 32)):  # fmt: skip
        yield Spec(f"guarded {opcode}", (kind, kind, "p"), kind, guarded[1].format(opcode, bits), False, "choice")
        yield Spec(f"guarded not {opcode}", (kind, kind, "p"), kind, guarded[2].format(opcode, bits), False, "choice")
    for kind in ("f32", "f64", "f16", "bf16"):
        for operator in ("lt", "le", "gt", "ge", "eq", "ne"):
            for unordered in ("", "u"):
                for flush in ("", ".ftz") if kind in ("f32", "f16") else ("",):
                    opcode = f"setp.{operator}{unordered}{flush}.{kind}"
                    yield Spec(opcode, (kind, kind), "p", _default(opcode, 2), kind in ("f32", "f64"), "comparison")
        for operator in ("num", "nan"):
            opcode = f"setp.{operator}.{kind}"
            yield Spec(opcode, (kind, kind), "p", _default(opcode, 2), kind in ("f32", "f64"), "comparison")
    for kind, bits in (("i32", 32), ("i64", 64), ("i16", 16)):
        for letter, operators in (("s", ("lt", "le", "gt", "ge", "eq", "ne")), ("u", ("lt", "le", "gt", "ge", "lo")),
                                  ("b", ("eq", "ne"))):  # fmt: skip
            for operator in operators:
                opcode = f"setp.{operator}.{letter}{bits}"
                yield Spec(opcode, (kind, kind), "p", _default(opcode, 2), bits > 16, "comparison")
    for verb in ("and", "or", "xor"):
        yield Spec(f"{verb}.pred", ("p", "p"), "p", _default(f"{verb}.pred", 2), False, "predicates")
        opcode = f"setp.lt.{verb}.f32"
        yield Spec(opcode, ("f32", "f32", "p"), "p", _default(opcode, 3), False, "predicates")
    yield Spec("not.pred", ("p",), "p", "not.pred @, $0;", False, "predicates")
    yield Spec("setp pair", ("f32", "f32"), "p", "setp.lt.f32 ~p0|@, $0, $1;", False, "predicates")
    for operator in ("lt", "gtu", "eq"):
        yield Spec(
            f"set.{operator}.u32.f32", ("f32", "f32"), "i32", f"set.{operator}.u32.f32 @, $0, $1;", True, "choice"
        )
        yield Spec(
            f"set.{operator}.f32.f32", ("f32", "f32"), "f32", f"set.{operator}.f32.f32 @, $0, $1;", True, "choice"
        )
    for prop in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        for kind in ("f32", "f64"):
            yield Spec(f"testp.{prop}.{kind}", (kind,), "p", f"testp.{prop}.{kind} @, $0;", False, "classes")


def _moves() -> Iterator[Spec]:
    for half, pair in (("f16", "h2"), ("bf16", "b2"), ("i16", "i32")):
        yield Spec(f"pack {pair}", (half, half), pair, "mov.b32 @, {$0, $1};", False, "halves")
        yield Spec(f"low {pair}", (pair,), half, "mov.b32 {@, ~h0}, $0;", False, "halves")
        yield Spec(f"high {pair}", (pair,), half, "mov.b32 {~h0, @}, $0;", False, "halves")
        yield Spec(f"swap {pair}", (pair,), pair, "mov.b32 {~h0, ~h1}, $0; mov.b32 @, {~h1, ~h0};", False, "halves")
        yield Spec(f"choose {pair}", (pair, pair, "#selector"), pair, "prmt.b32 @, $0, $1, $2;", False, "halves")
        yield Spec(f"cvt low {pair}", (pair,), half, "cvt.u16.u32 @, $0;", False, "halves")
        yield Spec(f"shifted {pair}", (pair,), half, "shr.u32 ~r0, $0, 16; cvt.u16.u32 @, ~r0;", False, "halves")
    yield Spec("high half", ("bf16",), "f32", "mov.b32 @, {~z, $0};", False, "halves")
    yield Spec("bf16 of f32", ("f32",), "bf16", "mov.b32 {~h0, @}, $0;", False, "halves")
    yield Spec("low f32 of b2", ("b2",), "f32", "shl.b32 @, $0, 16;", False, "halves")
    yield Spec("high f32 of b2", ("b2",), "f32", "and.b32 @, $0, 0xffff0000;", False, "halves")
    for word, wide in (("i32", "i64"), ("f32", "f64")):
        yield Spec(f"pack {wide}", (word, word), wide, "mov.b64 @, {$0, $1};", False, "words")
        yield Spec(f"low {wide}", (wide,), word, "mov.b64 {@, ~r0}, $0;", False, "words")
        yield Spec(f"high {wide}", (wide,), word, "mov.b64 {~r0, @}, $0;", False, "words")
    for kinds in (("f32", "i32", "h2", "b2"), ("f16", "bf16", "i16", "q2"), ("f64", "i64")):
        for source in kinds:
            for to in kinds:
                if source != to:
                    bits = {"f32": 32, "f16": 16, "f64": 64}[kinds[0]]
                    yield Spec(f"as {source} {to}", (source,), to, f"mov.b{bits} @, $0;", False, "views")
    for kind, bits in (("f32", 32), ("h2", 32), ("f16", 16), ("i32", 32), ("i64", 64), ("f64", 64)):
        text = f"bar.sync 0; st.shared.b{bits} [~own], $0; bar.sync 0; "
        yield Spec(f"shared {kind}", (kind,), kind, text + f"ld.shared.b{bits} @, [~own];", False, "shared")
        yield Spec(f"shared other {kind}", (kind,), kind, text + f"ld.shared.b{bits} @, [~other];", False, "shared")
    for to, offset in (("low", 0), ("high", 2)):
        text = f"bar.sync 0; st.shared.b32 [~own], $0; bar.sync 0; ld.shared.b16 @, [~own+{offset}];"
        yield Spec(f"shared {to} h2", ("h2",), "f16", text, False, "shared")
    text = "bar.sync 0; st.shared.b16 [~own], $0; st.shared.b16 [~own+2], $1; bar.sync 0; ld.shared.b32 @, [~own];"
    yield Spec("shared pack h2", ("f16", "f16"), "h2", text, False, "shared")
    text = "bar.sync 0; st.shared.b64 [~own], $0; bar.sync 0; ld.shared.b32 @, [~own+4];"
    yield Spec("shared high f64", ("f64",), "f32", text, False, "shared")
    text = "bar.sync 0; st.shared.v2.b32 [~own], {$0, $1}; bar.sync 0; ld.shared.b64 @, [~other];"
    yield Spec("shared pack other i64", ("i32", "i32"), "i64", text, False, "shared")
    for kind in ("f32", "i32", "h2"):
        for mode, clamp in (("bfly", 31), ("idx", 31), ("down", 31), ("up", 0)):
            yield Spec(
                f"shfl.{mode} {kind}", (kind, "#lane"), kind, f"shfl.sync.{mode}.b32 @, $0, $1, {clamp}, -1;", False,
                "shuffle",
            )  # fmt: skip


def _lanes() -> Iterator[Spec]:
    """Shuffles in parts of a warp, with whether they are in range, and matrices that lanes load and store."""

    def spec(key: str, operands: tuple[str, ...], result: str, text: str, family: str) -> Spec:
        return Spec(key, operands, result, text, False, family)

    for mode, clamp in (("down", 0x181F), ("up", 0x1800), ("bfly", 0x1C1F), ("idx", 0x101F), ("down", 0x1E1F),
                        ("bfly", 0x0007), ("up", 0x0005), ("idx", 0x1003)):  # fmt: skip
        for kind in ("i32", "f32"):
            text = f"shfl.sync.{mode}.b32 @|~p0, $0, $1, {clamp}, -1; "
            yield spec(f"shfl.{mode} {clamp} {kind}", (kind, "#place"), kind, text, "shuffle in parts")
        text += "selp.b32 ~r0, 1, 0, ~p0; xor.b32 @, @, ~r0;"
        yield spec(f"shfl.{mode} {clamp} in range", ("i32", "#place"), "i32", text, "shuffle in parts")
    yield spec("fns", ("i32", "#place", "#place"), "i32", "fns.b32 @, $0, $1, $2;", "i32 counts")
    kept = "bar.sync 0; st.shared.b64 [~own], $0; bar.sync 0; and.b32 ~r0, ~own, -16; { .reg .b32 %a, %b, %c; "
    names = ("@", "%a", "%b", "%c")
    for count in (1, 2, 4):
        for way in ("", ".trans"):
            for first in range(0, count, 2):
                found = ", ".join(names[(each - first) % 4] for each in range(count))
                text = f"{kept}ldmatrix.sync.aligned.m8n8.x{count}{way}.shared.b16 {{{found}}}, [~r0]; }}"
                yield spec(f"ldmatrix.x{count}{way} {first}", ("i64",), "h2", text, "matrices of lanes")
            stored = ", ".join(("$0", "$1", "$1", "$0")[:count])
            text = (
                "bar.sync 0; { .reg .b32 %a, %b; mov.u32 %a, %tid.x; and.b32 %a, %a, 15; shl.b32 %a, %a, 4; "
                "mov.u32 %b, room; add.u32 %a, %a, %b; st.shared.b64 [~own], 0; bar.sync 0; "
            )
            if count < 4:
                text += f"stmatrix.sync.aligned.m8n8.x{count}{way}.shared.b16 [%a], {{{stored}}}; "
                text += "} bar.sync 0; ld.shared.b64 @, [~own];"
                yield spec(f"stmatrix.x{count}{way}", ("h2", "h2"), "i64", text, "matrices of lanes")


def _hidden() -> Iterator[Spec]:
    """Values that the assembler does not see through: shuffles by which each lane reads itself."""
    shuffle = "shfl.sync.bfly.b32 {0}, {0}, 0, 31, -1;"
    of_word = f"mov.b32 @, $0; {shuffle.format('@')}"
    of_half = f"mov.b32 ~r0, {{$0, $0}}; {shuffle.format('~r0')} mov.b32 {{@, ~h0}}, ~r0;"
    of_pair = (
        f"{{ .reg .b32 %low; mov.b64 {{%low, ~r0}}, $0; {shuffle.format('%low')} {shuffle.format('~r0')}"
        " mov.b64 @, {%low, ~r0}; }"
    )
    of_bit = f"selp.b32 ~r0, 1, 0, $0; {shuffle.format('~r0')} setp.ne.b32 @, ~r0, 0;"
    texts = {1: of_bit, 16: of_half, 32: of_word, 64: of_pair}
    for kind, width in WIDTHS.items():
        yield Spec(f"{HIDDEN} {kind}", (kind,), kind, texts[width], False, HIDDEN)


def _narrow() -> Iterator[Spec]:
    """Bytes, halves and bits of words, as compilers pack, spill, extend and compare them."""

    def spec(key: str, operands: tuple[str, ...], result: str, text: str, family: str) -> Spec:
        return Spec(key, operands, result, text, False, family)

    word = "i32"
    yield spec("prmt by", (word, word, word), word, "prmt.b32 @, $0, $1, $2;", "bytes")
    for letter in "su":
        yield spec(f"bfe byte {letter}", (word, "#place"), word, f"bfe.{letter}32 @, $0, $1, 8;", "bytes")
        yield spec(f"mad.hi.{letter}", (word,) * 3, word, f"mad.hi.{letter}32 @, $0, $1, $2;", "i32 arithmetic")
        yield spec(
            f"mad.wide.{letter}16", ("i16", "i16", word), word, f"mad.wide.{letter}16 @, $0, $1, $2;", "i32 arithmetic"
        )
        yield spec(
            f"mad.wide.{letter}32", (word, word, "i64"), "i64", f"mad.wide.{letter}32 @, $0, $1, $2;", "i64 arithmetic"
        )
        for bits, offset in ((8, 3), (16, 2)):
            text = f"bar.sync 0; st.shared.b32 [~own], $0; bar.sync 0; ld.shared.{letter}{bits} @, [~own+{offset}];"
            yield spec(f"shared extended {letter}{bits}", (word,), word, text, "shared")
    yield spec("insert byte", (word, word, "#place"), word, "bfi.b32 @, $1, $0, $2, 8;", "bytes")
    yield spec("insert half", (word, word, "#place"), word, "bfi.b32 @, $1, $0, $2, 16;", "bytes")
    yield spec("or of bytes", (word, word), word, "and.b32 ~r0, $0, 255; shl.b32 @, $1, 8; or.b32 @, @, ~r0;", "bytes")
    yield spec(
        "bytes of i16", ("i16", "i16"), "i16", "and.b16 ~h0, $0, 255; shl.b16 @, $1, 8; or.b16 @, @, ~h0;", "bytes"
    )
    yield spec("four halves", ("i16",) * 4, "i64", "mov.b64 @, {$0, $1, $2, $3};", "halves")
    yield spec("third half", ("i64",), "i16", "mov.b64 {~h0, ~h1, @, ~h0}, $0;", "halves")
    yield spec("bytes through memory", (word, word), word,
               "bar.sync 0; st.shared.b8 [~own], $0; st.shared.b8 [~own+1], $1; st.shared.b8 [~own+2], $0;"
               "st.shared.b8 [~own+3], 0; bar.sync 0; ld.shared.b32 @, [~own];", "shared")  # fmt: skip
    yield spec("byte over word", (word, word), word,
               "bar.sync 0; st.shared.b32 [~own], $0; st.shared.b8 [~own+1], $1; bar.sync 0; ld.shared.b32 @, [~own];",
               "shared")  # fmt: skip
    for size, offset in ((32, 0), (16, 2), (8, 1)):
        text = (f"bar.sync 0; st.shared.b32 [~own], $0; @$2 st.shared.b{size} [~own+{offset}], $1; bar.sync 0;"
                "ld.shared.b32 @, [~{}];")  # fmt: skip
        source = "i16" if size == 16 else word
        for place in ("own", "other"):
            yield spec(f"store of {size} bits under a condition, {place}", (word, source, "p"), word,
                       text.format(place), "predicated stores")  # fmt: skip
    yield spec("stores under two conditions", (word, word, "p", "p"), word,
               "bar.sync 0; st.shared.b32 [~own], 0; @$2 st.shared.b32 [~own], $0; @!$3 st.shared.b32 [~own], $1;"
               "bar.sync 0; ld.shared.b32 @, [~own];", "predicated stores")  # fmt: skip
    yield spec("load under a condition", (word, word, "p"), word,
               "bar.sync 0; st.shared.b32 [~own], $0; bar.sync 0; mov.b32 @, $1; @$2 ld.shared.b32 @, [~own];",
               "predicated stores")  # fmt: skip
    text = "add.cc.u32 ~r0, $0, $1; addc.u32 @, $2, $3;"
    yield spec("high word of add.cc", (word,) * 4, word, text, "i32 linear")
    text = "mad.lo.cc.u32 ~r0, $0, $1, $2; madc.hi.u32 @, $0, $1, 0;"
    yield spec("high word of mad.cc", (word,) * 3, word, text, "i32 arithmetic")
    yield spec("bit of p", ("p", "#place"), word, "selp.b32 ~r0, 1, 0, $0; shl.b32 @, ~r0, $1;", "predicate words")
    yield spec("bit and word", (word, "p", "#place"), word,
               "selp.b32 ~r0, 1, 0, $1; shl.b32 ~r0, ~r0, $2; or.b32 @, $0, ~r0;", "predicate words")  # fmt: skip
    yield spec("two bits", ("p", "p"), word, "selp.b32 ~r0, 1, 0, $0; selp.b32 @, 2, 0, $1; add.u32 @, @, ~r0;",
               "predicate words")  # fmt: skip
    yield spec("other bits", ("p", "p"), word, "selp.b32 ~r0, -1, 3, $0; selp.b32 @, 5, 2, $1; xor.b32 @, @, ~r0;",
               "predicate words")  # fmt: skip
    yield spec("half of p", ("p",), "i16", "selp.u16 @, 1, 0, $0;", "predicate words")
    yield spec("bit of word", (word, "#place"), "p",
               "shr.u32 ~r0, $0, $1; and.b32 ~r0, ~r0, 1; setp.ne.u32 @, ~r0, 0;", "predicate words")  # fmt: skip
    for test, number in (("eq", 1), ("ne", 2), ("gt", 1), ("lt", 2), ("eq", 3)):
        for letter in "su":
            yield spec(f"setp.{test}.{letter}32 {number}", (word,), "p", f"setp.{test}.{letter}32 @, $0, {number};",
                       "predicate words")  # fmt: skip
    for verb in ("and", "or", "xor"):
        text = f"setp.le.{verb}.f32 @, $0, $1, !$2;"
        yield spec(f"setp.le.{verb} of not", ("f32", "f32", "p"), "p", text, "predicates")
        text = f"setp.gt.{verb}.s32 ~p0|@, $0, $1, $2;"
        yield spec(f"other result of setp.gt.{verb}", (word, word, "p"), "p", text, "predicates")
    for verb, number in (("mul.lo.u32", 3), ("max.s32", 1), ("min.u32", 1), ("sub.u32", 1), ("shr.s32", 1)):
        yield spec(f"{verb} by {number}", (word,), word, f"{verb} @, $0, {number};", "predicate words")


SAME_BITS = "same bits"
"""The family of operations that return their first operand."""

_SAME_WORDS = (
    "bfe.u32 @, $0, 0, 32;", "bfe.s32 @, $0, 0, 32;", "bfi.b32 @, $0, $1, 0, 32;", "bfi.b32 @, $1, $0, 3, 0;",
    "shf.l.wrap.b32 @, $1, $0, 0;", "shf.r.wrap.b32 @, $0, $1, 0;", "shf.l.clamp.b32 @, $0, $1, 32;",
    "cvt.u32.u32 @, $0;", "cvt.s32.u32 @, $0;", "mul.lo.u32 @, $0, 1;", "mad.lo.s32 @, $0, 1, 0;",
    "mad.lo.u32 @, $1, 0, $0;", "min.u32 @, $0, -1;", "max.u32 @, $0, 0;", "min.s32 @, $0, 0x7fffffff;",
    "max.s32 @, $0, 0x80000000;", "div.u32 @, $0, 1;", "mul.lo.s32 ~r0, $0, 3; mul.lo.s32 @, ~r0, 0xaaaaaaab;",
    "mul.lo.u32 ~r0, $0, -1; mul.lo.u32 @, ~r0, -1;", "add.u32 ~r0, $0, $0; sub.u32 @, ~r0, $0;",
    "not.b32 ~r0, $0; not.b32 @, ~r0;",
    "neg.s32 ~r0, $0; neg.s32 @, ~r0;", "brev.b32 ~r0, $0; brev.b32 @, ~r0;",
    "xor.b32 ~r0, $0, $1; xor.b32 @, ~r0, $1;",
    "add.u32 ~r0, $0, $1; sub.u32 @, ~r0, $1;", "sub.u32 ~r0, $1, $0; sub.u32 @, $1, ~r0;",
    "add.u32 ~r0, $0, 7; add.u32 @, ~r0, -7;", "xor.b32 ~r0, $0, 0x80000000; xor.b32 @, ~r0, 0x80000000;",
    "mov.b32 {~h0, ~h1}, $0; mov.b32 @, {~h0, ~h1};",
    "and.b32 ~r0, $0, 0xffff; and.b32 @, $0, 0xffff0000; or.b32 @, @, ~r0;",
    "prmt.b32 @, $0, $1, 0x3210;", "prmt.b32 @, $1, $0, 0x7654;",
    "dp4a.u32.u32 @, $1, 0, $0;",
    "sad.u32 @, $1, $1, $0;", "add.cc.u32 @, $0, 0; addc.u32 ~r0, $1, 0;", "lop3.b32 @, $0, $1, $1, 0xf0;",
    "lop3.b32 @, $1, $0, $1, 0xcc;", "and.b32 @, $0, $0;", "or.b32 @, $0, 0;", "add.s32 @, 0, $0;",
    "shl.b32 @, $0, 0;", "rem.u32 ~r0, $0, 1; add.u32 @, $0, ~r0;", "shl.b32 ~r0, $1, 32; or.b32 @, $0, ~r0;",
    "setp.eq.u32 ~p0, $0, $0; selp.b32 @, $0, $1, ~p0;", "setp.ne.u32 ~p0, $0, $1; selp.b32 @, $0, $1, ~p0;",
    "mov.b32 @, $0; setp.ne.u32 ~p0, $0, $0; @~p0 mov.b32 @, $1;",
    "setp.lt.s32 ~p0, $1, 0; selp.b32 @, $0, $0, ~p0;",
    "{ .reg .b64 %wide; cvt.u64.u32 %wide, $0; cvt.u32.u64 @, %wide; }",
    "{ .reg .b64 %wide; mov.b64 %wide, {$1, $0}; shr.u64 %wide, %wide, 32; cvt.u32.u64 @, %wide; }",
    "{ .reg .b64 %wide; mul.wide.u32 %wide, $0, 1; cvt.u32.u64 @, %wide; }",
    "bar.sync 0; st.shared.b32 [~own], $0; ld.shared.b32 @, [~own];",
    "bar.sync 0; st.shared.v2.b32 [~own], {$1, $0}; ld.shared.v2.b32 {~r0, @}, [~own];",
    "{ .reg .pred %side; setp.lt.s32 %side, $1, 0; @%side bra OTHER; mov.b32 @, $0; bra JOIN; "
    "OTHER: mov.b32 @, $0; JOIN: }",
)  # fmt: skip
"""Instructions that return a word of 32 bits, $0, whatever another one is, $1."""

_SAME_PAIRS = (
    "bfe.u64 @, $0, 0, 64;", "bfi.b64 @, $0, $1, 0, 64;", "cvt.s64.u64 @, $0;", "mul.lo.u64 @, $0, 1;",
    "mad.lo.u64 @, $1, 0, $0;", "max.u64 @, $0, 0;", "min.s64 @, $0, 0x7fffffffffffffff;", "div.u64 @, $0, 1;",
    "not.b64 @, $0; not.b64 @, @;", "add.u64 @, $0, $1; sub.u64 @, @, $1;", "xor.b64 @, $0, $1; xor.b64 @, @, $1;",
    "neg.s64 @, $0; neg.s64 @, @;", "{ .reg .b32 %low; mov.b64 {%low, ~r0}, $0; mov.b64 @, {%low, ~r0}; }",
    "sad.u64 @, $1, $1, $0;", "mul.lo.u64 @, $0, 3; mul.lo.u64 @, @, 0xaaaaaaaaaaaaaaab;",
    "shl.b64 @, $0, 0;", "or.b64 @, $0, 0;", "and.b64 @, $0, $0;",
)  # fmt: skip
_SAME_HALVES = (
    "cvt.u16.u16 @, $0;", "cvt.s16.u16 @, $0;", "mul.lo.u16 @, $0, 1;", "mad.lo.u16 @, $1, 0, $0;", "max.u16 @, $0, 0;",
    "min.s16 @, $0, 0x7fff;", "div.u16 @, $0, 1;", "not.b16 @, $0; not.b16 @, @;",
    "add.u16 @, $0, $1; sub.u16 @, @, $1;", "mul.lo.u16 @, $0, 3; mul.lo.u16 @, @, 0xaaab;",
    "xor.b16 @, $0, $1; xor.b16 @, @, $1;", "cvt.u32.u16 ~r0, $0; cvt.u16.u32 @, ~r0;",
    "cvt.s32.s16 ~r0, $0; cvt.u16.u32 @, ~r0;", "mov.b32 ~r0, {$0, $1}; cvt.u16.u32 @, ~r0;",
    "mov.b32 ~r0, {$1, $0}; shr.u32 ~r0, ~r0, 16; cvt.u16.u32 @, ~r0;", "shl.b16 @, $0, 0;", "or.b16 @, $0, 0;",
    "mov.b32 ~r0, {$1, $0}; mov.b32 {~h0, @}, ~r0;",
    "mov.b32 ~r0, {$0, $0}; prmt.b32 ~r0, ~r0, ~r0, 0x3232; cvt.u16.u32 @, ~r0;",
)  # fmt: skip


def _same_bits() -> Iterator[Spec]:
    """Operations on integers and moves that return an operand, which assemblers see through."""
    for texts, kinds, other in (
        (_SAME_WORDS, ("f32", "i32", "h2", "b2"), "i32"),
        (_SAME_PAIRS, ("f64", "i64"), "i64"),
        (_SAME_HALVES, ("f16", "bf16", "i16"), "i16"),
    ):
        for kind in kinds:
            for text in texts:
                operands = (kind, other) if "$1" in text else (kind,)
                yield Spec(f"same {kind}: {text}", operands, kind, text, False, SAME_BITS)


LEAVES: Mapping[str, tuple[str, int]] = MappingProxyType(
    {"f32": ("fp32", 4), "f16": ("fp16", 4), "bf16": ("bf16", 4), "f64": ("fp64", 4), "i32": ("u32", 4),
     "i64": ("u64", 4), "i16": ("u16", 4), "h2": ("fp16", 4), "b2": ("bf16", 4)}
)  # fmt: skip
"""The element type of the buffer of each kind of loaded value, and the number of loaded values in each thread."""


def _crosses(spec: Spec) -> bool:
    """Return whether an operation needs the other threads of the block."""
    return spec.family in ("shared", "predicated stores", HIDDEN) or "bar.sync" in spec.text or "shfl" in spec.text


def _every() -> Iterator[Spec]:
    opcodes: set[str] = set()
    for make in (_floats, _integers, _conversions, _choices, _moves, _lanes, _hidden, _narrow, _same_bits):
        for each in make():
            opcodes |= {word.split()[0] for word in each.text.split(";") if word.strip()}
            yield replace(each, crosses=_crosses(each))
    yield from recorded_specs(opcodes)


PTX = vocabulary(_every(), IMMEDIATES, LEAVES)
"""The operations of PTX for sm_90."""
