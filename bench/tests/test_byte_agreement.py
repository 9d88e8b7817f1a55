"""Equivalence classes against the bytes of a GPU: no class has two byte patterns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from bitwise_bench.compilation.sources import compile_source, group_buffers
from bitwise_bench.readings.byte_agreement import Agreement, KernelResult, compare, draw_pair
from bitwise_bench.recorded_bytes import CaseRecord
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options
from bitwise_core.plugins import registry
from recorded_corpus import recorded

SEED = "bytes"


def families() -> list[str]:
    return list(dict.fromkeys(family for family, _ in recorded().groups()))


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


@pytest.mark.parametrize("family", families())
def test_no_class_has_two_byte_patterns(family: str, record_property: Callable[[str, object], None]) -> None:
    triton = pytest.importorskip("triton")
    if triton.__version__ != recorded().environment["triton"]:
        pytest.skip(f"the bytes were recorded with Triton {recorded().environment['triton']}")
    from bitwise_bench.corpus import catalogue

    groups = {key: members for key, members in recorded().groups().items() if key[0] == family}
    rank = {key: hashlib.sha256(f"{SEED}\0{key}".encode()).hexdigest() for key in groups}
    chosen = [draw_pair(groups[key], SEED) for key in groups]
    pairs = [pair for _, pair in sorted(zip(rank.values(), chosen, strict=True), key=lambda each: each[0]) if pair]
    if not pairs:
        pytest.skip("no kernel of the family returns the same bytes twice")
    arch = registry.default().arch("sm_90")
    results = []
    for record in pairs[0]:
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
