"""SASS functions that compute the same with other registers and in another order, and some that only look equal."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bitwise_nvidia_ptx.machine_code.dataflow import equal_functions, rounds_exponentials
from bitwise_nvidia_ptx.machine_code.registers import MachineFunction, MachineInstruction

_REGISTER = re.compile(r"(?<![\w.])(UR|R|UP|P)(\d+)(?:\.(64))?(?!\w)")
_TWO_RESULTS = ("FSETP", "ISETP", "PLOP3", "SHFL")
_NO_RESULT = ("ST", "BRA", "EXIT", "BSSY", "BSYNC", "BAR", "RET", "CALL", "BRX", "NOP", "WARPSYNC", "R2P")


def code(*lines: str) -> MachineFunction:
    """Return a function; a line that ends with a colon is a label.  Registers are those that the text names."""
    instructions: list[MachineInstruction] = []
    labels: dict[str, int] = {}
    for text in lines:
        if text.endswith(":"):
            labels[text[:-1]] = 16 * len(instructions)
            continue
        guard, operation = re.fullmatch(r"(?:@(!?U?P\w) )?(.*)", text).groups()  # type: ignore[union-attr]
        mnemonic, _, rest = operation.partition(" ")
        operands = [each.strip() for each in rest.split(",")] if rest else []
        count = 2 if mnemonic.startswith(_TWO_RESULTS) else 0 if mnemonic.startswith(_NO_RESULT) else 1
        width = 4 if ".128" in mnemonic else 2 if mnemonic.startswith("D") or ".WIDE" in mnemonic else 1
        writes, reads = set[str](), set[str]()
        for place, operand in enumerate(operands):
            wide = (
                place < count or mnemonic[0] == "D" or (".WIDE" in mnemonic and place == 3) or "STG.E.128" in mnemonic
            )
            for file, number, pair in _REGISTER.findall(operand):
                pair = pair or mnemonic.startswith("CALL.ABS")
                span = 2 if pair else width if file == "R" and wide and "[" not in operand else 1
                names = {f"{file}{int(number) + i}" for i in range(span)}
                (writes if place < count else reads).update(names)
        if "PR" in operands:
            (writes if mnemonic == "R2P" else reads).update(f"P{i}" for i in range(7))
        reads.update(file + number for file, number, _ in _REGISTER.findall(guard or ""))
        bits = 0
        if (literal := re.search(r"#(\w{8})", text)) is not None:
            bits, text = int(literal[1], 16) << 32, text.replace(literal[0], "")
        instructions.append(MachineInstruction(16 * len(instructions), text, bits, frozenset(reads), frozenset(writes)))
    return MachineFunction(tuple(instructions), labels)


def equal(one: Sequence[str], other: Sequence[str]) -> bool:
    left, right = code(*one), code(*other)
    found = equal_functions(left, right)
    assert found == equal_functions(right, left)
    return found


FIRST = (
    "FSETP.GEU.AND P0, PT, |R8|, 1.175494350822287508e-38#00800000, PT",
    "FSETP.GT.AND P2, PT, |R8|, 8.50705917302346158658e+37#7e800000, PT",
    "FSEL R5, R3, R8, P2",
    "@!P0 FMUL R5, R5, 16777216#4b800000",
    "STG.E desc[UR4.64][R2.64], R5",
    "EXIT",
)
SWAP = {"P0": "P2", "P2": "P0"}


def swapped(instructions: Sequence[str], names: dict[str, str], start: int = 0, end: int | None = None) -> list[str]:
    """Return the instructions with registers renamed from `start` to `end`."""
    end = len(instructions) if end is None else end
    return [
        re.sub(r"(?<![\w.])[PR]\d+(?!\w)", lambda m: names.get(m[0], m[0]), each) if start <= i < end else each
        for i, each in enumerate(instructions)
    ]


def test_a_live_range_may_be_renamed() -> None:
    assert equal(FIRST, swapped(FIRST, SWAP))
    assert equal(FIRST, swapped(FIRST, {"P0": "P5"}))
    assert equal(FIRST, swapped(FIRST, {"R5": "R9"}))
    assert equal(FIRST, FIRST)


def test_independent_instructions_may_be_exchanged() -> None:
    assert equal(FIRST, [FIRST[1], FIRST[0], *FIRST[2:]])
    assert equal(FIRST, [FIRST[1], FIRST[2], FIRST[0], *FIRST[3:]])
    assert not equal(FIRST, [*FIRST[:2], FIRST[3], FIRST[2], *FIRST[4:]])


@pytest.mark.parametrize("place", range(4))
def test_one_changed_name_is_a_different_program(place: int) -> None:
    for new in ("P1", "P3", "P0", "P2"):
        changed = swapped(FIRST, {"P0": new, "P2": new}, place, place + 1)
        if changed != list(FIRST):
            assert not equal(FIRST, changed)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (0, "FSETP.GEU.AND P0, PT, |R9|, 1.175494350822287508e-38#00800000, PT"),
        (0, "FSETP.GEU.AND P0, PT, R8, 1.175494350822287508e-38#00800000, PT"),
        (0, "FSETP.GEU.AND P0, PT, |R8|, 1.275494350822287508e-38#00800001, PT"),
        (0, "FSETP.GT.AND P0, PT, |R8|, 1.175494350822287508e-38#00800000, PT"),
        (2, "FSEL R5, R3, R8, !P2"),
        (2, "FSEL R5, R8, R3, P2"),
        (2, "FSEL R5, R3, -R8, P2"),
        (3, "@P0 FMUL R5, R5, 16777216#4b800000"),
        (3, "@!P0 FMUL R6, R5, 16777216#4b800000"),
        (3, "FMUL R5, R5, 16777216#4b800000"),
        (3, "@!P0 FMUL.FTZ R5, R5, 16777216#4b800000"),
        (3, "@!P0 FADD R5, R5, 16777216#4b800000"),
        (4, "STG.E desc[UR4.64][R2.64], R3"),
        (4, "STG.E desc[UR4.64][R2.64+0x4], R5"),
        (4, "@P0 STG.E desc[UR4.64][R2.64], R5"),
    ],
)
def test_any_other_change_is_a_different_program(place: int, text: str) -> None:
    changed = [*FIRST[:place], text, *FIRST[place + 1 :]]
    assert not equal(FIRST, changed)
    assert not equal(FIRST, swapped(changed, SWAP))


FUSED = ("FFMA R6, R4, R5, R7", "STG.E desc[UR4.64][R2.64], R6", "EXIT")


@pytest.mark.parametrize(
    ("first", "same", "different"),
    [
        ("FFMA R6, R4, R5, R7", "FFMA R6, R5, R4, R7", "FFMA R6, R5, R7, R4"),
        ("FFMA R6, -R4, R5, R7", "FFMA R6, R4, -R5, R7", "FFMA R6, R4, R5, -R7"),
        ("FFMA R6, R4, -0.5#bf000000, R7", "FFMA R6, -R4, 0.5#3f000000, R7", "FFMA R6, R4, 0.5#3f000000, R7"),
        ("FFMA R6, -|R4|, R5, R7", "FFMA R6, |R4|, -R5, R7", "FFMA R6, -R4, R5, R7"),
        ("FMUL R6, -R4, R5", "FMUL R6, -R5, R4", "FMUL R6, R4, R5"),
        ("FMUL R6, -R4, -R5", "FMUL R6, R4, R5", "FMUL R6, R4, -R5"),
        ("FADD R6, R4, -R5", "FADD R6, -R5, R4", "FADD R6, -R4, R5"),
        ("FADD R6, R4, -1#bf800000", "FADD R6, -1#bf800000, R4", "FADD R6, R4, 1#3f800000"),
        ("FADD R6, R4, +QNAN#7fc00000", "FADD R6, R4, +QNAN#7fc00000", "FADD R6, R4, +QNAN#7fc00001"),
        ("FMUL R6, R4, 0#00000000", "FMUL R6, R4, RZ", "FMUL R6, R4, -0#80000000"),
        ("FFMA R6, R4, 1#3f800000, R7", "FADD R6, R7, R4", "FFMA R6, R4, 1.00000011920928955078#3f800001, R7"),
        ("FFMA R6, R4, -1#bf800000, R7", "FADD R6, -R4, R7", "FADD R6, R4, R7"),
        ("FFMA R6, -R4, 1#3f800000, -R7", "FADD R6, -R7, -R4", "FADD R6, R7, -R4"),
        ("FFMA.FTZ R6, R4, 1#3f800000, R7", "FADD.FTZ R6, R4, R7", "FADD R6, R4, R7"),
        ("FFMA.RM R6, R4, 1#3f800000, R7", "FADD.RM R6, R4, R7", "FADD.RP R6, R4, R7"),
        ("FFMA R6, R4, R7, 1#3f800000", "FFMA R6, R7, R4, 1#3f800000", "FADD R6, R4, R7"),
        ("FMUL R6, R4, 1#3f800000", "FMUL R6, R4, 1#3f800000", "MOV R6, R4"),
        ("FSET.BF.GT.AND R6, R4, R5, PT", "FSET.BF.LT.AND R6, R5, R4, PT", "FSET.BF.GT.AND R6, R5, R4, PT"),
        ("FSET.BF.GT.AND R6, R4, -R5, PT", "FSET.BF.GT.AND R6, R5, -R4, PT", "FSET.BF.GE.AND R6, R5, -R4, PT"),
        ("HFMA2 R6, -R4, R5.H0_H0, R7", "HFMA2 R6, -R5.H0_H0, R4, R7", "HFMA2 R6, -R4.H0_H0, R5, R7"),
        ("FMNMX R6, R4, R5, PT", "FMNMX R6, R4, R5, PT", "FMNMX R6, R4, R5, !PT"),
        ("LOP3.LUT R6, R4, R5, RZ, 0xc0, !PT", "LOP3.LUT R6, R4, R5, RZ, 0xc0, !PT",
         "LOP3.LUT R6, R4, R5, RZ, 0xfc, !PT"),
    ],
)  # fmt: skip
def test_signs_and_order_of_factors_and_addends(first: str, same: str, different: str) -> None:
    rest = FUSED[1:]
    assert equal((first, *rest), (same, *rest))
    assert not equal((first, *rest), (different, *rest))
    assert not equal((same, *rest), (different, *rest))


@pytest.mark.parametrize(
    ("first", "same", "different"),
    [
        ("IADD3 R6, R4, 0x5, RZ", "VIADD R6, R4, 0x5", "VIADD R6, R4, 0x6"),
        ("IADD3 R6, R4, -0x1, RZ", "IMAD.IADD R6, RZ, 0x1, R4", None),
        ("IMAD.IADD R6, R4, 0x1, R5", "IADD3 R6, R5, R4, RZ", "IMAD R6, R4, 0x1, -R5"),
        ("IMAD.IADD R6, R4, 0x1, -R5", "IADD3 R6, -R5, R4, RZ", "IADD3 R6, R5, -R4, RZ"),
        ("IADD3 R6, R4, 0x5, -R5", "IADD3 R6, -R5, 0x5, R4", "IADD3 R6, R5, 0x5, R4"),
        ("IADD3 R6, R4, R4, RZ", "IADD3 R6, RZ, R4, R4", "IADD3 R6, RZ, R4, RZ"),
        ("IMAD.SHL.U32 R6, R4, 0x4, RZ", "SHF.L.U32 R6, R4, 0x2, RZ", "SHF.L.U32 R6, R4, 0x4, RZ"),
        ("SHF.L.U32 R6, R4, 0x1f, RZ", "IMAD.SHL.U32 R6, R4, 0x80000000, RZ", "SHF.R.U32 R6, R4, 0x1f, RZ"),
        ("SHF.L.U32 R6, R4, 0x2, R5", "SHF.L.U32 R6, R4, 0x2, R5", "SHF.L.U32 R6, R4, 0x2, RZ"),
        ("SHF.L.U32 R6, R4, 0x20, RZ", "SHF.L.U32 R6, R4, 0x20, RZ", "SHF.L.U32 R6, R4, 0x0, RZ"),
        ("IADD3.X R6, R4, R5, RZ, P0, !PT", "IADD3.X R6, R4, R5, RZ, P0, !PT", "IADD3 R6, R4, R5, RZ"),
        ("IADD3 R6, ~R4, R5, RZ", "IADD3 R6, ~R4, R5, RZ", "IADD3 R6, R4, R5, RZ"),
        ("IADD3.X R6, R4, R5, RZ, P0, !PT", "IMAD.X R6, R5, 0x1, R4, P0", "IMAD.X R6, R5, 0x1, R4, P1"),
        ("IADD3.X R6, RZ, R5, RZ, P0, !PT", "IMAD.X R6, RZ, RZ, R5, P0", "IMAD.X R6, R4, 0x2, R5, P0"),
        ("IADD3.X R6, R4, R5, RZ, P0, !PT", "IMAD.X R6, R4, 0x1, R5, P0", "IADD3.X R6, R4, R5, RZ, P0, P1"),
        ("IADD3.X R6, R4, ~R5, RZ, P0, !PT", "IADD3.X R6, R4, ~R5, RZ, P0, !PT", "IADD3.X R6, R4, R5, RZ, P0, !PT"),
        ("IMAD R6, R4, 0x10, R5", "LEA R6, R4, R5, 0x4", "LEA R6, R5, R4, 0x4"),
        ("IMAD R6, R4, 0x10, R5", "LEA R6, R4, R5, 0x4", "LEA R6, R4, R5, 0x10"),
        ("IMAD R6, R4, 0x10, R5", "IMAD R6, R4, 0x10, R5", "IMAD R6, R4, R5, 0x10"),
        ("IMAD R6, R4, 0x10, RZ", "IMAD.SHL.U32 R6, R4, 0x10, RZ", "IMAD.SHL.U32 R6, R4, 0x4, RZ"),
        ("IMAD R6, R4, 0x10, -R5", "LEA R6, R4, -R5, 0x4", "LEA R6, R4, R5, 0x4"),
        ("LEA R6, -R4, R5, 0x4", "LEA R6, -R4, R5, 0x4", "LEA R6, R4, R5, 0x4"),
        ("LEA.HI R6, R4, R5, RZ, 0x4", "LEA.HI R6, R4, R5, RZ, 0x4", "LEA R6, R4, R5, 0x4"),
    ],
)
def test_integer_sums_and_shifts(first: str, same: str, different: str | None) -> None:
    store = FUSED[1:]
    if different is None:
        assert not equal((first, *store), (same, *store))
        return
    assert equal((first, *store), (same, *store))
    assert not equal((first, *store), (different, *store))
    assert not equal((same, *store), (different, *store))


def test_a_shift_and_a_sum_are_one_instruction() -> None:
    apart = ("IMAD.SHL.U32 R6, R4, 0x10, RZ", "IADD3 R6, R6, R5, RZ", *FUSED[1:])
    assert equal(apart, ("LEA R6, R4, R5, 0x4", *FUSED[1:]))
    assert not equal(apart, ("LEA R6, R4, R5, 0x3", *FUSED[1:]))


@pytest.mark.parametrize(
    ("made_by", "same"),
    [
        (("FADD R4, R4, R5",), True),
        (("FMUL.FTZ R4, R4, R5",), True),
        (("FMNMX R4, R4, R5, PT",), True),
        (("MUFU.RCP R4, R5",), True),
        (("FADD R4, R4, R5", "@P0 MOV R4, 0x3f800000"), True),
        (("FADD R4, R4, R5", "@P0 MOV R4, 0x7fc00000"), False),
        (("FADD R4, R4, R5", "@P0 MOV R4, R9"), False),
        (("MOV R4, R5",), False),
        (("FSEL R4, R4, R5, P0",), False),
        (("FADD R4, R4, R5", "LOP3.LUT R4, R4, 0x80000000, RZ, 0xfc, !PT"), False),
        (("DADD R4, R8, R10",), False),
    ],
)
def test_a_product_by_one_is_its_factor_where_that_has_the_canonical_nan(made_by: tuple[str, ...], same: bool) -> None:
    product = (*made_by, "FMUL R6, R4, 1#3f800000", *FUSED[1:])
    assert equal(product, (*made_by, "MOV R6, R4", *FUSED[1:])) is same
    for operands in ("R4, 1#3f800001", "R4, -1#bf800000", "-R4, 1#3f800000", "|R4|, 1#3f800000"):
        assert not equal((*made_by, f"FMUL R6, {operands}", *FUSED[1:]), (*made_by, "MOV R6, R4", *FUSED[1:]))
    for other in ("FMUL.FTZ R6, R4, 1#3f800000", "FMUL.SAT R6, R4, 1#3f800000"):
        assert not equal((*made_by, other, *FUSED[1:]), (*made_by, "MOV R6, R4", *FUSED[1:]))


@pytest.mark.parametrize("carried", ["FADD R4, R4, R6", "MOV R4, R9"])
def test_a_product_by_one_in_a_loop(carried: str) -> None:
    """The factor of a loop has the canonical NaN if all values that it takes have it."""

    def loop(line: str) -> tuple[str, ...]:
        return ("FADD R4, R4, R5", "loop:", line, "STG.E desc[UR4.64][R2.64], R6", carried, "@P0 BRA `(loop)", "EXIT")

    assert equal(loop("FMUL R6, R4, 1#3f800000"), loop("MOV R6, R4")) is carried.startswith("FADD")


@pytest.mark.parametrize(
    ("total", "compared", "same"),
    [
        ("FADD R7, R4, R5", "FSETP.GT.AND P0, PT, R4, -R5, PT", True),
        ("FADD R7, R4, -R5", "FSETP.GT.AND P0, PT, R4, R5, PT", True),
        ("FADD R7, R4, -R5", "FSETP.LT.AND P0, PT, R5, R4, PT", True),
        ("FADD R7, -R4, -R5", "FSETP.GT.AND P0, PT, -R4, R5, PT", True),
        ("FADD R7, R4, |R5|", "FSETP.GT.AND P0, PT, R4, -|R5|, PT", True),
        ("FADD R7, R4, R5", "FSETP.GT.AND P0, PT, R4, R5, PT", False),
        ("FADD R7, R4, R5", "FSETP.GE.AND P0, PT, R4, -R5, PT", False),
        ("FADD R7, R4, R5", "FSETP.GTU.AND P0, PT, R4, -R5, PT", False),
        ("FADD R7, R4, R5", "FSETP.GT.FTZ.AND P0, PT, R4, -R5, PT", False),
        ("FADD R7, R4, R5", "FSETP.GT.AND P0, PT, R4, -R5, P3", False),
        ("FADD R7, R4, R5", "FSETP.GT.OR P0, PT, R4, -R5, PT", False),
        ("FADD.FTZ R7, R4, R5", "FSETP.GT.AND P0, PT, R4, -R5, PT", False),
        ("FADD.SAT R7, R4, R5", "FSETP.GT.AND P0, PT, R4, -R5, PT", False),
        ("FMUL R7, R4, R5", "FSETP.GT.AND P0, PT, R4, -R5, PT", False),
    ],
)
def test_whether_a_sum_is_positive(total: str, compared: str, same: bool) -> None:
    store = ("FSEL R6, R4, R5, P0", *FUSED[1:])
    assert equal((total, "FSETP.GT.AND P0, PT, R7, RZ, PT", *store), (total, compared, *store)) is same
    assert equal((total, "FSETP.LT.AND P0, PT, RZ, R7, PT", *store), (total, compared, *store)) is same
    assert not equal((total, "FSETP.GT.AND P0, PT, RZ, R7, PT", *store), (total, compared, *store))
    assert not equal((total, "FSETP.GT.AND P0, PT, |R7|, RZ, PT", *store), (total, compared, *store))
    assert not equal((total, "FSETP.GT.AND P0, PT, R7, 1#3f800000, PT", *store), (total, compared, *store))


def test_a_guarded_instruction_reads_what_holds_under_its_guard() -> None:
    """What R7 holds where P0 is false has no effect."""
    head = ("ISETP.GE.AND P0, PT, R1, R2, PT", "MOV R6, R4", "{}", "{} MOV R7, R5", "{} FADD R6, R7, R4", *FUSED[1:])

    def lines(stale: str, copied: str = "@P0", used: str = "@P0") -> list[str]:
        return [*head[:2], stale, head[3].format(copied), head[4].format(used), *head[5:]]

    assert equal(lines("MOV R7, R8"), lines("MOV R7, R9"))
    assert equal(lines("MOV R7, R8", "@!P0", "@!P0"), lines("MOV R7, R9", "@!P0", "@!P0"))
    assert not equal(lines("MOV R7, R8", "@!P0"), lines("MOV R7, R9", "@!P0"))
    assert not equal(lines("MOV R7, R8", "@P1"), lines("MOV R7, R9", "@P1"))
    assert not equal(lines("MOV R7, R8", used="@!P0"), lines("MOV R7, R9", used="@!P0"))
    changed = "ISETP.GE.AND P0, PT, R1, R3, PT"
    one, other = lines("MOV R7, R8"), lines("MOV R7, R9")
    assert not equal([*one[:4], changed, *one[4:]], [*other[:4], changed, *other[4:]])


def test_a_stored_value_is_one_register_in_shared_memory() -> None:
    one, other = ("FADD R5, R7, R8", "STS [R9], R5", "EXIT"), ("FADD R8, R7, R8", "STS [R9], R8", "EXIT")
    assert equal(one, other)
    assert not equal(one, (other[0], "STS [R9], R7", "EXIT"))
    assert not equal(one, (other[0], "STS.U16 [R9], R8", "EXIT"))


def test_a_fused_product_is_not_a_product_and_a_sum() -> None:
    apart = ("FMUL R6, R4, R5", "FADD R6, R6, R7", *FUSED[1:])
    assert not equal(FUSED, apart)
    assert equal(apart, ("FMUL R9, R5, R4", "FADD R6, R7, R9", *FUSED[1:]))


@pytest.mark.parametrize(
    "constant",
    [
        ("MOV R9, 0x3f000000",),
        ("IMAD.MOV.U32 R9, RZ, RZ, 0x3f000000",),
        ("HFMA2.MMA R9, -RZ, RZ, 1.75, 0#3f000000",),
        ("UMOV UR9, 0x3f000000", "MOV R9, UR9"),
        ("MOV R10, 0x3f000000", "BRA `(next)", "next:", "MOV R9, R10"),
    ],
)
def test_a_constant_may_come_from_a_register(constant: tuple[str, ...]) -> None:
    lines = ("FFMA R6, -R4, R9, R7", *FUSED[1:])
    jump = ("BRA `(next)", "next:") if "BRA `(next)" in constant else ()
    assert equal((*constant, *lines), (*jump, "FFMA R6, R4, -0.5#bf000000, R7", *FUSED[1:]))
    assert not equal((*constant, *lines), (*jump, "FFMA R6, R4, 0.5#3f000000, R7", *FUSED[1:]))


def test_words_of_a_constant_bank() -> None:
    store = ("STG.E desc[UR4.64][R8.64], R3", "EXIT")
    one = ("LDC R3, c[0x0][0x214]", *store)
    assert equal(one, ("LDC.64 R2, c[0x0][0x210]", *store)) is False  # the helper gives it one result
    assert equal(one, ("MOV R3, c[0x0][0x214]", *store))
    assert not equal(one, ("MOV R3, c[0x0][0x210]", *store))
    assert not equal(one, ("MOV R3, c[0x2][0x214]", *store))


def test_pairs_of_registers() -> None:
    one = ("DFMA R6, R8, R10, R12", "STG.E desc[UR4.64][R2.64], R7", "EXIT")
    assert not equal(one, ("DFMA R6, R10, R8, R12", *one[1:]))  # another operand's NaN may be passed on
    assert equal(one, ("DFMA R16, R8, R10, R12", "STG.E desc[UR4.64][R2.64], R17", "EXIT"))
    assert not equal(one, ("DFMA R16, R8, R10, R12", "STG.E desc[UR4.64][R2.64], R16", "EXIT"))
    assert not equal(one, ("DFMA R6, R8, R10, R14", *one[1:]))
    wide = ("IMAD.WIDE R6, R5, 0x4, R4", "STG.E desc[UR4.64][R2.64], R7", "EXIT")
    assert equal(wide, wide)
    assert not equal(wide, ("MOV R9, R5", "IMAD.WIDE R6, R9, 0x4, R4", *wide[1:]))
    assert not equal(wide, ("IMAD.WIDE R6, R5, 0x4, R8", *wide[1:]))


@pytest.mark.parametrize(
    "line",
    [
        "LEA.HI.X R6, {low}, R7, {high}, 0x1, P1",
        "LEA.HI R6, {low}, R7, {high}, 0x1",
        "SHF.R.U32.HI R6, {low}, 0x3, {high}",
    ],
)
def test_halves_of_a_long_operand_are_single_registers(line: str) -> None:
    store = ("STG.E desc[UR4.64][R2.64], R6", "EXIT")
    one = (line.format(low="R4", high="R5"), *store)
    assert equal(one, ("MOV R9, R5", line.format(low="R4", high="R9"), *store))
    assert not equal(one, (line.format(low="R5", high="R4"), *store))
    assert not equal(one, (line.format(low="R4", high="R4"), *store))


LOADS = ("LDG.E R5, desc[UR4.64][R2.64]", "STG.E desc[UR4.64][R8.64], R6", "STG.E desc[UR4.64][R10.64], R5", "EXIT")


STACK = (
    "LDC R1, c[0x0][0x28]", "IADD3 R1, R1, -0x10, RZ", "STL [R1+0x4], R5", "@P0 STL [R1], R6", "FADD R5, R6, R7",
    "STG.E desc[UR4.64][R2.64], R5", "LDL.LU R5, [R1+0x4]", "STG.E desc[UR4.64][R2.64], R5", "@P0 LDL R5, [R1]",
    "STG.E desc[UR4.64][R2.64], R5", "EXIT",
)  # fmt: skip
IN_REGISTERS = (
    "LDC R1, c[0x0][0x28]", "MOV R9, R5", "FADD R5, R6, R7", "STG.E desc[UR4.64][R2.64], R5",
    "STG.E desc[UR4.64][R2.64], R9", "@P0 MOV R9, R6", "STG.E desc[UR4.64][R2.64], R9", "EXIT",
)  # fmt: skip


def test_registers_may_be_kept_on_the_stack() -> None:
    assert equal(STACK, IN_REGISTERS)
    elsewhere = [each.replace("R1+0x4", "R1+0xc").replace("-0x10", "-0x20") for each in STACK]
    assert equal(STACK, elsewhere)


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (2, "STL [R1], R5"),
        (2, "STL [R1+0x4], R6"),
        (2, "@P1 STL [R1+0x4], R5"),
        (2, "NOP"),
        (3, "STL [R1+0x4], R6"),
        (3, "@!P0 STL [R1], R6"),
        (6, "LDL.LU R5, [R1]"),
        (6, "LDL.LU R5, [R1+0x8]"),
        (6, "LDL.LU.64 R5, [R1+0x4]"),
        (6, "LDL.U16 R5, [R1+0x4]"),
        (6, "LDL R5, [R1+0x2]"),
        (6, "LDL R5, [R8+0x4]"),
        (8, "@P1 LDL R5, [R1]"),
        # the address of the stack may be known elsewhere
        (4, "IADD3 R5, R1, R7, RZ"),
        (4, "STL [R8], R7"),
        (4, "IADD3 R1, R1, 0x8, RZ"),
        (1, "@P0 IADD3 R1, R1, -0x10, RZ"),
        (1, "IADD3 R1, R1, R8, RZ"),
    ],
)
def test_another_use_of_the_stack_is_another_program(place: int, line: str) -> None:
    assert not equal([*STACK[:place], line, *STACK[place + 1 :]], IN_REGISTERS)


def test_a_word_of_the_stack_that_nothing_stored_is_not_that_of_another_function() -> None:
    text = ("LDC R1, c[0x0][0x28]", "LDL R5, [R1]", "STG.E desc[UR4.64][R2.64], R5", "EXIT")
    assert not equal(text, ("LDC R1, c[0x0][0x28]", "LDL R5, [R1+0x4]", *text[2:]))
    assert not equal(text, text)


def test_a_load_stays_between_its_stores() -> None:
    assert not equal(LOADS, [LOADS[1], LOADS[0], *LOADS[2:]])
    assert not equal(LOADS, [LOADS[0], LOADS[2], LOADS[1], LOADS[3]])
    assert equal(LOADS, swapped(LOADS, {"R5": "R7"}))
    twice = ("LDG.E R5, desc[UR4.64][R2.64]", "LDG.E R6, desc[UR4.64][R8.64]", *LOADS[1:])
    assert equal(twice, [twice[1], twice[0], *twice[2:]])


def test_values_loaded_in_two_blocks_differ() -> None:
    one = ("LDG.E R5, desc[UR4.64][R2.64]", "BRA `(next)", "next:", "LDG.E R6, desc[UR4.64][R2.64]")
    rest = "EXIT"
    store = "STG.E desc[UR4.64][R8.64], {}"
    assert equal((*one, store.format("R6"), rest), (*one, store.format("R6"), rest))
    assert not equal((*one, store.format("R6"), rest), (*one, store.format("R5"), rest))


def test_a_value_of_an_earlier_iteration_is_not_that_of_this_one() -> None:
    head = ("MOV R5, RZ", "loop:", "MOV R6, R5", "LDG.E R5, desc[UR4.64][R2.64]")
    tail = ("@P1 BRA `(loop)", "EXIT")
    assert not equal((*head, "STG.E desc[UR4.64][R8.64], R5", *tail), (*head, "STG.E desc[UR4.64][R8.64], R6", *tail))
    assert equal(
        (*head, "STG.E desc[UR4.64][R8.64], R6", *tail),
        (*swapped(head, {"R6": "R16", "R5": "R15"}), "STG.E desc[UR4.64][R8.64], R16", *tail),
    )


def test_an_exchange_between_lanes_is_ordered() -> None:
    one = (
        "SHFL.BFLY PT, R5, R6, 0x1, 0x1f",
        "SHFL.BFLY PT, R7, R8, 0x1, 0x1f",
        "STG.E desc[UR4.64][R2.64], R5",
        "EXIT",
    )
    assert equal(one, swapped(one, {"R5": "R9"}))
    assert not equal(one, [*one[:2], one[2].replace("R5", "R7"), one[3]])
    assert not equal(one, [one[1], one[0], *one[2:]])


def test_an_overwritten_predicate_does_not_hold_the_value() -> None:
    rest = ("STG.E desc[UR4.64][R2.64], R5", "EXIT")
    one = ("ISETP.GE.AND P0, PT, R1, R2, PT", "ISETP.GE.AND P1, PT, R1, R3, PT", "FSEL R5, R3, R8, P0", *rest)
    other = ("ISETP.GE.AND P1, PT, R1, R2, PT", "ISETP.GE.AND P1, PT, R1, R3, PT", "FSEL R5, R3, R8, P1", *rest)
    assert not equal(one, other)


def test_a_guarded_write_keeps_the_value_before() -> None:
    rest = ("STG.E desc[UR4.64][R2.64], R5", "EXIT")
    one = ("ISETP.GE.AND P1, PT, R1, R2, PT", "@P1 ISETP.GE.AND P0, PT, R1, R3, PT", "FSEL R5, R3, R8, P0", *rest)
    other = ("ISETP.GE.AND P1, PT, R1, R2, PT", "@P1 ISETP.GE.AND P2, PT, R1, R3, PT", "FSEL R5, R3, R8, P2", *rest)
    assert not equal(one, other)
    before = ("PLOP3.LUT P0, PT, PT, PT, PT, 0x80, 0x0",), ("PLOP3.LUT P2, PT, PT, PT, PT, 0x80, 0x0",)
    assert equal((*before[0], *one), (*before[1], *other))


def test_two_results_of_one_instruction_are_not_exchanged() -> None:
    rest = ("STG.E desc[UR4.64][R2.64], R5", "EXIT")
    one = ("ISETP.GE.AND P0, P1, R1, R2, PT", "FSEL R5, R3, R8, P0", *rest)
    other = ("ISETP.GE.AND P1, P0, R1, R2, PT", "FSEL R5, R3, R8, P0", *rest)
    right = ("ISETP.GE.AND P1, P0, R1, R2, PT", "FSEL R5, R3, R8, P1", *rest)
    twice = ("ISETP.GE.AND P0, P0, R1, R2, PT", "FSEL R5, R3, R8, P0", *rest)
    assert not equal(one, other)
    assert equal(one, right)
    assert not equal(one, twice)
    assert not equal(twice, twice)


LOOP = (
    "ISETP.GE.AND P0, PT, R1, R2, PT",
    "ISETP.GE.AND P1, PT, R1, R3, PT",
    "loop:",
    "FSEL R5, R3, R8, P0",
    "STG.E desc[UR4.64][R2.64], R5",
    "ISETP.GE.AND P0, PT, R5, R2, PT",
    "@P1 BRA `(loop)",
    "EXIT",
)


def test_registers_must_agree_on_every_path_to_an_instruction() -> None:
    assert equal(LOOP, swapped(LOOP, {"P0": "P4"}))
    assert not equal(LOOP, swapped(LOOP, {"P0": "P4"}, 0, 4))
    assert not equal(LOOP, swapped(LOOP, {"P0": "P4"}, 4, 6))
    assert not equal(LOOP, [*LOOP[:6], "@!P1 BRA `(loop)", LOOP[7]])
    assert not equal(LOOP, [*LOOP[:6], "@P0 BRA `(loop)", LOOP[7]])


def test_a_branch_must_lead_to_the_same_block() -> None:
    stores = ("STG.E desc[UR4.64][R2.64], R5", "STG.E desc[UR4.64][R2.64], R7", "EXIT")
    body = ("@P0 BRA `({})", "MOV R5, R6", "a:", "MOV R7, R8", "b:", *stores)
    assert equal([body[0].format("a"), *body[1:]], [body[0].format("a"), *body[1:]])
    assert not equal([body[0].format("a"), *body[1:]], [body[0].format("b"), *body[1:]])


def test_blocks_that_are_entered_only_from_later_code() -> None:
    text = ("BRA `(last)", "middle:", "STG.E desc[UR4.64][R2.64], R5", "EXIT", "last:", "MOV R5, R6", "BRA `(middle)")
    assert equal(text, swapped(text, {"R5": "R9"}))
    assert not equal(text, [*text[:5], "MOV R5, R7", text[6]])


def test_a_reconvergence_point_may_follow_its_barrier() -> None:
    text = (
        "PLOP3.LUT P1, PT, PT, PT, PT, 0x80, 0x0", "BSSY B0, `(join)", "@P0 BRA `(sync)",
        "ISETP.GE.AND P1, PT, R1, R2, PT", "sync:", "BSYNC B0", "NOP", "join:", "FSEL R5, R3, R8, P1",
        "STG.E desc[UR4.64][R2.64], R5", "EXIT",
    )  # fmt: skip
    assert equal(text, swapped(text, {"P1": "P6"}))
    assert not equal(text, swapped(text, {"P1": "P6"}, 4))


@pytest.mark.parametrize(
    "text", ["P2R R0, PR, RZ, 0x4", "R2P PR, R0, 0x7f", "VOTE.ANY R1, PT, P2", "ISCADD R1, R2, R3"]
)
def test_other_instructions(text: str) -> None:
    one = [*FIRST[:2], text, *FIRST[2:4], "STG.E desc[UR4.64][R2.64], R0", *FIRST[4:]]
    renamed = [*swapped(one, SWAP)[:2], text, *swapped(one, SWAP)[3:]]
    assert equal(one, one) == ("ISCADD" not in text)
    assert not equal(one, renamed)


def test_an_extremum_of_three() -> None:
    one = ("VIMNMX3.U32 R0, R1, R2, R3, !PT", "STG.E desc[UR4.64][R6.64], R0", "EXIT")
    assert equal(one, swapped(one, {"R0": "R9"}))
    assert not equal(one, [one[0].replace("!PT", "PT"), *one[1:]])


IMPORT = (
    "@P0 BRA `(valid)",
    "MOV R2, 0x10",
    "MOV R4, 0x7",
    "LDC R3, c[0x4][R2+0x4]",
    "LDC R2, c[0x4][R2]",
    "LEPC R20, `(valid)",
    "CALL.ABS.NOINC R2",
    "valid:",
    "FADD R6, R8, R9",
    "STG.E desc[UR4.64][R12.64], R6",
    "EXIT",
)
"""The file has the addresses of other files' functions at 0x10 and 0x20."""


