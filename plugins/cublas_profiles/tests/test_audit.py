from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bitwise_cublas_profiles import report
from bitwise_cublas_profiles.audit import audit, read_shapes
from bitwise_cublas_profiles.query import Configuration, CublasError, GemmQuery, HeuristicResult, gemm_query


class Recorded:
    """A library whose results come from a table of split counts by k."""

    def __init__(self, splits: Mapping[int, int]) -> None:
        self.splits = splits

    def heuristic(self, query: GemmQuery, count: int = 1) -> tuple[HeuristicResult, ...]:
        if query.k not in self.splits:
            raise CublasError(f"no algorithm for {query.description}")
        return (HeuristicResult(Configuration(66, 10, 35, self.splits[query.k], 2, 0, 1, 0, 4), 1024, 0.5, bytes(64)),)


def test_an_audit_reports_every_shape() -> None:
    queries = [gemm_query(1, 8, k) for k in (11528, 11520, 7)]
    found = list(audit(Recorded({11528: 9, 11520: 9}), queries))
    assert [each.dropped_k.verdict if each.dropped_k else each.error for each in found] == [
        "drops 8", "complete", "no algorithm for 1x8x7 fp16 NN to fp16",
    ]  # fmt: skip
    assert report.summary(found) == {
        "shapes": 3, "drop values": 1, "complete": 1, "unknown": 0, "no result": 1, "run on ones": 0,
        "could not be run": 0, "not as predicted": 0,
    }  # fmt: skip
    assert report.finding_line(found[0]) == (
        "1x8x11528 fp16 NN to fp16: drops 8 (180 steps of 64 and a remainder of 8; 9 slices of 20 steps end at 11520 "
        "of 11528); algorithm=66 tile=10 stages=35 split_k=9 reduction=2 custom=1 cluster_shape=4"
    )


@pytest.mark.parametrize(("returned", "confirmed"), [(11520, True), (11528, False), (11519, False)])
def test_ones_confirm_or_refute_a_prediction(returned: int, confirmed: bool) -> None:
    (found,) = audit(Recorded({11528: 9}), [gemm_query(1, 8, 11528)], lambda *_: returned)
    assert (found.counted, found.confirmed) == (returned, confirmed)
    assert ("NOT as predicted" in report.finding_line(found)) is not confirmed
    assert report.summary([found])["not as predicted"] == (0 if confirmed else 1)


def test_a_result_that_cannot_be_run_has_an_error() -> None:
    def refuse(*_: object) -> int:
        raise CublasError("too large")

    (found,) = audit(Recorded({11528: 9}), [gemm_query(1, 8, 11528)], refuse)
    assert (found.confirmed, found.error) == (None, "too large")
    assert report.finding_line(found).endswith("; not run: too large")


def test_a_file_of_shapes(tmp_path: Path) -> None:
    path = tmp_path / "shapes"
    path.write_text("# layers\n1 8 11528\n\n4x512x11528 bf16\n2, 3, 16, e4m3 # fp8\n")
    found = read_shapes(path, "fp16", workspace=0)
    assert [each.description for each in found] == [
        "1x8x11528 fp16 NN to fp16", "4x512x11528 bf16 NN to bf16", "2x3x16 e4m3 NT to bf16",
    ]  # fmt: skip
    assert {each.workspace for each in found} == {0}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 8\n", "{}:1: '1 8' is not of the form M N K or M N K dtype"),
        ("1 8 16\n1 8 x\n", "{}:2: '1 8 x' is not of the form M N K or M N K dtype"),
        ("1 8 16 fp64\n", "{}:1: 'fp64' is not an operand type; choose one of fp16, bf16, e4m3, e5m2, tf32, fp32"),
        ("1 0 16\n", "{}:1: n is 0; it must be at least 1"),
        ("# nothing\n", "{}: there is no shape; write one M N K to a line"),
        (None, "{}: cannot be read (No such file or directory)"),
    ],
)
def test_a_file_with_a_mistake(tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "shapes"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CublasError) as raised:
        read_shapes(path)
    assert str(raised.value) == sentence.format(path)
