"""SASS listings that are equal up to the names of predicates, and listings that only look equal."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest

from bitwise_nvidia_ptx.machine_code import MachineInstruction, equal_up_to_predicates, parse_listing


def code(*instructions: str) -> tuple[MachineInstruction, ...]:
    """Return instructions at a distance of 16 bytes; the encoding contains the text, with three bits per predicate."""
    lines = []
    for index, text in enumerate(instructions):
        names = [int(each) for each in re.findall(r"(?<![\w.])P([0-6])(?!\w)", text)]
        bits = sum(name << 12 + 3 * place for place, name in enumerate(names))
        lines.append(MachineInstruction(16 * index, text, bits))
    return tuple(lines)


FIRST = (
    "FSETP.GEU.AND P0, PT, |R8|, 1.175494350822287508e-38, PT",
    "FSETP.GT.AND P2, PT, |R8|, 8.50705917302346158658e+37, PT",
    "FSEL R5, R3, R8, P2",
    "@!P0 FMUL R5, R5, 16777216",
    "STG.E desc[UR4][R2.64], R5",
    "EXIT",
)
SWAP = {"P0": "P2", "P2": "P0"}


def swapped(instructions: Sequence[str], names: dict[str, str], start: int = 0, end: int | None = None) -> list[str]:
    """Return the instructions with predicates renamed from `start` to `end`."""
    end = len(instructions) if end is None else end
    return [
        re.sub(r"(?<![\w.])P[0-6](?!\w)", lambda m: names.get(m[0], m[0]), each) if start <= i < end else each
        for i, each in enumerate(instructions)
    ]


def test_a_live_range_may_be_renamed() -> None:
    assert equal_up_to_predicates(code(*FIRST), code(*swapped(FIRST, SWAP)))
    assert equal_up_to_predicates(code(*FIRST), code(*swapped(FIRST, {"P0": "P5"})))
    assert equal_up_to_predicates(code(*FIRST), code(*FIRST))


@pytest.mark.parametrize("place", range(4))
def test_one_changed_name_is_a_different_program(place: int) -> None:
    for new in ("P1", "P3", "P0", "P2"):
        changed = swapped(FIRST, {"P0": new, "P2": new}, place, place + 1)
        if changed != list(FIRST):
            assert not equal_up_to_predicates(code(*FIRST), code(*changed))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (0, "FSETP.GEU.AND P0, PT, |R9|, 1.175494350822287508e-38, PT"),
        (0, "FSETP.GEU.AND P0, PT, |R8|, 1.275494350822287508e-38, PT"),
        (0, "FSETP.GT.AND P0, PT, |R8|, 1.175494350822287508e-38, PT"),
        (2, "FSEL R5, R3, R8, !P2"),
        (2, "FSEL R5, R8, R3, P2"),
        (3, "@P0 FMUL R5, R5, 16777216"),
        (3, "@!P0 FMUL R6, R5, 16777216"),
        (3, "FMUL R5, R5, 16777216"),
        (4, "STG.E desc[UR4][R2.64], R3"),
    ],
)
def test_any_other_change_is_a_different_program(place: int, text: str) -> None:
    changed = [*FIRST[:place], text, *FIRST[place + 1 :]]
    assert not equal_up_to_predicates(code(*FIRST), code(*changed))
    assert not equal_up_to_predicates(code(*FIRST), code(*swapped(changed, SWAP)))


def test_an_overwritten_predicate_does_not_hold_the_value() -> None:
    one = ("ISETP.GE.AND P0, PT, R1, R2, PT", "ISETP.GE.AND P1, PT, R1, R3, PT", "FSEL R5, R3, R8, P0", "EXIT")
    other = ("ISETP.GE.AND P1, PT, R1, R2, PT", "ISETP.GE.AND P1, PT, R1, R3, PT", "FSEL R5, R3, R8, P1", "EXIT")
    assert not equal_up_to_predicates(code(*one), code(*other))


def test_a_guarded_write_keeps_only_pairs_that_held_before() -> None:
    one = ("ISETP.GE.AND P1, PT, R1, R2, PT", "@P1 ISETP.GE.AND P0, PT, R1, R3, PT", "FSEL R5, R3, R8, P0", "EXIT")
    other = ("ISETP.GE.AND P1, PT, R1, R2, PT", "@P1 ISETP.GE.AND P2, PT, R1, R3, PT", "FSEL R5, R3, R8, P2", "EXIT")
    assert not equal_up_to_predicates(code(*one), code(*other))
    before = ("PLOP3.LUT P0, PT, PT, PT, PT, 0x80, 0x0",), ("PLOP3.LUT P2, PT, PT, PT, PT, 0x80, 0x0",)
    assert equal_up_to_predicates(code(*before[0], *one), code(*before[1], *other))


def test_two_results_of_one_instruction_are_not_exchanged() -> None:
    one = ("ISETP.GE.AND P0, P1, R1, R2, PT", "FSEL R5, R3, R8, P0", "EXIT")
    other = ("ISETP.GE.AND P1, P0, R1, R2, PT", "FSEL R5, R3, R8, P0", "EXIT")
    right = ("ISETP.GE.AND P1, P0, R1, R2, PT", "FSEL R5, R3, R8, P1", "EXIT")
    twice = ("ISETP.GE.AND P0, P0, R1, R2, PT", "FSEL R5, R3, R8, P0", "EXIT")
    assert not equal_up_to_predicates(code(*one), code(*other))
    assert equal_up_to_predicates(code(*one), code(*right))
    assert not equal_up_to_predicates(code(*one), code(*twice))
    assert not equal_up_to_predicates(code(*twice), code(*swapped(twice, {"P0": "P3"})))


LOOP = (
    "ISETP.GE.AND P0, PT, R1, R2, PT",
    "ISETP.GE.AND P1, PT, R1, R3, PT",
    "FSEL R5, R3, R8, P0",  # the loop header
    "ISETP.GE.AND P0, PT, R5, R2, PT",
    "@P1 BRA 0x20",
    "EXIT",
)


def test_names_must_agree_on_every_path_to_an_instruction() -> None:
    everywhere = swapped(LOOP, {"P0": "P4"})
    assert equal_up_to_predicates(code(*LOOP), code(*everywhere))
    assert not equal_up_to_predicates(code(*LOOP), code(*swapped(LOOP, {"P0": "P4"}, 0, 3)))
    assert not equal_up_to_predicates(code(*LOOP), code(*swapped(LOOP, {"P0": "P4"}, 3, 4)))


def test_a_reconvergence_point_may_follow_its_barrier() -> None:
    body = ("BSSY B0, 0x50", "@P0 BRA 0x40", "ISETP.GE.AND P1, PT, R1, R2, PT", "NOP", "BSYNC B0", "NOP")
    text = ("PLOP3.LUT P1, PT, PT, PT, PT, 0x80, 0x0", *body, "FSEL R5, R3, R8, P1", "EXIT")
    one = tuple(each.replace("0x50", "0x60").replace("0x40", "0x50") for each in text)
    assert equal_up_to_predicates(code(*one), code(*swapped(one, {"P1": "P6"})))
    assert not equal_up_to_predicates(code(*one), code(*swapped(one, {"P1": "P6"}, 3)))


@pytest.mark.parametrize(
    "text", ["P2R R0, PR, RZ, 0x4", "R2P PR, R0, 0x7f", "VOTE.ANY R1, PT, P2", "ISCADD R1, R2, R3"]
)
def test_other_instructions_need_equal_names(text: str) -> None:
    one = [*FIRST[:4], text, *FIRST[4:]]
    renamed = [*swapped(FIRST, SWAP)[:4], text, *FIRST[4:]]
    assert not equal_up_to_predicates(code(*one), code(*renamed))
    assert equal_up_to_predicates(code(*one), code(*one)) == ("ISCADD" not in text)


@pytest.mark.parametrize(
    "text", ["CALL.REL.NOINC 0x0", "BRX R4 0x0", "RET.REL.NODEC R10 0x0", "WARPSYNC.ALL", "BRA 0x999"]
)
def test_unknown_control_flow_is_rejected(text: str) -> None:
    assert not equal_up_to_predicates(code(text, *FIRST), code(text, *FIRST))


def test_encodings_must_agree_where_the_text_does() -> None:
    one = code(*FIRST)
    for place in range(len(FIRST)):
        for bit, equal in ((3, False), (70, False), (104, False), (105, True), (127, True)):
            line = one[place]
            changed = (
                *one[:place],
                MachineInstruction(line.address, line.text, line.bits ^ 1 << bit),
                *one[place + 1 :],
            )
            assert equal_up_to_predicates(one, changed) == equal


def test_code_without_an_exit_is_rejected() -> None:
    assert not equal_up_to_predicates(code(*FIRST[:-1]), code(*FIRST[:-1]))
    assert not equal_up_to_predicates(code(*FIRST), code(*FIRST[:-1]))
    assert not equal_up_to_predicates((), ())


def _run(instructions: Sequence[str], seed: int) -> list[tuple[object, ...]]:
    """Execute the instructions on predicates; return the inputs of each, from which its results are drawn."""
    draw = random.Random(seed)
    values = {f"P{i}": draw.random() < 0.5 for i in range(7)} | {"PT": True}
    seen: list[tuple[object, ...]] = []
    for place, text in enumerate(instructions):
        guard = re.match(r"@(!?)(P\w) (.*)", text)
        if guard and values[guard[2]] == bool(guard[1]):
            seen.append((place, "skipped"))
            continue
        body = guard[3] if guard else text
        opcode, _, rest = body.partition(" ")
        operands = [each.strip() for each in rest.split(",")] if rest else []
        results = 2 if opcode.startswith(("ISETP", "PLOP3")) else 0
        read = tuple(values[each.lstrip("!")] for each in operands[results:] if each.lstrip("!") in values)
        seen.append((place, opcode, read))
        for number, each in enumerate(operands[:results]):
            if each != "PT":
                values[each] = random.Random(f"{seed} {place} {number} {read}").random() < 0.5
    return seen


def test_random_programs_that_are_proved_equal_behave_equally() -> None:
    draw = random.Random(7)
    equal = different = 0
    for _ in range(3000):
        program = []
        for _ in range(draw.randint(2, 7)):
            p = [f"P{draw.randint(0, 3)}" for _ in range(4)]
            text = draw.choice([f"ISETP.GE.AND {p[0]}, PT, R1, R2, {p[1]}", f"FSEL R1, R2, R3, {p[2]}"])
            program.append(f"@{p[3]} {text}" if draw.random() < 0.3 else text)
        names = {f"P{i}": f"P{draw.randint(0, 4)}" for i in range(4)}
        other = swapped(program, names, draw.randint(0, 2), draw.randint(2, 7))
        program.append("EXIT")
        other.append("EXIT")
        if program == other or not equal_up_to_predicates(code(*program), code(*other)):
            different += 1
            continue
        equal += 1
        for seed in range(20):
            assert _run(program, seed) == _run(other, seed)
    assert equal > 40
    assert different > 1000


def test_parsing_a_listing() -> None:
    text = """
\tcode for sm_90a
\t\tFunction : kernel
\t.headerflags\t@"EF_CUDA_SM90"
        /*0000*/                   MOV R8, R4.reuse ;      /* 0x0000000400087c02 */
                                                           /* 0x000fe20008000f00 */
        /*0010*/              @!P0 BRA 0xc50 ;             /* 0x0000000800e48947 */
                                                           /* 0x000fea0003800000 */
\t\t..........
"""
    assert parse_listing(text) == {
        "kernel": (
            MachineInstruction(0, "MOV R8, R4", 0x0000000400087C02 | 0x000FE20008000F00 << 64),
            MachineInstruction(16, "@!P0 BRA 0xc50", 0x0000000800E48947 | 0x000FEA0003800000 << 64),
        )
    }
    with pytest.raises(ValueError, match="does not parse"):
        parse_listing(text.replace("MOV R8, R4.reuse ;", "MOV R8, R4.reuse"))
    with pytest.raises(ValueError, match="does not parse"):
        parse_listing(text.replace("/* 0x000fe20008000f00 */", ""))
