"""The contraction audit: candidate pairs, the fused pairs, and the returned module."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bitwise_core.assembly.module import Register
from bitwise_core.execution.time_limit import TimeLimitExceeded
from bitwise_nvidia_ptx.assembler import ptxas as assembler_module
from bitwise_nvidia_ptx.assembler.ptxas import AssemblyFailed, Ptxas, without_debug
from bitwise_nvidia_ptx.contraction import audit as audit_module
from bitwise_nvidia_ptx.contraction import candidates as candidates_module
from bitwise_nvidia_ptx.contraction.audit import Audit, attempts, audit, candidates
from bitwise_nvidia_ptx.contraction.candidates import Facts, candidate_pairs
from bitwise_nvidia_ptx.contraction.fusion_guesses import fusable, fusions_of_machine_code
from bitwise_nvidia_ptx.contraction.program import Program, opcode_of
from bitwise_nvidia_ptx.contraction.rewrite import Division, Rewriting, rewrite
from bitwise_nvidia_ptx.text.parser import parse
from contraction_kernels import ADD, FIRST, MUL, STORE, kernel
from ptx_programs import ARCH

NONE, EQUAL, FUSED = "no candidates", "machine code equal, none contracted", "machine code equal, pairs contracted"


def program(text: str) -> Program:
    return Program(parse(text, "kernel.ptx"), ARCH.opcodes)


def audited(text: str, ptxas: Ptxas, cubin: bytes | None = None) -> Audit:
    return audit(parse(text, "kernel.ptx"), text, ARCH.opcodes, ptxas=ptxas, cubin=cubin)


def text_parses_to_module(rewriting: Rewriting) -> bool:
    """Return whether the rewritten text parses to the rewritten module."""
    return parse(rewriting.text, rewriting.module.file) == rewriting.module


def rows(*pairs: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Return pairs of lines, given relative to the first line of the body."""
    return tuple((FIRST + product, FIRST + consumer) for product, consumer in pairs)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((MUL, ADD), rows((0, 1))),
        (("mul.rn.f32 %r4, %r0, %r1;", ADD), ()),
        ((MUL, "add.rn.f32 %r10, %r4, %r2;"), ()),
        ((MUL, "add.rz.f32 %r10, %r4, %r2;"), ()),
        ((MUL, "sub.f32 %r10, %r2, %r4;"), rows((0, 1))),
        ((MUL, "neg.f32 %r5, %r4;", "add.f32 %r10, %r5, %r2;"), rows((0, 2))),
        ((MUL, "xor.b32 %r5, %r4, 0x80000000;", "add.f32 %r10, %r5, %r2;"), rows((0, 2))),
        ((MUL, "max.f32 %r5, %r4, %r4;", "add.f32 %r10, %r5, %r2;"), rows((0, 2))),
        ((MUL, "selp.f32 %r5, %r4, %r3, %p1;", "add.f32 %r10, %r5, %r2;"), rows((0, 2))),
        ((MUL, "mov.b32 {%h0, %h1}, %r4;", "mov.b32 %r5, {%h1, %h0};", "add.f16x2 %r10, %r5, %r2;"), rows((0, 3))),
        ((MUL, "st.local.b32 [%rd4], %r4;", "ld.local.b32 %r5, [%rd4];", "add.f32 %r10, %r5, %r2;"), rows((0, 3))),
        ((MUL, "st.shared.b32 [%r7], %r4;", "ld.shared.b32 %r5, [%r7];", "add.f32 %r10, %r5, %r2;"), ()),
        # a shuffle of a uniform value is a copy
        ((MUL, "shfl.sync.bfly.b32 %r5, %r4, 1, 31, -1;", "add.f32 %r10, %r5, %r2;"), rows((0, 2))),
        ((MUL, "shfl.sync.bfly.b32 %r5, %r3, 1, 31, %r4;", "add.f32 %r10, %r5, %r2;"), ()),
        ((MUL, "mov.u64 %rd5, %rd4; st.b32 [%rd5], %r4;", "ld.b32 %r5, [%rd5];", "add.f32 %r10, %r5, %r2;"),
         rows((0, 3))),
        ((MUL, "mul.rn.f32 %r5, %r4, 0f3F800000;", "add.f32 %r10, %r5, %r2;"), rows((0, 1), (0, 2))),
        ((MUL, "add.rn.f32 %r5, %r4, %r3;", "add.f32 %r10, %r5, %r2;"), ()),
        # a loop carries the product backwards to an earlier line
        (("$L1:", "add.f32 %r10, %r10, %r4;", MUL, "@%p1 bra $L1;"), rows((2, 1))),
        # the last step of an approximate division is a product
        (("div.full.f32 %r4, %r0, %r1;", ADD), rows((0, 1))),
        (("div.approx.ftz.f32 %r4, %r0, %r1;", ADD), rows((0, 1))),
        (("div.rn.f32 %r4, %r0, %r1;", ADD), ()),
        (("rcp.approx.f32 %r4, %r0;", ADD), rows((0, 1))),
        (("rcp.approx.ftz.f32 %r4, %r0;", ADD), ()),
        # a scaled product needs a constant; a rounding modifier on the scaling does not prevent it
        ((MUL, "mul.f32 %r10, %r4, %r2;"), ()),
        ((MUL, "mul.f32 %r10, %r4, 0f3F000000;"), rows((0, 1))),
        ((MUL, "mul.rn.f32 %r10, %r4, 0f3F000000;"), rows((0, 1))),
        (("mul.rn.f32 %r4, %r0, %r1;", "mul.f32 %r10, %r4, 0f3F000000;"), ()),
        (("mov.b32 %r9, 0f40000000;", MUL, "mul.f32 %r10, %r4, %r9;"), rows((1, 2))),
        ((MUL, "div.full.f32 %r10, %r4, 0f40000000;"), rows((0, 1))),
        (("div.full.f32 %r4, %r0, %r1;", "mul.rn.f32 %r10, %r4, 0f40000000;"), rows((0, 1))),
        # a constant that passes through a shuffle or local memory; a kernel parameter is not constant
        (("mov.b32 %r9, 0f3F000000;", MUL, "shfl.sync.bfly.b32 %r5, %r9, 1, 31, -1;", "mul.f32 %r10, %r4, %r5;"),
         rows((1, 3))),
        (("st.local.b32 [%rd4], 0f3F000000;", MUL, "ld.local.b32 %r5, [%rd4];", "mul.f32 %r10, %r4, %r5;"),
         rows((1, 3))),
        (("ld.param.f32 %r5, [s];", MUL, "mul.f32 %r10, %r4, %r5;"), ()),
        # after the branch the compared register equals the constant
        (
            ("ld.param.u32 %r8, [n];", "setp.ne.s32 %p1, %r8, 2;", "@%p1 bra $L1;", "cvt.rn.f32.s32 %r9, %r8;", MUL,
             "mul.f32 %r10, %r4, %r9;", "$L1:"),
            rows((4, 5)),
        ),
        # a masked load is not constant
        (("mov.u32 %r9, 0f40000000;", "@%p1 ld.global.b32 %r9, [%rd1+16];", MUL, "mul.f32 %r10, %r4, %r9;"), ()),
        # it is, if it is never executed
        (("mov.pred %p1, 0;", "mov.u32 %r9, 0f40000000;", "@%p1 ld.global.b32 %r9, [%rd1+16];", MUL,
          "mul.f32 %r10, %r4, %r9;"), rows((3, 4))),
        (("mov.pred %p1, -1;", "mov.u32 %r9, 0f40000000;", "@!%p1 ld.global.b32 %r9, [%rd1+16];", MUL,
          "mul.f32 %r10, %r4, %r9;"), rows((3, 4))),
        (("mov.pred %p1, -1;", "mov.u32 %r9, 0f40000000;", "@%p1 ld.global.b32 %r9, [%rd1+16];", MUL,
          "mul.f32 %r10, %r4, %r9;"), ()),
        (("mov.pred %p2, 0;", "and.pred %p1, %p1, %p2;", "mov.u32 %r9, 0f40000000;",
          "@%p1 ld.global.b32 %r9, [%rd1+16];", MUL, "mul.f32 %r10, %r4, %r9;"), rows((4, 5))),
        # a value that is overwritten before it is read
        (("mov.u32 %r9, 0f40000000;", "ld.global.b32 %r9, [%rd1+16];", MUL, "mul.f32 %r10, %r4, %r9;"), ()),
        # the maximum of a constant and a value without a bound is no constant, that of a bounded value may be
        (("max.f32 %r5, %r0, 0f40000000;", MUL, "mul.f32 %r10, %r4, %r5;"), ()),
        (("min.f32 %r5, %r0, 0f40000000;", MUL, "mul.f32 %r10, %r4, %r5;"), ()),
        (("abs.f32 %r6, %r0;", "min.f32 %r5, %r6, 0f40000000;", MUL, "mul.f32 %r10, %r4, %r5;"), rows((2, 3))),
        (("min.f32 %r6, %r0, 0f00000000;", "max.f32 %r5, %r6, 0f40000000;", MUL, "mul.f32 %r10, %r4, %r5;"),
         rows((2, 3))),
        (("mov.b32 %r6, 0f3F800000;", "@%p1 mov.b32 %r6, %r0;", "max.f32 %r5, %r6, 0f40000000;", MUL,
          "mul.f32 %r10, %r4, %r5;"), rows((3, 4))),
        (("min.f32 %r6, %r0, 0f00000000;", "@%p1 mov.b32 %r6, %r1;", "max.f32 %r5, %r6, 0f40000000;", MUL,
          "mul.f32 %r10, %r4, %r5;"), rows((3, 4))),
        (("ld.global.u16 %r6, [%rd1];", "max.f32 %r5, %r6, 0f40000000;", MUL, "mul.f32 %r10, %r4, %r5;"),
         rows((2, 3))),
        (("add.f32 %r6, %r0, 0fFF800000;", "max.f32 %r5, %r6, 0f40000000;", MUL, "mul.f32 %r10, %r4, %r5;"),
         rows((2, 3))),
        # ptxas fuses the square inside ex2 if it derives that the argument is low; of loaded values it derives nothing
        (("ex2.approx.f32 %r4, %r0;", ADD), ()),
        (("abs.f32 %r5, %r0;", "sub.f32 %r5, 0fC3020000, %r5;", "ex2.approx.f32 %r4, %r5;", ADD), rows((2, 3))),
        (("mul.f32 %r5, %r0, 0f3FB8AA3B;", "ex2.approx.f32 %r4, %r5;", ADD), ()),
        (("mul.lo.s32 %r4, %r0, %r1;", "add.s32 %r10, %r4, %r2;"), ()),
    ],
)  # fmt: skip
def test_candidates(lines: tuple[str, ...], expected: tuple[tuple[int, int], ...]) -> None:
    assert candidates(parse(kernel(*lines), "kernel.ptx"), ARCH.opcodes) == expected


