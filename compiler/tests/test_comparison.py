"""`capture`, `compare` and `partition` of a kernel's configurations, compiled for sm_90 without a GPU."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"

from __future__ import annotations

from typing import Any

import pytest

triton = pytest.importorskip("triton")
pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

import triton.language as tl  # noqa: E402

from bitwise_triton import Buffer, CaptureError, capture, compare, partition  # noqa: E402


@triton.jit
def row_sum(x, y, columns, BLOCK: tl.constexpr, HALVES: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=0.0)
    if HALVES:
        value = value * 0.5 * 2.0
    tl.store(y + tl.program_id(0), tl.sum(value, 0))


ARGUMENTS = {"x": Buffer("X", "fp32"), "y": Buffer("Y", "fp32"), "columns": 100}
GRID = (2,)


def config(warps: int, halves: bool = False, block: int = 128) -> Any:
    return triton.Config({"BLOCK": block, "HALVES": halves}, num_warps=warps)


def test_configurations_with_the_same_tree_are_equal() -> None:
    found = compare(row_sum, config(1), config(1), ARGUMENTS, grid=GRID)
    assert (found.outcome, found.scope) == ("equal", "launch")


def test_configurations_with_different_orders_of_a_sum_are_different() -> None:
    found = compare(row_sum, config(1), config(4), ARGUMENTS, grid=GRID)
    assert found.outcome == "different"
    assert found.divergence is not None
    assert found.divergence.element == "Y[0]"
    assert found.counterexample is not None


def test_without_a_search_different_orders_of_a_sum_are_unproved() -> None:
    assert compare(row_sum, config(1), config(4), ARGUMENTS, grid=GRID, search_seconds=0).outcome == "unproved"


def test_a_partition_has_indices_unknowns_and_failures() -> None:
    configs = [config(1), config(4), config(1), config(1, block=1 << 21)]
    found = partition(row_sum, configs, ARGUMENTS, grid=GRID, workers=1)
    assert found.classes == ((0, 2), (1,))
    assert found.class_of(2) == (0, 2)
    assert (dict(found.unknown), list(found.failed)) == ({}, [3])
    assert "numel (2097152) exceeds" in found.failed[3]
    assert found.names[1] == "BLOCK=128, HALVES=False, num_warps=4, num_ctas=1, num_stages=3"
    assert repr(found) == "<ConfigurationPartition: 4 configurations, 2 classes, 1 failed; scope: launch>"
    with pytest.raises(KeyError):
        found.class_of(3)


def test_capture_raises_for_a_configuration_that_does_not_compile() -> None:
    (found,) = capture(row_sum, [config(2)], ARGUMENTS, grid=GRID)
    assert (found.target, found.grid, found.block) == ("sm_90", (2, 1, 1), (64, 1, 1))
    with pytest.raises(CaptureError, match="BLOCK=2097152"):
        capture(row_sum, [config(1, block=1 << 21)], ARGUMENTS, grid=GRID)


def test_errors_name_the_mistake() -> None:
    with pytest.raises(CaptureError, match="No checker is installed for sm_12345"):
        compare(row_sum, config(1), config(1), ARGUMENTS, grid=GRID, target="sm_12345")
    with pytest.raises(CaptureError, match="unknown assumption 'sunshine'"):
        partition(row_sum, [config(1)], ARGUMENTS, grid=GRID, assume=["sunshine"])
    with pytest.raises(CaptureError, match="lacks a value for parameter 'columns'"):
        compare(row_sum, config(1), config(1), {"x": ARGUMENTS["x"], "y": ARGUMENTS["y"]}, grid=GRID)
