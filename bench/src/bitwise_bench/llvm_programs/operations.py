"""The operations of random programs: the text of each in LLVM's language, and what it computes.

Left out is what LLVM compiles to other bits: a product that is rounded to fp16 loses the sign of a zero, and a bit
field at a variable place that is shifted loses the shift.  Signs of NaNs are not read.  A few other faults of LLVM are
left in: bit fields of literals, and -0 in pairs of fp16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bitwise_bench.llvm_programs.values import (
    FLOATS,
    INTEGERS,
    LANES,
    WAVE,
    Array,
    bits_of,
    element_of,
    fused,
    numbers,
    pattern_type,
    patterns_of,
    rounded,
    signed,
    wrapped,
)

_LANE = np.arange(LANES)
_BASE, _WITHIN = _LANE & ~(WAVE - 1), _LANE & (WAVE - 1)
CONTROLS = (
    *range(0x101, 0x110), *range(0x111, 0x120), *range(0x121, 0x130), *range(0x150, 0x160), 0x130, 0x134, 0x138, 0x13C,
    0x140, 0x141, 0x142, 0x143, 0x1B, 0x4E, 0xB1,
)  # fmt: skip
"""The controls of DPP: of rows, of waves, and three orders of four lanes."""
_SHORT = {"half": "f16", "float": "f32", "double": "f64", "<2 x half>": "v2f16", "<2 x float>": "v2f32"}

Compute = Callable[..., Array]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: its operands' types, its result's type, its text, and its function of patterns.

    In the text, {0} is the first operand and {n} one of the numbers `choices`, which the function takes as `n`.
    `crosses`: a lane reads other ones, and the function takes the active lanes as `active`.  `declares`: the function
    that it calls.  `hidden`: LLVM must not find the numbers of its operands.
    """

    operands: tuple[str, ...]
    result: str
    text: str
    compute: Compute
    declares: str = ""
    choices: Sequence[int] = ()
    crosses: bool = False
    hidden: bool = False


def _call(
    name: str, operands: tuple[str, ...], result: str, compute: Compute, rest: str = "", **more: Any
) -> Operation:
    """Return a call of a function, of which `rest` are constant arguments with their types."""
    constants = tuple(each.split()[0] for each in rest.split(", ") if each)
    given = ", ".join([*(f"{kind} {{{place}}}" for place, kind in enumerate(operands)), *filter(None, [rest])])
    declares = f"declare {result} @llvm.{name}({', '.join((*operands, *constants))})"
    return Operation(operands, result, f"call {result} @llvm.{name}({given})", compute, declares, **more)


def _each(function: Callable[..., int], kind: str) -> Compute:
    """Return a function of patterns from one of Python's integers."""

    def compute(*operands: Array) -> Array:
        return wrapped([int(function(*each)) for each in zip(*(o.tolist() for o in operands), strict=True)], kind)

    return compute


def _signed_each(function: Callable[..., int], kind: str) -> Compute:
    return lambda *operands: _each(function, kind)(*map(signed, operands))


