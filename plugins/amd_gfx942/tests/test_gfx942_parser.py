"""The parser: truncated, malformed or foreign files raise AssemblyError with one sentence, and nothing else."""

from __future__ import annotations

import random
import re

import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_core.assembly.module import AssemblyError, Immediate, Modified, Module, Register, Symbol, Vector
from gfx942_kernels import reading, text_of

BODY = """v_fma_f32 v5, -v2, |v3|, -|v4|
v_mov_b32_dpp v5, v2 quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf
s_mov_b64 s[20:21], 0
ds_write2_b32 v1, v2, v3 offset0:2 offset1:4
s_cmp_eq_u32 s20, 0
s_cbranch_scc1 .LEND
v_add_u32_e32 v5, 0x100, v5
.LEND:
v_mul_f32_e32 v5, 0.15915494, v5"""
TEXT = text_of(BODY)


def parse(text: str) -> Module:
    return GFX942.parse(text, "kernel.amdgcn")


def error_of(text: str) -> str:
    with pytest.raises(AssemblyError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_operands_and_modifiers() -> None:
    kernel = parse(TEXT).kernel("kernel")
    by_name = {each.opcode.split(".")[0]: each for each in kernel.instructions}
    changed = by_name["v_fma_f32"].operands
    assert changed[1] == Modified(Register("v2"), ("neg",))
    assert changed[3] == Modified(Register("v4"), ("abs", "neg"))
    assert by_name["v_mov_b32_dpp"].opcode == "v_mov_b32_dpp.quad_perm:[2,3,0,1].row_mask:0xf.bank_mask:0xf"
    assert by_name["s_mov_b64"].operands == (Vector((Register("s20"), Register("s21"))), Immediate(0))
    assert by_name["s_cbranch_scc1"].operands == (Symbol(".LEND"),)
    assert kernel.instructions[kernel.labels[".LEND"]].opcode == "v_mul_f32_e32"
    assert kernel.instructions[kernel.labels[".LEND"]].operands[1] == Immediate(0x3FC45F306DC9C882, "f64")
    assert [each.pointer for each in kernel.parameters] == [True] * 4


@pytest.mark.parametrize("target", ["gfx90a", "gfx950", "gfx1100", "gfx908:sramecc+:xnack-"])
def test_other_target_is_rejected(target: str) -> None:
    other = TEXT.replace("--gfx942", f"--{target}")
    message = reading(BODY, text=other).unknown or ""
    assert (
        message == f"kernel.amdgcn: is for the target {target.split(':')[0]}, but the requested architecture is gfx942"
    )


def test_target_spellings() -> None:
    later = TEXT.replace("amdgcn-amd-amdhsa--gfx942", "amdgpu9.42-amd-amdhsa-unknown-gfx942")
    assert parse(later).target == "gfx942"
    assert parse(TEXT.replace('gfx942"', 'gfx942:sramecc+:xnack-"', 1)).target == "gfx942"


PTX = """//
.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel() { ret; }
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "kernel.amdgcn:1: the file does not begin with its target"),
        (PTX, "kernel.amdgcn:1: the file does not begin with its target"),
        ("\x7fELF\x02\x01", "kernel.amdgcn:1: the file does not begin with its target"),
        (
            TEXT.split("s_endpgm")[0],
            "kernel.amdgcn:26: the file is truncated or has no kernel: .amdhsa_kernel is missing",
        ),
        (
            TEXT.split("\t\t.amdhsa_ieee")[0],
            "the file is truncated inside a kernel descriptor: .end_amdhsa_kernel is missing",
        ),
        (TEXT.split("\t.end_amdgpu")[0], "the file is truncated inside the metadata: .end_amdgpu_metadata is missing"),
        (TEXT.split("\t.amdgpu_metadata")[0], "the metadata has no entry for the kernel kernel"),
        (TEXT.replace("\ts_endpgm\n", ""), "its last instruction neither ends the program nor branches"),
        (TEXT.replace("v_add_u32_e32 v5", "v_add_u32_e32 v256"), "there is no register v256"),
        (TEXT.replace("s[20:21]", "s[21:20]"), "s[21:20] is not a range of registers"),
        (TEXT.replace("s[20:21]", "s[20:21"), "a bracket is not closed"),
        (TEXT.replace("0x100", "0x100z"), "'0x100z' is not an operand"),
        (TEXT.replace(".LEND:\n", ""), "s_cbranch_scc1 takes a label of kernel as its operand"),
        (TEXT.replace("quad_perm:[2,3,0,1] row", "quad perm row"), "'quad' is not a modifier of v_mov_b32_dpp"),
        (TEXT.replace("v_fma_f32 v5", "V_FMA!! v5"), "is not an instruction"),
        (TEXT.replace("\ts_endpgm\n", "\ts_endpgm\n.LEND:\n"), "the label .LEND is defined twice"),
        (TEXT.replace("0.15915494", "0.7"), "0.7 is not an inline constant"),
        (TEXT.replace("kernarg_size 32", "kernarg_size 99999999999"), "99999999999, which is out of range"),
        (TEXT.replace("user_sgpr_count 2", "user_sgpr_count " + "9" * 5000), "which is out of range"),
        (
            TEXT.replace(".offset:         8", ".offset:         99999999999"),
            "is beyond the maximum size of a kernarg segment",
        ),
        (TEXT.replace(".offset:         8", ".offset:         " + "9" * 5000), "has no offset or no size"),
        (TEXT.replace("\ts_endpgm\n", "\t.loc 1 " + "9" * 5000 + " 1\n\ts_endpgm\n"), "is not a valid source location"),
    ],
)
def test_malformed_files_are_rejected(text: str, message: str) -> None:
    assert message in error_of(text)


@pytest.mark.parametrize(
    "directive",
    [".long 0x7e0a0303", ".byte 1", ".fill 1, 4, 0", ".p2align 8, 0", ".p2align 8, 0, 4", ".rept 2", ".if 0"],
)
def test_directive_that_may_emit_instructions_is_rejected(directive: str) -> None:
    word = directive.split()[0]
    message = error_of(text_of(f"v_mov_b32_e32 v5, v2\n{directive}"))
    assert message.endswith(f"the directive {word} is inside a function, where it may emit instructions")
    assert parse(text_of("v_mov_b32_e32 v5, v2\n.p2align 8\n.p2align 5, , 4\n.cfi_def_cfa s0, 0")).kernels
    assert parse(TEXT.replace("\t.amdgpu_metadata", f"\t.section .rodata\n{directive}\n\t.amdgpu_metadata")).kernels


@pytest.mark.parametrize("line", ["\t.long 0x7e0a0303", "\t.byte\t1                               ; Abbreviation Code"])
def test_data_that_was_passed_outside_of_a_function_is_rejected_inside(line: str) -> None:
    outside = TEXT.replace("\t.amdgpu_metadata", f"\t.section .debug_abbrev\n{line}\n{line}\n\t.amdgpu_metadata")
    for _ in range(2):
        assert parse(outside).kernels == parse(TEXT).kernels
        assert "is inside a function" in error_of(TEXT.replace("\ts_endpgm\n", f"{line}\n\ts_endpgm\n"))


def test_comments_are_passed_wherever_they_are() -> None:
    comment = "; .byte 1 v_mov_b32_e32 v5, v2"
    text = TEXT.replace("\ts_endpgm\n", f"{comment}\n\ts_endpgm\n") + f"{comment}\n"
    for _ in range(2):
        assert [each.opcode for each in parse(text).kernels[0].instructions] == [
            each.opcode for each in parse(TEXT).kernels[0].instructions
        ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("v_frobnicate_b32 v5, v2", "the instruction v_frobnicate_b32 is not modelled"),
        ("v_add_f32_e64 v5, v2, v3 mul:3", "has the modifier mul:3, which is not modelled"),
        ("v_max_f32_e64 v5, v2, v3 mul:2", "has the modifier mul, which is not modelled"),
        ("v_mov_b32_dpp v5, v2 row_shr:16 row_mask:0xf bank_mask:0xf", "has the control row_shr"),
        ("v_add_u32_e32 v5, v2", "has 2 operands and takes 3"),
        *((f"{name} s20", "does not take these operands") for name in ("s_bitcmp1_b32", "s_bitset1_b32", "v_swap_b32")),
        *(
            (name, "does not take these operands")
            for name in (
                "buffer_load_dword",
                "v_readlane_b32",
                "v_div_scale_f32",
                "scratch_load_dword",
                "ds_bpermute_b32",
                "ds_swizzle_b32",
                "v_pk_mov_b32",
                "v_cmp_class_f32_e32",
            )
        ),
        ("ds_read_b32 v5, v1 offset:-4", "has an offset that does not fit 16 bits"),
        ("ds_read2_b32 v[6:7], v1 offset1:256", "has an offset1 that does not fit 8 bits"),
        ("ds_bpermute_b32 v5, v1, v2 offset:65536", "has an offset that does not fit 16 bits"),
        ("buffer_load_dword v5, v1, s[8:11], 0 offen offset:4096", "has an offset that does not fit 12 bits"),
        ("global_load_dword v5, v1, s[10:11] offset:-4097", "has an offset that does not fit 13 bits"),
        ("scratch_load_dword v5, off, off offset:4096", "has an offset that does not fit 13 bits"),
        ("s_waitcnt vmcnt(" + "9" * 5000 + ")\nv_frobnicate_b32 v5, v2", "v_frobnicate_b32 is not modelled"),
        ("v_add_u32_e32 v5, v2, v[2:3]", "takes 32 bits and is given 2 registers"),
        ("v_mov_b32_e32 v5, ttmp3", "ttmp3"),
        ("ds_add_rtn_u32 v1, v2, v3", "is an atomic operation on shared memory"),
        ("ds_add_f32 v1, v2", "is an atomic operation on shared memory"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 0", "changes the mode, which is not modelled"),
        ("buffer_load_dword v5, v1, s[8:11], 0 idxen", "has the modifier idxen, which is not modelled"),
        ("global_load_dword v5, v1, s[10:11] lds", "has the modifier lds, which is not modelled"),
        ("v_mov_b32_sdwa v5, v2 dst_sel:NIBBLE_1 dst_unused:UNUSED_PAD src0_sel:DWORD", "selects NIBBLE_1"),
    ],
)
def test_unmodelled_instruction_is_named(line: str, message: str) -> None:
    """The analysis is Unknown with the instruction as the reason, or the file is rejected."""
    assert message in (reading(line).unknown or "")


def test_mutated_files_raise_only_assembly_errors() -> None:
    """Lines deleted, repeated, truncated or with words replaced: each file is analysed or rejected in one sentence."""
    generator = random.Random(7)
    words = sorted(set(re.findall(r"[\w.\[\]:]+", TEXT)) | {"-1", "v[0:3]", "exec", "vcc", "clamp", "0x", "}", "|v1|"})
    lines = TEXT.split("\n")
    for _ in range(300):
        changed = list(lines)
        for _ in range(generator.randint(1, 3)):
            place = generator.randrange(len(changed))
            kind = generator.randrange(6)
            if kind == 0:
                del changed[place]
            elif kind == 1:
                changed.insert(generator.randrange(len(changed)), changed[place])
            elif kind == 2:
                changed[place] = changed[place][: generator.randrange(len(changed[place]) + 1)]
            elif kind == 3:
                del changed[place:]
                changed.append("")
            else:
                parts = changed[place].split(" ")
                parts[generator.randrange(len(parts))] = generator.choice(words)
                changed[place] = " ".join(parts)
        found = reading(BODY, text="\n".join(changed))
        assert "internal error" not in (found.unknown or ""), f"{found.unknown}: {changed}"
        assert "\n" not in (found.unknown or "")


def test_the_call_chain_of_an_inlined_line() -> None:
    lines = (
        '\t.file 1 "/src" "kernel.py"\n\t.file 2 "/lib" "standard.py"\n'
        "\t.loc 2 170 27 ; standard.py:170:27 @[ standard.py:191:40 @[ kernel.py:26:35 ] ]\n\ts_endpgm\n"
    )
    last = parse(TEXT.replace("\ts_endpgm\n", lines)).kernel().instructions[-1]
    assert last.source is not None
    assert last.source.chain == ("kernel.py:26", "standard.py:191", "standard.py:170")
