"""What ptxas may fuse, what it did fuse, and the text that says so."""

from __future__ import annotations

import random

import pytest

from bitwise_nvidia_ptx.assembler import AssemblyFailed, Ptxas
from bitwise_nvidia_ptx.contraction import candidates, settle
from bitwise_nvidia_ptx.contraction_rewrite import fusable, rewrite
from bitwise_nvidia_ptx.contraction_scan import scan, without_debug
from contraction_kernels import ADD, FIRST, MUL, STORE, kernel

pytestmark = pytest.mark.usefixtures("cache")
NONE, EQUAL, FUSED = "no candidates", "machine code equal, none contracted", "machine code equal, pairs contracted"


def rows(*pairs: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Lines counted from the first line of the body."""
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
        ((MUL, "shfl.sync.bfly.b32 %r5, %r4, 1, 31, -1;", "add.f32 %r10, %r5, %r2;"), ()),
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
        # a scaled product needs a constant, and the second rounding does not prevent it
        ((MUL, "mul.f32 %r10, %r4, %r2;"), ()),
        ((MUL, "mul.f32 %r10, %r4, 0f3F000000;"), rows((0, 1))),
        ((MUL, "mul.rn.f32 %r10, %r4, 0f3F000000;"), rows((0, 1))),
        (("mul.rn.f32 %r4, %r0, %r1;", "mul.f32 %r10, %r4, 0f3F000000;"), ()),
        (("mov.b32 %r9, 0f40000000;", MUL, "mul.f32 %r10, %r4, %r9;"), rows((1, 2))),
        ((MUL, "div.full.f32 %r10, %r4, 0f40000000;"), rows((0, 1))),
        (("div.full.f32 %r4, %r0, %r1;", "mul.rn.f32 %r10, %r4, 0f40000000;"), rows((0, 1))),
        # behind the branch the compared register is the constant
        (
            ("ld.param.u32 %r8, [n];", "setp.ne.s32 %p1, %r8, 2;", "@%p1 bra $L1;", "cvt.rn.f32.s32 %r9, %r8;", MUL,
             "mul.f32 %r10, %r4, %r9;", "$L1:"),
            rows((4, 5)),
        ),
        # a masked load is no constant
        (("mov.u32 %r9, 0f40000000;", "@%p1 ld.global.b32 %r9, [%rd1+16];", MUL, "mul.f32 %r10, %r4, %r9;"), ()),
        # ptxas squares inside ex2 where it knows that the argument is low, and cannot know it of loaded values
        (("ex2.approx.f32 %r4, %r0;", ADD), ()),
        (("abs.f32 %r5, %r0;", "sub.f32 %r5, 0fC3020000, %r5;", "ex2.approx.f32 %r4, %r5;", ADD), rows((2, 3))),
        (("mul.f32 %r5, %r0, 0f3FB8AA3B;", "ex2.approx.f32 %r4, %r5;", ADD), ()),
        (("mul.lo.s32 %r4, %r0, %r1;", "add.s32 %r10, %r4, %r2;"), ()),
    ],
)  # fmt: skip
def test_candidates(lines: tuple[str, ...], expected: tuple[tuple[int, int], ...]) -> None:
    assert candidates(kernel(*lines)) == expected


def test_scan_reads_labels_scopes_comments_and_debug_sections() -> None:
    text = (
        '.version 8.7\n.file 1 "a;b{.cu"\n.func (.param .b32 r) f(.param .b32 a)\n{\n// add.f32 x, y, z;\n'
        "$L0: @!%p1 add.f32 %r1, %r2, /* ; */ 0f00000000; { .reg .b32 t;\n mov.b32 {%h1, %h2}, t; }\nret;\n}\n"
        ".section .debug_info\n{\n.b8 1; add.f32 %r9, %r9, %r9;\n}\n"
    )
    program = scan(text)
    assert [(s.opcode, s.line, s.guard, s.operands) for s in program.statements] == [
        ("add.f32", 6, "!%p1", ("%r1", "%r2", "0f00000000")),
        ("mov.b32", 7, None, ("{%h1, %h2}", "t")),
        ("ret", 8, None, ()),
    ]
    assert [text[position - 1] for position in program.bodies] == ["{"]
    assert "debug_info" not in without_debug(text)


def test_rewriting_keeps_lines_and_states_every_rounding() -> None:
    text = kernel("mul.ftz.f32 %r4, %r0,\n %r1;", "sub.ftz.sat.f32 %r10, %r2, %r4;", STORE)
    stated = rewrite(scan(text))
    assert stated.count("\n") == text.count("\n")
    assert "mul.rn.ftz.f32 %r4, %r0, %r1" in stated
    assert "sub.rn.ftz.sat.f32 %r10, %r2, %r4" in stated
    fused = rewrite(scan(text), fusable(scan(text))[0])
    assert fused.splitlines()[FIRST + 1] == (
        f"neg.f32 %contraction_product_{len(scan(text).statements) - 3}, %r0; "
        f"fma.rn.ftz.sat.f32 %r10, %contraction_product_{len(scan(text).statements) - 3}, %r1, %r2;"
    )


def test_no_assembler_is_needed_without_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ptxas, "locate", classmethod(lambda *_, **__: pytest.fail("asked for ptxas")))
    settled = settle(kernel("add.f32 %r4, %r0, %r1;", "mul.f32 %r10, %r4, %r2;", STORE), arch="sm_90")
    assert (settled.method, settled.runs, settled.settled) == (NONE, 0, True)
    assert "add.rn.f32" in settled.text
    assert "mul.rn.f32" in settled.text


def test_fusion_off_leaves_no_choice(ptxas: Ptxas) -> None:
    settled = settle(kernel(MUL, ADD, STORE), ptxas=Ptxas.locate("sm_90", path=ptxas.path, fp_fusion=False))
    assert (settled.method, settled.runs) == (NONE, 0)


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
        # the scaled product has no instruction in PTX that says it
        ((MUL, "mul.f32 %r10, %r4, 0f3F000000;", STORE), "unsettled", ()),
        (("div.full.f32 %r4, %r0, %r1;", "mul.rn.f32 %r10, %r4, 0f40000000;", STORE), "unsettled", ()),
        ((MUL, "mul.f32 %r10, %r4, 0f41800000;", STORE), EQUAL, ()),
        (("rcp.approx.f32 %r4, %r0;", ADD, STORE), "unsettled", ()),
    ],
)  # fmt: skip
def test_settle(ptxas: Ptxas, lines: tuple[str, ...], method: str, pairs: tuple[tuple[int, int], ...]) -> None:
    text = kernel(*lines)
    settled = settle(text, ptxas=ptxas, entry="kernel")
    assert (settled.method, settled.pairs) == (method, pairs), settled.reason
    if method == "unsettled":
        assert settled.text == text
        assert f"line {candidates(text)[0][0]}" in settled.reason
    else:
        assert not any(statement.contractible for statement in scan(settled.text).statements)
        assert ptxas.digest(settled.text, fuse=False) == ptxas.digest(text)


def test_one_more_store_changes_what_is_fused(ptxas: Ptxas) -> None:
    """Both texts give the first output the same expression; only one of them rounds its product."""
    once, twice = kernel(MUL, ADD, STORE), kernel(MUL, ADD, STORE, "st.global.b32 [%rd2+4], %r4;")
    assert "fma.rn.f32 %r10" in settle(once, ptxas=ptxas).text
    assert "add.rn.f32 %r10" in settle(twice, ptxas=ptxas).text


def test_a_larger_number_of_uses_of_a_quotient(ptxas: Ptxas) -> None:
    """The mean of a normalisation is subtracted unrounded."""
    uses = [f"sub.f32 %r{10 + i}, %r{i}, %r5; st.global.b32 [%rd2+{4 * i}], %r{10 + i};" for i in range(4)]
    text = kernel("ld.param.u32 %r8, [n];", "cvt.rn.f32.s32 %r9, %r8;", "div.full.f32 %r5, %r0, %r9;", *uses)
    settled = settle(text, ptxas=ptxas)
    assert (settled.method, settled.pairs) == (FUSED, rows((2, 3), (2, 4), (2, 5), (2, 6)))


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
def test_no_settled_text_differs_from_the_machine(ptxas: Ptxas, seed: int) -> None:
    """What is settled has the original's machine code; what says "fused" has not the code of the unfused text."""
    text = kernel(*_random_body(seed))
    settled = settle(text, ptxas=ptxas)
    unfused = ptxas.digest(rewrite(scan(text)), fuse=False)
    if settled.method == FUSED:
        assert unfused != ptxas.digest(text)
        assert "fma.rn" in settled.text
    elif settled.settled:
        assert "fma" not in settled.text
        assert unfused == ptxas.digest(text)


def test_most_random_kernels_are_settled(ptxas: Ptxas) -> None:
    methods: list[str] = [settle(kernel(*_random_body(seed)), ptxas=ptxas).method for seed in range(60)]
    assert methods.count(NONE) == 31
    assert methods.count("unsettled") == 2
    assert methods.count(FUSED) == 5


def test_the_kernels_own_object_file_takes_the_place_of_a_run(ptxas: Ptxas) -> None:
    text, other = kernel(MUL, ADD, STORE), kernel(MUL, "add.rn.f32 %r10, %r4, %r2;", STORE)
    settled = settle(text, ptxas=ptxas, cubin=ptxas.assemble(text))
    assert (settled.method, settled.pairs) == (FUSED, rows((0, 1)))
    # an object file that was made otherwise is believed, not the text
    assert settle(text, ptxas=ptxas, cubin=ptxas.assemble(other)).method == EQUAL
    assert settle(text, ptxas=ptxas, cubin=b"nonsense").method == "unsettled"


def test_text_that_ptxas_refuses_is_unsettled(ptxas: Ptxas) -> None:
    settled = settle(kernel(MUL, ADD, "no.such.instruction;"), ptxas=ptxas)
    assert settled.method == "unsettled"
    assert settled.reason.startswith("ptxas refuses the text: ")
    with pytest.raises(AssemblyFailed, match="refuses"):
        ptxas.digest("nonsense")
