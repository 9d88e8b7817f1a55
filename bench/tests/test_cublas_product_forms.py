"""Calls of the campaign of product forms: their summary, their seeds, and the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bitwise_bench.cublas import product_forms
from bitwise_bench.cublas.addend_orders import Sample, counted, feature_counts, samples
from bitwise_bench.cublas.product_form_records import distances, lines_of, main, together
from bitwise_bench.cublas.product_forms import KINDS, PLAIN, summary, to_compare_again
from bitwise_cublas_profiles.profile import profile

RECORDS = Path(__file__).resolve().parents[2] / "records"
RECORD = RECORDS / "cublas-product-forms-sm90-h100-13.1.json"


def test_outcomes_are_counted_by_kind_and_type() -> None:
    rows = [
        [1, "matrix", "bf16", "equal", [], None], [2, "matrix", "bf16", "equal", [], None],
        [3, "matrix", "bf16", "declined", [], "why"], [4, "row", "fp16", "different", [], None],
        [5, "error", "", "failed", [], "ValueError"],
    ]  # fmt: skip
    assert summary(rows) == {
        "error": {"failed": 1}, "matrix bf16": {"equal": 2, "declined": 1}, "row fp16": {"different": 1},
    }  # fmt: skip


def test_runs_are_counted_together_by_setting(tmp_path: Path) -> None:
    paths = []
    for seed, setting in ((1, "defaults"), (2, "defaults"), (3, "no split K")):
        about = {"gpu": "g", "torch": "t", "library": "l", "driver": "d"}
        drawn = {"seed": seed, "setting": setting, "kinds": [["matrix", 1]], "types": [["fp16", 1]]}
        path = tmp_path / f"run-{seed}.json"
        run = {"environment": {**about, **drawn}, "compared": "elements", "died": []}
        path.write_text(json.dumps(run), encoding="utf-8")
        rows = [[9, "matrix", "fp16", "equal", [], None], [4, "matrix", "fp16", "equal", [], None],
                [5, "matrix", "fp16", "declined", [], "why"]]  # fmt: skip
        text = "".join(json.dumps(each) + "\n" for each in rows) + "[12, "
        path.with_suffix(".jsonl").write_text(text, encoding="utf-8")
        paths.append(path)
    record, lines = together(paths)
    assert record["settings"]["defaults"]["totals"] == {"equal": 4, "declined": 2}
    assert record["settings"]["no split K"]["reasons"] == {"why": 1}
    assert lines[2] == {**drawn, "calls": {"declined": [5], "equal": [4, 5]}}
    run["environment"]["driver"] = "other"
    paths[0].write_text(json.dumps(run), encoding="utf-8")
    with pytest.raises(ValueError, match="several machines"):
        together(paths)


def test_a_run_that_is_ended_early_has_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"gpu": "g", "torch": "t", "library": "l", "driver": "d"}
    row = [9, "matrix", "fp16", "equal", [], None]

    def ended(*_: object, kept: Path) -> None:
        kept.write_text(json.dumps(row) + "\n", encoding="utf-8")
        raise KeyboardInterrupt

    monkeypatch.setattr(product_forms, "environment", lambda: about)
    monkeypatch.setattr(product_forms, "run_workers", ended)
    path = tmp_path / "run.json"
    with pytest.raises(KeyboardInterrupt):
        product_forms.main(
            ["--elements", "--seed", "7", "--out", str(path), "--calls", str(path.with_suffix(".jsonl"))]
        )
    record, lines = together([path])
    assert record["settings"]["defaults"]["totals"] == {"equal": 1}
    assert (record["died"], lines[0]["seed"]) == ([product_forms.UNFINISHED], 7)


def test_runs_are_added_to_those_of_a_record(tmp_path: Path) -> None:
    about = {"gpu": "g", "torch": "t", "library": "l", "driver": "d"}
    record = tmp_path / "record"
    for seed, outcome in ((1, "equal"), (2, "declined")):
        drawn = {"seed": seed, "setting": "defaults", "kinds": [["matrix", 1]], "types": [["fp16", 1]]}
        path = tmp_path / f"run-{seed}.json"
        path.write_text(json.dumps({"environment": {**about, **drawn}, "compared": "elements", "died": []}), "utf-8")
        path.with_suffix(".jsonl").write_text(json.dumps([seed, "matrix", "fp16", outcome, [], "why"]) + "\n", "utf-8")
        assert main([str(path), "--record", str(record), *(["--add"] if seed == 2 else [])]) == 0
    found = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))["settings"]["defaults"]
    assert found["totals"] == {"equal": 1, "declined": 1}
    assert (found["outcomes"], found["reasons"]) == ({"matrix fp16": {"equal": 1, "declined": 1}}, {"why": 1})
    assert [each["seed"] for each in lines_of(tmp_path / "record.jsonl.xz")] == [1, 2]
    assert main([str(path), "--record", str(record), "--add"]) == 2


def test_calls_that_are_compared_again_replace_those_of_a_record(tmp_path: Path) -> None:
    about = {"gpu": "g", "torch": "t", "library": "l", "driver": "d"}
    record = tmp_path / "record"

    def written(name: str, seed: int, rows: list[list[Any]]) -> str:
        drawn = {"seed": seed, "setting": "defaults", "kinds": [["products", 1]], "types": [["fp16", 1]]}
        path = tmp_path / f"{name}-{seed}.json"
        path.write_text(json.dumps({"environment": {**about, **drawn}, "compared": "elements", "died": []}), "utf-8")
        path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return str(path)

    single = next(number for number in range(5, 600, 6) if is_one_element(3, number))
    others = [number for number in range(5, 60, 6) if not is_one_element(3, number)][:3]
    first = [[number, "products", "fp16", "equal", [], None] for number in (single, others[0])]
    first += [[number, "products", "fp16", "declined", [], f"why {number}"] for number in others[1:]]
    given = [written("run", 3, first), written("run", 4, [[others[0], "products", "fp16", "different", [], None]])]
    assert main([*given, "--record", str(record)]) == 1
    lines = lines_of(tmp_path / "record.jsonl.xz")
    assert [to_compare_again(each) for each in lines] == [sorted([single, *others[1:]]), [others[0]]]

    again = [written("again", 4, [[others[0], "products", "fp16", "equal", [], None]])]
    assert main([*again, "--record", str(record), "--again"]) == 2  # without those of the other seed
    rows = [[single, "products", "fp16", "declined", [], "one"], [others[1], "products", "fp16", "equal", [], None]]
    assert main([*again, written("again", 3, rows), "--record", str(record), "--again"]) == 2  # one is missing
    rows.append([others[2], "products", "fp16", "declined", [], "why"])
    assert main([*again, written("again", 3, rows), "--record", str(record), "--again"]) == 0
    found = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))["settings"]["defaults"]
    assert found["totals"] == {"equal": 3, "declined": 2}
    assert found["outcomes"] == {"products fp16": {"equal": 3, "declined": 2}}
    assert (found["different"], found["reasons"]) == ([], {"one": 1, "why": 1})
    assert [each["calls"]["equal"] for each in lines_of(tmp_path / "record.jsonl.xz")] == [
        distances(sorted(others[:2])), [others[0]],
    ]  # fmt: skip


def is_one_element(seed: int, number: int) -> bool:
    query = product_forms.drawn(seed, number, [("products", 1)], [("fp16", 1)])[3]
    return query.m == query.n == 1


def test_the_record_has_every_older_kind_and_names_what_differs() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    kinds = {name.split()[0] for run in record["runs"] for name in run["outcomes"]}
    assert kinds == {name for name, _ in KINDS} - {
        "line",
        "expanded",
        "in place",
        "column",
        "blocks",
        "integers",
        *PLAIN,
    }
    for run in record["runs"]:
        different = sum(each.get("different", 0) for each in run["outcomes"].values())
        assert len(run["different"]) == different
        assert all(call[1] in ("grouped", "vector", "relu", "matrix", "batch") for call in run["different"])
        # The differing groups have scales, and differing vectors are one row of fp32 with another alpha than 1.
        for _, kind, dtype, _, about, _ in run["different"]:
            if kind == "grouped":
                assert dtype.startswith("scaled")
            elif kind in ("vector", "relu"):
                assert (about[0], dtype in ("fp32", "tf32"), about[5] != 1) == (1, True, True)
    for form in record["scaled groups"].values():
        assert all(each["groups"] == each["(acc s_a) s_b"] > each["(acc s_b) s_a"] for each in form.values())


def test_every_order_of_the_profile_is_counted_in_the_record() -> None:
    if not RECORDS.exists():
        pytest.skip("records are not part of an installed distribution")
    rows = profile("13.1", "9.0").tables["finishes"]
    found = list(counted(rows, samples()))
    assert len(found) == len(rows) > 0
    for row, counts, misses in found:
        assert misses == []
        assert counts == {name: row[name] for name in ("shapes", "sampled") if name in row}
        assert counts


def sample(**fields: object) -> Sample:
    given = {
        "compared": "outputs", "call": "matrix", "dtype": "fp16", "m": 8, "n": 9, "k": 7, "batch": 1,
        "transposes": "NN", "alpha": 2.0, "beta": 0.5, "configuration": (66, 1, 35, 1, 0, 0, 1, 0, 4),
        "orders": ("product_fused",),
    }  # fmt: skip
    return Sample(**{**given, **fields})  # type: ignore[arg-type]


def test_a_sample_with_another_order_is_a_miss() -> None:
    row = {"addend": "matrix", "algorithm": 66, "sliced": False, "dtypes": ["fp16"], "order": "product_fused"}
    one, other, elements = sample(), sample(orders=("rounded",)), sample(compared="elements")
    added = sample(beta=1.0)
    listed = [{**row, "beta": "one", "order": "rounded"}, row]
    found = [one, other, elements, added, sample(dtype="bf16"), sample(beta=0.0)]
    (first, counts, misses), (second, others, wrong) = counted(listed, found)
    assert (first["order"], counts, misses) == ("rounded", {}, [added])
    assert (second["order"], others, wrong) == ("product_fused", {"shapes": 1, "sampled": 1}, [other])


def test_features_count_calls_of_their_kind() -> None:
    bias = {"feature": "biases", "algorithm": 66, "sliced": False, "dtypes": ["fp16"]}
    rounded = {**bias, "feature": "biases added after rounding"}
    vectors = sample(call="vector", beta=1.0), sample(call="relu", beta=1.0, orders=("rounded",))
    found = [*vectors, sample(call="batch"), sample()]
    assert feature_counts(bias, found) == ({"shapes": 1}, [found[1]])
    assert feature_counts(rounded, found) == ({"shapes": 1}, [found[0]])
    assert feature_counts({**bias, "feature": "batches"}, found) == ({"shapes": 1}, [])
    gaps = {"feature": "padded rows", "dtypes": ["fp16"]}
    padded = (
        sample(call="product padded", beta=0.0, orders=("plain",)),
        sample(call="product padded", beta=0.0, orders=()),
    )
    assert feature_counts(gaps, [*found, *padded]) == ({"shapes": 1}, [padded[1]])


def test_an_operand_that_alpha_scales_is_the_vector() -> None:
    gemv = (13, 0, 0, 1, 0, 0, 7, 0, 0)
    assert sample(configuration=gemv, m=1, orders=("operand_a",)).has_order("operand_scaled")
    assert not sample(configuration=gemv, m=8, n=1, orders=("operand_a",)).has_order("operand_scaled")
    assert sample(configuration=gemv, m=8, n=1, orders=("untried",)).has_order("operand_scaled")
