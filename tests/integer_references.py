"""Reference results of PTX's integer instructions in Python integers, after the definitions of the PTX ISA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


def signed(value: int, bits: int) -> int:
    """Return the two's complement number of a pattern."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def reading(kind: str) -> Callable[[int], int]:
    """Return the function from a pattern to the number of a type."""
    bits = int(kind[1:])
    return (lambda value: signed(value, bits)) if kind[0] == "s" else (lambda value: value & ((1 << bits) - 1))


@dataclass(frozen=True)
class Case:
    """One instruction: its opcode, the widths of its sources and its result, and its function on patterns."""

    opcode: str
    sources: tuple[int, ...]
    bits: int
    meaning: Callable[..., int]
    suffix: str = ""
    amounts: tuple[int, ...] = ()
    """The sources that are positions or counts."""
    defined: Callable[..., bool] = lambda *_: True


def arithmetic() -> Iterator[Case]:
    """add, sub, mul, mad, div, rem, neg, abs, min, max, sad, products of bytes."""
    for bits in (16, 32, 64):
        for letter in "su":
            kind = f"{letter}{bits}"
            of = reading(kind)
            yield Case(f"add.{kind}", (bits, bits), bits, lambda a, b: a + b)
            yield Case(f"sub.{kind}", (bits, bits), bits, lambda a, b: a - b)
            yield Case(f"mul.lo.{kind}", (bits, bits), bits, lambda a, b: a * b)
            yield Case(f"mul.hi.{kind}", (bits, bits), bits, lambda a, b, of=of, n=bits: of(a) * of(b) >> n)
            yield Case(f"mad.lo.{kind}", (bits, bits, bits), bits, lambda a, b, c: a * b + c)
            yield Case(
                f"mad.hi.{kind}", (bits, bits, bits), bits, lambda a, b, c, of=of, n=bits: (of(a) * of(b) >> n) + c
            )
            if bits < 64:
                yield Case(f"mul.wide.{kind}", (bits, bits), 2 * bits, lambda a, b, of=of: of(a) * of(b))
                yield Case(
                    f"mad.wide.{kind}", (bits, bits, 2 * bits), 2 * bits, lambda a, b, c, of=of: of(a) * of(b) + c
                )
            yield Case(
                f"div.{kind}",
                (bits, bits),
                bits,
                lambda a, b, of=of: quotient(of(a), of(b)),
                defined=lambda a, b: b != 0,
            )
            yield Case(
                f"rem.{kind}",
                (bits, bits),
                bits,
                lambda a, b, of=of: of(a) - of(b) * quotient(of(a), of(b)),
                defined=lambda a, b: b != 0,
            )
            yield Case(f"min.{kind}", (bits, bits), bits, lambda a, b, of=of: min(of(a), of(b)))
            yield Case(f"max.{kind}", (bits, bits), bits, lambda a, b, of=of: max(of(a), of(b)))
            yield Case(f"sad.{kind}", (bits, bits, bits), bits, lambda a, b, c, of=of: abs(of(a) - of(b)) + c)
        yield Case(f"neg.s{bits}", (bits,), bits, lambda a: -a)
        if bits == 32:
            for verb, least in (("min", min), ("max", max)):
                yield Case(
                    f"{verb}.relu.s32", (32, 32), 32,
                    lambda a, b, least=least: max(0, least(signed(a, 32), signed(b, 32))),
                )  # fmt: skip
        yield Case(f"abs.s{bits}", (bits,), bits, lambda a, n=bits: abs(signed(a, n)))
    for letter in "su":
        of = reading(f"{letter}16")
        for verb, half in (("add", int.__add__), ("min", min), ("max", max)):

            def halves(a: int, b: int, of: Callable[[int], int] = of, half: Callable[[int, int], int] = half) -> int:
                return (half(of(a), of(b)) & 0xFFFF) | (half(of(a >> 16), of(b >> 16)) & 0xFFFF) << 16

            yield Case(f"{verb}.{letter}16x2", (32, 32), 32, halves)
    for left in "su":
        for right in "su":

            def four(a: int, b: int, c: int, left: str = left, right: str = right) -> int:
                x, y = reading(left + "8"), reading(right + "8")
                return c + sum(x(a >> low) * y(b >> low) for low in (0, 8, 16, 24))

            yield Case(f"dp4a.{left}32.{right}32", (32, 32, 32), 32, four)


