"""Simulated bytes that hold for another architecture: the conditions, and equality with a simulation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bitwise_bench.compilation.capture import compile_job, write_folders
from bitwise_bench.draws.inputs import DRAWS
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