def integers() -> Iterator[Operation]:
    """Yield operations on integers."""
    for kind in INTEGERS:
        bits, ones = bits_of(kind), (1 << bits_of(kind)) - 1
        two, three = (kind,) * 2, (kind,) * 3

        def plain(verb: str, function: Compute, two: tuple[str, ...] = two, kind: str = kind) -> Operation:
            return Operation(two, kind, f"{verb} {kind} {{0}}, {{1}}", function)

        yield plain("add", lambda a, b: a + b)
        yield plain("sub", lambda a, b: a - b)
        yield plain("mul", lambda a, b: a * b)
        yield plain("and", lambda a, b: a & b)
        yield plain("or", lambda a, b: a | b)
        yield plain("xor", lambda a, b: a ^ b)
        for verb, shift in (
            ("shl", lambda a, n: a << n), ("lshr", lambda a, n: a >> n),
            ("ashr", lambda a, n: (signed(a) >> signed(np.full_like(a, n))).view(a.dtype)),
        ):  # fmt: skip

            def shifted(a: Array, *, n: int, shift: Any = shift) -> Array:
                found: Array = shift(a, a.dtype.type(n))
                return found

            yield Operation((kind,), kind, f"{verb} {kind} {{0}}, {{n}}", shifted, choices=range(bits))
        yield _call(f"ctpop.{kind}", (kind,), kind, _each(int.bit_count, kind))
        yield _call(f"ctlz.{kind}", (kind,), kind, _each(lambda a, bits=bits: bits - a.bit_length(), kind), "i1 false")
        yield _call(
            f"cttz.{kind}", (kind,), kind,
            _each(lambda a, bits=bits: (a & -a).bit_length() - 1 if a else bits, kind), "i1 false",
        )  # fmt: skip
        yield _call(
            f"bitreverse.{kind}", (kind,), kind, _each(lambda a, bits=bits: int(f"{a:0{bits}b}"[::-1], 2), kind)
        )
        if bits > 8:
            yield _call(f"bswap.{kind}", (kind,), kind, lambda a: a.byteswap())
        yield _call(
            f"fshl.{kind}", three, kind, _each(lambda a, b, n, s=bits: ((a << s | b) << n % s) >> s, kind)
        )  # fmt: skip
        yield _call(f"fshr.{kind}", three, kind, _each(lambda a, b, n, s=bits: (a << s | b) >> n % s, kind))
        for verb, function in (("min", min), ("max", max)):
            yield _call(f"u{verb}.{kind}", two, kind, _each(function, kind))
            yield _call(f"s{verb}.{kind}", two, kind, _signed_each(function, kind))
        yield _call(f"abs.{kind}", (kind,), kind, _signed_each(abs, kind), "i1 false")
        yield _call(f"uadd.sat.{kind}", two, kind, _each(lambda a, b, ones=ones: min(a + b, ones), kind))
        yield _call(f"usub.sat.{kind}", two, kind, _each(lambda a, b: max(a - b, 0), kind))
        for letter, operators in (("s", ("lt", "le", "gt", "ge")), ("u", ("lt", "le", "gt", "ge")), ("", ("eq", "ne"))):
            for operator in operators:
                compare = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
                           "eq": np.equal, "ne": np.not_equal}[operator]  # fmt: skip

                def compared(a: Array, b: Array, compare: Any = compare, of_sign: bool = letter == "s") -> Array:
                    found: Array = compare(signed(a), signed(b)) if of_sign else compare(a, b)
                    return found

                yield Operation(two, "i1", f"icmp {letter}{operator} {kind} {{0}}, {{1}}", compared)


def floats() -> Iterator[Operation]:
    """Yield operations on floating-point numbers."""
    for kind, short in _SHORT.items():
        element = element_of(kind)
        two, three, sign = (kind,) * 2, (kind,) * 3, 1 << bits_of(kind) - 1
        for verb, operator in (("fadd", np.add), ("fsub", np.subtract), ("fmul", np.multiply), ("fdiv", np.divide)):
            if verb == "fdiv" and kind != "float":
                continue

            def arithmetic(a: Array, b: Array, kind: str = kind, operator: Any = operator) -> Array:
                return patterns_of(operator(numbers(a, kind), numbers(b, kind)), kind)

            yield Operation(two, kind, f"{verb} {kind} {{0}}, {{1}}", arithmetic)
        yield _call(f"fma.{short}", three, kind, lambda a, b, c, kind=kind: fused(a, b, c, kind))
        yield Operation((kind,), kind, f"fneg {kind} {{0}}", lambda a, sign=sign: a ^ a.dtype.type(sign))
        if kind != element:
            continue
        yield _call(f"fabs.{short}", (kind,), kind, lambda a, sign=sign: a & a.dtype.type(sign - 1))
        for verb in ("floor", "ceil", "trunc", "rint"):

            def integral(a: Array, kind: str = kind, verb: str = verb) -> Array:
                return patterns_of(getattr(np, verb)(numbers(a, kind)), kind)

            yield _call(f"{verb}.{short}", (kind,), kind, integral)
        for verb in ("minnum", "maxnum"):
            yield _call(f"{verb}.{short}", two, kind, partial(_extremum, kind=kind, least=verb == "minnum"))
        for test in ("eq", "gt", "ge", "lt", "le", "ne"):
            for ordered in "ou":
                compare = partial(_comparison, kind=kind, operator=test, ordered=ordered == "o")
                yield Operation(two, "i1", f"fcmp {ordered}{test} {kind} {{0}}, {{1}}", compare)