def quotient(a: int, b: int) -> int:
    """Division toward zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def logic() -> Iterator[Case]:
    """and, or, xor, not, lop3, prmt."""
    for bits in (16, 32, 64):
        yield Case(f"and.b{bits}", (bits, bits), bits, lambda a, b: a & b)
        yield Case(f"or.b{bits}", (bits, bits), bits, lambda a, b: a | b)
        yield Case(f"xor.b{bits}", (bits, bits), bits, lambda a, b: a ^ b)
        yield Case(f"not.b{bits}", (bits,), bits, lambda a: ~a)
    for table in (0x00, 0x01, 0x1E, 0x80, 0x96, 0xCA, 0xE8, 0xF0, 0xCC, 0xAA, 0x2D, 0xFF):
        yield Case("lop3.b32", (32, 32, 32), 32, lambda a, b, c, t=table: by_table(a, b, c, t), suffix=f", {table}")
    yield Case("prmt.b32", (32, 32, 32), 32, permuted)


def by_table(a: int, b: int, c: int, table: int) -> int:
    """Return for each bit the table's entry at the index that the three bits form, a's the highest."""
    result = 0
    for place in range(32):
        index = (a >> place & 1) * 4 + (b >> place & 1) * 2 + (c >> place & 1)
        result |= (table >> index & 1) << place
    return result


def permuted(a: int, b: int, selector: int) -> int:
    """Each nibble of the selector chooses one of eight bytes, or spreads that byte's sign."""
    pool = [a >> 8 * i & 255 for i in range(4)] + [b >> 8 * i & 255 for i in range(4)]
    result = 0
    for place in range(4):
        control = selector >> 4 * place & 15
        byte = pool[control & 7]
        if control & 8:
            byte = 255 if byte & 128 else 0
        result |= byte << 8 * place
    return result


def shifts() -> Iterator[Case]:
    """shl, shr, shf, bfe, bfi."""
    for bits in (16, 32, 64):
        yield Case(f"shl.b{bits}", (bits, 32), bits, lambda a, n, w=bits: a << min(n, w), amounts=(1,))
        yield Case(f"shr.u{bits}", (bits, 32), bits, lambda a, n, w=bits: a >> min(n, w), amounts=(1,))
        yield Case(f"shr.b{bits}", (bits, 32), bits, lambda a, n, w=bits: a >> min(n, w), amounts=(1,))
        yield Case(f"shr.s{bits}", (bits, 32), bits, lambda a, n, w=bits: signed(a, w) >> min(n, w), amounts=(1,))
    for mode in ("wrap", "clamp"):

        def count(n: int, mode: str = mode) -> int:
            return n & 31 if mode == "wrap" else min(n, 32)

        yield Case(
            f"shf.l.{mode}.b32", (32, 32, 32), 32, lambda a, b, n, f=count: ((b << 32 | a) << f(n)) >> 32, amounts=(2,)
        )
        yield Case(f"shf.r.{mode}.b32", (32, 32, 32), 32, lambda a, b, n, f=count: (b << 32 | a) >> f(n), amounts=(2,))
    for kind in ("u32", "s32", "u64", "s64"):
        yield Case(
            f"bfe.{kind}",
            (int(kind[1:]), 32, 32),
            int(kind[1:]),
            lambda a, p, n, k=kind: extracted(a, p, n, k),
            amounts=(1, 2),
            defined=lambda a, p, n, w=int(kind[1:]): w == 32 or max(p, n) < 256,
        )
    for bits in (32, 64):
        yield Case(
            f"bfi.b{bits}",
            (bits, bits, 32, 32),
            bits,
            lambda a, b, p, n, w=bits: inserted(a, b, p, n, w),
            amounts=(2, 3),
            defined=lambda a, b, p, n, w=bits: w == 32 or max(p, n) < 256,
        )


def extracted(a: int, position: int, length: int, kind: str) -> int:
    """Return bfe by the ISA's loop over bits."""
    bits = int(kind[1:])
    position, length, top = position & 255, length & 255, bits - 1
    sign = 0 if kind[0] == "u" or length == 0 else a >> min(position + length - 1, top) & 1
    result = 0
    for place in range(bits):
        result |= ((a >> (position + place) & 1) if place < length and position + place <= top else sign) << place
    return result


def inserted(a: int, b: int, position: int, length: int, bits: int) -> int:
    """Return bfi by the ISA's loop over bits."""
    position, length = position & 255, length & 255
    result = b
    for place in range(length):
        if position + place > bits - 1:
            break
        result = result & ~(1 << position + place) | (a >> place & 1) << position + place
    return result


