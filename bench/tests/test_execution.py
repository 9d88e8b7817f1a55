"""Execution on bit patterns returns the bytes of a GPU, for the smallest configuration of each family.

`python -m bitwise_bench.simulation.execution` compares the whole corpus with the records.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bitwise_bench.draws.inputs import DRAWS
from bitwise_bench.recorded_bytes import CaseRecord
from bitwise_bench.simulation.execution import Run, run_case, size
from recorded_corpus import families, recorded, smallest_first

SHOWN = ("wide", "zeros", "negative_zero", "subnormal", "special", "cancelling", "tiny", "huge")
"""The draws that the tests run."""

REFUSED = {
    "count_then_sum": "a block reads global memory that another block of the launch writes",
    "serial_split_k": "a barrier depends on data",
}
"""Families of which no configuration is executed, and why: their blocks wait for each other."""


def record(digest: str) -> CaseRecord:
    return CaseRecord("f/g/a", "f", "g", digest, digest, ("c",), (("1",),), True, 0, None)


@pytest.mark.parametrize(
    ("run", "outcome"),
    [
        (Run("f/g/a", "1"), "equal"),
        (Run("f/g/a", "1", ("wide",)), "different"),
        (Run("f/g/a", "1", (), "an instruction is not modelled"), "refused"),
        (Run("f/g/a", "2"), "another text"),
    ],
)
def test_outcomes(run: Run, outcome: str) -> None:
    assert run.against(record("1")) == outcome


def test_a_wrong_hash_is_detected() -> None:
    pytest.importorskip("triton")
    from bitwise_bench.corpus import catalogue

    case = min((each for each in catalogue.cases() if each.family == "row_sum"), key=size)
    known = recorded()
    one = known.by_id()[case.id]
    changed = replace(one, hashes=(*one.hashes[:2], ("0" * 16,), *one.hashes[3:]))
    assert run_case(case, changed, known, DRAWS[:4]) == Run(case.id, str(one.digest), (DRAWS[2],))


@pytest.mark.usefixtures("without_machine_code")
@pytest.mark.parametrize("family", families())
def test_bytes_of_the_smallest_configuration(family: str) -> None:
    triton = pytest.importorskip("triton")
    known = recorded()
    if triton.__version__ != known.environment["triton"]:
        pytest.skip(f"the bytes were recorded with Triton {known.environment['triton']}")
    records, cases = known.by_id(), smallest_first(family)
    if not cases:
        pytest.skip("no kernel of the family returns the same bytes twice")
    for case in cases:
        found = run_case(case, records[case.id], known, SHOWN)
        if found.refused is None:
            break
    assert found.digest == records[case.id].digest
    assert found.different == ()
    assert (found.refused or "").split(" at line")[0] == REFUSED.get(family, "")