def _extremum(a: Array, b: Array, *, kind: str, least: bool) -> Array:
    """An extremum of numbers, where -0 is below +0."""
    x, y = numbers(a, kind), numbers(b, kind)
    found = patterns_of((np.fmin if least else np.fmax)(x, y), kind)
    return np.where((x == 0) & (y == 0), a | b if least else a & b, found)


def _comparison(a: Array, b: Array, *, kind: str, operator: str, ordered: bool) -> Array:
    x, y = numbers(a, kind), numbers(b, kind)
    found = {"eq": x == y, "gt": x > y, "ge": x >= y, "lt": x < y, "le": x <= y, "ne": x != y}[operator]
    nan = np.isnan(x) | np.isnan(y)
    result: Array = found & ~nan if ordered else found | nan
    return result


def conversions() -> Iterator[Operation]:
    """Yield conversions between types, and operations on elements of pairs."""
    for place, narrow in enumerate(INTEGERS):
        for wide in INTEGERS[place + 1 :]:
            to = pattern_type(wide)
            yield Operation((narrow,), wide, f"zext {narrow} {{0}} to {wide}", lambda a, to=to: a.astype(to))
            yield Operation(
                (narrow,), wide, f"sext {narrow} {{0}} to {wide}",
                lambda a, to=to: signed(a).astype(f"i{to.itemsize}").view(to),
            )  # fmt: skip
            less = pattern_type(narrow)
            yield Operation((wide,), narrow, f"trunc {wide} {{0}} to {narrow}", lambda a, less=less: a.astype(less))
    for integer in INTEGERS:
        low, high = -(1 << bits_of(integer) - 1), (1 << bits_of(integer) - 1) - 1
        for kind in FLOATS:
            for letter, of_sign in (("s", True), ("u", False)):

                def to_float(a: Array, kind: str = kind, of_sign: bool = of_sign) -> Array:
                    found = (signed(a) if of_sign else a).tolist()
                    return np.array([rounded(_fraction(each), kind) for each in found], np.uint64).astype(
                        pattern_type(kind)
                    )

                yield Operation((integer,), kind, f"{letter}itofp {integer} {{0}} to {kind}", to_float)
                if integer != "i8":
                    ends = (low, high) if of_sign else (0, high - low)
                    yield _call(
                        f"fpto{letter}i.sat.{integer}.{_SHORT[kind]}", (kind,), integer,
                        partial(_to_integer, kind=kind, integer=integer, ends=ends),
                    )  # fmt: skip
    for narrow, wide in (("half", "float"), ("float", "double"), ("half", "double")):
        yield Operation(
            (narrow,), wide, f"fpext {narrow} {{0}} to {wide}",
            lambda a, narrow=narrow, wide=wide: patterns_of(numbers(a, narrow), wide),
        )  # fmt: skip
    yield Operation(
        ("double",), "float", "fptrunc double {0} to float", lambda a: patterns_of(numbers(a, "double"), "float")
    )
    for kind in ("<2 x half>", "<2 x i16>", "<2 x float>"):
        element = element_of(kind)
        yield Operation(
            (kind,), element, f"extractelement {kind} {{0}}, i32 {{n}}",
            lambda a, *, n: np.ascontiguousarray(a[:, n]), choices=(0, 1),
        )  # fmt: skip
        yield Operation(
            (kind, element), kind, f"insertelement {kind} {{0}}, {element} {{1}}, i32 {{n}}", _inserted, choices=(0, 1)
        )
        for one in range(4):
            for other in range(4):
                yield Operation(
                    (kind, kind), kind,
                    f"shufflevector {kind} {{0}}, {kind} {{1}}, <2 x i32> <i32 {one}, i32 {other}>",
                    lambda a, b, one=one, other=other: np.concatenate([a, b], axis=1)[:, [one, other]],
                )  # fmt: skip
    pair = ("<2 x i16>", "<2 x i16>")
    for verb, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("xor", np.bitwise_xor)):
        yield Operation(pair, pair[0], f"{verb} <2 x i16> {{0}}, {{1}}", function)
    yield _call("smax.v2i16", pair, pair[0], lambda a, b: np.maximum(signed(a), signed(b)).view(a.dtype))
    yield _call("umin.v2i16", pair, pair[0], np.minimum)
    for kind in (*INTEGERS, *FLOATS, "<2 x half>", "<2 x i16>"):
        yield Operation(
            ("i1", kind, kind), kind, f"select i1 {{0}}, {kind} {{1}}, {kind} {{2}}", _selected,
        )  # fmt: skip