def counts() -> Iterator[Case]:
    """popc, clz, brev, bfind."""
    for bits in (32, 64):
        yield Case(f"popc.b{bits}", (bits,), 32, lambda a: a.bit_count())
        yield Case(f"clz.b{bits}", (bits,), 32, lambda a, w=bits: w - a.bit_length())
        yield Case(f"brev.b{bits}", (bits,), bits, lambda a, w=bits: int(f"{a:0{w}b}"[::-1], 2))
        for letter in "su":
            for shift in (False, True):

                def found(a: int, w: int = bits, letter: str = letter, shift: bool = shift) -> int:
                    if letter == "s" and a >> (w - 1):
                        a = ~a & ((1 << w) - 1)
                    place = a.bit_length() - 1
                    return place if place < 0 or not shift else w - 1 - place

                yield Case(f"bfind{'.shiftamt' if shift else ''}.{letter}{bits}", (bits,), 32, found)


def nth_set(mask: int, base: int, offset: int) -> int:
    """fns, as the loop of the PTX ISA."""
    if offset == 0:
        return base if mask >> base & 1 else -1
    place, left, step = base, abs(offset) - 1, 1 if offset > 0 else -1
    while 0 <= place < 32:
        if mask >> place & 1:
            if left == 0:
                return place
            left -= 1
        place += step
    return -1


def searches() -> Iterator[Case]:
    """fns."""
    yield Case(
        "fns.b32",
        (32, 32, 32),
        32,
        lambda mask, base, offset: nth_set(mask, base, signed(offset, 32)),
        amounts=(1,),
        defined=lambda mask, base, offset: base < 32,
    )


def choices() -> Iterator[Case]:
    """set and copysign."""
    compare: dict[str, Callable[[int, int], bool]] = {
        "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
    }  # fmt: skip
    for bits in (16, 32, 64):
        for letter in "su":
            of = reading(f"{letter}{bits}")
            for name, test in compare.items():
                yield Case(
                    f"set.{name}.u32.{letter}{bits}",
                    (bits, bits),
                    32,
                    lambda a, b, of=of, t=test: 0xFFFFFFFF if t(of(a), of(b)) else 0,
                )
    for name, like in (("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge")):
        yield Case(f"set.{name}.s32.u32", (32, 32), 32, lambda a, b, t=compare[like]: 0xFFFFFFFF if t(a, b) else 0)
    yield Case("set.lt.f32.s32", (32, 32), 32, lambda a, b: 0x3F800000 if signed(a, 32) < signed(b, 32) else 0)
    for bits in (32, 64):
        sign = 1 << (bits - 1)
        yield Case(f"copysign.f{bits}", (bits, bits), bits, lambda a, b, s=sign: a & s | b & ~s)


def conversions() -> Iterator[Case]:
    """cvt between integers, and cvt.pack."""
    kinds = [f"{letter}{bits}" for bits in (16, 32, 64) for letter in "su"]
    for to in kinds:
        for source in kinds:
            wide, bits = int(source[1:]), int(to[1:])
            of = reading(source)
            if to != source:
                yield Case(f"cvt.{to}.{source}", (wide,), bits, lambda a, of=of: of(a))
                yield Case(f"cvt.sat.{to}.{source}", (wide,), bits, lambda a, of=of, to=to: clamped(of(a), to))
    for kind in ("u16", "s16"):
        yield Case(f"cvt.pack.sat.{kind}.s32", (32, 32), 32, lambda a, b, k=kind: packed(a, b, 0, k))
    for kind in ("u8", "s8"):
        yield Case(f"cvt.pack.sat.{kind}.s32.b32", (32, 32, 32), 32, lambda a, b, c, k=kind: packed(a, b, c, k))


def clamped(value: int, kind: str) -> int:
    """The nearest number of the type."""
    bits = int(kind[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return max(low, min(high, value))


def packed(a: int, b: int, c: int, kind: str) -> int:
    """Return the concatenation of c's low bits, a clamped and b clamped, from high to low."""
    bits = int(kind[1:])
    mask = (1 << bits) - 1
    low = clamped(signed(b, 32), kind) & mask | (clamped(signed(a, 32), kind) & mask) << bits
    return low | c << 2 * bits


def cases() -> Iterator[Case]:
    """Yield the cases of all instructions."""
    for family in (arithmetic, logic, shifts, counts, searches, choices, conversions):
        yield from family()


def edges(bits: int) -> tuple[int, ...]:
    """Return edge cases of a width."""
    top = 1 << (bits - 1)
    mask = (1 << bits) - 1
    return (
        0,
        1,
        2,
        mask,
        mask - 1,
        top,
        top - 1,
        top + 1,
        0x5A5A5A5AA5A5A5A5 & mask,
        0xDEADBEEFCAFE1234 & mask,
        0x00FF00FF00FF80FF & mask,
    )


def positions(bits: int) -> tuple[int, ...]:
    """Amounts of a shift, positions and lengths of a field."""
    return (0, 1, 7, 8, 16, 24, bits - 1, bits, bits + 1, 31, 32, 33, 63, 64, 65, 255, 256, 0xFFFFFFFF)