DEBUG = ".section .debug_info\n{\n.b8 1\n.b8 2\n}\n"


def _scaled_maximum(count: int) -> str:
    """Return the maximum of many products, of which each may be fused into the difference at the end."""
    declared = [f".reg .b32 %f<{count}>; .reg .b32 %g<{count}>;", "mov.b32 %g0, %r3;"]
    products = [f"mul.f32 %f{each}, %r0, %r1;" for each in range(count)]
    chosen = [f"selp.b32 %g{each}, %f{each}, %g{each - 1}, %p1;" for each in range(1, count)]
    return kernel(*declared, *products, *chosen, f"sub.f32 %r10, %g{count - 1}, %f0;")


def test_a_value_that_many_products_reach_is_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count, followed = 60, []
    uses = candidates_module._Flow._uses

    def counted(self: candidates_module._Flow, name: str) -> object:
        followed.append(name)
        return uses(self, name)

    monkeypatch.setattr(candidates_module._Flow, "_uses", counted)
    assert len(candidate_pairs(program(_scaled_maximum(count)))) == count
    assert len(followed) == len(set(followed))


def test_registers_that_are_copied_to_each_other_reach_the_same() -> None:
    """Two products enter a loop of copies at different places, and both reach the sum after it."""
    lines = (
        MUL, "mul.f32 %r5, %r1, %r2;", "$L1:", "selp.b32 %r6, %r4, %r8, %p1;", "selp.b32 %r7, %r6, %r5, %p1;",
        "mov.b32 %r8, %r7;", "@%p1 bra $L1;", "add.f32 %r10, %r6, %r2;",
    )  # fmt: skip
    assert candidates(parse(kernel(*lines), "kernel.ptx"), ARCH.opcodes) == rows((0, 7), (1, 7))


