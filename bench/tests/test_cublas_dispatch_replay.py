"""PyTorch operations recorded and replayed on a CPU, with a fake library."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bitwise_bench.cublas import unprofiled_features
from bitwise_bench.cublas.portable_operands import Operands
from bitwise_bench.cublas.replays import dispatch_replay
from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, GEMMProblem
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import NotCovered
from bitwise_cublas_profiles.query import gemm_query

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Library:
    """A fake profile of multiply-add chains; those of 6 columns drop one value, those of 7 are not covered."""

    name = library = "cublas"
    version = "13.1.0"

    def describe(self, configuration: Any) -> None:
        return None

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        raise AssertionError

    def describe_problem(self, problem: GEMMProblem, **options: Any) -> Any:
        if problem.n == 7:
            raise NotCovered(f"{problem.words} is not described: it is odd (algorithm 1)")
        types = {"left_dtype": problem.a, "right_dtype": problem.b, "output_dtype": problem.out}
        desc = GEMMDesc(k=problem.k, **types, path="fma", k_dropped=int(problem.n == 6))
        return BiasedGEMM(product=desc, rounded_first=True) if problem.epilogue == "bias" else desc

    def provenance(self, *, library: str | None = None) -> dict[str, str]:
        return {"library": "a library"}


def test_a_replay_is_compared_with_the_recorded_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(registry.default(), profiles=(Library(),))
    monkeypatch.setattr(registry, "default", lambda: found)
    drawing = unprofiled_features.FeatureComparison(Library(), "9.0", Operands(8, "cpu", 1 << 16))
    # Sums of two products of 16-bit values are exact in fp32, in every order of additions.
    rows = [
        dispatch_replay.row(drawing, 0, "gaps", gemm_query(4, 5, 2, ld_a=8)),
        dispatch_replay.row(drawing, 1, "gaps", gemm_query(4, 6, 2, ld_a=8)),
        dispatch_replay.row(drawing, 2, "batch", gemm_query(4, 5, 2, batch=3, transpose_b=True)),
        dispatch_replay.row(drawing, 3, "bias", gemm_query(4, 6, 2, epilogue="bias")),
        dispatch_replay.row(drawing, 4, "bias", gemm_query(4, 7, 2, epilogue="bias")),
    ]
    at = dispatch_replay.COLUMNS.index("outcome")
    assert [each[at:] for each in rows[::2]] == [
        ["equal", False, None], ["equal", False, None], ["declined", None, "it is odd"],
    ]  # fmt: skip
    assert [each[at : at + 2] for each in rows[1::2]] == [["different", False], ["different", True]]
    assert dispatch_replay.summary(rows) == {
        "outcomes": {"batch: equal": 1, "bias, rounded first: different": 1, "bias: declined": 1, "gaps: different": 1,
                     "gaps: equal": 1},
        "declined": {"it is odd": 1},
    }  # fmt: skip
