from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.plugins.profiles import ExplainableProfile, NotCovered
from bitwise_core.plugins.references import loaded
from bitwise_cublas_profiles.explanation import configuration_of
from bitwise_cublas_profiles.plugin import bitwise_profiles

RECORDS = Path(__file__).parents[3] / "records"
KNOWN = {each.name: each for each in map(loaded, bitwise_profiles()) if isinstance(each, ExplainableProfile)}
HOPPER = KNOWN["cublaslt_13.1_sm_90"]


def problem(m: int, n: int, k: int, dtype: str = "fp16", **options: Any) -> GEMMProblem:
    return GEMMProblem(**{"m": m, "n": n, "k": k, "a": dtype, "b": dtype, "out": dtype, **options})


def test_a_profile_has_its_version_and_architecture() -> None:
    assert (HOPPER.library, HOPPER.version, HOPPER.architecture) == ("cublas", "13.1", "sm_90")


def test_an_explanation_lists_the_rows_it_uses() -> None:
    given = {"ALGO_ID": 66, "stages": 35, "CUBLASLT_ALGO_CONFIG_SPLITK_NUM": 9, "reduction": 2, "custom": 1}
    found = HOPPER.explain(problem(128, 128, 11528), given)
    assert str(found.desc) == (
        "gemm(k=11528 left_dtype=fp16 right_dtype=fp16 output_dtype=fp16 path=matrix instruction=instruction("
        "architecture=sm_90 family=wgmma k=16) instruction_k=16 k_cuts=[cut(span=1280)] k_dropped=8)"
    )
    tables = [note.split(",")[0] for note in found.notes]
    assert tables == ["Table layouts", "Table algorithms", "Table stages", "Table merges", "Table units"]
    assert all(": measured on " in note for note in found.notes)


@pytest.mark.parametrize("name", ["cublaslt_12.8_sm_100", "cublaslt_13.1_sm_100", "cublaslt_13.1_sm_103"])
@pytest.mark.parametrize(("custom", "doubtful"), [(6, True), (84, True), (7, False)])
def test_a_published_row_that_was_wrong_on_another_architecture_is_doubtful(
    name: str, custom: int, *, doubtful: bool
) -> None:
    given = {"algorithm": 13, "stages": 0, "split_k": 1, "reduction": 0, "custom": custom}
    notes = KNOWN[name].explain(problem(1, 64, 512), given).notes
    assert all(": published, not measured here" in note for note in notes)
    assert [note.split(",")[0] for note in notes if "doubtful: " in note] == ["Table lanes"] * doubtful


def test_a_recorded_configuration_is_used() -> None:
    found = HOPPER.explain(problem(11, 64, 768), None, RECORDS)
    assert found.notes[0] == (
        "The configuration is the one recorded in cublas-sweep-sm90-h100-13.1-seed2.jsonl.xz, of an NVIDIA H100 80GB "
        "HBM3: algorithm=66, stages=35, split_k=1, reduction=0, custom=3, tile=10, cluster_shape=5."
    )
    found = HOPPER.explain(problem(36, 14, 1024), None, RECORDS)
    assert "cublas-sample-sm90-h100-13.1.json" in found.notes[0]
    assert "k_cuts=[cut(span=64 start=zero partial_dtype=fp16" in str(found.desc)


def test_records_of_another_version_or_kind_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "cublas-s.json").write_text("[")
    (tmp_path / "cublas-s.jsonl.xz").write_bytes(b"no xz")
    for known, query, records in (
        (KNOWN["cublaslt_13.1_sm_100"], problem(11, 64, 768), RECORDS), (HOPPER, problem(11, 64, 768), tmp_path),
        (HOPPER, problem(11, 64, 768), tmp_path / "none"), (HOPPER, problem(11, 64, 768, batch=2), RECORDS),
        (HOPPER, problem(11, 64, 768), None), (HOPPER, problem(11, 64, 768, transpose_a=True), RECORDS),
    ):  # fmt: skip
        with pytest.raises(NotCovered, match=r"does not follow from the shape: .* bitwise cublas ask 11 64 768 "):
            known.explain(query, None, records)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"algorithm": 66}, "the configuration lacks stages, split_k, reduction, custom, which decide bits"),
        ({"algo": 66}, r"has no attribute 'algo'; it has algorithm \(ALGO_ID\), tile"),
        ({"algorithm": "66"}, "the attribute algorithm is a whole number of 0 or more, not '66'"),
        ({"algorithm": -1}, "the attribute algorithm is a whole number of 0 or more, not -1"),
        ({"algorithm": True}, "the attribute algorithm is a whole number of 0 or more, not True"),
    ],
)
def test_invalid_configurations(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(NotCovered, match=sentence):
        configuration_of(given)


def test_unmeasured_configurations_are_declined_with_the_key() -> None:
    with pytest.raises(NotCovered, match=r"16x16x16 fp16 NN to fp16 by cuBLASLt 13\.1 .* algorithm 99 has no row"):
        HOPPER.explain(problem(16, 16, 16), dict.fromkeys(("stages", "split_k", "reduction", "custom"), 1)
                         | {"algorithm": 99})  # fmt: skip
    with pytest.raises(NotCovered, match="'fp64' is not an element type of a"):
        HOPPER.explain(problem(16, 16, 16, "fp64"), None)


def test_fp32_and_tf32_are_explained() -> None:
    chosen = {"algorithm": 20, "stages": 28, "split_k": 6, "reduction": 2, "custom": 0}
    for dtype, changes, rounded in (("fp32", {}, None), ("tf32", {"algorithm": 21, "stages": 6}, "tf32")):
        found = HOPPER.explain(problem(64, 64, 640, dtype), {**chosen, **changes})
        assert isinstance(found.desc, GEMMDesc)
        assert (found.desc.left_dtype, found.desc.multiplied_as, found.desc.output_dtype) == ("fp32", rounded, "fp32")
        assert any("shapes, the sampled elements equal" in each for each in found.notes)