def test_lines_are_those_of_the_text() -> None:
    text = (
        '.version 8.7\n.target sm_90a\n.address_size 64\n.file 1 "a;b{.cu"\n'
        ".func (.param .b32 r) f(.param .b32 a)\n{\n.reg .b32 %r<4>; .reg .b16 %h<4>; .reg .pred %p<2>;\n"
        "// add.f32 x, y, z;\n$L0: @!%p1 add.f32 %r1, %r2, /* ; */ 0f00000000; { .reg .b32 t;\n"
        "mov.b32 {%h1, %h2}, t /* {\n */ ; }\nret;\n}\n" + DEBUG
    )
    found = program(text)
    assert [(s.instruction.opcode, s.instruction.line) for s in found.statements] == [
        ("add.f32", 9), ("mov.b32", 10), ("ret", 12),
    ]  # fmt: skip
    assert [text[slice(*s.instruction.span)] for s in found.statements if s.instruction.span] == [
        "@!%p1 add.f32 %r1, %r2, /* ; */ 0f00000000", "mov.b32 {%h1, %h2}, t /* {\n */ ", "ret",
    ]  # fmt: skip
    assert [(s.results, s.sources) for s in found.statements] == [
        (("%r1",), (("%r2",), ())), (("%h1", "%h2"), (("t",),)), ((), ()),
    ]  # fmt: skip
    (body,) = [text[slice(*each.span)] for each in found.functions if each.span]
    assert (body[:5], body[-5:]) == ("\n.reg", "ret;\n")
    assert "debug_info" not in without_debug(text)
    assert text_parses_to_module(rewrite(found, text))


def test_rewriting_keeps_lines_and_states_every_rounding() -> None:
    text = kernel("mul.ftz.f32 %r4, %r0,\n %r1;", "sub.ftz.sat.f32 %r10, %r2, %r4;", STORE)
    found = program(text)
    stated = rewrite(found, text)
    assert stated.text.count("\n") == text.count("\n")
    assert "mul.rn.ftz.f32 %r4, %r0, %r1" in stated.text
    assert "sub.rn.ftz.sat.f32 %r10, %r2, %r4" in stated.text
    fused = rewrite(found, text, fusable(found, text)[0])
    assert fused.text.splitlines()[FIRST + 1] == (
        f"neg.f32 %contraction_product_{len(found.statements) - 3}, %r0; "
        f"fma.rn.ftz.sat.f32 %r10, %contraction_product_{len(found.statements) - 3}, %r1, %r2;"
    )
    assert text_parses_to_module(stated)
    assert text_parses_to_module(fused)


def test_a_text_of_another_module_raises() -> None:
    text = kernel(MUL, ADD, STORE)
    module = parse(text, "kernel.ptx")
    with pytest.raises(ValueError, match="is not the instruction of the module"):
        _ = rewrite(Program(module, ARCH.opcodes), text.replace("mul.f32", "mul.f64")).text
    with pytest.raises(ValueError, match="recorded no position"):
        Program(replace(module, kernels=(replace(module.kernels[0], span=None),)), ARCH.opcodes)


HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
FUNCTIONS = f"""{HEAD}.func (.param .b32 r) f(.param .b32 a) {{ .reg .b32 %r<4>; ld.param.b32 %r1, [a];
mul.f32 %r2, %r1, 0f3F800000; sub.f32 %r3, %r2, %r1; st.param.b32 [r], %r3; ret; }}
.entry k(.param .u64 p) {{ .reg .b32 %f<9>; .reg .b64 %d<3>; .reg .pred %q<2>; ld.param.u64 %d1, [p];
ld.global.b32 %f1, [%d1]; bra.uni LATER; FIRST: mul.f32 %f2, %f1, 1.5; add.f32 %f3, %f2, 0f3F000000;
st.global.b32 [%d1], %f3; ret; LATER: div.full.f32 %f4, %f1, %f1; sub.f32 %f5, %f1, %f4;
setp.eq.f32 %q1, %f5, 0f00000000; @%q1 bra FIRST; st.global.b32 [%d1], %f5; ret; }}
"""
BLOCKS = f"""{HEAD}.entry k(.param .u64 p) {{ .reg .b32 %r<9>; .reg .b32 t; .reg .b64 %d<3>; ld.param.u64 %d1, [p];
ld.global.v2.b32 {{%r1, t}}, [%d1];
{{ .reg .b32 t<3>; .reg .b32 u; mov.b32 u, %r1; mul.f32 t1, u, u; sub.f32 %r2, t1, u; }}
mul.f32 %r3, t, %r1; {{ .reg .b32 t; mov.b32 t, 7; sub.f32 %r4, %r3, t; }}
st.global.v2.b32 [%d1], {{%r2, %r4}}; ret; }}
"""
"""The `t` of the last block hides the factor `t` of the preceding product."""


