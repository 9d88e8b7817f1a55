"""Equivalence classes against the bytes of a GPU: no class has two byte patterns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import pytest

from bitwise_bench.compilation.sources import compile_source, group_buffers
from bitwise_bench.readings.byte_agreement import Agreement, KernelResult, compare
from bitwise_bench.recorded_bytes import CaseRecord
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options
from bitwise_core.plugins import registry
from recorded_corpus import families, recorded, smallest_first

SEED = "bytes"


def case(name: str, digest: str, label: int, repeated: bool = True) -> CaseRecord:
    return CaseRecord(name, "f", "g", digest, digest, ("c",), (), repeated, label, None)


def test_a_class_with_two_byte_patterns_is_reported() -> None:
    records = {record.id: record for record in (case("f/g/a", "1", 0), case("f/g/b", "2", 1), case("f/g/c", "3", 1))}
    equal = [KernelResult("f/g/a", "1", "x"), KernelResult("f/g/b", "2", "x"), KernelResult("f/g/c", "3", "y")]
    assert compare(equal, records) == Agreement(3, 3, 0, 0, 2, 2, (("f/g/a", "f/g/b"),))
    split = [KernelResult("f/g/a", "1", "x"), KernelResult("f/g/b", "2", "y"), KernelResult("f/g/c", "3", "z")]
    assert compare(split, records) == Agreement(3, 3, 0, 0, 3, 2, ())
    assert compare(split, records).ratio == 1.5


def test_other_texts_and_nondeterministic_bytes_are_excluded() -> None:
    records = {record.id: record for record in (case("f/g/a", "1", 0), case("f/g/b", "2", 1, repeated=False))}
    results = [
        KernelResult("f/g/a", "other", "x"),
        KernelResult("f/g/b", "2", "x"),
        KernelResult("f/g/c", "3", "x"),
        KernelResult("f/g/d", "4", None),
    ]
    assert compare(results, records) == Agreement(4, 0, 1, 3, 0, 0, ())


def draw_pair(records: Sequence[CaseRecord], seed: str) -> list[CaseRecord]:
    """Return two usable configurations of a group chosen by a seed, with different bytes if the group has such."""

    def rank(record: CaseRecord) -> str:
        return hashlib.sha256(f"{seed}\0{record.id}".encode()).hexdigest()

    ordered = sorted((record for record in records if record.usable), key=rank)
    if len(ordered) < 2:
        return ordered
    other = next((record for record in ordered[1:] if record.label != ordered[0].label), ordered[1])
    return [ordered[0], other]


@pytest.mark.usefixtures("without_machine_code")
@pytest.mark.parametrize("family", families())
def test_no_class_has_two_byte_patterns(family: str, record_property: Callable[[str, object], None]) -> None:
    """Of the configuration of a family that executes fastest and one of its group, with other bytes if there is one."""
    triton = pytest.importorskip("triton")
    if triton.__version__ != recorded().environment["triton"]:
        pytest.skip(f"the bytes were recorded with Triton {recorded().environment['triton']}")
    from bitwise_bench.corpus import catalogue

    usable = smallest_first(family)
    if not usable:
        pytest.skip("no kernel of the family returns the same bytes twice")
    first = recorded().by_id()[usable[0].id]
    group = recorded().groups()[first.family, first.group]
    others = [each for each in draw_pair(group, SEED) if each.id != first.id]
    others.sort(key=lambda each: each.label == first.label)
    arch = registry.default().arch("sm_90")
    results = []
    for record in (first, *others[:1]):
        one = catalogue.by_id()[record.id]
        source, digest, _ = compile_source(one)
        found = analyse(source, arch, group_buffers(one), Options())
        results.append(KernelResult(one.id, digest, found.signature.hex() if found.signature else None, found.unknown))
    agreement = compare(results, recorded().by_id())
    record_property(
        "agreement", f"{agreement.classes} classes, {agreement.byte_classes} byte classes, {agreement.unknown} unknown"
    )
    assert agreement.excluded == 0
    assert agreement.mixed == ()
    assert agreement.classes >= agreement.byte_classes
