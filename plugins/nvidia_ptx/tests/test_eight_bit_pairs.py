# ruff: noqa: E501 - a line of PTX is read as one
"""Conversions to eight bits that ptxas executes behind what reads their result."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from ptx_programs import hashes, text
from sass_listings import listing

LOAD = "mul.wide.u32 %d2, %r0, 16; add.s64 %d3, %d0, %d2; add.s64 %d2, %d1, %d2; ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d2]; mov.b32 %r8, %f4;"
FIRST = "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;"
SECOND = "cvt.rn.satfinite.e4m3x2.f32 %h2, %f3, %f4;"
BOTH = FIRST + SECOND
PAIR = "mov.b32 %r1, {%h1, %h2}; st.global.b32 [%d3], %r1;"
EARLY = "st.global.b16 [%d3+8], %h1;"
JOINED = {
    "a store before the pair": BOTH + EARLY + PAIR,
    "a conversion back before the pair": f"{BOTH} cvt.rn.f16x2.e4m3x2 %r2, %h1; st.global.b32 [%d3+8], %r2; {PAIR}",
    "an upper half of the lower one": f"{FIRST} xor.b16 %h2, %h1, 5; {PAIR}",
    "one number in both halves": f"{FIRST} mov.b32 %r1, {{%h1, %h1}}; st.global.b32 [%d3], %r1;",
    "equal conversions in both halves": f"{FIRST} cvt.rn.satfinite.e4m3x2.f32 %h2, %f1, %f2; {PAIR}",
    "conversions of equal products in both halves": f"mul.rn.f32 %f5, %f1, %f3; mul.rn.f32 %f6, %f1, %f3; cvt.rn.satfinite.e4m3x2.f32 %h1, %f5, %f2; cvt.rn.satfinite.e4m3x2.f32 %h2, %f6, %f2; {PAIR}",
    "a stored pair": f"{BOTH} {EARLY} st.global.v2.b16 [%d3], {{%h1, %h2}};",
    "a pair of two": f"{BOTH} st.global.b16 [%d3+8], %h2; mov.b64 %d5, {{%h3, %h3, %h2, %h1}}; st.global.b64 [%d3], %d5;",
    "pairs in both orders": f"{BOTH} mov.b32 %r1, {{%h1, %h2}}; mov.b32 %r2, {{%h2, %h1}}; st.global.v2.b32 [%d3], {{%r1, %r2}};",
    "a copy in a pair": f"{BOTH} mov.b16 %h3, %h1; {EARLY} mov.b32 %r1, {{%h3, %h2}}; st.global.b32 [%d3], %r1;",
    "a number that a pair returns": f"{BOTH} mov.b32 %r1, {{%h2, %h1}}; mov.b32 {{%h4, %h5}}, %r1; {EARLY} mov.b32 %r2, {{%h5, %h4}}; st.global.b32 [%d3], %r2;",
    "an upper half out of shared memory": f"{FIRST} st.shared.b16 [room], %h1; ld.shared.b16 %h2, [room]; {PAIR}",
    "an upper half of another lane": f"{FIRST} cvt.u32.u16 %r2, %h1; shfl.sync.bfly.b32 %r2, %r2, 1, 31, -1; cvt.u16.u32 %h2, %r2; {PAIR}",
    "halves of five exponent bits": f"{BOTH} {EARLY} {PAIR}".replace("e4m3", "e5m2"),
    "halves of fp16": f"mov.b32 %r2, %f1; mov.b32 %r3, %f2; cvt.rn.satfinite.e5m2x2.f16x2 %h1, %r2; cvt.rn.satfinite.e5m2x2.f16x2 %h2, %r3; {EARLY} {PAIR}",
    "a zero in the upper half": f"{FIRST} {EARLY} mov.b16 %h2, 0; {PAIR}",
}
"""Kernels that ptxas 12.8 and 12.9 assemble to code that reads a register which nothing has written."""
ONE = "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f1;"
APART = {
    "a pair alone": BOTH + PAIR,
    "a store behind the pair": BOTH + PAIR + EARLY,
    "a store of the upper half before the pair": f"{BOTH} st.global.b16 [%d3+8], %h2; {PAIR}",
    "one number twice": f"{ONE} cvt.rn.f16x2.e4m3x2 %r2, %h1; st.global.b32 [%d3+8], %r2; st.global.b8 [%d3], %h1;",
    "an operand of several": f"{FIRST} cvt.rn.satfinite.e4m3x2.f32 %h2, %f1, %f3; {PAIR}",
    "operands in another order": f"{FIRST} cvt.rn.satfinite.e4m3x2.f32 %h2, %f2, %f1; {PAIR}",
    "operands of two types": f"{FIRST} cvt.rn.satfinite.e5m2x2.f32 %h2, %f1, %f2; {PAIR}",
    "a conversion as the upper half": f"{FIRST} {EARLY} mov.b32 {{%h3, %h4}}, %r8; mov.b32 %r1, {{%h3, %h1}}; st.global.b32 [%d3], %r1;",
    "numbers that a pair returns": f"{BOTH} mov.b32 %r1, {{%h1, %h2}}; mov.b32 {{%h4, %h5}}, %r1; mov.b32 %r2, {{%h4, %h5}}; st.global.b32 [%d3], %r2;",
    "a conversion of fp16": f"cvt.rn.f16.f32 %h1, %f1; cvt.rn.f16.f32 %h2, %f2; {EARLY} {PAIR}",
}
SHARED = ".shared .align 16 .b8 room[64];"


def found(body: str) -> object:
    return hashes(LOAD + body, shared=SHARED)


@pytest.mark.parametrize("name", JOINED)
def test_a_conversion_behind_what_reads_it_is_unknown(name: str) -> None:
    with pytest.raises(Unsupported, match="ptxas may merge a conversion to eight bits with a pair behind what reads"):
        found(JOINED[name])


@pytest.mark.parametrize("name", APART)
def test_other_conversions_are_functions_of_their_operands(name: str) -> None:
    """Another register or an unused instruction makes another text with the same result."""
    body = APART[name]
    assert found(body) == found("mov.u32 %r30, 0;" + body.replace("%h1", "%h31"))


WIDE = {"128": 4, "64": 2}
"""The registers that a load writes, by the end of its opcode."""
OF_DATA = ("F2FP", "F2F", "PRMT", "LOP3", "SHFL", "SEL", "STG", "STS")
"""The instructions that these kernels execute on data, and not on addresses."""


def read_early(body: str, tmp_path: Path) -> list[str]:
    """Return the registers that the machine code of a kernel without branches takes for data, and that hold none."""
    data = set[str]()
    early: list[str] = []
    for line in listing(text(LOAD + body, shared=SHARED), tmp_path).splitlines():
        code = re.fullmatch(r"(?:@!?U?P\d+ )?([A-Z][\w.]*) (.*?) ?;", re.sub(r"/\*.*?\*/", "", line).strip())
        names = [] if code is None else re.findall(r"\bR(\d+)", code[2])
        if code is None or not names:
            continue
        opcode = code[1].split(".")
        writes = re.match(r"R\d", code[2]) is not None
        kept = code[1] == "PRMT" and names[0] == names[-1]  # the half that a move leaves
        read = names[1 : len(names) - kept] if writes else names[-1:]  # of a store, not the address
        if opcode[0] in OF_DATA:
            early += [each for each in read if each not in data]
        if writes:
            places = {str(int(names[0]) + place) for place in range(WIDE.get(opcode[-1], 1))}
            data = data | places if opcode[0] in (*OF_DATA, "LDG", "LDS") else data - places
    return early


@pytest.mark.parametrize("name", [*JOINED, *APART])
def test_the_machine_code_of_joined_conversions_reads_registers_without_data(name: str, tmp_path: Path) -> None:
    """Every assembler that joins a conversion behind its readers is refused; 13.0 and later ones do not."""
    early = read_early({**JOINED, **APART}[name], tmp_path)
    if name in APART:
        assert early == []
    elif Ptxas.locate("sm_90a").version.startswith(("12.8", "12.9")):
        assert early != []
