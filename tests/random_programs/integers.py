"""Statements that compute integers and predicates, select by predicates, and use shared memory."""

from __future__ import annotations

import numpy as np

from random_programs.values import LANES, UNSIGNED, WIDTH, Draw, Program, in_register, operands

COMPARISONS = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
WRAPPING = {
    "add": np.add,
    "sub": np.subtract,
    "mul.lo": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def choose(program: Program, n: Draw) -> None:
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


def compare(program: Program, n: Draw) -> None:
    kind = ("f32", "f16", "i32", "f32")[n[3] % 4]
    found = operands(program, kind, n[:2])
    if found is None:
        return
    a, b = (in_register(program, each) for each in found)
    if kind == "i32":
        verb = ("lt", "le", "gt", "ge", "eq", "ne")[n[3] // 4 % 6]
        bits = COMPARISONS[verb](a.bits.view(np.int32), b.bits.view(np.int32))
        program.add("pred", bits, f"setp.{verb}.s32 @@, {a.register}, {b.register};")
        return
    verb = ("lt", "le", "gt", "ge", "eq", "ne", "ltu", "leu", "gtu", "geu", "equ", "neu", "num", "nan")[n[3] // 4 % 14]
    left, right = (each.bits.view(np.float32 if kind == "f32" else np.float16) for each in (a, b))
    unordered = np.isnan(left) | np.isnan(right)
    with np.errstate(invalid="ignore"):
        bits = COMPARISONS[verb[:2]](left, right) if verb[:2] in COMPARISONS else unordered
    if verb == "num":
        bits = ~unordered
    elif verb != "nan":
        bits = bits & ~unordered | (unordered if verb.endswith("u") else False)
    program.add("pred", bits, f"setp.{verb}.{kind} @@, {a.register}, {b.register};")


def logic_of_predicates(program: Program, n: Draw) -> None:
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


def predicates_in_bits(program: Program, n: Draw) -> None:
    """Pack two predicates into a register, mask it, and read one of its bits or compare it with a number."""
    found = operands(program, "pred", n[:2])
    if found is None:
        return
    a, b = (in_register(program, each) for each in found)
    high, low, place = n[3] % 5, n[3] // 5 % 5, n[3] // 25 % 6
    mask = (0xFFFFFFFF, 0xF, 0x1F00, 0x3)[n[2] % 4]
    wide = np.where(a.bits, np.uint32(0xFFFFFFFF), np.uint32(0)) << np.uint32(high)
    one = np.where(b.bits, np.uint32(1), np.uint32(2)) << np.uint32(low)
    packed = ((wide, one, wide | one, wide ^ one)[n[2] // 4 % 4] & np.uint32(mask)).astype(np.uint32)
    joined = ("mov.b32 @@, %r87;", "mov.b32 @@, %r88;", "or.b32 @@, %r87, %r88;", "xor.b32 @@, %r88, %r87;")
    program.add(
        "i32",
        packed,
        f"selp.b32 %r87, -1, 0, {a.register}; shl.b32 %r87, %r87, {high};",
        f"selp.b32 %r88, 1, 2, {b.register}; shl.b32 %r88, %r88, {low};",
        joined[n[2] // 4 % 4],
        f"and.b32 @@, @@, {mask};",
    )
    register = program.values[-1].register
    bit = (packed >> np.uint32(place)) & np.uint32(1)
    if n[2] // 16 % 2:
        wanted = (0, 1, 2, 3, 8, 0x1F00)[place]
        program.add("pred", packed == wanted, f"setp.eq.b32 @@, {register}, {wanted};")
    else:
        lines = f"shr.u32 %r88, {register}, {place}; and.b32 %r88, %r88, 1; setp.ne.b32 @@, %r88, 0;"
        program.add("pred", bit != 0, lines)


def predicates_as_numbers(program: Program, n: Draw) -> None:
    """Combine two predicates as numbers 0 and 1, of which one comes from another lane or through shared memory."""
    found = operands(program, "pred", n[:2])
    if found is None:
        return
    a, b = (in_register(program, each) for each in found)
    lines = [f"selp.b32 %r86, 1, 0, {a.register};", f"selp.b32 %r87, 1, 0, {b.register};"]
    one, other = (np.broadcast_to(each.bits, (LANES, each.bits.shape[1])).astype(np.uint32) for each in (a, b))
    if n[3] % 3 == 1:
        distance = 1 + n[3] // 3 % (LANES - 1)
        lines.append(f"shfl.sync.bfly.b32 %r87, %r87, {distance}, 31, 15;")
        other = other[[lane ^ distance for lane in range(LANES)]]
    if n[3] % 3 == 2:
        lines += [
            "bar.sync 0; mov.u64 %d88, room; mul.lo.u32 %r88, %r0, 8;",
            "cvt.u64.u32 %d87, %r88; add.s64 %d87, %d87, %d88;",
            "cvt.u16.u32 %h89, %r87; st.shared.b8 [%d87], %h89; bar.sync 0; ld.shared.u8 %r87, [%d87];",
        ]
    verbs = {
        "or.b32": np.bitwise_or, "and.b32": np.bitwise_and, "xor.b32": np.bitwise_xor, "max.s32": np.maximum,
        "min.u32": np.minimum, "mul.lo.u32": np.multiply, "add.s32": np.add,
    }  # fmt: skip
    verb = list(verbs)[n[2] % len(verbs)]
    program.add("i32", verbs[verb](one, other), *lines, f"{verb} @@, %r86, %r87;")
    number = program.values[-1]
    tests = {
        "gt.s32": (0, number.bits > 0), "lt.u32": (1, number.bits < 1), "ne.b32": (1, number.bits != 1),
        "ge.s32": (2, number.bits >= 2), "eq.u32": (0, number.bits == 0),
    }  # fmt: skip
    test = list(tests)[n[2] // 8 % len(tests)]
    program.add("pred", tests[test][1], f"setp.{test} @@, {number.register}, {tests[test][0]};")


def counted_predicates(program: Program, n: Draw) -> None:
    """Count the predicates in a register, or add them up as numbers."""
    found = operands(program, "pred", n[:3])
    if found is None:
        return
    some = [in_register(program, each) for each in found]
    total = sum((each.bits.astype(np.uint32) for each in some[1:]), some[0].bits.astype(np.uint32))
    lines = [f"selp.b32 %r{85 + place}, 1, 0, {each.register};" for place, each in enumerate(some)]
    if n[3] % 2:
        lines += ["add.u32 @@, %r85, %r86;", "add.u32 @@, @@, %r87;"]
    else:
        lines += ["shl.b32 %r86, %r86, 3; shl.b32 %r87, %r87, 9; or.b32 %r86, %r86, %r85;"]
        lines += ["or.b32 %r86, %r86, %r87; popc.b32 @@, %r86;"]
    program.add("i32", np.asarray(total, dtype=np.uint32), *lines)


def averages(program: Program, n: Draw) -> None:
    """Average two integers in two ways, small ones or constants that a predicate selects, and multiply by 4."""
    found, chosen = operands(program, "i32", n[:2]), operands(program, "pred", n[:2])
    if found is None or chosen is None:
        return
    a, b = (in_register(program, each) for each in found)
    p, q = (in_register(program, each) for each in chosen)
    lines = []
    numbers = []
    for place, (value, predicate) in enumerate(((a, p), (b, q))):
        register = f"%r{86 + place}"
        if n[2] >> place & 1:
            high, low = (255, 127, 40000, 7)[n[2] // 4 % 4], (127, 0, 65535, 2147483646)[n[2] // 16 % 4]
            lines.append(f"selp.b32 {register}, {high}, {low}, {predicate.register};")
            numbers.append(np.where(predicate.bits, np.uint32(high), np.uint32(low)))
        else:
            mask = (0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF)[n[3] // 16 % 5]
            lines.append(f"and.b32 {register}, {value.register}, {mask};")
            numbers.append(value.bits & np.uint32(mask))
    x, y = numbers
    one = np.uint32(1)
    with np.errstate(over="ignore"):
        total = x + y
    program.add("i32", total >> one, *lines, "add.s32 %r88, %r86, %r87; shr.u32 @@, %r88, 1;")
    way = n[3] % 4
    if way == 0:
        bits = (x >> one) + (y >> one) + (x & y & one)
        lines.append("shr.u32 %r88, %r86, 1; shr.u32 %r89, %r87, 1; add.s32 %r88, %r88, %r89;")
        lines.append("and.b32 %r89, %r86, %r87; and.b32 %r89, %r89, 1; add.s32 @@, %r88, %r89;")
    elif way == 1:
        bits = (x & y) + ((x ^ y) >> one)
        lines.append("and.b32 %r88, %r86, %r87; xor.b32 %r89, %r87, %r86; shr.u32 %r89, %r89, 1;")
        lines.append("add.s32 @@, %r88, %r89;")
    elif way == 2:
        bits = (total & np.uint32(0xFFFF)) >> one
        lines.append("cvt.u16.u32 %h88, %r86; cvt.u16.u32 %h89, %r87; add.s16 %h88, %h88, %h89;")
        lines.append("shr.u16 %h88, %h88, 1; cvt.u32.u16 @@, %h88;")
    else:
        with np.errstate(over="ignore"):
            bits = ((total + (total >> np.uint32(31))).view(np.int32) >> np.int32(1)).view(np.uint32)
        lines.append("add.s32 %r88, %r86, %r87; shr.u32 %r89, %r88, 31; add.s32 %r88, %r88, %r89; shr.s32 @@, %r88, 1;")
    program.add("i32", bits, *lines)
    average = program.values[-1]
    if n[3] // 4 % 4 == 1:
        product = average.bits.astype(np.uint64) * np.uint64(4)
        program.add("i64", product, f"mul.wide.u32 @@, {average.register}, 4;")
    elif n[3] // 4 % 4 == 2:
        product = (average.bits.view(np.int32).astype(np.int64) * 4).view(np.uint64)
        program.add("i64", product, f"mul.wide.s32 @@, {average.register}, 4;")
    elif n[3] // 4 % 4 == 3:
        program.add("i32", average.bits & np.uint32(0xFF), f"cvt.u16.u32 %h88, {average.register};",
                    "cvt.u8.u16 %h89, %h88; cvt.u32.u8 @@, %h89;")  # fmt: skip


def integers(program: Program, n: Draw) -> None:
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
        if verb in ("min", "max"):
            extremum = np.minimum if verb == "min" else np.maximum
            bits = extremum(x.view(f"int{width}"), y.view(f"int{width}")).view(unsigned)
        else:
            bits = WRAPPING[verb](x, y)
    letter = "s" if verb in ("add", "sub", "mul.lo", "min", "max") else "b"
    program.add(kind, bits, f"{verb}.{letter}{width} @@, {a.register}, {b.register};")


def integer_widths(program: Program, n: Draw) -> None:
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


def codes(program: Program, n: Draw) -> None:
    """Add an operation on the low halves of two words, extended to a word, or a comparison of them, or a field."""
    found = operands(program, "i32", n[:2])
    if found is None:
        return
    a, b = (in_register(program, each) for each in found)
    halves = f"cvt.u16.u32 %h88, {a.register};", f"cvt.u16.u32 %h89, {b.register};"
    x, y = (each.bits & np.uint32(0xFFFF) for each in (a, b))
    verb = ("add", "sub", "and", "or", "xor", "shl", "lt", "le", "eq", "selp", "bfe")[n[3] % 11]
    if verb in ("lt", "le", "eq"):
        bits = COMPARISONS[verb](x, y)
        program.add("pred", bits, *halves, f"setp.{verb}.{'b' if verb == 'eq' else 'u'}16 @@, %h88, %h89;")
        return
    if verb == "bfe":
        low = n[2] % 32
        count = 1 + n[2] // 32 % (32 - low)
        bits = a.bits >> np.uint32(low) & np.uint32((1 << count) - 1)
        program.add("i32", bits, f"bfe.u32 @@, {a.register}, {low}, {count};")
        return
    if verb == "selp":
        predicate = program.pick("pred", n[2])
        if predicate is None:
            return
        p = in_register(program, predicate)
        bits, computed = np.where(p.bits, x, y), f"selp.b16 %h88, %h88, %h89, {p.register};"
    elif verb == "shl":
        bits, computed = x << np.uint32(n[2] % 16), f"shl.b16 %h88, %h88, {n[2] % 16};"
    else:
        kind = "s16" if verb in ("add", "sub") else "b16"
        with np.errstate(over="ignore"):
            bits, computed = WRAPPING[verb](x, y), f"{verb}.{kind} %h88, %h88, %h89;"
    program.add("i32", bits & np.uint32(0xFFFF), *halves, computed, "cvt.u32.u16 @@, %h88;")


def through_shared(program: Program, n: Draw) -> None:
    kind = ("f32", "f16", "f16x2", "i32", "i64", "f64")[n[3] % 6]
    found = operands(program, kind, n[:1])
    if found is None:
        return
    a = in_register(program, found[0])
    bits = WIDTH[kind]
    lanes = [(lane + n[2]) % LANES for lane in range(LANES)]
    full = np.broadcast_to(a.bits, (LANES, a.bits.shape[1]))
    address = "mul.lo.u32 %r88, %r88, 8; cvt.u64.u32 %d87, %r88; add.s64 %d87, %d87, %d88;"
    program.add(
        kind,
        np.ascontiguousarray(full[lanes]),
        f"bar.sync 0; mov.u64 %d88, room; mov.b32 %r88, %r0; {address}",
        f"st.shared.b{bits} [%d87], {a.register}; bar.sync 0;",
        f"add.u32 %r88, %r0, {n[2] % LANES}; and.b32 %r88, %r88, {LANES - 1}; {address}",
        f"ld.shared.b{bits} @@, [%d87];",
    )