def _fraction(number: int) -> Any:
    from fractions import Fraction

    return Fraction(number)


def _selected(holds: Array, a: Array, b: Array) -> Array:
    lanes = holds[:, None] if a.ndim > 1 else holds
    found: Array = np.where(lanes, a, b)
    return found


def _inserted(a: Array, b: Array, *, n: int) -> Array:
    found = a.copy()
    found[:, n] = b
    return found


def _to_integer(a: Array, *, kind: str, integer: str, ends: tuple[int, int]) -> Array:
    """Return numbers rounded toward zero, between the ends of a type; 0 for a NaN."""
    low, high = ends
    found = []
    for each in numbers(a, kind).astype(np.float64).tolist():
        inside = 0 if np.isnan(each) else (high if each > 0 else low) if np.isinf(each) else int(each)
        found.append(max(low, min(high, inside)))
    return wrapped(found, integer)


def _extended(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> bits - 1 else number


def _byte_permutation(a: int, b: int, selector: int) -> int:
    """v_perm_b32: bytes of two words by selectors, signs of halves, 0 and 255."""
    pool = b.to_bytes(4, "little") + a.to_bytes(4, "little")
    found = 0
    for place in range(4):
        chosen = selector >> 8 * place & 255
        if chosen > 12:
            byte = 255
        elif chosen == 12:
            byte = 0
        elif chosen > 7:
            byte = 255 * (pool[2 * (chosen - 8) + 1] >> 7)
        else:
            byte = pool[chosen]
        found |= byte << 8 * place
    return found


def machine_operations() -> Iterator[Operation]:
    """Yield operations of the machine on 32 bits, and exchanges between the lanes of a wave."""
    two, three = ("i32",) * 2, ("i32",) * 3
    yield _call("amdgcn.perm", three, "i32", _each(_byte_permutation, "i32"))
    yield _call("amdgcn.alignbyte", three, "i32", _each(lambda a, b, n: (a << 32 | b) >> 8 * (n & 3), "i32"))
    yield _call("amdgcn.mul.u24.i32", two, "i32", _each(lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF), "i32"))
    yield _call("amdgcn.mul.i24.i32", two, "i32", _each(lambda a, b: _extended(a, 24) * _extended(b, 24), "i32"))
    yield _call("amdgcn.mulhi.u24", two, "i32", _each(lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32, "i32"))
    yield _call("amdgcn.mulhi.i24", two, "i32", _each(lambda a, b: _extended(a, 24) * _extended(b, 24) >> 32, "i32"))
    for name, part in (("udot4", lambda a, low: a >> low & 255), ("sdot4", lambda a, low: _extended(a >> low, 8))):

        def dot(a: int, b: int, c: int, part: Any = part) -> int:
            return int(sum(part(a, low) * part(b, low) for low in (0, 8, 16, 24)) + c)

        yield _call(f"amdgcn.{name}", three, "i32", _each(dot, "i32"), "i1 false")

    def bit_field(a: Array, *, n: int, of_sign: bool) -> Array:
        low, size = n & 31, max(1, n >> 5)

        def field_of(number: int) -> int:
            shown = (_extended(number, 32) if of_sign else number) >> low
            return _extended(shown, size) if of_sign else shown & (1 << size) - 1

        return _each(field_of, "i32")(a)

    for name, of_sign in (("ubfe", False), ("sbfe", True)):
        for low, size in ((0, 8), (5, 24), (8, 16), (24, 31), (31, 1), (16, 31)):
            # Where LLVM computes a field itself, it returns another number for some, or ends with a failed assertion.
            yield _call(
                f"amdgcn.{name}.i32", ("i32",), "i32",
                partial(bit_field, n=low | size << 5, of_sign=of_sign), f"i32 {low}, i32 {size}",
                hidden=True,
            )  # fmt: skip
    yield _call("amdgcn.ds.bpermute", two, "i32", _permuted, crosses=True)
    yield _call("amdgcn.ds.swizzle", ("i32",), "i32", _swizzled, "i32 {n}", choices=range(1 << 15), crosses=True)
    for rows, banks, bound in ((15, 15, True), (15, 15, False), (10, 15, False), (15, 5, True)):
        yield _call(
            "amdgcn.update.dpp.i32", two, "i32", partial(_data_parallel, rows=rows, banks=banks, bound=bound),
            f"i32 {{n}}, i32 {rows}, i32 {banks}, i1 {str(bound).lower()}", choices=CONTROLS, crosses=True,
        )  # fmt: skip
    yield _call("amdgcn.readfirstlane.i32", ("i32",), "i32", _first, crosses=True)
    yield _call("amdgcn.ballot.i64", ("i1",), "i64", _ballot, crosses=True)