@pytest.mark.parametrize("text", [FUNCTIONS, BLOCKS], ids=["functions", "blocks"])
def test_the_text_of_every_attempt_parses_to_its_module(text: str) -> None:
    found = program(text)
    tried = list(attempts(rewrite(found, text), candidate_pairs(found), tuple))
    assert any(each.fusions for each in tried)
    for each in tried:
        assert text_parses_to_module(each.assembled)
        assert text_parses_to_module(each.returned)


def test_a_product_is_not_moved_to_a_scope_where_its_operands_denote_other_registers() -> None:
    found = program(BLOCKS)
    products = [found.statements[group[0].product].instruction for group in fusable(found, BLOCKS)]
    assert [each.operands[0] for each in products] == [Register("t$1$1")]


def test_reserved_names_prevent_expansion() -> None:
    text = kernel(".reg .b32 %contraction_product_7;", MUL, ADD, STORE)
    found = program(text)
    stated = rewrite(found, text)
    assert [each.assembled for each in attempts(stated, candidate_pairs(found), tuple)] == [stated]


SAMPLES = sorted(Path(__file__).parents[2].glob("*/tests/samples/**/*.ptx"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_texts_of_rewritten_samples_parse_to_their_modules(path: Path) -> None:
    text = path.read_text()
    found = Program(parse(text, path.name), ARCH.opcodes)
    stated, pairs = rewrite(found, text), candidate_pairs(found)
    assert text_parses_to_module(stated)
    assert not any(opcode_of(each.opcode).contractible for each in stated.module.kernels[0].instructions)
    for each in islice(attempts(stated, pairs, tuple), 12) if pairs else ():
        assert text_parses_to_module(each.assembled)
        assert text_parses_to_module(each.returned)


def test_no_assembler_is_needed_without_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ptxas, "locate", classmethod(lambda *_, **__: pytest.fail("asked for ptxas")))
    text = kernel("add.f32 %r4, %r0, %r1;", "mul.f32 %r10, %r4, %r2;", STORE)
    found = audit(parse(text, "kernel.ptx"), text, ARCH.opcodes, arch="sm_90")
    assert (found.method, found.runs, found.resolved) == (NONE, 0, True)
    assert "add.rn.f32" in found.rewriting.text
    assert "mul.rn.f32" in found.rewriting.text


def test_without_fusion_there_are_no_candidates(ptxas: Ptxas) -> None:
    found = audited(kernel(MUL, ADD, STORE), Ptxas.locate("sm_90", path=ptxas.path, fp_fusion=False))
    assert (found.method, found.runs) == (NONE, 0)


@pytest.mark.parametrize(
    ("lines", "method", "pairs"),
    [
        ((MUL, ADD, STORE), FUSED, rows((0, 1))),
        ((MUL, "sub.f32 %r10, %r2, %r4;", STORE), FUSED, rows((0, 1))),
        ((MUL, "sub.f32 %r10, %r4, %r2;", STORE), FUSED, rows((0, 1))),
        ((MUL, "neg.f32 %r5, %r4;", "sub.f32 %r10, %r2, %r5;", STORE), FUSED, rows((0, 2))),
        ((MUL, "add.sat.f32 %r10, %r4, %r2;", STORE), FUSED, rows((0, 1))),
        ((MUL, "add.ftz.f32 %r10, %r4, %r2;", STORE), EQUAL, ()),
        (("mul.sat.f32 %r4, %r0, %r1;", ADD, STORE), EQUAL, ()),
        # the product is needed itself: not fused
        ((MUL, ADD, STORE, "st.global.b32 [%rd2+4], %r4;"), EQUAL, ()),
        # every use is a sum: fused into all
        (
            (MUL, ADD, "sub.f32 %r11, %r3, %r4;", STORE, "st.global.b32 [%rd2+4], %r11;"),
            FUSED, rows((0, 1), (0, 2)),
        ),
        # of two products the first operand is fused, whatever their order
        ((MUL, "mul.f32 %r5, %r2, %r3;", "add.f32 %r10, %r4, %r5;", STORE), FUSED, rows((0, 2))),
        ((MUL, "mul.f32 %r5, %r2, %r3;", "add.f32 %r10, %r5, %r4;", STORE), FUSED, rows((1, 2))),
        # the first is used elsewhere too, so the second is fused
        (
            (MUL, "mul.f32 %r5, %r2, %r3;", "add.f32 %r10, %r4, %r5;", STORE, "st.global.b32 [%rd2+4], %r4;"),
            FUSED, rows((1, 2)),
        ),
        ((MUL, "add.f32 %r10, %r4, %r4;", STORE), EQUAL, ()),
        (("div.full.f32 %r4, %r0, %r1;", ADD, STORE), FUSED, rows((0, 1))),
        (("div.full.f32 %r4, %r0, 0f40400000;", ADD, STORE), FUSED, rows((0, 1))),
        (("div.full.ftz.f32 %r4, %r0, %r1;", "sub.ftz.f32 %r10, %r2, %r4;", STORE), FUSED, rows((0, 1))),
        (("div.approx.f32 %r4, %r0, %r1;", ADD, STORE), FUSED, rows((0, 1))),
        (
            ("div.full.f32 %r4, %r0, %r1;", "sub.f32 %r10, %r2, %r4;", "sub.f32 %r11, %r3, %r4;", STORE,
             "st.global.b32 [%rd2+4], %r11;"),
            FUSED, rows((0, 1), (0, 2)),
        ),
        (("mul.f16x2 %r4, %r0, %r1;", "sub.f16x2 %r10, %r4, %r2;", STORE), FUSED, rows((0, 1))),
        (("mul.bf16x2 %r4, %r0, %r1;", "add.bf16x2 %r10, %r4, %r2;", STORE), FUSED, rows((0, 1))),
        (
            ("mov.b64 %d1, {%r0, %r1}; mov.b64 %d2, {%r2, %r3};", "mul.f64 %d3, %d1, %d2;", "add.f64 %d4, %d3, %d1;",
             "st.global.b64 [%rd2], %d4;"),
            FUSED, rows((1, 2)),
        ),
        # the product is in a block that comes later in the text
        (
            ("bra.uni $L2;", "$L1:", ADD, STORE, "bra.uni $L3;", "$L2:", MUL, "bra.uni $L1;", "$L3:"),
            FUSED, rows((6, 2)),
        ),
        # the value is uniform, so that the shuffle is a copy
        (
            ("ld.param.f32 %r5, [s];", "mul.f32 %r4, %r5, %r5;", "shfl.sync.bfly.b32 %r6, %r4, 1, 31, -1;",
             "add.f32 %r10, %r6, %r2;", STORE),
            "unresolved", (),
        ),
        # PTX has no instruction for the scaled product
        (
            ("mov.b32 %r9, 0f3F000000;", "shfl.sync.bfly.b32 %r5, %r9, 1, 31, -1;", MUL, "mul.f32 %r10, %r4, %r5;",
             STORE),
            "unresolved", (),
        ),
        ((MUL, "mul.f32 %r10, %r4, 0f3F000000;", STORE), "unresolved", ()),
        (("div.full.f32 %r4, %r0, %r1;", "mul.rn.f32 %r10, %r4, 0f40000000;", STORE), "unresolved", ()),
        ((MUL, "mul.f32 %r10, %r4, 0f41800000;", STORE), EQUAL, ()),
        (("rcp.approx.f32 %r4, %r0;", ADD, STORE), "unresolved", ()),
    ],
)  # fmt: skip
def test_audit(ptxas: Ptxas, lines: tuple[str, ...], method: str, pairs: tuple[tuple[int, int], ...]) -> None:
    text = kernel(*lines)
    found = audited(text, ptxas)
    assert (found.method, found.pairs) == (method, pairs), found.reason
    if method == "unresolved":
        assert found.rewriting.text == text
        assert f"line {candidates(parse(text, 'kernel.ptx'), ARCH.opcodes)[0][0]}" in found.reason
    else:
        assert not any(statement.contractible for statement in program(found.rewriting.text).statements)
        assert ptxas.digest(found.rewriting.text, fuse=False) == ptxas.digest(text)
    assert text_parses_to_module(found.rewriting)
    assert text_parses_to_module(found.rewriting.only_fusions)


def test_one_more_use_changes_what_is_fused(ptxas: Ptxas) -> None:
    """In both texts the first output has the same expression; ptxas rounds the product in only one of them."""
    once, twice = kernel(MUL, ADD, STORE), kernel(MUL, ADD, STORE, "st.global.b32 [%rd2+4], %r4;")
    assert "fma.rn.f32 %r10" in audited(once, ptxas).rewriting.text
    assert "add.rn.f32 %r10" in audited(twice, ptxas).rewriting.text


def test_a_quotient_with_many_uses(ptxas: Ptxas) -> None:
    """The mean of a normalisation is subtracted unrounded."""
    uses = [f"sub.f32 %r{10 + i}, %r{i}, %r5; st.global.b32 [%rd2+{4 * i}], %r{10 + i};" for i in range(4)]
    text = kernel("ld.param.u32 %r8, [n];", "cvt.rn.f32.s32 %r9, %r8;", "div.full.f32 %r5, %r0, %r9;", *uses)
    found = audited(text, ptxas)
    assert (found.method, found.pairs) == (FUSED, rows((2, 3), (2, 4), (2, 5), (2, 6)))


SAME, SAME_FUSED = (
    "machine code with the same dataflow, none contracted",
    "machine code with the same dataflow, pairs contracted",
)


@pytest.mark.parametrize("divisor", ["%r1", "%r6", "%r7"])
def test_quotients_with_other_range_checks(ptxas: Ptxas, divisor: str) -> None:
    """Two divisors have bounds of their own, and one of them divides a second number that is not fused."""
    text = kernel(
        "ex2.approx.ftz.f32 %r16, %r1;", "add.f32 %r6, %r16, 0f3F800000;", "max.f32 %r7, %r2, 0f2B8CBCCC;",
        "div.full.f32 %r4, %r0, %r3;", "div.full.f32 %r5, %r0, %r6;", f"div.full.f32 %r8, %r2, {divisor};",
        "div.full.f32 %r9, %r1, %r3;", "sub.f32 %r10, 0f3F800000, %r4;", "sub.f32 %r11, 0f3F800000, %r5;",
        "sub.f32 %r12, 0f3F800000, %r8;", STORE, "st.global.b32 [%rd2+4], %r11;", "st.global.b32 [%rd2+8], %r12;",
        "st.global.b32 [%rd2+12], %r9;",
    )  # fmt: skip
    found = audited(text, ptxas)
    assert found.method in (FUSED, SAME_FUSED), found.reason
    assert found.pairs == rows((3, 7), (4, 8), (5, 9))


def _layer_norm(elements: int, scale: str) -> list[str]:
    """Return the steps of a layer norm of one thread, whose mean is a quotient by a literal."""
    lines = ["add.f32 %r5, %r0, %r1;", "add.f32 %r6, %r5, %r2;", "add.f32 %r7, %r6, %r3;", f"mov.b32 %r8, {scale};"]
    lines += ["div.full.f32 %r9, %r7, %r8;", *(f"sub.f32 %r{10 + i}, %r{i}, %r9;" for i in range(elements))]
    lines += ["mul.f32 %r20, %r10, %r10;"]
    lines += [f"fma.rn.f32 %r{20 + i}, %r{10 + i}, %r{10 + i}, %r{19 + i};" for i in range(1, elements)]
    lines += [f"div.full.f32 %r24, %r{19 + elements}, %r8;", "add.f32 %r25, %r24, 0f358637BD;"]
    lines += ["sqrt.approx.ftz.f32 %r26, %r25;"]
    for i in range(elements):
        lines += [f"div.full.f32 %r{30 + i}, %r{10 + i}, %r26;", f"st.global.b32 [%rd2+{4 * i}], %r{30 + i};"]
    return lines


@pytest.mark.parametrize(("elements", "scale"), [(2, "0f43000000"), (3, "0f42C80000"), (4, "0f43000000")])
def test_a_layer_norm(ptxas: Ptxas, elements: int, scale: str) -> None:
    text = kernel(*_layer_norm(elements, scale))
    found = audited(text, ptxas)
    mean = [(4, 5 + i) for i in range(elements)]
    variance = 5 + 2 * elements
    assert found.method in (FUSED, SAME_FUSED), found.reason
    assert found.pairs == rows(*mean, (variance, variance + 1))
    # the text with any one of the products rounded has other machine code, and another dataflow
    module = program(text)
    fusions = [group for groups in fusable(module, text) for group in groups]
    assert len(fusions) == elements + 1
    for left_out in fusions:
        kept = [each for each in fusions if each is not left_out]
        other = rewrite(module, text, kept, division=Division())
        assert ptxas.digest(other.text, fuse=False) != ptxas.digest(text)
        assert list(ptxas.equal_dataflow(text, [(other.text, False)])) == [False]
    assert text_parses_to_module(found.rewriting)
    assert text_parses_to_module(found.rewriting.only_fusions)


EXPONENTIAL = "sub.f32 %r5, 0f00000000, %r0;", "mul.f32 %r5, %r5, 0f3FB8AA3B;", "ex2.approx.f32 %r4, %r5;"


@pytest.mark.parametrize("before", ["", "fence.acq_rel.gpu;"])
def test_the_square_inside_an_exponential(ptxas: Ptxas, before: str) -> None:
    """ptxas derives from a plain sum that it is at least 1; a sum with a rounding would lose that."""
    absolute = ("abs.f32 %r5, %r0;", *(line.replace("%r0", "%r5") for line in EXPONENTIAL))
    text = kernel(
        *absolute, "add.f32 %r6, %r4, 0f3F800000;", "setp.lt.f32 %p1, %r6, 0f00800000;",
        "mul.f32 %r7, %r6, 0f4B000000;", "selp.f32 %r10, %r7, %r6, %p1;", STORE, before,
    )  # fmt: skip
    assert (0, 0) not in candidates(parse(text, "kernel.ptx"), ARCH.opcodes)
    assert rows((3, 4))[0] in candidates(parse(text, "kernel.ptx"), ARCH.opcodes)
    found = audited(text, ptxas)
    assert found.method in (EQUAL, SAME), found.reason
    assert found.pairs == ()
    fused = kernel("abs.f32 %r5, %r0;", "sub.f32 %r5, 0fC3020000, %r5;", "ex2.approx.f32 %r4, %r5;", ADD, STORE)
    scaled = fused.replace(ADD, "mul.f32 %r10, %r4, 0f3F000000;")
    assert ptxas.rounds_exponentials(text)
    assert not ptxas.rounds_exponentials(fused)
    assert not ptxas.rounds_exponentials(scaled)
    assert audited(fused, ptxas).method in ("unresolved", FUSED, SAME_FUSED)


QUOTIENT_OF_LITERALS = (
    "mov.b32 %r8, 0f40800000;",
    "mov.b32 %r9, 0f3F000000;",
    "div.full.f32 %r5, %r9, %r8;",
    "add.f32 %r6, %r2, %r5;",
    "st.global.b32 [%rd2+4], %r6;",
)


@pytest.mark.parametrize(
    ("lines", "pairs"),
    [
        (("div.full.f32 %r4, %r0, %r1;", ADD, STORE), ((5, 6),)),
        (
            ("div.full.f32 %r4, %r0, %r1;", ADD, STORE, "mul.f32 %r11, %r10, %r3;", "add.f32 %r12, %r11, %r2;",
             "st.global.b32 [%rd2+8], %r12;"),
            ((5, 6), (8, 9)),
        ),
    ],
)  # fmt: skip
def test_a_quotient_of_literals_is_not_fused(
    ptxas: Ptxas, lines: tuple[str, ...], pairs: tuple[tuple[int, int], ...]
) -> None:
    """ptxas computes the quotient, so that only the machine code shows which products are fused."""
    text = kernel(*QUOTIENT_OF_LITERALS, *lines)
    found = audited(text, ptxas)
    assert (found.method, found.pairs) == (FUSED, rows(*pairs)), found.reason
    module = program(text)
    fusions = [fusion for group in fusable(module, text) for fusion in group]
    assert len(fusions) == len(pairs) + 1
    for chosen in itertools.chain.from_iterable(itertools.combinations(fusions, count) for count in range(1, 4)):
        if [(module.line(each.product), module.line(each.consumer)) for each in chosen] != list(found.pairs):
            other = rewrite(module, text, chosen, division=Division())
            assert list(ptxas.equal_dataflow(text, [(other.text, False)])) == [False]
    assert text_parses_to_module(found.rewriting)
    assert text_parses_to_module(found.rewriting.only_fusions)


def _random_body(seed: int) -> list[str]:
    draw = random.Random(seed)
    lines, values = [], ["%r0", "%r1", "%r2", "%r3"]
    for index in range(10, 10 + draw.randint(4, 14)):
        opcode = draw.choice(["mul", "mul", "mul.rn", "add", "sub", "add.rn", "div.full", "neg"])
        x, y = draw.choice(values), draw.choice(values)
        if opcode == "neg":
            lines.append(f"neg.f32 %r{index}, {x};")
        else:
            lines.append(f"{opcode}.f32 %r{index}, {x}, {y};")
        values.append(f"%r{index}")
    stored = draw.sample(values[4:], draw.randint(1, 3))
    return lines + [f"st.global.b32 [%rd2+{4 * i}], {value};" for i, value in enumerate(stored)]


@pytest.mark.parametrize("seed", range(60))
def test_resolved_texts_have_the_original_machine_code(ptxas: Ptxas, seed: int) -> None:
    """A resolved text has the machine code of the original; a fused one does not have that of the unfused text."""
    text = kernel(*_random_body(seed))
    found = audited(text, ptxas)
    unfused = ptxas.digest(rewrite(program(text), text).text, fuse=False)
    if found.method == FUSED:
        assert unfused != ptxas.digest(text)
        assert "fma.rn" in found.rewriting.text
    elif found.resolved:
        assert "fma" not in found.rewriting.text
        assert unfused == ptxas.digest(text)
    assert text_parses_to_module(found.rewriting)
    assert text_parses_to_module(found.rewriting.only_fusions)


def test_random_kernels_are_resolved_and_line_information_shows_what_is_fused(ptxas: Ptxas) -> None:
    exact, methods = [], []
    for seed in range(60):
        text = kernel(*_random_body(seed))
        found = audited(text, ptxas)
        methods.append(found.method)
        # The machine code without pairs is that of the text with every rounding, as the test above asserts: the line
        # information of a third of these texts is read, since the disassembler takes half a second.
        if found.method == NONE or not (found.pairs or seed % 3 == 0):
            continue
        lines = ptxas.arithmetic_lines(text)
        assert lines is not None
        module = program(text)
        fusions = fusions_of_machine_code(module, text, lines)
        seen = {(module.line(each.product), module.line(each.consumer)) for each in fusions}
        # A product that ptxas computes by itself has the same code fused or not.
        assert seen <= set(found.pairs), seed
        exact += [seen == set(found.pairs)] if found.pairs else []
    assert (exact.count(True), exact.count(False)) == (5, 2)
    assert methods.count(NONE) == 31
    assert methods.count("unresolved") == 0
    assert methods.count(FUSED) == 7


def test_the_object_file_replaces_an_assembly(ptxas: Ptxas) -> None:
    text, other = kernel(MUL, ADD, STORE), kernel(MUL, "add.rn.f32 %r10, %r4, %r2;", STORE)
    found = audited(text, ptxas, ptxas.assemble(text))
    assert (found.method, found.pairs) == (FUSED, rows((0, 1)))
    # the object file decides, even if it was built with other options
    assert audited(text, ptxas, ptxas.assemble(other)).method == EQUAL
    assert audited(text, ptxas, b"nonsense").method == "unresolved"


def test_concurrent_audits_agree_with_serial_ones(ptxas: Ptxas) -> None:
    texts = [kernel(MUL, ADD, STORE), *(kernel(*_random_body(seed)) for seed in range(7))] * 2
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda text: audited(text, ptxas), texts))
    for text, found in zip(texts, together, strict=True):
        alone = audited(text, ptxas)
        assert (found.method, found.pairs, found.rewriting.module) == (
            alone.method, alone.pairs, alone.rewriting.module,
        )  # fmt: skip


