"""Descriptors of kernels of the corpus, evaluated on a CPU, have the bytes that a GPU returned.

`python -m bitwise_bench.descriptors.evaluation` compares all of them, for every kind of input, with the records.
"""

from __future__ import annotations

import pytest

from bitwise_bench.corpus.cases import Case
from bitwise_bench.descriptors.corpus_descriptors import FAMILIES, described
from bitwise_bench.descriptors.evaluation import compare_with_records
from bitwise_core.descriptors import AttentionDesc, GEMMDesc, ReductionDesc, read, write
from recorded_corpus import recorded

DRAWS = ("wide", "zeros", "special", "cancelling")


def cases_of(family: str) -> list[Case]:
    pytest.importorskip("triton")
    from bitwise_bench.corpus import catalogue

    return [case for case in catalogue.cases() if case.family == family]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_group_of_each_family(family: str) -> None:
    cases = cases_of(family)
    mine = [case for case in cases if case.group == cases[0].group]
    draws = DRAWS[::2] if family.startswith("attention") else DRAWS  # a draw of attention takes seconds
    found = compare_with_records(mine, recorded(), draws)
    assert found.different == {}
    assert found.cases + found.without == len(mine)
    assert 0 < found.evaluations <= 16


def test_the_descriptor_does_not_depend_on_tiles_and_stages() -> None:
    by_group: dict[str, set[str]] = {}
    for case in cases_of("gemm"):
        what = described(case)
        assert what is not None
        by_group.setdefault(case.group, set()).add(write(what.desc))
    assert {group: len(lines) for group, lines in by_group.items()} == dict.fromkeys(by_group, 1)
    assert len(by_group) == 4


def test_the_text_of_every_descriptor_parses_back() -> None:
    for family in FAMILIES:
        for case in cases_of(family):
            what = described(case)
            if what is not None:
                assert isinstance(what.desc, AttentionDesc | GEMMDesc | ReductionDesc)
                assert read(write(what.desc)) == what.desc


def test_a_wrong_descriptor_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case for case in cases_of("row_sum") if case.group == cases_of("row_sum")[0].group][:1]
    monkeypatch.setattr("bitwise_bench.descriptors.reductions.reversed", lambda bits: bits, raising=False)
    assert set(compare_with_records(cases, recorded(), DRAWS).different) == {cases[0].id}
