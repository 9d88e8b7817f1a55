"""The forms of PTX's register operations: opcodes with their modifiers and types, and the kinds of their operands.

For each opcode, its modifiers and types are crossed.  Some of the products are no PTX, and some are not modelled; a
record names the former, and `coverage.UNMODELLED` the latter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bitwise_bench.register_operations.operands import WIDTHS


@dataclass(frozen=True, slots=True)
class Form:
    """One form: its text, and the kinds of its operands and results.

    The text names the operands {a}, {b}, {c} and {e}, the results {x} and {y}, and temporary 32-bit registers {t} and
    {u}.  A result of the kind pred is a predicate.
    """

    text: str
    sources: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def name(self) -> str:
        """The text with the kinds of operands and results: two forms have different names."""
        text = self.text.format_map({each: each for each in "abcetuxy"})
        return f"{text} [{' '.join(self.sources)} -> {' '.join(self.results)}]"

    @property
    def opcodes(self) -> tuple[str, ...]:
        """The opcodes of the instructions, modifiers included."""
        return tuple(each.split()[0] for each in self.text.split(";") if each.strip())


_OF_TYPE = {
    **{f"{letter}{bits}": f"b{bits}" for letter in "sub" for bits in (16, 32, 64)},
    **{f"{letter}8": "b16" for letter in "sub"},
    **{each: each for each in ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "pred")},
    "u16x2": "b32", "s16x2": "b32", "f32x2": "b64", "tf32": "f32", "e4m3x2": "bytes2", "e5m2x2": "bytes2",
}  # fmt: skip
"""The kind of operand of each PTX type."""

_HALVES = ("f16", "f16x2", "bf16", "bf16x2")
_REALS = (*_HALVES, "f32", "f64")
_ROUNDINGS = ("", "rn", "rz", "rm", "rp")
_INTEGERS = tuple(f"{letter}{bits}" for bits in (16, 32, 64) for letter in "su")


def _spelled(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def plain(opcode: str, result: str, *types: str) -> Form:
    """Return the form `opcode x, a, b, ...` with operands and a result of these PTX types."""
    names = ", ".join("{" + name + "}" for name in "xabce"[: 1 + len(types)])
    return Form(f"{opcode} {names};", tuple(_OF_TYPE.get(each, each) for each in types), (_OF_TYPE[result],))


def _real_arithmetic() -> Iterator[Form]:
    types = (*_REALS, "f32x2")
    for verb, rounding, ftz, clamp, kind in itertools.product(
        ("add", "sub", "mul"), _ROUNDINGS, ("", "ftz"), ("", "sat"), types
    ):
        yield plain(_spelled(verb, rounding, ftz, clamp, kind), kind, kind, kind)
    for rounding, ftz, clamp, kind in itertools.product(_ROUNDINGS, ("", "ftz"), ("", "sat", "relu"), types):
        yield plain(_spelled("fma", rounding, ftz, clamp, kind), kind, kind, kind, kind)
    for rounding, ftz, kind in itertools.product(_ROUNDINGS, ("", "ftz"), ("f16", "f32", "f64")):
        yield plain(_spelled("div", rounding, ftz, kind), kind, kind, kind)
        for verb in ("rcp", "sqrt"):
            yield plain(_spelled(verb, rounding, ftz, kind), kind, kind)


LITERAL_DIVISORS = (0x40400000, 0x3FDD8E43, 0x4520A61A, 0x7E967699, 0x7F167699, 0x000116C2, 0x3C53674F, 0x80000000)


def _approximations() -> Iterator[Form]:
    for ftz in ("", "ftz"):
        for verb in ("rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin", "cos"):
            yield plain(_spelled(verb, "approx", ftz, "f32"), "f32", "f32")
        for method in ("full", "approx"):
            yield plain(_spelled("div", method, ftz, "f32"), "f32", "f32", "f32")
        for kind in _HALVES:
            yield plain(_spelled("ex2", "approx", ftz, kind), kind, kind)
        for verb in ("rcp", "rsqrt"):
            yield plain(_spelled(verb, "approx", ftz, "f64"), "f64", "f64")
    for kind in (*_HALVES, "f32"):
        yield plain(_spelled("tanh", "approx", kind), kind, kind)
    for literal in LITERAL_DIVISORS:
        yield Form(f"div.full.f32 {{x}}, {{a}}, 0f{literal:08X};", ("f32",), ("f32",))


def _real_extrema() -> Iterator[Form]:
    for verb, ftz, nan, signs, kind in itertools.product(
        ("min", "max"), ("", "ftz"), ("", "NaN"), ("", "xorsign.abs"), _REALS
    ):
        yield plain(_spelled(verb, ftz, nan, signs, kind), kind, kind, kind)
    for verb, ftz, nan in itertools.product(("min", "max"), ("", "ftz"), ("", "NaN")):
        yield plain(_spelled(verb, ftz, nan, "f32"), "f32", "f32", "f32", "f32")
    for verb, ftz, kind in itertools.product(("neg", "abs"), ("", "ftz"), _REALS):
        yield plain(_spelled(verb, ftz, kind), kind, kind)


def _classes() -> Iterator[Form]:
    for kind in ("f32", "f64"):
        for word in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield plain(f"testp.{word}.{kind}", "pred", kind)
        yield plain(f"copysign.{kind}", kind, kind, kind)


def _wide(kind: str) -> str:
    return f"{kind[0]}{2 * int(kind[1:])}"


def _integer_arithmetic() -> Iterator[Form]:
    for kind in (*_INTEGERS, "u16x2", "s16x2"):
        for verb in ("add", "sub", "div", "rem", "min", "max"):
            yield plain(f"{verb}.{kind}", kind, kind, kind)
        yield plain(f"sad.{kind}", kind, kind, kind, kind)
        for part in ("lo", "hi"):
            yield plain(f"mul.{part}.{kind}", kind, kind, kind)
            yield plain(f"mad.{part}.{kind}", kind, kind, kind, kind)
        if kind[1:] in ("16", "32"):
            yield plain(f"mul.wide.{kind}", _wide(kind), kind, kind)
            yield plain(f"mad.wide.{kind}", _wide(kind), kind, kind, _wide(kind))
        for verb in ("neg", "abs"):
            yield plain(f"{verb}.{kind}", kind, kind)
    for verb in ("add.sat", "sub.sat", "min.relu", "max.relu"):
        for kind in ("s32", "s16x2"):
            yield plain(f"{verb}.{kind}", kind, kind, kind)
    yield plain("mad.hi.sat.s32", "s32", "s32", "s32", "s32")
    for kind in ("s32", "u32"):
        for part in ("lo", "hi"):
            yield plain(f"mul24.{part}.{kind}", kind, kind, kind)
            yield plain(f"mad24.{part}.{kind}", kind, kind, kind, kind)
        for other in ("s32", "u32"):
            yield plain(f"dp4a.{kind}.{other}", "b32", kind, other, "b32")
            for part in ("lo", "hi"):
                yield plain(f"dp2a.{part}.{kind}.{other}", "b32", kind, other, "b32")


def _carries() -> Iterator[Form]:
    """Sums and products that write the carry flag, which the last instruction of a form reads."""
    read = " addc.u32 {y}, 0, 0;"
    three, four, results = ("b32",) * 3, ("b32",) * 4, ("b32", "b32")
    for kind in ("u32", "s32", "b32"):
        yield Form(f"add.cc.{kind} {{x}}, {{a}}, {{b}};{read}", ("b32", "b32"), results)
        yield Form(f"sub.cc.{kind} {{x}}, {{a}}, {{b}}; subc.u32 {{y}}, 0, 0;", ("b32", "b32"), results)
        first = f"add.cc.{kind} {{t}}, {{a}}, {{b}};"
        yield Form(f"{first} addc.{kind} {{x}}, {{b}}, {{c}};", three, ("b32",))
        yield Form(f"{first} addc.cc.{kind} {{x}}, {{b}}, {{c}};{read}", three, results)
        for part in ("lo", "hi"):
            yield Form(f"mad.{part}.cc.{kind} {{x}}, {{a}}, {{b}}, {{c}};{read}", three, results)
            first = "add.cc.u32 {t}, {c}, {e};"
            yield Form(f"{first} madc.{part}.{kind} {{x}}, {{a}}, {{b}}, {{c}};", four, ("b32",))
            yield Form(f"{first} madc.{part}.cc.{kind} {{x}}, {{a}}, {{b}}, {{c}};{read}", four, results)
    for kind in ("u64", "s64"):
        text = f"add.cc.{kind} {{x}}, {{a}}, {{b}}; addc.{kind} {{y}}, {{a}}, {{a}};"
        yield Form(text, ("b64", "b64"), ("b64", "b64"))


TRUTH_TABLES = (
    0x00, 0x01, 0x02, 0x08, 0x0F, 0x10, 0x17, 0x1E, 0x2D, 0x33, 0x3C, 0x40, 0x55, 0x5A, 0x69, 0x6A, 0x78, 0x7F, 0x80,
    0x88, 0x96, 0xA5, 0xAA, 0xAC, 0xB8, 0xC0, 0xCA, 0xCC, 0xD4, 0xE2, 0xE8, 0xF0, 0xF6, 0xF8, 0xFE, 0xFF,
)  # fmt: skip


def _logic() -> Iterator[Form]:
    for kind in ("pred", "b16", "b32", "b64"):
        for verb in ("and", "or", "xor"):
            yield plain(f"{verb}.{kind}", kind, kind, kind)
        yield plain(f"not.{kind}", kind, kind)
        if kind != "pred":
            yield plain(f"cnot.{kind}", kind, kind)
            yield plain(f"shl.{kind}", kind, kind, "amount")
            for letter in "bsu":
                yield plain(f"shr.{letter}{kind[1:]}", kind, kind, "amount")
    for number in TRUTH_TABLES:
        yield Form(f"lop3.b32 {{x}}, {{a}}, {{b}}, {{c}}, {number:#04x};", ("b32",) * 3, ("b32",))
    yield Form("lop3.or.b32 {x}|{y}, {a}, {b}, {c}, 0x96, 0;", ("b32",) * 3, ("b32", "pred"))
    for mode in ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        yield plain(_spelled("prmt.b32", mode), "b32", "b32", "b32", "b32")
    for number in (0x3210, 0x5410, 0x7632, 0x0123, 0x4567, 0x8888, 0xBA98, 0x7310, 0x1054, 0xF2D4):
        yield Form(f"prmt.b32 {{x}}, {{a}}, {{b}}, {number:#06x};", ("b32", "b32"), ("b32",))
    for direction, mode in itertools.product("lr", ("wrap", "clamp")):
        yield plain(f"shf.{direction}.{mode}.b32", "b32", "b32", "b32", "amount")


def _bit_fields() -> Iterator[Form]:
    for bits in (32, 64):
        amount = "amount" if bits == 32 else "position"
        for letter in "su":
            yield plain(f"bfe.{letter}{bits}", f"b{bits}", f"b{bits}", amount, amount)
            yield plain(f"bfind.{letter}{bits}", "b32", f"b{bits}")
            yield plain(f"bfind.shiftamt.{letter}{bits}", "b32", f"b{bits}")
        yield plain(f"bfi.b{bits}", f"b{bits}", f"b{bits}", f"b{bits}", amount, amount)
        yield plain(f"brev.b{bits}", f"b{bits}", f"b{bits}")
        for verb in ("popc", "clz"):
            yield plain(f"{verb}.b{bits}", "b32", f"b{bits}")


_ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
_OF_REALS = (*_ORDERED, *(f"{each}u" for each in _ORDERED), "num", "nan")
_OF_UNSIGNED = (*_ORDERED, "lo", "ls", "hi", "hs")


def _comparisons() -> Iterator[tuple[str, str, str]]:
    """Yield an operator, .ftz or nothing, and a type."""
    for kind in ("f16", "bf16", "f32", "f64"):
        for operator, ftz in itertools.product(_OF_REALS, ("", "ftz")):
            yield operator, ftz, kind
    for bits in (16, 32, 64):
        yield from ((operator, "", f"s{bits}") for operator in _OF_UNSIGNED)
        yield from ((operator, "", f"u{bits}") for operator in _OF_UNSIGNED)
        yield from ((operator, "", f"b{bits}") for operator in _ORDERED)


def _choices() -> Iterator[Form]:
    for operator, ftz, kind in _comparisons():
        source = _OF_TYPE[kind]
        yield plain(_spelled("setp", operator, ftz, kind), "pred", kind, kind)
        for boolean in ("and", "or", "xor"):
            opcode = _spelled("setp", operator, boolean, ftz, kind)
            pair = kind not in ("f16", "bf16")
            text = f"{opcode} {{x}}{'|{y}' if pair else ''}, {{a}}, {{b}}, {{c}};"
            yield Form(text, (source, source, "pred"), ("pred", "pred") if pair else ("pred",))
        for out in ("u32", "s32", "f32", "f16", "bf16"):
            yield plain(_spelled("set", operator, ftz, out, kind), out, kind, kind)
        yield plain(_spelled("set", operator, "and", ftz, "u32", kind), "u32", kind, kind, "pred")
    for operator, ftz in itertools.product(_OF_REALS, ("", "ftz")):
        for kind in ("f16x2", "bf16x2"):
            yield plain(_spelled("set", operator, ftz, kind, kind), kind, kind, kind)
    yield Form("setp.lt.s32 {x}|{y}, {a}, {b};", ("b32", "b32"), ("pred", "pred"))
    yield Form("setp.lt.f32 {x}|{y}, {a}, {b};", ("f32", "f32"), ("pred", "pred"))
    for kind in (*_INTEGERS, "b16", "b32", "b64", "f32", "f64", "f16"):
        yield plain(f"selp.{kind}", kind, kind, kind, "pred")


_BYTES = ("u8", "s8", "b8")
_TO_INTEGER = ("", "rni", "rzi", "rmi", "rpi")


def _conversions() -> Iterator[Form]:
    integers = ("u8", "s8", *_INTEGERS)
    reals = ("f16", "bf16", "f32", "f64")
    for to, source, clamp in itertools.product(integers, integers, ("", "sat")):
        opcode = _spelled("cvt", clamp, to, source)
        yield plain(opcode, to, source)
        yield from _wider(opcode, to, source)
    for to, source, rounding, ftz, clamp in itertools.product(integers, reals, _TO_INTEGER, ("", "ftz"), ("", "sat")):
        opcode = _spelled("cvt", rounding, ftz, clamp, to, source)
        yield plain(opcode, to, source)
        if not ftz and not clamp:
            yield from _wider(opcode, to, source)
    for to, source, rounding, ftz, clamp in itertools.product(reals, integers, _ROUNDINGS, ("", "ftz"), ("", "sat")):
        yield plain(_spelled("cvt", rounding, ftz, clamp, to, source), to, source)
    for to, source, rounding, ftz, clamp in itertools.product(
        reals, reals, (*_ROUNDINGS, *_TO_INTEGER[1:]), ("", "ftz"), ("", "sat", "relu")
    ):
        yield plain(_spelled("cvt", rounding, ftz, clamp, to, source), to, source)


def _wider(opcode: str, to: str, source: str) -> Iterator[Form]:
    """Yield the form whose result goes to a wider register, which the result fills by its sign or by zeros."""
    bits = int(to[1:])
    for width in (32, 64):
        if max(bits, 16) < width:
            yield Form(f"{opcode} {{x}}, {{a}};", (_OF_TYPE[source],), (f"b{width}",))


def _narrow_conversions() -> Iterator[Form]:
    for rounding, relu, clamp, to in itertools.product(
        ("rn", "rz", "rna"), ("", "relu"), ("", "satfinite"), ("f16x2", "bf16x2", "e4m3x2", "e5m2x2", "tf32")
    ):
        for opcode in dict.fromkeys(
            (_spelled("cvt", rounding, relu, clamp, to, "f32"), _spelled("cvt", rounding, clamp, relu, to, "f32"))
        ):
            if to == "tf32":
                yield plain(opcode, to, "f32")
            else:
                yield plain(opcode, to, "f32", "f32")
    for relu, eight, half in itertools.product(("", "relu"), ("e4m3x2", "e5m2x2"), ("f16x2", "bf16x2")):
        yield plain(_spelled("cvt.rn.satfinite", relu, eight, half), eight, half)
        yield plain(_spelled("cvt.rn", relu, half, eight), half, eight)
    for kind in ("u16", "s16"):
        yield plain(f"cvt.pack.sat.{kind}.s32", "b32", "s32", "s32")
    for kind in ("u8", "s8", "u4", "s4", "u2", "s2"):
        yield plain(f"cvt.pack.sat.{kind}.s32.b32", "b32", "s32", "s32", "b32")


def _moves() -> Iterator[Form]:
    for kind in (*_INTEGERS, "b16", "b32", "b64", "f32", "f64", "pred"):
        yield plain(f"mov.{kind}", kind, kind)
    for bits, half in (("b32", "b16"), ("b64", "b32")):
        yield Form(f"mov.{bits} {{x}}, {{{{{{a}}, {{b}}}}}};", (half, half), (bits,))
        yield Form(f"mov.{bits} {{{{{{x}}, {{y}}}}}}, {{a}};", (bits,), (half, half))


def _exchanges() -> Iterator[Form]:
    """Exchanges between the lanes of whole warps."""
    members = "0xffffffff"
    for mode in ("up", "down", "bfly", "idx"):
        for by, clamp in ((1, 0x1F), (3, 0x1F), (16, 0x1F), (5, 0x0), (2, 0x181C), (33, 0x1007), (7, 0x1C1F)):
            text = f"shfl.sync.{mode}.b32 {{x}}|{{y}}, {{a}}, {by}, {clamp:#x}, {members};"
            yield Form(text, ("b32",), ("b32", "pred"))
    for verb, kind in itertools.product(("add", "min", "max", "and", "or", "xor"), ("u32", "s32", "b32")):
        yield Form(f"redux.sync.{verb}.{kind} {{x}}, {{a}}, {members};", ("b32",), ("b32",))
    for nan, signs, verb in itertools.product(("", "NaN"), ("", "abs"), ("min", "max")):
        opcode = _spelled("redux.sync", verb, signs, nan, "f32")
        yield Form(f"{opcode} {{x}}, {{a}}, {members};", ("f32",), ("f32",))
    for mode in ("all", "any", "uni"):
        yield Form(f"vote.sync.{mode}.pred {{x}}, {{a}}, {members};", ("pred",), ("pred",))
    yield Form(f"vote.sync.ballot.b32 {{x}}, {{a}}, {members};", ("pred",), ("b32",))
    yield Form(f"match.any.sync.b32 {{x}}, {{a}}, {members};", ("amount",), ("b32",))
    yield Form("activemask.b32 {x};", (), ("b32",))
    yield Form(f"elect.sync {{x}}|{{y}}, {members};", (), ("b32", "pred"))


def forms() -> tuple[Form, ...]:
    """Return all forms, each once."""
    families: tuple[Iterable[Form], ...] = (
        _real_arithmetic(), _approximations(), _real_extrema(), _classes(), _integer_arithmetic(), _carries(), _logic(),
        _bit_fields(), _choices(), _conversions(), _narrow_conversions(), _moves(), _exchanges(),
    )  # fmt: skip
    found: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Form] = {}
    for form in itertools.chain.from_iterable(families):
        found.setdefault((form.text, form.sources, form.results), form)
    assert all(kind in WIDTHS for form in found.values() for kind in form.sources)
    return tuple(found.values())