def _equal_with_imports(one: Sequence[str], other: Sequence[str], *offsets: int) -> bool:
    left, right = (replace(code(*each), imports=frozenset(offsets)) for each in (one, other))
    found = equal_functions(left, right)
    assert found == equal_functions(right, left)
    return found


def _with(place: int, *lines: str) -> list[str]:
    return [*IMPORT[:place], *lines, *IMPORT[place + 1 :]]


@pytest.mark.parametrize(
    "other",
    [
        IMPORT,
        _with(8, "FADD R6, R9, R8"),
        swapped(IMPORT, {"R6": "R16"}),
        swapped(IMPORT, {"R2": "R10", "R3": "R11"}),
        _with(4, "LDC R2, c[0x4][0x10]"),
        # the values that only the other function sees
        _with(2, "MOV R5, 0x7"),
        _with(2, "MOV R20, R8"),
    ],
)
def test_a_call_of_another_files_function_ends_what_is_proved(other: Sequence[str]) -> None:
    assert _equal_with_imports(IMPORT, other, 0x10, 0x20)
    assert not _equal_with_imports(IMPORT, other)
    assert not _equal_with_imports(IMPORT, other, 0x14, 0x20)


@pytest.mark.parametrize(
    "other",
    [
        _with(0, "@!P0 BRA `(valid)"),
        _with(0, "@P1 BRA `(valid)"),
        _with(1, "MOV R2, 0x20"),
        _with(1, "MOV R2, R8"),
        _with(3, "MOV R3, R8"),
        _with(3, "LDC R3, c[0x4][R2+0x8]"),
        _with(4, "LDC R2, c[0x3][R2]"),
        _with(4, "@P1 LDC R2, c[0x4][R2]"),
        _with(6, "NOP"),
        _with(6, "@P1 CALL.ABS.NOINC R2"),
        _with(6, "STG.E desc[UR4.64][R12.64], R8", "CALL.ABS.NOINC R2"),
        _with(8, "FADD R6, R8, -R9"),
        _with(8, "FADD R6, R8, R20"),
    ],
)
def test_a_changed_call_of_another_files_function(other: Sequence[str]) -> None:
    assert not _equal_with_imports(IMPORT, other, 0x10, 0x20)


