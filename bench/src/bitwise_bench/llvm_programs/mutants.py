"""Mutants of compiled programs for gfx942 that the checker calls Equal, judged by executions on bit patterns.

A mutant changes one instruction: its opcode, an operand, a literal, a modifier, or it is left out.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from bitwise_bench.llvm_programs.comparison import ARCHITECTURE, compiled, source_of
from bitwise_bench.llvm_programs.programs import Program, random_program
from bitwise_bench.llvm_programs.values import Array, drawn, same
from bitwise_conformance.suite.time_limit import TimeLimitExceeded, time_limit
from bitwise_core import api
from bitwise_core.checker.analysis import Session
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, buffer_numbers
from bitwise_core.checker.verdicts import Outcome, verdict
from bitwise_core.errors import BitwiseError
from bitwise_core.plugins import registry

ANALYSIS_SECONDS = 20
OPERATIONS = 14
"""The operations of a program, of which most mutants are analysed completely."""
_ATTEMPTS = 50
DRAWS = 4
"""How many inputs an Equal mutant is executed on."""

_ALIKE = """
v_add_f32 v_sub_f32 v_mul_f32 v_max_f32 v_min_f32 v_subrev_f32
v_add_f16 v_sub_f16 v_mul_f16 v_max_f16 v_min_f16
v_add_u32 v_sub_u32 v_subrev_u32 v_and_b32 v_or_b32 v_xor_b32 v_max_i32 v_max_u32 v_min_i32 v_min_u32
v_lshlrev_b32 v_lshrrev_b32 v_ashrrev_i32
v_pk_add_f16 v_pk_mul_f16
v_pk_add_u16 v_pk_sub_i16 v_pk_mul_lo_u16
v_pk_add_f32 v_pk_mul_f32
s_and_b64 s_or_b64 s_xor_b64 s_andn2_b64
s_cbranch_execz s_cbranch_execnz
s_and_saveexec_b64 s_or_saveexec_b64 s_xor_saveexec_b64
v_cvt_f32_u32 v_cvt_f32_i32
v_cvt_u32_f32 v_cvt_i32_f32
v_floor_f32 v_ceil_f32 v_trunc_f32 v_rndne_f32
v_bfe_u32 v_bfe_i32
v_mul_lo_u32 v_mul_hi_u32
v_add_lshl_u32 v_lshl_add_u32 v_add3_u32 v_lshl_or_b32 v_xad_u32 v_and_or_b32 v_or3_b32
v_alignbit_b32 v_perm_b32 v_bfi_b32
global_load_ubyte global_load_sbyte
global_load_ushort global_load_sshort
v_mad_u32_u24 v_mad_i32_i24
v_mul_u32_u24 v_mul_i32_i24
v_add_u16 v_sub_u16 v_mul_lo_u16 v_min_i16 v_max_u16
v_add_f64 v_mul_f64
ds_read_b32 ds_read_i8 ds_read_u16
s_add_i32 s_sub_i32 s_mul_i32 s_and_b32 s_or_b32
"""
"""Opcodes with the same operands, in lines."""
_OTHERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {one: tuple(set(group.split()) - {one}) for group in _ALIKE.splitlines() for one in group.split()}
)
_PARTS = "BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"
_COMPARISONS = "lt", "le", "gt", "ge", "eq"
_INSTRUCTION = re.compile(r"\t([a-z]\w+)\s*([^;]*)")
_ENCODING = re.compile(r"_(e32|e64|dpp|sdwa)$")
_COMPARISON = re.compile(r"(v_cmp_)(lt|le|gt|ge|eq)(_\w+)")
_VECTOR = re.compile(r"v\d+")
_NUMBER = re.compile(r"(?<=, )(-?\d+|0x[0-9a-f]+)(?=,|$)")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed text, and the instruction before and after the change."""

    text: str
    change: str