def test_a_text_that_ptxas_rejects_is_unresolved(ptxas: Ptxas) -> None:
    found = audited(kernel(MUL, ADD, "no.such.instruction;"), ptxas)
    assert found.method == "unresolved"
    assert found.reason.startswith("ptxas rejects the text: ")
    with pytest.raises(AssemblyFailed, match="rejects"):
        ptxas.digest("nonsense")


def test_a_time_limit_in_the_assembler_names_the_line_of_a_product(
    ptxas: Ptxas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*arguments: object, **options: object) -> str:
        raise TimeLimitExceeded(1.0)

    text = kernel(MUL, ADD, STORE)
    (product, _), *_ = candidates(parse(text, "kernel.ptx"), ARCH.opcodes)
    monkeypatch.setattr(Ptxas, "digest", late)
    with pytest.raises(TimeLimitExceeded, match=f"at line {product};") as raised:
        audited(text, ptxas)
    assert raised.value.line == product


def test_a_search_is_not_repeated_and_its_text_is_proved_again(
    ptxas: Ptxas, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = kernel("div.full.f32 %r4, %r0, %r1;", ADD, "mul.f32 %r11, %r10, %r3;", "add.f32 %r10, %r11, %r2;", STORE)
    first = audited(text, ptxas)
    assert first.resolved
    proved = []
    leaves_choice, compared = audit_module.leaves_choice, Ptxas.digest

    def choice(*arguments: Any) -> bool:
        proved.append("choice")
        return leaves_choice(*arguments)

    def digest(self: Ptxas, each: str, *, fuse: bool = True) -> str:
        proved.append("code")
        return compared(self, each, fuse=fuse)

    monkeypatch.setattr(audit_module, "leaves_choice", choice)
    monkeypatch.setattr(Ptxas, "digest", digest)
    again = audited(text, ptxas)
    assert replace(again, seconds=first.seconds, rewriting=first.rewriting) == first
    assert again.rewriting.text == first.rewriting.text
    assert proved in (["code", "code"], ["choice", "code", "code"])


def test_a_kept_match_that_is_no_proof_is_ignored(ptxas: Ptxas, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = kernel(MUL, ADD, STORE)
    found = program(text)
    stated = rewrite(found, text)
    wrong = next(attempts(stated, candidate_pairs(found), tuple))
    name = hashlib.sha256(wrong.assembled.text.encode()).hexdigest()
    expected = audited(text, ptxas)
    assert expected.method == FUSED
    for answer in (f"{name} False bytes 2", f"{name} False dataflow 2", f"{name} True bytes 2", "nothing", ""):
        monkeypatch.setattr(Ptxas, "kept_match", lambda *_, answer=answer: answer)
        again = audited(text, ptxas)
        assert (again.method, again.pairs, again.rewriting.text) == (
            expected.method,
            expected.pairs,
            expected.rewriting.text,
        )


def test_a_search_that_found_nothing_is_not_repeated(
    ptxas: Ptxas, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = kernel(MUL, ADD, STORE)
    module = parse(text, "kernel.ptx")
    monkeypatch.setattr(assembler_module.installed, "disassemblers", lambda path: ())
    first = audit(module, text, ARCH.opcodes, ptxas=ptxas, runs=2)
    assert (first.method, first.interrupted) == ("unresolved", False)
    assert audited(text, ptxas).method == FUSED, "another limit is another search"
    with monkeypatch.context() as patched:
        patched.setattr(Ptxas, "digest", lambda *_, **__: pytest.fail("assembled"))
        again = audit(module, text, ARCH.opcodes, ptxas=ptxas, runs=2)
    assert replace(again, seconds=first.seconds, rewriting=first.rewriting) == first


def test_a_text_is_assembled_once_for_its_bytes_and_its_dataflow(
    ptxas: Ptxas, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembled = []
    plain = Ptxas._assembled

    def counted(self: Ptxas, text: str, flags: list[str]) -> bytes:
        assembled.append((text, tuple(flags)))
        return plain(self, text, flags)

    monkeypatch.setattr(Ptxas, "_assembled", counted)
    monkeypatch.setattr(assembler_module, "_RECENT", assembler_module._RecentFiles(1 << 20))
    text = kernel("div.full.f32 %r4, %r0, %r1;", ADD, "mul.f32 %r11, %r10, %r3;", "add.f32 %r10, %r11, %r2;", STORE)
    ptxas.digest(text)
    list(ptxas.equal_dataflow(text, [(text, False), (text, True)]))
    assert len(assembled) == len(set(assembled)) == 2
    held = assembler_module._RecentFiles(10)
    for number in range(4):
        held.add(bytes([number]), bytes(4))
    assert [held.get(bytes([number])) for number in range(4)] == [None, None, bytes(4), bytes(4)]


def _random_line(draw: random.Random) -> str:
    """One instruction over a few registers; registers are defined again and again, as in loops."""
    d, a, b, c = (f"%r{draw.randrange(9)}" for _ in range(4))
    literal = draw.choice(("0f3F000000", "0f00000000", "0f80000000", "0fFF800000", "0f40000000"))
    guard = draw.choice(("", "", "", "@%p1 ", "@!%p2 "))
    one = draw.choice((b, literal))
    return guard + draw.choice(
        (
            f"mov.b32 {d}, {one};", f"add.f32 {d}, {a}, {one};", f"sub.f32 {d}, {a}, {one};",
            f"mul.f32 {d}, {a}, {one};", f"mul.rn.f32 {d}, {a}, {one};", f"fma.rn.f32 {d}, {a}, {b}, {c};",
            f"max.f32 {d}, {a}, {one};", f"min.f32 {d}, {a}, {one};", f"neg.f32 {d}, {a};", f"abs.f32 {d}, {a};",
            f"selp.f32 {d}, {a}, {one}, %p1;", f"ex2.approx.f32 {d}, {a};", f"div.full.f32 {d}, {a}, {one};",
            f"setp.eq.f32 %p1, {a}, {one};", "setp.lt.s32 %p2, %r7, 3;", "mov.pred %p1, -1;", "mov.pred %p2, 0;",
            "and.pred %p1, %p1, %p2;", f"ld.global.b32 {d}, [%rd1+8];", f"ld.local.b32 {d}, [%rd4];",
            f"st.local.b32 [%rd4], {a};", f"shfl.sync.bfly.b32 {d}, {a}, 1, 31, -1;", f"and.b32 {d}, {a}, {b};",
            f"cvt.rn.f32.s32 {d}, {a};", f"mad.lo.s32 {d}, {a}, {b}, {c};", f"xor.b32 {d}, {a}, {a};",
        )
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_what_is_derived_of_registers_does_not_depend_on_the_order_of_statements(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference repeats all statements, backwards, until nothing changes."""
    draw = random.Random(seed)

    def settled(found: Program, step: Callable[[int], Iterable[str]]) -> None:
        while sum(len(list(step(index))) for index in reversed(range(len(found.statements)))):
            pass

    for _ in range(20):
        text = kernel("$L1:", *(_random_line(draw) for _ in range(draw.randrange(4, 40))), "@%p1 bra $L1;", STORE)
        fast, plain = Facts(program(text)), Facts(program(text))
        levels, above, pairs = fast.levels, fast.without_upper_bound, candidate_pairs(fast.program)
        with monkeypatch.context() as patched:
            patched.setattr(candidates_module, "_settle", settled)
            assert (levels, above) == (plain.levels, plain.without_upper_bound)
            assert pairs == candidate_pairs(plain.program)
        stated = rewrite(fast.program, text)
        rounded = Facts(Program(stated.module, ARCH.opcodes))
        assert (rounded.levels, rounded.without_upper_bound) == (levels, above)
