"""Mutants: those with other bytes are never Equal to the original, and neutral variants always are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.mutants import detection_rate, generation
from bitwise_bench.mutants.ptx_mutations import KINDS
from bitwise_bench.mutants.ptx_neutral_variants import VARIANTS
from bitwise_bench.mutants.ptx_text import read_text, split_operands
from bitwise_bench.simulation.execution import outputs
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.plugins import registry

RECORDS = Path(__file__).parents[2] / "records" / "mutants.json"
FAMILIES = ("row_sum", "softmax_row", "layer_norm", "column_sum", "rotate", "gemm")
SURVEYED = [(family, number % 2) for number, family in enumerate(FAMILIES)]
SURVEYED += [("gemm_bias_relu", 0), ("attention_decode", 1)]
FURTHER = [(family, 1 - place) for family, place in SURVEYED if family in FAMILIES]
"""Kernels by their family and their place in the record: the other kernel of two families takes long to read."""

DRAWS = ("normal", "wide", "negative_zero", "subnormal", "special", "infinite", "huge")

TEXT = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry sum(.param .u64 .ptr .global .align 16 a, .param .u64 .ptr .global .align 16 b)
.reqntid 32
{
	.reg .b32 	%r<9>;
	.reg .b64 	%rd<4>;
	ld.param.b64 	%rd1, [a];
	ld.param.b64 	%rd2, [b];
	ld.global.v4.b32 	{ %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
	add.f32 	%r5, %r1, %r2;
	add.f32 	%r6, %r5, %r3; // a comment
	fma.rn.f32 	%r7, %r6, %r4, %r1;
	bar.sync 	0;
	st.global.b32 	[ %rd2 + 0 ], { %r7 };
	ret;
}
"""


def after(kind: str) -> set[str]:
    found = generation.mutants(TEXT, "seed", 99, [kind])
    assert all(one.text != TEXT and one.kind == kind for one in found)
    return {one.after for one in found}


def test_operands_are_split_outside_brackets() -> None:
    assert split_operands("{ %r1, %r2 }, [ %rd1, {%r3, %r4} ], 5") == ("{ %r1, %r2 }", "[ %rd1, {%r3, %r4} ]", "5")


def test_registers_that_statements_read_and_write() -> None:
    statements = read_text(TEXT).statements
    assert [each.opcode for each in statements][2:6] == ["ld.global.v4.b32", "add.f32", "add.f32", "fma.rn.f32"]
    assert statements[2].defines == {"%r1", "%r2", "%r3", "%r4"}
    assert statements[5].uses == {"%r6", "%r4", "%r1"}
    assert statements[7].uses == {"%rd2", "%r7"}
    assert statements[7].defines == set()


def test_the_changes_of_each_kind() -> None:
    assert after("rounding") == {
        "add.rz.f32 %r5, %r1, %r2;",
        "add.rz.f32 %r6, %r5, %r3;",
        "fma.rz.f32 %r7, %r6, %r4, %r1;",
    }
    assert after("reassociated") == {"; add.f32 %r5, %r2, %r3;\n\tadd.f32 %r6, %r1, %r5;"}
    assert after("barrier dropped") == {""}
    assert after("swapped operands") == {"fma.rn.f32 %r7, %r1, %r4, %r6;"}
    assert all("[%rd1+" in line or "[%rd1+-16]" in line for line in after("load offset"))
    assert len(after("store offset")) == 1
    assert after("shuffle distance") == set()


def test_the_same_seed_gives_the_same_mutants() -> None:
    assert generation.mutants(TEXT, "one", 12) == generation.mutants(TEXT, "one", 12)
    assert generation.mutants(TEXT, "one", 12) != generation.mutants(TEXT, "two", 12)
    assert generation.variants(TEXT, "one") == generation.variants(TEXT, "one")


def test_lines_are_removed_and_numbered_from_one() -> None:
    (dropped,) = generation.mutants(TEXT, "seed", 9, ["barrier dropped"])
    assert TEXT.split("\n")[dropped.line - 1] == "\tbar.sync \t0;"
    assert dropped.text == TEXT.replace("\tbar.sync \t0;\n", "")


@pytest.mark.usefixtures("without_machine_code")
@pytest.mark.parametrize(
    ("family", "place"), [*SURVEYED, *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in FURTHER)]
)
def test_mutants_of_compiled_kernels(family: str, place: int) -> None:
    pytest.importorskip("triton")
    from bitwise_bench.corpus import catalogue

    record = json.loads(RECORDS.read_text())
    settings, same = record["settings"], set(record["hardware"]["digests of same bytes"])
    names = {family: [case.id for case in catalogue.cases() if case.family == family]}
    name = detection_rate.sample(names, settings["kernels"], settings["seed"])[place]
    judged = detection_rate.survey(detection_rate.compiled(name), settings["seed"], settings["mutants"])
    changed = [one for one in judged if not one.mutant.neutral]
    assert len(changed) >= 24
    assert len({one.mutant.kind for one in changed}) >= 8
    unverified = [
        one
        for one in changed
        if one.outcome is Outcome.EQUAL and normalised_digest(one.mutant.text)[:16] not in same and not _same_bytes(one)
    ]
    assert [(one.kernel, one.mutant.kind, one.mutant.before, one.mutant.after) for one in unverified] == []
    detected = sum(one.outcome is not Outcome.EQUAL for one in changed)
    assert detected > len(changed) / 2
    broken = [one for one in judged if one.failed]
    assert [(one.mutant.before, one.mutant.after, one.reason) for one in broken] == []
    neutral = [one for one in judged if one.mutant.neutral]
    assert {one.mutant.kind for one in neutral} <= set(VARIANTS)
    assert [(one.kernel, one.mutant.kind, one.reason) for one in neutral if one.outcome is not Outcome.EQUAL] == []


def _same_bytes(one: detection_rate.MutantVerdict) -> bool:
    """Return whether a mutant that was not run on a GPU has the bytes of its original when executed on bit patterns."""
    from bitwise_bench.corpus import catalogue

    case, kernel, arch = (
        catalogue.by_id()[one.kernel],
        detection_rate.compiled(one.kernel),
        registry.default().arch("sm_90"),
    )
    options = Options(audit_contraction=False)
    original, changed = (
        prepare(Source(one.kernel, text, kernel.launch), arch, options) for text in (kernel.text, one.mutant.text)
    )
    return outputs(case, original, DRAWS) == outputs(case, changed, DRAWS)


def test_every_kind_is_in_the_record() -> None:
    table = json.loads(RECORDS.read_text())["table"]
    assert {row["kind"] for row in table if not row["neutral"]} == set(KINDS)
    assert {row["kind"] for row in table if row["neutral"]} == set(VARIANTS)