def _taken(values: Array, source: Array, active: Array) -> Array:
    """Return the values of source lanes of each wave, 0 where they are not active."""
    lanes = _BASE + source
    found: Array = np.where(active[lanes], values[lanes], values.dtype.type(0))
    return found


def _permuted(address: Array, values: Array, *, active: Array) -> Array:
    return _taken(values, (address >> np.uint32(2) & np.uint32(63)).astype(np.int64), active)


def _swizzled(values: Array, *, active: Array, n: int) -> Array:
    kept, set_, flipped = n & 31, n >> 5 & 31, n >> 10 & 31
    return _taken(values, (_WITHIN & 32) | (((_WITHIN & 31 & kept) | set_) ^ flipped), active)


def dpp_sources(control: int) -> tuple[Array, Array]:
    """Return the source lane of each lane of a wave, and whether it has one.  Source: the ISA's table of dpp_ctrl."""
    lane = _WITHIN
    row, place, count = lane & ~15, lane & 15, control & 15
    always = np.ones(LANES, dtype=bool)
    if control < 0x100:
        return (lane & ~3) + (control >> 2 * (lane & 3) & 3), always
    if control in range(0x101, 0x110):
        return lane + count, place + count < 16
    if control in range(0x111, 0x120):
        return lane - count, place >= count
    if control in range(0x121, 0x130):
        return row + (place - count) % 16, always
    if control in range(0x150, 0x160):
        return row + count, always
    return {
        0x130: (lane + 1, lane < 63), 0x134: ((lane + 1) % 64, always), 0x138: (lane - 1, lane > 0),
        0x13C: ((lane - 1) % 64, always), 0x140: (row + 15 - place, always),
        0x141: ((lane & ~7) + 7 - (lane & 7), always), 0x142: (row - 1, lane > 15),
        0x143: (np.full(LANES, 31), lane > 31),
    }[control]  # fmt: skip


def _data_parallel(old: Array, values: Array, *, active: Array, n: int, rows: int, banks: int, bound: bool) -> Array:
    source, valid = dpp_sources(n)
    lanes = _BASE + np.clip(source, 0, 63)
    written = (rows >> (_WITHIN // 16) & 1 == 1) & (banks >> (_WITHIN // 4 % 4) & 1 == 1)
    otherwise = np.uint32(0) if bound else old
    return np.where(written, np.where(valid & active[lanes], values[lanes], otherwise), old)


def _first(values: Array, *, active: Array) -> Array:
    first = [int(np.argmax(active[base : base + WAVE])) for base in range(0, LANES, WAVE)]
    found: Array = values[_BASE + np.array(first)[_LANE // WAVE]]
    return found


def _ballot(holds: Array, *, active: Array) -> Array:
    lanes = (holds & active).reshape(-1, WAVE)
    words = [sum(1 << int(lane) for lane in np.flatnonzero(each)) for each in lanes]
    return np.array(words, np.uint64)[_LANE // WAVE]


def all_operations() -> tuple[Operation, ...]:
    """Return all operations."""
    return (*integers(), *floats(), *conversions(), *machine_operations())
