"""Modules written as PTX parse to the same modules and assemble to the same machine code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bitwise_core.assembly.module import Kernel, Module
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from bitwise_nvidia_ptx.text.parser import parse
from bitwise_nvidia_ptx.text.writer import write

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
SAMPLES = sorted((Path(__file__).parents[2] / "nvidia_sm90" / "tests" / "samples").rglob("*.ptx"))

TEXTS = {
    "parameters": """.visible .entry k(.param .u64 .ptr .global .align 16 p, .param .u32 n,
        .param .align 64 .b8 map[128], .param .f32 s) .reqntid 128, 2 .maxnreg 255 {
        .reg .b64 %rd<3>; .reg .pred %p<2>;
        ld.param.u64 %rd1, [p]; setp.ne.b64 %p1, %rd1, -1; @!%p1 bra DONE; st.global.b32 [%rd1+-120], 0f3F800000;
        mov.b64 %rd2, 0d3FF0000000000000; cp.async.bulk.tensor.2d.global [%rd1, {%rd2, 4}], [map+8];
        DONE: ret; }""",
    "blocks": """.entry k() { .reg .b32 %r<4>; .reg .pred p;
        { .reg .b32 t<3>; .reg .pred p; setp.eq.b32 p, %r1, 0; @p bra done; mov.b32 t2, t1;
          { .reg .b32 u; add.s32 u, t0, %r1; } done: mov.b32 %r2, t2; }
        { } { { .reg .b32 t; mov.b32 t, 7; mov.b32 %r3, t; } }
        setp.eq.b32 p, %r1, 1; @p bra end; end: ret; }""",
    "labels beside blocks": """.entry k() { .reg .b32 %r<4>; .reg .pred p; before: { .reg .pred q; inner:
        setp.eq.b32 q, %r1, 0; @q bra inner; last: } after: { .reg .pred q; { outer: { innermost: setp.eq.b32 q, %r1, 1;
        @q bra innermost; } @q bra outer; next: } behind: @q bra behind; } bra before; bra after; ret; }""",
    "arrays": """.extern .shared .align 16 .b8 dynamic[]; .global .align 4 .b8 table[4] = {1, 2, 3, 255};
        .const .align 8 .b64 one[1] = {7}; .entry k() { .shared .align 8 .b8 fixed[24]; .local .align 4 .b8 stack[12];
        .reg .b64 %rd<4>; mov.u64 %rd1, dynamic; mov.u64 %rd2, table+2; mov.u64 %rd3, fixed; st.local.b32 [stack+4], 1;
        ret; }""",
    "calls": """.func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %r<3>; ld.param.b32 %r1, [x];
        add.s32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret; }
        .entry k() { .reg .b32 %r<3>; { .param .b32 given; .param .b32 back;
        st.param.b32 [given], %r1; call.uni (back), twice, (given); ld.param.b32 %r2, [back]; } ret; }""",
    "tables": """.entry k() { .reg .b32 %r<3>; .reg .pred %p<3>; TABLE: .branchtargets A, B; brx.idx %r1, TABLE;
        A: setp.lt.and.s32 %p1|%p2, %r1, 0, !%p1; B: mov.b32 {_, %r2}, %r1; ret; }""",
    "sources": """.file 1 "a.py"\n.file 2 "b.py"\n.entry k() { .reg .b32 %r<3>;\nmov.b32 %r1, 0;\n.loc 2 7 3
        mov.b32 %r1, 1; mov.b32 %r2, 1;\n.loc 1 8 0\nret; }""",
}


def without_lines(module: Module) -> Module:
    def bare(kernel: Kernel) -> Kernel:
        return replace(kernel, line=0, instructions=tuple(replace(each, line=0) for each in kernel.instructions))

    functions = {name: bare(each) for name, each in module.functions.items()}
    return replace(module, kernels=tuple(bare(each) for each in module.kernels), functions=functions)


@pytest.mark.parametrize("name", TEXTS)
def test_written_modules_parse_to_the_same_modules(name: str) -> None:
    module = parse(HEAD + TEXTS[name], "a.ptx")
    text = write(module)
    assert without_lines(parse(text, "a.ptx")) == without_lines(module)
    assert write(parse(text, "a.ptx")) == text


def test_names_of_inner_blocks_are_preserved() -> None:
    (kernel,) = parse(HEAD + TEXTS["blocks"], "a.ptx").kernels
    assert set(kernel.registers) == {"%r", "p", "t$1$", "p$1", "u$2", "t$5"}
    assert set(kernel.labels) == {"done$1", "end"}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_written_modules_have_the_same_machine_code(path: Path, ptxas: Ptxas, cache: Path) -> None:
    text = path.read_text()
    assert ptxas.digest(write(parse(text, path.name))) == ptxas.digest(text)


def test_writing_a_call_of_an_undefined_function_raises() -> None:
    text = """.extern .func (.param .b32 r) elsewhere(.param .b32 x); .entry k() { .param .b32 x; .param .b32 r;
        call (r), elsewhere, (x); ret; }"""
    module = parse(HEAD + text, "a.ptx")
    with pytest.raises(ValueError, match="the module does not define elsewhere, which it calls"):
        write(module)