def test_the_address_of_an_instruction_is_not_that_of_another() -> None:
    one = ("LEPC R6, `(next)", "next:", "STG.E desc[UR4.64][R12.64], R6", "EXIT")
    assert not equal(one, one)
    assert not equal(one, ("NOP", *one))


def _regions(second: str, *, barrier: str = "B0") -> list[str]:
    """Two regions with barriers of their own; a register of the first holds another value in the second."""
    return [
        "MOV R5, R4", "BSSY B0, `(first)", "@P0 BRA `(sync)", "FADD R5, R5, R6", "sync:", "BSYNC B0", "NOP", "first:",
        "STG.E desc[UR4.64][R2.64], R5", f"MOV {second}, R8", f"BSSY {barrier}, `(second)", "@P0 BRA `(last)",
        f"FADD {second}, {second}, R6", "last:", f"BSYNC {barrier}", "NOP", "second:",
        f"STG.E desc[UR4.64][R2.64], {second}", "@P1 BRA `(end)", "MOV R5, R4", "BRA `(first)", "end:", "EXIT",
    ]  # fmt: skip


@pytest.mark.parametrize("barrier", ["B0", "B1"])
def test_threads_join_where_their_own_barrier_says(barrier: str) -> None:
    assert equal(_regions("R5", barrier=barrier), _regions("R9", barrier=barrier))
    text = _regions("R5", barrier=barrier)
    assert not equal(text, [each.replace("STG.E desc[UR4.64][R2.64], R9", "STG.E desc[UR4.64][R2.64], R5")
                            for each in _regions("R9", barrier=barrier)])  # fmt: skip
    # Without a barrier of its own, the second region may join where the first does.
    assert not equal(*([line for line in _regions(name) if line != "BSSY B0, `(second)"] for name in ("R5", "R9")))


