"""Integer instructions against reference functions of the ISA."""

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest

from bitwise_core.execution.domains.domain import Unsupported
from integer_references import Case, cases, edges, nth_set, positions
from ptx_programs import known, run, simulated, store, table

THREADS = 32
REGISTERS = {
    16: ("%h1", "%h2", "%h3", "%h4", "%h5"),
    32: ("%r1", "%r2", "%r3", "%r4", "%r5"),
    64: ("%d5", "%d6", "%d7", "%d8", "%d9"),
}


def draws(case: Case, count: int, seed: int) -> list[tuple[int, ...]]:
    random = Random(seed)
    found: list[tuple[int, ...]] = []
    while len(found) < count:
        row = []
        for index, bits in enumerate(case.sources):
            pool = positions(case.sources[0]) if index in case.amounts else edges(bits)
            row.append(random.choice(pool) if random.random() < 0.8 else random.getrandbits(bits))
        if case.defined(*row):
            found.append(tuple(row))
    return found


def hidden(register: str, bits: int, free: int) -> str:
    """Return what hides a number from the assembler: lanes read their own. Registers from %r<free> on are not used."""
    low, high = f"%r{free}", f"%r{free + 1}"
    shuffle = " ".join(f"shfl.sync.bfly.b32 {each}, {each}, 0, 31, -1;" for each in (low, high)[: max(1, bits // 32)])
    if bits == 32:
        return shuffle.replace(low, register)
    if bits == 16:
        return f"mov.b32 {low}, {{{register}, {register}}}; {shuffle} mov.b32 {{{register}, %h{free}}}, {low};"
    return f"mov.b64 {{{low}, {high}}}, {register}; {shuffle} mov.b64 {register}, {{{low}, {high}}};"


def program(case: Case, rows: list[tuple[int, ...]]) -> str:
    """Return a body that applies the instruction to one row of operands in each thread, from tables by thread index."""
    used = [REGISTERS[bits][index] for index, bits in enumerate(case.sources)]
    lines = [table([row[index] for row in rows], bits, used[index]) for index, bits in enumerate(case.sources)]
    lines += [hidden(used[index], bits, 30 + 2 * index) for index, bits in enumerate(case.sources)]
    result = REGISTERS[case.bits][4]
    lines.append(f"{case.opcode} {result}, {', '.join(used)}{case.suffix};")
    return "\n".join([*lines, store(result, case.bits)])


def is_of_its_text(case: Case, row: tuple[int, ...]) -> bool:
    """Return whether ptxas evaluates an operation on literals otherwise: on pairs of integers, shifts by 64 or more."""
    shift = re.fullmatch(r"sh[lr]\.[bus]64", case.opcode) is not None
    return (shift and row[1] >= 64) or case.opcode.endswith("16x2")


CASES = tuple(cases())


@pytest.mark.parametrize("case", CASES, ids=[f"{case.opcode}{case.suffix}" for case in CASES])
def test_results_are_those_of_the_isa(case: Case) -> None:
    rows = draws(case, THREADS, 1)
    body, size = program(case, rows), case.bits // 8
    found = known(run(body, threads=THREADS)[0])
    results = [case.meaning(*row) & ((1 << case.bits) - 1) for row in rows]
    if any(is_of_its_text(case, row) for row in rows):
        assert not found
        empty = {name: np.zeros(THREADS * size, np.uint8) for name in ("out", "in")}
        assert simulated(body, [empty], threads=THREADS) == [
            b"".join(each.to_bytes(size, "little") for each in results)
        ]
    else:
        assert found == {index * size: (case.bits, result) for index, result in enumerate(results)}


@pytest.mark.parametrize("case", CASES[::7], ids=[f"{case.opcode}{case.suffix}" for case in CASES[::7]])
def test_literal_operands(case: Case) -> None:
    for row in draws(case, 6, 2):
        result = REGISTERS[case.bits][4]
        line = f"{case.opcode} {result}, {', '.join(str(each) for each in row)}{case.suffix};"
        if case.opcode.startswith("cvt"):
            line = f"mov.b{case.sources[0]} {REGISTERS[case.sources[0]][0]}, {row[0]}; " + line
            line = (
                line.replace(f"{result}, {row[0]}", f"{result}, {REGISTERS[case.sources[0]][0]}")
                if len(row) == 1
                else line
            )
        found = known(run(line + store(result, case.bits), threads=1)[0])
        expected = {0: (case.bits, case.meaning(*row) & ((1 << case.bits) - 1))}
        assert found == ({} if is_of_its_text(case, row) else expected)


def test_a_byte_in_a_wider_register_is_extended() -> None:
    for value in (0, 1, 127, 128, 200, 255, 0x1FF, 0xFFFFFF80, 0x12345678, 0xFFFFFFFF):
        lines = [
            f"mov.b32 %r1, {value}; cvt.s8.s32 %h1, %r1; mov.b32 %r2, {{%h1, %h1}};",
            "cvt.u8.u32 %h2, %r1; mov.b32 %r3, {%h2, %h2};",
        ]
        lines += [store("%r2", 32, slot=0, count=2), store("%r3", 32, slot=1, count=2)]
        found = known(run("\n".join(lines), threads=1)[0])
        byte = value & 255
        assert found == {0: (32, 0x10001 * ((byte - 256 * (byte > 127)) & 0xFFFF)), 4: (32, 0x10001 * byte)}


def test_96_bit_addition_by_carries() -> None:
    random = Random(3)
    pool = [random.choice((0, 1, 2**96 - 1, 2**64 - 1, 2**32, random.getrandbits(96))) for _ in range(2 * THREADS)]
    left, right = pool[:THREADS], pool[THREADS:]
    word = 0xFFFFFFFF
    lines = [table([each >> 32 * i & word for each in left], 32, f"%r{1 + i}") for i in range(3)]
    lines += [table([each >> 32 * i & word for each in right], 32, f"%r{4 + i}") for i in range(3)]
    lines.append("add.cc.u32 %r7, %r1, %r4; addc.cc.u32 %r8, %r2, %r5; addc.u32 %r9, %r3, %r6;")
    lines += [store(f"%r{7 + i}", 32, slot=i, count=3) for i in range(3)]
    found = known(run("\n".join(lines), threads=THREADS)[0])
    for index in range(THREADS):
        total = sum(found[4 * (3 * index + i)][1] << 32 * i for i in range(3))
        assert total == (left[index] + right[index]) & (2**96 - 1)


def test_64_bit_square_by_carries() -> None:
    random = Random(4)
    values = [random.choice((0, 2**64 - 1, 2**32 + 1, random.getrandbits(64))) for _ in range(THREADS)]
    lines = [table([each >> 32 * i & 0xFFFFFFFF for each in values], 32, f"%r{1 + i}") for i in range(2)]
    lines.append("""
        mul.lo.u32 %r5, %r1, %r1; mul.hi.u32 %r6, %r1, %r1;
        mad.lo.cc.u32 %r6, %r1, %r2, %r6; madc.hi.u32 %r7, %r1, %r2, 0;
        mad.lo.cc.u32 %r6, %r1, %r2, %r6; madc.hi.cc.u32 %r7, %r1, %r2, %r7; addc.u32 %r8, 0, 0;
        mad.lo.cc.u32 %r7, %r2, %r2, %r7; madc.hi.u32 %r8, %r2, %r2, %r8;
    """)
    lines += [store(f"%r{5 + i}", 32, slot=i, count=4) for i in range(4)]
    found = known(run("\n".join(lines), threads=THREADS)[0])
    for index, value in enumerate(values):
        assert sum(found[4 * (4 * index + i)][1] << 32 * i for i in range(4)) == value * value


def test_an_integer_with_a_nan_pattern_keeps_its_bits_next_to_data() -> None:
    body = """
        mul.lo.u32 %r1, %r0, 4; cvt.u64.u32 %d5, %r1; add.s64 %d5, %d1, %d5;
        mov.b32 %r2, 0x7fffffff; setp.gt.u32 %p1, %r0, 1; @%p1 ld.global.b32 %r2, [%d5];
        xor.b32 %r3, %r2, 0x80000000; and.b32 %r4, %r3, 0x7fffffff;
    """
    found = known(run(body + store("%r3", 32, 0, 2) + store("%r4", 32, 1, 2), threads=4)[0])
    assert found == {0: (32, 0xFFFFFFFF), 4: (32, 0x7FFFFFFF), 8: (32, 0xFFFFFFFF), 12: (32, 0x7FFFFFFF)}


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("root", ["div", "rem"])
def test_division_by_zero_sets_all_bits_as_on_an_h100(root: str, kind: str) -> None:
    bits = int(kind[1:])
    left, right, _, _, result = REGISTERS[bits]
    rows = [0, 1, 5, (1 << bits) - 1, 1 << (bits - 1)]
    body = (
        table(rows, bits, left)
        + f"mov.b{bits} {right}, 0; {root}.{kind} {result}, {left}, {right};"
        + store(result, bits)
    )
    found = known(run(body, threads=len(rows))[0])
    assert found == {index * bits // 8: (bits, (1 << bits) - 1) for index in range(len(rows))}


def test_a_64_bit_field_at_an_undefined_position_raises() -> None:
    with pytest.raises(Unsupported, match="above 255"):
        run("mov.b32 %r1, 256; bfe.u64 %d5, %d1, %r1, 8;" + store("%d5", 64), threads=1)


@pytest.mark.parametrize("mask", [0, 0x80000001, 0x00F0F00F])
def test_all_places_and_counts_of_fns(mask: int) -> None:
    rows = [(mask, base, offset) for base in range(32) for offset in range(-9, 10)]
    lines = [f"mov.b32 %r1, {mask}; div.u32 %r2, %r0, 19; rem.u32 %r3, %r0, 19; sub.s32 %r3, %r3, 9;"]
    lines += [hidden(f"%r{1 + index}", 32, 30 + 2 * index) for index in range(3)]
    lines += ["fns.b32 %r5, %r1, %r2, %r3;", store("%r5", 32)]
    found = known(run("\n".join(lines), threads=len(rows))[0])
    assert found == {4 * place: (32, nth_set(*row) & 0xFFFFFFFF) for place, row in enumerate(rows)}


@pytest.mark.parametrize("base", ["32", "-1", "%r2"])
def test_a_base_of_fns_that_may_be_above_31_is_unknown(base: str) -> None:
    body = "ld.global.b32 %r2, [%d1]; mov.b32 %r1, 5; fns.b32 %r3, %r1, " + base + ", 1;" + store("%r3", 32)
    with pytest.raises(Unsupported, match="the base of fns is not known to be at most 31"):
        run(body, threads=1)