@dataclass(slots=True)
class Judged:
    """Counts of mutants, and the changes that the checker calls Equal though elements differ."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def mutated(text: str, dice: random.Random) -> Mutant | None:
    """Return a mutant of a text, None where many drawn changes are none."""
    body, end, rest = text.partition("\ts_endpgm")
    lines = body.split("\n")
    places = [place for place, line in enumerate(lines) if _INSTRUCTION.match(line) and "s_load" not in line]
    for _ in range(_ATTEMPTS):
        place = dice.choice(places)
        found = _INSTRUCTION.match(lines[place])
        assert found is not None
        opcode, operands = found[1], found[2].rstrip()
        made = dice.choice(_CHANGES)(opcode, operands, dice)
        if made is not None and made != f"{opcode} {operands}".rstrip():
            lines[place] = f"\t{made}"
            return Mutant("\n".join(lines) + end + rest, f"{opcode} {operands} -> {made}")
    return None


def _other_opcode(opcode: str, operands: str, dice: random.Random) -> str | None:
    encoding = _ENCODING.search(opcode)
    suffix = encoding[0] if encoding else ""
    root = opcode.removesuffix(suffix)
    if comparison := _COMPARISON.fullmatch(root):
        return f"{comparison[1]}{dice.choice(_COMPARISONS)}{comparison[3]}{suffix} {operands}"
    return f"{dice.choice(sorted(_OTHERS[root]))}{suffix} {operands}" if root in _OTHERS else None


def _other_operand(opcode: str, operands: str, dice: random.Random) -> str | None:
    """Exchange two vector registers, or take a neighbour of one; the first operand is a result, but of stores."""
    given = operands.split(", ")
    first = 0 if "_store_" in opcode or opcode.startswith("ds_write") else 1
    places = [place for place, each in enumerate(given) if place >= first and _VECTOR.fullmatch(each)]
    if not places:
        return None
    place, other = dice.choice(places), dice.choice(places)
    if place != other:
        given[place], given[other] = given[other], given[place]
    else:
        given[place] = f"v{max(0, int(given[place][1:]) + dice.choice((-1, 1)))}"
    return f"{opcode} {', '.join(given)}"


def _other_literal(opcode: str, operands: str, dice: random.Random) -> str | None:
    number = _NUMBER.search(operands)
    if number is None:
        return None
    value = int(number[0], 0)
    value = dice.choice((value + 1, value - 1, value ^ 1, value ^ 16))
    shown = str(value) if -16 <= value <= 64 else hex(value & 0xFFFFFFFF)
    return f"{opcode} {operands[: number.start()]}{shown}{operands[number.end() :]}"


def _other_modifier(opcode: str, operands: str, dice: random.Random) -> str | None:
    def flipped(match: re.Match[str]) -> str:
        return f"{match[1]}{1 - int(match[2])}"

    for pattern, change in (
        (r"(op_sel(?:_hi)?:\[|neg_lo:\[|neg_hi:\[)(\d)", flipped),
        (r"(row_mask:0x|bank_mask:0x)\w", lambda match: f"{match[1]}{dice.randrange(16):x}"),
        (r"(row_(?:shl|shr|ror):)\d+", lambda match: f"{match[1]}{dice.randrange(1, 16)}"),
        (r"(quad_perm:\[)\d", lambda match: f"{match[1]}{dice.randrange(4)}"),
        (r"((?:src[01]|dst)_sel:)\w+", lambda match: f"{match[1]}{dice.choice(_PARTS)}"),
        (r" bound_ctrl:\d", lambda match: ""),
        (r"(offset:)(\d+)", lambda match: f"{match[1]}{int(match[2]) ^ dice.choice((1, 2, 4, 8))}"),
    ):
        if re.search(pattern, operands) and dice.random() < 0.7:
            return f"{opcode} {re.sub(pattern, change, operands, count=1)}"
    return None


def _other_sign(opcode: str, operands: str, dice: random.Random) -> str | None:
    form = dice.choice(("-{}", "|{}|"))
    changed = re.sub(r"(?<=, )v\d+", lambda match: form.format(match[0]), operands, count=1)
    return f"{opcode} {changed}"


def _nothing(opcode: str, operands: str, dice: random.Random) -> str | None:
    return None if opcode.startswith(("s_barrier", "s_waitcnt", "s_cbranch", "s_branch", "s_nop")) else "s_nop 0"


_CHANGES = (_other_opcode, _other_opcode, _other_operand, _other_literal, _other_modifier, _other_sign, _nothing)


def judged(seed: int, count: int) -> Judged:
    """Make mutants of a random program, and execute those that the checker calls Equal to it."""
    program, dice, found = random_program(seed, OPERATIONS), random.Random(seed), Judged()
    text = compiled(program)
    session = Session(buffer_numbers({*program.inputs, *program.outputs}), Options())
    original = _analysed(session, program, text)
    if original is None or original.signature is None or original.unknown is not None:
        found.counts["programs that are not analysed"] += 1
        return found
    for _ in range(count):
        mutant = mutated(text, dice)
        if mutant is None:
            continue
        found.counts["mutants"] += 1
        result = _analysed(session, program, mutant.text)
        if result is None or result.unknown is not None:
            found.counts["unknown"] += 1
        elif verdict(original, result, session.options).outcome is Outcome.EQUAL:
            found.counts["Equal"] += 1
            try:
                different = _different(program, text, mutant.text, seed)
            except BitwiseError:
                continue
            found.counts["executed"] += 1
            if different:
                found.wrong.append(f"program {seed}: {mutant.change}: {different}")
    return found


def _analysed(session: Session, program: Program, text: str) -> AnalysisResult | None:
    arch = registry.default().arch(ARCHITECTURE)
    try:
        with time_limit(ANALYSIS_SECONDS):
            return session.analyse(source_of(program, text), arch)
    except TimeLimitExceeded:
        return None


def _different(program: Program, text: str, other: str, seed: int) -> str:
    """Return the name of an output that differs on one of several inputs, or nothing.  Raises BitwiseError."""
    dice = np.random.default_rng(seed)
    for draw in range(DRAWS):
        inputs = {name: (kind, drawn(kind, dice) if draw else given) for name, (kind, given) in program.inputs.items()}
        first, second = (_executed(replace(program, inputs=inputs), each) for each in (text, other))
        for name, (kind, _) in program.outputs.items():
            if not same(first[name], second[name], kind).all():
                return name
    return ""


def _executed(program: Program, text: str) -> dict[str, Array]:
    buffers = {name: content for name, (_, content) in program.inputs.items()}
    buffers |= {name: np.zeros_like(content) for name, (_, content) in program.outputs.items()}
    found = api.run(source_of(program, text), buffers, target=ARCHITECTURE)
    return {name: found[name].view(content.dtype) for name, (_, content) in program.outputs.items()}