def test_lanes_that_leave_a_barrier() -> None:
    text = (
        "MOV R5, R4", "BSSY B0, `(join)", "BSSY B1, `(sync)", "@P0 BREAK B1", "@P0 BRA `(join)", "FADD R5, R5, R6",
        "sync:", "BSYNC B1", "SHFL.BFLY PT, R5, R5, 0x1, 0x1f", "join:", "BSYNC B0",
        "STG.E desc[UR4.64][R2.64], R5", "EXIT",
    )  # fmt: skip
    assert equal(text, swapped(text, {"R5": "R9"}))
    assert not equal(text, swapped(text, {"P0": "P3"}))  # P3 at the entry is another predicate
    for changed in ("BREAK B1", "@!P0 BREAK B1", "@P1 BREAK B1", "@P0 BREAK B0", "NOP"):
        assert not equal(text, [*text[:3], changed, *text[4:]])
    exchanged = ("SHFL.BFLY PT, R7, R8, 0x1, 0x1f", "@P0 BREAK B1")
    assert not equal([*text[:3], *exchanged, *text[4:]], [*text[:3], *reversed(exchanged), *text[4:]])


@pytest.mark.parametrize(
    "text", ["CALL.REL.NOINC `(other)", "CALL.ABS.NOINC R2", "BRX R4 0x0", "RET.REL.NODEC R10 `(other)", "BRA `(other)"]
)
def test_unknown_control_flow_is_rejected(text: str) -> None:
    assert not equal((text, *FIRST), (text, *FIRST))


