"""The gfx942 operations of the adversary.

In a text, @ is the destination, $0 is the first operand; lines are separated by semicolons.  A text writes all bits of
its destination before it reads any: an instruction that keeps a part of the register follows a move.  The high half of
an f16 and of an i16 is zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from bitwise_bench.adversary.instruction_sets.vocabulary import Spec, vocabulary

IMMEDIATES = MappingProxyType(
    {
        "#shift": ("0", "1", "8", "15", "16", "24", "31"),
        "#length": ("0", "1", "8", "16", "31"),
        "#places": ("0", "1", "7", "8", "15"),
        "#row": ("row_shr:1", "row_shl:1", "row_ror:8", "quad_perm:[1,0,3,2]", "row_half_mirror", "row_mirror"),
    }
)
"""The immediates of each kind."""


def _spec(key: str, operands: tuple[str, ...], result: str, family: str, text: str | None = None) -> Spec:
    return Spec(key, operands, result, text or f"{key} @, {', '.join(f'${n}' for n in range(len(operands)))}",
                family=family)  # fmt: skip


def _floats() -> Iterator[Spec]:
    for kind in ("f32", "f16"):
        for verb in ("add", "sub", "subrev", "mul"):
            yield _spec(f"v_{verb}_{kind}_e32", (kind, kind), kind, f"{kind} arithmetic")
            name = f"v_{verb}_{kind}_e64"
            for key, text in (("minus", "-$0, $1"), ("size", "$0, |$1|"), ("clamp", "$0, $1 clamp")):
                yield _spec(f"{name} {key}", (kind, kind), kind, f"{kind} modifiers", f"{name} @, {text}")
        # These instructions keep the high half of the register.
        three = (kind, kind, kind)
        cleared = "v_mov_b32_e32 @, 0; " if kind == "f16" else ""
        for key, text in (("", "$0, $1, $2"), (" minus", "-$0, $1, $2"), (" minus sum", "$0, $1, -$2"),
                          (" clamp", "$0, $1, $2 clamp")):  # fmt: skip
            yield _spec(f"v_fma_{kind}{key}", three, kind, f"{kind} fma", f"{cleared}v_fma_{kind} @, {text}")
        for verb in ("min3", "max3", "med3"):
            text = f"{cleared}v_{verb}_{kind} @, $0, $1, $2"
            yield _spec(f"v_{verb}_{kind}", three, kind, f"{kind} extremum", text)
        for verb in ("min", "max"):
            yield _spec(f"v_{verb}_{kind}_e32", (kind, kind), kind, f"{kind} extremum")
            name = f"v_{verb}_{kind}_e64"
            yield _spec(f"{name} minus", (kind, kind), kind, f"{kind} modifiers", f"{name} @, -$0, -$1")
        for verb in ("rndne", "trunc", "floor", "ceil"):
            yield _spec(f"v_{verb}_{kind}_e32", (kind,), kind, f"{kind} rounding")
    text = "v_mov_b32_e32 @, $2; v_fmac_f32_e32 @, $0, $1"
    yield _spec("v_fmac_f32_e32", ("f32", "f32", "f32"), "f32", "f32 fma", text)
    yield _spec("v_ldexp_f32", ("f32", "i32"), "f32", "f32 arithmetic")
    for verb in ("add", "mul", "min", "max"):
        name = f"v_pk_{verb}_f16"
        yield _spec(name, ("h2", "h2"), "h2", "h2 arithmetic")
        for key, text in (("swapped", "op_sel:[0,1] op_sel_hi:[1,0]"), ("minus", "neg_lo:[1,0] neg_hi:[1,0]"),
                          ("low", "op_sel_hi:[0,1]")):  # fmt: skip
            yield _spec(f"{name} {key}", ("h2", "h2"), "h2", "h2 modifiers", f"{name} @, $0, $1 {text}")
    yield _spec("v_pk_fma_f16", ("h2", "h2", "h2"), "h2", "h2 arithmetic")
    yield _spec("v_ldexp_f16_e32", ("f16", "i16"), "f16", "f16 arithmetic")
    for verb in ("fma", "min3", "max3", "med3"):
        for key, text in (("low", ""), ("high", " op_sel:[0,0,0,1]")):
            yield _spec(f"v_{verb}_f16 {key}", ("f16", "f16", "f16", "h2"), "h2", "halves kept",
                        f"v_mov_b32_e32 @, $3; v_{verb}_f16 @, $0, $1, $2{text}")  # fmt: skip


def _integers() -> Iterator[Spec]:
    pair = ("i32", "i32")
    for opcode in ("v_add_u32_e32", "v_sub_u32_e32", "v_subrev_u32_e32"):
        yield _spec(opcode, pair, "i32", "i32 linear")
    for opcode in ("v_and_b32_e32", "v_or_b32_e32", "v_xor_b32_e32", "v_xnor_b32_e32"):
        yield _spec(opcode, pair, "i32", "i32 logic")
    yield _spec("v_not_b32_e32", ("i32",), "i32", "i32 logic")
    for opcode in ("v_min_i32_e32", "v_max_i32_e32", "v_min_u32_e32", "v_max_u32_e32", "v_mul_lo_u32", "v_mul_hi_u32",
                   "v_mul_hi_i32", "v_mul_u32_u24_e32", "v_mul_i32_i24_e32", "v_mul_hi_u32_u24_e32",
                   "v_mul_hi_i32_i24_e32"):  # fmt: skip
        yield _spec(opcode, pair, "i32", "i32 arithmetic")
    for opcode in ("v_lshlrev_b32_e32", "v_lshrrev_b32_e32", "v_ashrrev_i32_e32"):
        yield _spec(opcode, ("i32", "#shift"), "i32", "i32 shift", f"{opcode} @, $1, $0")
        yield _spec(f"{opcode} by", pair, "i32", "i32 shift", f"{opcode} @, $1, $0")
    for opcode in ("v_bfe_u32", "v_bfe_i32"):
        yield _spec(opcode, ("i32", "#shift", "#length"), "i32", "i32 shift", f"{opcode} @, $0, $1, $2")
    yield _spec("v_alignbit_b32", ("i32", "i32", "#shift"), "i32", "i32 shift")
    for opcode, family in (("v_bfi_b32", "i32 logic"), ("v_and_or_b32", "i32 logic"), ("v_or3_b32", "i32 logic"),
                           ("v_perm_b32", "i32 logic"), ("v_add3_u32", "i32 linear"), ("v_xad_u32", "i32 linear"),
                           ("v_max3_i32", "i32 arithmetic"), ("v_min3_i32", "i32 arithmetic"),
                           ("v_max3_u32", "i32 arithmetic"), ("v_med3_u32", "i32 arithmetic"),
                           ("v_min3_u32", "i32 arithmetic"), ("v_med3_i32", "i32 arithmetic"),
                           ("v_mad_u32_u24", "i32 arithmetic"), ("v_mad_i32_i24", "i32 arithmetic")):  # fmt: skip
        yield _spec(opcode, ("i32", "i32", "i32"), "i32", family)
    yield _spec("v_lshl_add_u32", ("i32", "#shift", "i32"), "i32", "i32 linear")
    yield _spec("v_add_lshl_u32", ("i32", "i32", "#shift"), "i32", "i32 linear")
    yield _spec("v_lshl_or_b32", ("i32", "#shift", "i32"), "i32", "i32 logic")
    for opcode in ("v_bfrev_b32_e32", "v_ffbh_u32_e32", "v_ffbl_b32_e32", "v_ffbh_i32_e32"):
        yield _spec(opcode, ("i32",), "i32", "i32 counts")
    yield _spec("v_bcnt_u32_b32", pair, "i32", "i32 counts")


def _halfwords() -> Iterator[Spec]:
    pair, three = ("i16", "i16"), ("i16", "i16", "i16")
    for verb in ("add", "sub", "subrev", "mul_lo", "min", "max"):
        yield _spec(f"v_{verb}_u16_e32", pair, "i16", "i16 arithmetic")
    for verb in ("min", "max"):
        yield _spec(f"v_{verb}_i16_e32", pair, "i16", "i16 arithmetic")
    for verb in ("add", "sub"):
        yield _spec(f"v_{verb}_u16_e64 clamp", pair, "i16", "i16 arithmetic", f"v_{verb}_u16_e64 @, $0, $1 clamp")
    for opcode in ("v_lshlrev_b16_e32", "v_lshrrev_b16_e32", "v_ashrrev_i16_e32"):
        yield _spec(opcode, ("i16", "#places"), "i16", "i16 shift", f"{opcode} @, $1, $0")
        yield _spec(f"{opcode} by", pair, "i16", "i16 shift", f"{opcode} @, $1, $0")
    for kind in ("i16", "u16"):
        yield _spec(f"v_mad_legacy_{kind}", three, "i16", "i16 arithmetic")
        keeping: dict[str, tuple[str, ...]] = {f"v_{verb}_{kind}": three for verb in ("mad", "min3", "max3", "med3")}
        if kind == "i16":
            keeping |= {"v_add_i16": pair, "v_sub_i16": pair}
        for opcode, operands in keeping.items():
            given = ", ".join(f"${number}" for number in range(len(operands)))
            last = len(operands)
            yield _spec(opcode, operands, "i16", "i16 kept", f"v_mov_b32_e32 @, 0; {opcode} @, {given}")
            text = f"v_mov_b32_e32 @, ${last}; {opcode} @, {given}"
            yield _spec(f"{opcode} low", (*operands, "i32"), "i32", "halves kept", text)
            chosen = ",".join("0" for _ in operands)
            yield _spec(f"{opcode} high", (*operands, "i32"), "i32", "halves kept", f"{text} op_sel:[{chosen},1]")
        for verb in ("add", "sub", "min", "max"):
            opcode = f"v_pk_{verb}_{kind}"
            yield _spec(opcode, ("i32", "i32"), "i32", "i16 pairs")
            text = f"{opcode} @, $0, $1 op_sel:[0,1] op_sel_hi:[1,0]"
            yield _spec(f"{opcode} swapped", ("i32", "i32"), "i32", "i16 pairs", text)
        yield _spec(f"v_pk_mad_{kind}", ("i32", "i32", "i32"), "i32", "i16 pairs")
    for opcode in ("v_pk_mul_lo_u16", "v_pk_lshlrev_b16", "v_pk_lshrrev_b16", "v_pk_ashrrev_i16"):
        yield _spec(opcode, ("i32", "i32"), "i32", "i16 pairs")
    yield _spec("low i16", ("i32",), "i16", "halves", "v_and_b32_e32 @, 0xffff, $0")
    yield _spec("high i16", ("i32",), "i16", "halves", "v_lshrrev_b32_e32 @, 16, $0")
    yield _spec("or halves i16", ("i16", "i16"), "i32", "halves", "v_lshl_or_b32 @, $1, 16, $0")
    for operator in ("lt", "le", "gt", "ge", "eq", "ne"):
        for kind in ("i16", "u16"):
            yield _spec(f"v_cmp_{operator}_{kind}_e64", pair, "p", "comparison")


def _selected() -> Iterator[Spec]:
    """Operations whose encoding selects halves and bytes of operands or results."""
    padded, kept = "dst_unused:UNUSED_PAD", "dst_unused:UNUSED_PRESERVE"
    halves = "src0_sel:WORD_0 src1_sel:WORD_1"
    yield _spec(
        "v_add_f16_sdwa", ("h2", "h2"), "f16", "selected", f"v_add_f16_sdwa @, $0, $1 dst_sel:DWORD {padded} {halves}"
    )
    text = f"v_mov_b32_e32 @, $2; v_add_f16_sdwa @, $0, $1 dst_sel:WORD_1 {kept} {halves}"
    yield _spec("v_add_f16_sdwa high", ("h2", "h2", "h2"), "h2", "selected", text)
    text = f"v_or_b32_sdwa @, $0, $1 dst_sel:DWORD {padded} src0_sel:WORD_0 src1_sel:BYTE_1"
    yield _spec("v_or_b32_sdwa", ("i32", "i32"), "i32", "selected", text)
    text = f"v_mov_b32_e32 @, $1; v_mov_b32_sdwa @, $0 dst_sel:WORD_1 {kept} src0_sel:WORD_0"
    yield _spec("v_mov_b32_sdwa", ("i32", "i32"), "i32", "selected", text)
    for kind, name, sources, text in (
        ("f32", "fff", ("f32", "f32", "f32"), ""),
        ("f32", "hhf", ("h2", "h2", "f32"), " op_sel_hi:[1,1,0]"),
        ("f32", "tbf", ("h2", "h2", "f32"), " op_sel:[1,0,0] op_sel_hi:[1,1,0]"),
        ("f32", "ttt", ("h2", "h2", "h2"), " op_sel:[1,1,1] op_sel_hi:[1,1,1]"),
    ):
        given = "$0, $1, $2"
        yield _spec(f"v_fma_mix_f32 {name}", sources, kind, "mixed", f"v_fma_mix_f32 @, {given}{text}")
        yield _spec(f"v_fma_mixlo_f16 {name}", sources, "f16", "mixed",
                    f"v_mov_b32_e32 @, 0; v_fma_mixlo_f16 @, {given}{text}")  # fmt: skip
        yield _spec(f"v_fma_mixhi_f16 {name}", (*sources, "h2"), "h2", "mixed",
                    f"v_mov_b32_e32 @, $3; v_fma_mixhi_f16 @, {given}{text}")  # fmt: skip
    yield _spec("v_dot4_i32_i8", ("i32", "i32", "i32"), "i32", "mixed")
    for key, text in (("low", ""), ("high", " op_sel:[0,0,1]")):
        yield _spec(f"v_cvt_pk_fp8_f32 {key}", ("f32", "f32", "i32"), "i32", "fp8",
                    f"v_mov_b32_e32 @, $2; v_cvt_pk_fp8_f32 @, $0, $1{text}")  # fmt: skip
    for kind in ("fp8", "bf8"):
        for byte in range(4):
            text = f"v_cvt_f32_{kind}_sdwa @, $0 src0_sel:BYTE_{byte}"
            yield _spec(f"v_cvt_f32_{kind} {byte}", ("i32",), "f32", "fp8", text)


def _conversions() -> Iterator[Spec]:
    for opcode, source, to in (("v_cvt_f32_f16_e32", "f16", "f32"), ("v_cvt_f16_f32_e32", "f32", "f16"),
                               ("v_cvt_f32_i32_e32", "i32", "f32"), ("v_cvt_f32_u32_e32", "i32", "f32"),
                               ("v_cvt_i32_f32_e32", "f32", "i32"), ("v_cvt_u32_f32_e32", "f32", "i32"),
                               ("v_cvt_f32_ubyte0_e32", "i32", "f32"), ("v_cvt_f32_ubyte1_e32", "i32", "f32"),
                               ("v_cvt_f32_ubyte2_e32", "i32", "f32"), ("v_cvt_f32_ubyte3_e32", "i32", "f32"),
                               ("v_cvt_f16_u16_e32", "i16", "f16"), ("v_cvt_f16_i16_e32", "i16", "f16"),
                               ("v_cvt_u16_f16_e32", "f16", "i16"), ("v_cvt_i16_f16_e32", "f16", "i16")):  # fmt: skip
        yield _spec(opcode, (source,), to, "conversion")
    text = "v_cvt_f32_f16_sdwa @, $0 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1"
    yield _spec("v_cvt_f32_f16_sdwa", ("h2",), "f32", "halves", text)
    yield _spec("v_pack_b32_f16", ("f16", "f16"), "h2", "halves")
    yield _spec("low", ("h2",), "f16", "halves", "v_and_b32_e32 @, 0xffff, $0")
    yield _spec("high", ("h2",), "f16", "halves", "v_lshrrev_b32_e32 @, 16, $0")
    yield _spec("swap", ("h2",), "h2", "halves", "v_alignbit_b32 @, $0, $0, 16")
    yield _spec("or halves", ("f16", "f16"), "h2", "halves", "v_lshl_or_b32 @, $1, 16, $0")
    yield _spec("bf16 high", ("i32",), "f32", "halves", "v_and_b32_e32 @, 0xffff0000, $0")
    yield _spec("bf16 low", ("i32",), "f32", "halves", "v_lshlrev_b32_e32 @, 16, $0")
    for source in ("f32", "i32", "h2"):
        for to in ("f32", "i32", "h2"):
            if source != to:
                yield _spec(f"as {source} {to}", (source,), to, "views", "v_mov_b32_e32 @, $0")
    yield _spec("v_cvt_pkrtz_f16_f32", ("f32", "f32"), "h2", "halves")
    for source, to in (("f16", "i16"), ("i16", "f16")):
        yield _spec(f"as {source} {to}", (source,), to, "views", "v_mov_b32_e32 @, $0")
    yield _spec("as f16 i32", ("f16",), "i32", "views", "v_mov_b32_e32 @, $0")
    yield _spec("as i32 f16", ("i32",), "f16", "views", "v_and_b32_e32 @, 0xffff, $0")


def _choices() -> Iterator[Spec]:
    for kind in ("f32", "f16", "i32", "h2", "i16"):
        text = "v_cndmask_b32_e64 @, $1, $0, $2"
        yield _spec(f"selp {kind}", (kind, kind, "p"), kind, "choice", text)
    for kind in ("f32", "f16"):
        for operator in ("lt", "le", "gt", "ge", "eq", "lg", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt"):
            yield _spec(f"v_cmp_{operator}_{kind}_e64", (kind, kind), "p", "comparison")
    for kind in ("i32", "u32"):
        for operator in ("lt", "le", "gt", "ge", "eq", "ne"):
            yield _spec(f"v_cmp_{operator}_{kind}_e64", ("i32", "i32"), "p", "comparison")
    for verb in ("and", "or", "xor", "andn2", "xnor"):
        yield _spec(f"s_{verb}_b64", ("p", "p"), "p", "predicates")
    yield _spec("s_not_b64", ("p",), "p", "predicates")


def _lanes() -> Iterator[Spec]:
    for kind in ("f32", "i32", "h2"):
        text = "s_nop 1; v_mov_b32_e32 @, $0; s_nop 1; v_mov_b32_dpp @, $0 $1 row_mask:0xf bank_mask:0xf"
        yield Spec(f"dpp {kind}", (kind, "#row"), kind, text, family="lanes", crosses=True)
    text = "v_mov_b32_e32 @, $0; s_nop 1; v_add_f32_dpp @, $0, $1 row_shr:1 row_mask:0xf bank_mask:0xf"
    yield Spec("dpp add", ("f32", "f32"), "f32", text, family="lanes", crosses=True)


LEAVES = MappingProxyType(
    {"f32": ("fp32", 4), "f16": ("fp16", 4), "i32": ("u32", 4), "h2": ("fp16", 4), "i16": ("u16", 4)}
)
"""The element type of the buffer of each kind of loaded value, and the number of loaded values in each thread."""

GFX942_WORDS = vocabulary(
    (each for make in (_floats, _integers, _halfwords, _selected, _conversions, _choices, _lanes) for each in make()),
    IMMEDIATES,
    LEAVES,
)
"""The operations of gfx942."""
