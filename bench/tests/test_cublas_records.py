from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bitwise_bench.compressed_text import read_text
from bitwise_bench.cublas.row_evidence import digest, query_and_configuration
from bitwise_bench.cublas.samples.cpu_samples import checked
from bitwise_bench.cublas.times.cost_fit import mean_regret, measured
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import profile
from bitwise_nvidia_sm90.gemm.device_costs import costs_of

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "records"
README = ROOT / "plugins" / "cublas_profiles" / "README.md"


def record(name: str) -> dict[str, Any]:
    path = RECORDS / name
    if not path.exists():
        pytest.skip("the records are in the source, not here")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def table_line(head: str) -> list[str]:
    text = README.read_text(encoding="utf-8")
    (found,) = [line for line in text.splitlines() if line.startswith(f"| {head} |")]
    return [cell.strip() for cell in found.strip("|").split("|")[1:]]


SWEEPS = {
    "H100, cuBLASLt 13.1": [f"cublas-sweep-sm90-h100-13.1-seed{seed}" for seed in (4, 6, 7)],
    "H100, cuBLASLt 13.1, fourteen draws": ["cublas-sweep-sm90-h100-13.1-seed14"],
    "H200, cuBLASLt 13.1": ["cublas-sweep-sm90-h200-13.1-seed5"],
    "H100, cuBLASLt 12.8": ["cublas-sweep-sm90-h100-12.8-seed12"],
    "H200, cuBLASLt 12.8, fourteen draws": ["cublas-sweep-sm90-h200-12.8-seed21"],
}


FIRST = [f"cublas-sweep-sm90-h100-13.1-seed{seed}" for seed in (1, 2)]
"""Only shapes that had a row at the time are counted."""


def outcomes(names: list[str]) -> Counter[tuple[str, str]]:
    """Shapes by kind of operands and outcome, over all layouts and outputs."""
    found: Counter[tuple[str, str]] = Counter()
    for name in names:
        for key, count in record(f"{name}.json")["outcomes"].items():
            if name in FIRST and key.startswith("candidate"):
                continue
            kind, outcome = key.removeprefix("candidate ").split(": ")
            found[{"e4m3": "fp8", "e5m2": "fp8"}.get(kind, kind), outcome] += count
    return found


def test_the_readme_has_the_counts_of_the_sweeps() -> None:
    every: Counter[tuple[str, str]] = Counter()
    for head, names in {**SWEEPS, "H100, cuBLASLt 13.1, ten draws": FIRST}.items():
        found = outcomes(names)
        every += found
        equal = [found[kind, "equal"] for kind in ("fp16", "bf16", "fp8")]
        rest = [sum(found[kind, outcome] for kind in ("fp16", "bf16", "fp8")) for outcome in ("different", "declined")]
        assert table_line(head) == [f"{each:,}" for each in (*equal, *rest)]
    assert {outcome for _, outcome in every} <= {"equal", "declined"}


def test_deep_products_of_many_slices_were_equal() -> None:
    content = record("cublas-slices-sm90-h100-13.1.json")
    found = [dict(zip(content["columns"], row, strict=True)) for row in content["rows"]]
    assert (len(found), {each["outcome"] for each in found}) == (56, {"equal"})
    known = profile("13.1", "9.0")
    for each in found:
        query, configuration = query_and_configuration(each)
        assert digest(descriptor_of(query, configuration, known)) == each["descriptor"]
    assert sum(each["algorithm"] == 66 and each["split_k"] > 64 for each in found) == 43


def test_the_readme_has_the_counts_of_the_controls() -> None:
    name = "controls run, caught, and caught with cancelling draws"
    found: dict[str, list[int]] = {}
    for each in (name_ for names in SWEEPS.values() for name_ in names):
        for key, counts in record(f"{each}.json")[name].items():
            kind = key.split(" algorithm")[0]
            found[kind] = [have + more for have, more in zip(found.get(kind, [0, 0, 0]), counts, strict=True)]
    assert found
    for kind, counts in found.items():
        assert table_line(kind) == [f"{each:,}" for each in counts]