def test_a_register_that_is_neither_read_nor_written_is_rejected() -> None:
    function = code(*FIRST)
    lines = list(function.instructions)
    for place, line in enumerate(lines[:-1]):
        for name in sorted(line.reads):
            changed = MachineInstruction(line.address, line.text, line.bits, line.reads - {name}, line.writes)
            other = MachineFunction((*lines[:place], changed, *lines[place + 1 :]), {})
            if re.search(rf"{name}(?!\d)", line.text):
                assert not equal_functions(other, function)


def test_code_without_an_exit_is_rejected() -> None:
    assert not equal(FIRST[:-1], FIRST[:-1])
    assert not equal(FIRST, FIRST[:-1])
    assert not equal((), ())


EXPONENTIAL = (
    "FSETP.GEU.AND P0, PT, R0, -126#c2fc0000, PT", "@!P0 FMUL R0, R0, 0.5#3f000000", "MUFU.EX2 R6, R0",
    "@!P0 FMUL R6, R6, R6", "FADD R7, R6, R5", "STG.E desc[UR4.64][R2.64], R7", "EXIT",
)  # fmt: skip


def test_squares_of_exponentials() -> None:
    def rounded(place: int, *lines: str) -> bool:
        return rounds_exponentials(code(*EXPONENTIAL[:place], *lines, *EXPONENTIAL[place + 1 :]))

    assert rounds_exponentials(code(*EXPONENTIAL))
    assert rounded(4, "FFMA R7, R6, R5, R5")
    assert rounded(4, "FFMA R7, R5, R6, R6")
    assert not rounded(4, "FFMA R7, R6, R6, R5")
    assert not rounded(4, "MOV R8, R6", "FFMA R7, R6, -R8, R5")
    assert not rounded(3, "FMUL.D2 R6, R6, R6")
    assert not rounded(3, "BRA `(next)", "next:", "@P0 FFMA R6, R6, R6, R6")
    assert not rounded(4, "ISCADD R7, R6, R5")
    # the square of a sum, which is not an exponential
    assert rounded(4, "FADD R7, R6, R5", "FFMA R7, R7, R7, R5")
    # a choice between numbers of which one may be an exponential
    assert rounded(4, "FADD R7, R6, R5", "FSEL R7, R7, RZ, P0", "FFMA R7, R7, R7, R5")
    assert rounded(4, "LDS R7, [R9]", "FMNMX R7, R7, 1#3f800000, PT", "FFMA R7, R7, R7, R5")
    assert not rounded(4, "FSEL R7, R6, RZ, P0", "FFMA R7, R7, R7, R5")
    assert not rounded(4, "FSEL R7, RZ, R6, P0", "FFMA R7, R7, R7, R5")
    assert not rounded(4, "LDL R7, [R9]", "FFMA R7, R7, R7, R5")
    assert not rounded(4, "FMNMX R7, R5, -R6, PT", "FFMA R7, R7, R7, R5")
    assert not rounded(4, "SHFL.BFLY PT, R8, R6, 0x1, 0x1f", "FFMA R7, R8, R8, R5")


