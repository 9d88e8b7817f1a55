"""SASS listings with live ranges."""

from __future__ import annotations

import re

import pytest

from bitwise_nvidia_ptx.machine_code.registers import (
    ArithmeticLines,
    MachineFunction,
    MachineInstruction,
    arithmetic_lines,
    only_padding,
    parse_listing,
)
from bitwise_nvidia_ptx.machine_code.sass_listing import listed_functions

LISTING = """
\t.headerflags\t@"EF_CUDA_SM90"
//--------------------- .text.kernel          --------------------------
\t.section\t.text.kernel,"ax",@progbits
\t.align\t128
                                                         // +------------------+--------+
                                                         // |      GPR         | UPRED  |
                                                         // |    000000000001  |        |
                                                         // |  # 012345678900  |  # 01  |
                                                         // +------------------+--------+
.text.kernel:                                            // |                  |        |
        /*0000*/       MOV R8, R4.reuse ;      /* 0x0000000400087c02 */  // |                  |        |
                                               /* 0x000fe20008000f00 */  // |  2   : v   ^     |  1  :  |
.L_x_0:                                                  // |                  |        |
        /*0010*/  @!UP0 BRA `(.L_x_0) ;        /* 0x0000000800e48947 */  // |                  |        |
                                               /* 0x000fea0003800000 */  // |  2   :     x   : |  2 vx  |
.L_x_1:
\t.section\t.nv.info
"""


def test_parsing_a_listing() -> None:
    text = LISTING.replace("|    000000000001  |", "|    000000000011  |").replace("# 012345678900", "# 012345678901")
    assert parse_listing(text) == {
        "kernel": MachineFunction(
            (
                MachineInstruction(
                    0,
                    "MOV R8, R4",
                    0x0000000400087C02 | 0x000FE20008000F00 << 64,
                    frozenset({"R4"}),
                    frozenset({"R8"}),
                ),
                MachineInstruction(
                    16,
                    "@!UP0 BRA `(.L_x_0)",
                    0x0000000800E48947 | 0x000FEA0003800000 << 64,
                    frozenset({"R8", "UP0", "UP1"}),
                    frozenset({"R8", "UP1"}),
                ),
            ),
            {".text.kernel": 0, ".L_x_0": 16, ".L_x_1": 32},
        )
    }


def test_the_schedule_of_an_instruction_is_no_part_of_it() -> None:
    """nvdisasm prints it for sm_120: the barriers that are set and waited for, and the delay."""
    text = LISTING.replace("|    000000000001  |", "|    000000000011  |").replace("# 012345678900", "# 012345678901")
    for schedule in ("?trans1", "&req={3}  ?trans2", "&req={0,1} &wr=0x2 ?WAIT2_END_GROUP"):
        scheduled = text.replace("R4.reuse ;", f"R4.reuse    {schedule};")
        assert scheduled != text
        assert parse_listing(scheduled) == parse_listing(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("MOV R8, R4.reuse ;", "MOV R8, R4.reuse", "does not parse"),
        ("/* 0x000fe20008000f00 */", "", "does not parse"),
        ("/*0010*/", "/*0020*/", "does not parse"),
        ("UPRED", "OTHER", "not known"),
        ("|  2   : v   ^     |  1  :  |", "|  2   : v   ^     |", "no table"),
        ("|  2   : v   ^     |", "|  2   : v   ^   v |", "has no name"),
        ('.section\t.text.kernel,"ax"', ".section\t.nv.other", "does not parse"),
    ],
)
def test_damaged_listings_are_rejected(old: str, new: str, message: str) -> None:
    assert old in LISTING
    with pytest.raises(ValueError, match=message):
        parse_listing(LISTING.replace(old, new))


def test_a_listing_without_live_ranges_has_no_registers() -> None:
    rows = [row.partition("//")[0] for row in LISTING.splitlines()]
    for message, listing in (
        ("no table", "\n".join(rows)),
        ("no encoding", "\n".join(re.sub(r"/\* 0x\w+ \*/", "", row) for row in rows if row.strip()[:4] != "/* 0")),
    ):
        (code,) = listed_functions(listing).values()
        assert [each.text for each in code.instructions] == ["MOV R8, R4", "@!UP0 BRA `(.L_x_0)"]
        assert code.labels == {".text.kernel": 0, ".L_x_0": 16, ".L_x_1": 32}
        with pytest.raises(ValueError, match=message):
            parse_listing(listing)


def test_padding() -> None:
    nop = bytes.fromhex("18790000000000000000000000c00f00")
    assert only_padding(b"")
    assert only_padding(nop * 3)
    assert not only_padding(nop + nop[:15])
    assert not only_padding(nop + bytes(16))


def test_lines_of_products_and_fused_products() -> None:
    listing = """
\t.section\t.text.kernel,"ax",@progbits
.text.kernel:
\t//## File ".nv_debug_ptx_txt", line 20
        /*0000*/                   FFMA.FTZ R1, R2, R3, R4 ;
\t//## File ".nv_debug_ptx_txt", line 21
        /*0010*/              @!P0 FMUL R1, R2, R3 ;
        /*0020*/                   FFMA R1, R2, 1, R4 ;
        /*0030*/                   FADD R1, R2, R3 ;
\t//## File ".nv_debug_ptx_txt", line 23
        /*0040*/             @UP0 DFMA R2, R4, R6, R8 ;
        /*0050*/                   HMUL2.BF16_V2 R2, R4, R6 ;
"""
    assert arithmetic_lines(listing) == ArithmeticLines(frozenset({20, 23}), frozenset({21, 23}))