def test_the_readme_has_the_other_measurements() -> None:
    parity = record("cublas-parity-sm90-h100.json")
    found = parity["outcomes"]
    counted = [str(found.get(outcome, 0)) for outcome in ("equal", "different", "declined")]
    assert table_line('`matmul(like="cublas")` against `torch.mm`') == counted
    assert parity["different"] == []
    for version, head in (("13.1", ""), ("12.8", ", cuBLASLt 12.8")):
        sample = record(f"cublas-sample-sm90-h100-{version}.json")
        assert {key.split()[-1] for key in sample["checked"]["outcomes"]} == {"equal"}
        line = table_line(f"small products, descriptors evaluated on a CPU{head}")
        assert line == [f"{len(sample['rows']):,}", "0", "0"]


def test_the_readme_has_the_host_times() -> None:
    found = record("cublas-host-time-sm90-h100.json")["host microseconds"]
    for product, times in found.items():
        assert table_line(product.replace("x", " x ")) == [str(each) for each in times.values()]
    text = " ".join(README.read_text(encoding="utf-8").split())
    second = record("cublas-host-time-sm90-h200.json")["host microseconds"]
    for name, each in itertools.product(("like", "desc"), (found, second)):
        added = [times[f"{name}{out}"] - times[f"torch.mm{out}"] for times in each.values() for out in ("", " out")]
        assert f"`{name}` adds {min(added):.1f} to {max(added):.1f} microseconds" in text
    layers = record("cublas-host-time-sm90-h200.json")["host microseconds of layers"].values()
    added = [times["addmm like"] - times["torch.addmm"] for times in layers]
    assert f'`addmm(like="cublas")` adds {min(added):.1f} to {max(added):.1f} microseconds' in text
    saved = [times[name] - times[f"{name}, locked"] for times in layers for name in times if f"{name}, locked" in times]
    assert f"take {min(saved):.1f} to {max(saved):.1f} microseconds less than without" in text


def test_the_readme_has_the_measured_times() -> None:
    published, held_out, second = (
        record(f"cublas-{name}-sm90-h100.json")["summary"] for name in ("published", "held-out", "second-held-out")
    )
    found = published["default"]
    for group, mean in {
        f"all {found['problems']} products of the published ranges": found["all"],
        **found["groups"],
    }.items():
        assert table_line(group) == [str(mean)]
    found = held_out["default"]
    assert table_line(f"all {found['problems']} held-out products") == [str(found["all"])]
    groups = ("input gradient", "weight gradient", "square", "odd")
    for name, mean in {**found["rows"], **{group: found["groups"][group] for group in groups}}.items():
        assert table_line(f"held out, {name}") == [str(mean)]
    found = second["default"]
    assert table_line(f"all {found['problems']} products of the second held-out set") == [str(found["all"])]
    for name, mean in {**found["rows"], "odd": found["groups"]["odd"]}.items():
        assert table_line(f"second set, {name}") == [str(mean)]
    below = [summary["default"]["below 0.9"] for summary in (held_out, second)]
    assert f"products {below[0]} are below 0.9, of the second set {below[1]};" in " ".join(
        README.read_text(encoding="utf-8").split()
    )
    for summary in (published, held_out, second):
        assert (summary["schedules whose bytes differ"], summary["failed"], summary["declined"]) == (0, 0, 0)
        assert summary["problems that were not reached"] == 0


def test_the_costs_of_schedules_are_those_of_the_recorded_times() -> None:
    pytest.importorskip("bitwise_nvidia_sm90")
    problems = measured(json.loads(read_text(RECORDS / "cublas-schedules-sm90-h100.json.xz"))["rows"])
    assert mean_regret(problems, costs_of().costs, costs_of().correction) < 1.03
    for name in ("held-out", "second-held-out"):
        assert not {(each.m, each.n, each.plan.k) for each in problems} & {
            (row["m"], row["n"], row["k"]) for row in record(f"cublas-{name}-sm90-h100.json")["rows"]
        }
    text = " ".join(README.read_text(encoding="utf-8").split())
    assert f"{sum(len(each.seconds) for each in problems):,} of {len(problems)} products" in text


def test_recorded_gpu_bytes_match_their_descriptors() -> None:
    pytest.importorskip("bitwise_nvidia_sm90")
    content = record("cublas-sample-sm90-h100-13.1.json")
    assert sum(content["checked"]["outcomes"].values()) == len(content["rows"]) == 1500
    content["rows"] = content["rows"][::15]
    found = list(checked(content))
    assert [outcome for _, outcome in found] == ["equal"] * 100
    assert {line["algorithm"] for line, _ in found} >= {11, 13, 14, 23, 24, 66}