def _run(instructions: Sequence[str], seed: int) -> list[tuple[object, ...]]:
    """Execute the instructions on predicates; return what each store sees."""
    draw = random.Random(seed)
    values: dict[str, int] = {f"P{i}": draw.randrange(2) for i in range(7)} | {"PT": 1}
    values |= {f"R{i}": draw.randrange(1 << 30) for i in range(8)}
    seen: list[tuple[object, ...]] = []
    for text in instructions:
        guard = re.match(r"@(!?)(P\w) (.*)", text)
        if guard and values[guard[2]] == bool(guard[1]):
            continue
        opcode, _, rest = (guard[3] if guard else text).partition(" ")
        operands = [each.strip() for each in rest.split(",")] if rest else []
        results = 2 if opcode.startswith("ISETP") else 1 if opcode == "FSEL" else 0
        read = tuple(values[each] for each in operands[results:] if each in values)
        if opcode.startswith("STG"):
            seen.append(read)
        for number, each in enumerate(operands[:results]):
            if each != "PT":
                drawn = random.Random(f"{seed} {opcode} {number} {read}").randrange(1 << 30)
                values[each] = drawn % 2 if each[0] == "P" else drawn
    return seen


def test_random_programs_that_are_proved_equal_behave_equally() -> None:
    draw = random.Random(7)
    alike = different = 0
    for _ in range(700):
        program = []
        for _ in range(draw.randint(2, 7)):
            p, r = [f"P{draw.randint(0, 3)}" for _ in range(4)], [f"R{draw.randint(4, 7)}" for _ in range(3)]
            text = draw.choice(
                [f"ISETP.GE.AND {p[0]}, PT, {r[0]}, {r[1]}, {p[1]}", f"FSEL {r[0]}, {r[1]}, {r[2]}, {p[2]}"]
            )
            program.append(f"@{p[3]} {text}" if draw.random() < 0.3 else text)
        names = {f"P{i}": f"P{draw.randint(0, 4)}" for i in range(4)} | {
            f"R{i}": f"R{draw.randint(4, 8)}" for i in (4, 5)
        }
        other = swapped(program, names, draw.randint(0, 2), draw.randint(2, 7))
        place = draw.randrange(len(other) - 1)
        if draw.random() < 0.5:
            other[place], other[place + 1] = other[place + 1], other[place]
        rest = ["STG.E desc[UR4.64][R2.64], R4", "EXIT"]
        if program == other or not equal([*program, *rest], [*other, *rest]):
            different += 1
            continue
        alike += 1
        for seed in range(20):
            assert _run([*program, *rest], seed) == _run([*other, *rest], seed)
    assert alike > 200
    assert different > 200
