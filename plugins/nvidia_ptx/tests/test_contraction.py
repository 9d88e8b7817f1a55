"""What ptxas may fuse, what it did fuse, and the text that says so."""

from __future__ import annotations

import os
import random
import stat
import threading
from pathlib import Path

import pytest

from bitwise_nvidia_ptx.assembler import AssemblyFailed, Ptxas, PtxasNotFound, code_digest
from bitwise_nvidia_ptx.contraction import candidates, settle
from bitwise_nvidia_ptx.contraction_rewrite import fusable, rewrite
from bitwise_nvidia_ptx.contraction_scan import scan, without_debug

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 p, .param .u64 q, .param .f32 s, .param .u32 n) {
.reg .b64 %rd<8>; .reg .b32 %r<40>; .reg .pred %p<4>; .reg .b16 %h<8>; .reg .b64 %d<8>;
ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; mov.u32 %r39, %tid.x; mul.wide.u32 %rd3, %r39, 16;
add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;
ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd1];
"""
FIRST = HEAD.count("\n") + 1
STORE = "st.global.b32 [%rd2], %r10;"
NONE, EQUAL, FUSED = "no candidates", "machine code equal, none contracted", "machine code equal, pairs contracted"


def kernel(*lines: str) -> str:
    """A kernel whose first given line is line FIRST; %r0 to %r3 are loaded floats, %r10 may be stored by STORE."""
    return HEAD + "\n".join(lines) + "\nret;\n}\n"


def rows(*pairs: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Lines counted from the first line of the body."""
    return tuple((FIRST + product, FIRST + consumer) for product, consumer in pairs)


@pytest.fixture(scope="module")
def ptxas() -> Ptxas:
    try:
        return Ptxas.locate("sm_90")
    except PtxasNotFound as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "bitwise" / "ptxas"


MUL = "mul.f32 %r4, %r0, %r1;"
ADD = "add.f32 %r10, %r4, %r2;"


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


def test_line_information_and_comments_do_not_matter(ptxas: Ptxas) -> None:
    plain = kernel(MUL, ADD, STORE)
    noted = plain.replace(MUL, f".loc 1 3 4\n// a note\n{MUL}").replace(".version", '.file 1 "a.py"\n.version', 1)
    noted = noted.replace('.file 1 "a.py"\n', "", 1)
    assert ptxas.digest(noted) == ptxas.digest(plain)


def test_cache_is_used_and_survives_many_writers(ptxas: Ptxas, cache: Path) -> None:
    text = kernel(MUL, ADD, STORE)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(ptxas.digest(text))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert [path.read_text() for path in kept] == [found[0]]
    assert set(found) == {found[0]}
    kept[0].write_text("0" * 64)
    assert ptxas.digest(text) == "0" * 64
    kept[0].write_text("torn")
    assert ptxas.digest(text) == found[0]


def test_a_missing_assembler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(PtxasNotFound, match="not an executable"):
        Ptxas.locate("sm_90", path=tmp_path / "absent")
    for name in ("BITWISE_PTXAS", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("bitwise_nvidia_ptx.assembler._wheel", lambda _: iter(()))
    with pytest.raises(PtxasNotFound, match="set BITWISE_PTXAS"):
        settle(kernel(MUL, ADD, STORE), arch="sm_90")
    with pytest.raises(ValueError, match="not of the form"):
        Ptxas.locate("hopper")
    with pytest.raises(ValueError, match="give settle the architecture"):
        settle(kernel(MUL, ADD, STORE))
    with pytest.raises(ValueError, match="no entry 'other'"):
        settle(kernel(MUL, ADD, STORE), arch="sm_90", entry="other")


def test_environment_names_the_assembler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.8, V12.8.93'\n")
    os.chmod(tool, tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("BITWISE_PTXAS", str(tool))
    found = Ptxas.locate("sm_90")
    assert (found.path, found.gpu, found.version) == (str(tool), "sm_90a", "12.8.93")


@pytest.mark.parametrize(
    ("version", "arch", "tool", "options"),
    [
        ((3, 6, 0), "sm_90", "ptxas", ()),
        ((3, 6, 0), "sm_100", "ptxas-blackwell", ()),
        ((3, 7, 1), "sm_90", "ptxas", ("--regAllocOptLevel=2",)),
        ((3, 9, 0), "sm_90", "ptxas-blackwell", ("--regAllocOptLevel=2",)),
        ((3, 9, 0), "sm_80", "ptxas", ("--regAllocOptLevel=2",)),
    ],
)
def test_the_tool_and_options_are_those_of_triton(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    version: tuple[int, ...],
    arch: str,
    tool: str,
    options: tuple[str, ...],
) -> None:
    for name in ("BITWISE_PTXAS", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ptxas", "ptxas-blackwell"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr("bitwise_nvidia_ptx.assembler._triton_version", lambda: version)
    monkeypatch.setattr("bitwise_nvidia_ptx.assembler._wheel", lambda name: iter([str(tmp_path / name)]))
    found = Ptxas.locate(arch)
    assert (found.path, found.options) == (str(tmp_path / tool), options)


def test_code_digest_refuses_what_is_no_object_file() -> None:
    with pytest.raises(AssemblyFailed, match="64-bit ELF"):
        code_digest(b"")


SCALED = (
    "abs.f32 %r4, %r0;", "abs.f32 %r5, %r1;",
    "setp.gt.f32 %p1, %r4, 0f7E800000;", "setp.geu.f32 %p2, %r5, 0f00800000;",
    "selp.f32 %r6, %r2, %r3, %p1;", "@!%p2 mul.rn.f32 %r6, %r6, 0f4B800000;", "rcp.approx.ftz.f32 %r7, %r6;",
    "selp.f32 %r8, %r3, %r2, %p1;", "@!%p2 mul.rn.f32 %r8, %r8, 0f4B800000;", "mul.rn.f32 %r10, %r7, %r8;", STORE,
)  # fmt: skip


def test_names_of_predicates_are_set_aside(ptxas: Ptxas) -> None:
    text = kernel(*SCALED)
    other = kernel(*SCALED[:2], SCALED[3], SCALED[2], *SCALED[4:])
    assert ptxas.digest(text) != ptxas.digest(other)
    assert ptxas.like(text, other)
    assert ptxas.like(ptxas.assemble(text), other)
    assert ptxas.like(text, text)


@pytest.mark.parametrize(
    ("place", "old", "new"),
    [
        (0, "%r0", "%r1"),
        (2, "gt", "ge"),
        (2, "0f7E800000", "0f7E800001"),
        (2, "%p1", "%p2"),
        (4, "%p1", "%p2"),
        (4, "%r2", "%r3"),
        (5, "@!%p2", "@%p2"),
        (5, "@!%p2", "@!%p1"),
        (7, "%p1", "%p2"),
        (8, "@!%p2", "@!%p1"),
        (8, "@!%p2", ""),
        (9, "rn", "rz"),
        (10, "%r10", "%r8"),
    ],
)
def test_a_changed_operand_is_other_machine_code(ptxas: Ptxas, place: int, old: str, new: str) -> None:
    swapped = [*SCALED[:2], SCALED[3], SCALED[2], *SCALED[4:]]
    changed = [line.replace(old, new) if line == SCALED[place] else line for line in swapped]
    assert changed != swapped
    assert not ptxas.like(kernel(*SCALED), kernel(*changed))


def test_without_a_disassembler_names_are_not_set_aside(ptxas: Ptxas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ptxas, "_disassembler", lambda _: None)
    assert not ptxas.like(kernel(*SCALED), kernel(*SCALED))
