"""Simulated bytes and readings that hold for another architecture: the conditions, and equality with a simulation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bitwise_bench.compilation.capture import compile_job, write_folders
from bitwise_bench.draws.inputs import DRAWS
from bitwise_bench.readings.carried_readings import COUNTS, joined
from bitwise_bench.recorded_bytes import load_records, save_records
from bitwise_bench.simulation import carried_bytes
from bitwise_bench.simulation.recorder import simulate_case, with_surrogates
from bitwise_core.execution.architecture import Arch
from bitwise_core.plugins import registry

PRODUCT = """
.version 8.8
.target sm_103a
.address_size 64
.visible .entry kernel(.param .u64 p)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    .reg .pred %p<2>;
    tcgen05.mma.cta_group::1.kind::%KIND [ %r1 ], %rd1, %rd2, %r2, %p1;
    ret;
}
"""


def arch(name: str) -> Arch:
    return with_surrogates(registry.default().arch(name))


def test_machines_are_the_same_with_the_same_rows_and_functions() -> None:
    assert carried_bytes.same_machine(arch("sm_100"), arch("sm_103"))
    assert carried_bytes.same_machine(arch("sm_80"), arch("sm_86"))
    assert not carried_bytes.same_machine(arch("sm_80"), arch("sm_89"))  # rows of fp8
    assert not carried_bytes.same_machine(arch("sm_90"), arch("sm_100"))
    other = arch("sm_103")
    assert other.bits is not None
    row, *rows = [each for each in other.bits.matrix_units if each.architecture == "sm_103"]
    changed = replace(other, bits=replace(other.bits, matrix_units=(replace(row, k=2 * row.k), *rows)))
    assert not carried_bytes.same_machine(arch("sm_100"), changed)
    changed = replace(other, bits=replace(other.bits, functions={}))
    assert not carried_bytes.same_machine(arch("sm_100"), changed)
    assert not carried_bytes.same_machine(arch("sm_100"), replace(other, warp=64))


@pytest.mark.parametrize(("kind", "same"), [("f16", True), ("i8", False)])
def test_instructions_that_one_machine_lacks_are_not_the_same(kind: str, same: bool) -> None:
    left, right = arch("sm_100"), arch("sm_103")
    module = right.parse(PRODUCT.replace("%KIND", kind), "kernel.ptx")
    assert carried_bytes.same_instructions(module, left, right) is same


def test_carried_bytes_are_those_of_a_simulation(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from bitwise_bench.corpus import catalogue

    answers = {}
    for target in ("sm_100", "sm_103"):
        cases = [case for case in catalogue.cases(target) if case.family == "gemm_cube"][:2]
        compiled = {each.id: compile_job(each.id, {"target": target, "keep": True}) for each in cases}
        write_folders(tmp_path / target, cases, compiled)
        settings = {
            "target": target,
            "folder": str(tmp_path / target),
            "parts": {f"gemm_cube/{cases[0].group}": (0, 2)},
        }
        for case in cases:
            found = simulate_case(case.id, settings)
            answers[case.id, target] = {"id": case.id, "family": case.family, "group": case.group, **found}
    path = tmp_path / "bytes.json"
    recorded = [answer for (_, target), answer in answers.items() if target == "sm_100"]
    save_records(path, {"architecture": "sm_100"}, DRAWS, recorded)
    records = load_records(path)
    found = carried_bytes.carried(cases, tmp_path / "sm_103", records)
    for case in cases:
        assert [list(row) for row in found[case.id].hashes] == answers[case.id, "sm_103"]["hashes"]
    assert carried_bytes.kinds_of_groups(found, records.draws) == {f"gemm_cube/{cases[0].group}": 2}


def test_a_reading_is_joined_of_families_that_hold_and_families_that_were_read() -> None:
    def counts(factor: int) -> dict[str, dict[str, object]]:
        numbers = {name: factor * place for place, name in enumerate(COUNTS, 1)}
        return {"launch": {**numbers, "mixed": [["x", "y"]] * (factor == 3), "ratio": 0.0}}

    known = {"target": "sm_100", "families": {"a": counts(1), "b": counts(100)}}
    read = {"target": "sm_103", "families": {"b": counts(3)}, "modes": {"launch": {}}, "unknown": {}}
    found = joined(known, read, ["a"])
    assert found["families"] == {"a": counts(1), "b": counts(3)}
    numbers = {name: 4 * place for place, name in enumerate(COUNTS, 1)}
    assert found["modes"] == {"launch": {**numbers, "mixed": [["x", "y"]], "ratio": round(20 / 24, 3)}}
    assert found["carried"] == {"families": 1, "kernels": 1, "from": "sm_100"}


FUSED = """
.version 8.8
.target sm_103a
.address_size 64
.visible .entry kernel(.param .u64 .ptr .global x)
{
    .reg .f32 %f<6>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [x];
    ld.global.f32 %f1, [%rd1];
    ld.global.f32 %f2, [%rd1+4];
    mul.f32 %f3, %f1, %f2;
    add.f32 %f4, %f3, %f1;
    st.global.f32 [%rd1+8], %f4;
    ret;
}
"""


def test_the_audits_of_both_targets_are_compared() -> None:
    pytest.importorskip("triton")
    left, right = registry.default().arch("sm_100"), registry.default().arch("sm_103")
    assert carried_bytes.same_audit(FUSED, "kernel", left, right)
    assert not carried_bytes.same_audit(FUSED, "kernel", replace(left, audit_contraction=None), right)
