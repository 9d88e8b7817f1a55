"""The corpus in the published counts: its grids, results on disk, the figures of its record, and their table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

from bitwise_bench.compilation.capture import compile_case
from bitwise_bench.compilation.remembered_stages import remembered_stages
from bitwise_bench.published_corpus import catalogue
from bitwise_bench.published_corpus.__main__ import main
from bitwise_bench.published_corpus.catalogue import (
    case_named,
    cases_of,
    chosen_groups,
    definition_of,
    groups,
    size_of,
    sources_of,
)
from bitwise_bench.published_corpus.published import FORMATS, KERNELS, ROWS, TOTAL
from bitwise_bench.published_corpus.record import record_of
from bitwise_bench.published_corpus.shards import append, keep_only, read_shard, repair, shard_path, valid_entries
from bitwise_bench.result_tables.corpus_tables import published_corpus


@pytest.mark.parametrize("target", catalogue.TARGETS)
def test_groups_have_the_published_counts_no_configuration_twice_one_set_of_buffers_and_a_definition(
    target: str,
) -> None:
    """A definition belongs to one group, and contains what the kernel of the group calls."""
    found = groups(target)
    definitions, functions = set[str](), []
    for group in found:
        cases = cases_of(group, target)
        compiled = {
            (
                case.function.__name__,
                case.grid,
                str(sorted(case.constants.items(), key=str)),
                str(sorted(case.options.items(), key=str)),
                case.num_warps,
                case.num_stages,
                str(case.arguments),
            )
            for case in cases
        }
        assert len(compiled) == len(cases) == size_of(group, target), group.name
        assert len({case.arrays for case in cases}) == 1, group.name
        definitions.add(definition_of(group, target))
        functions.append(cases[0].function)
    of_row = {
        row.name: sum(size_of(group, target) for group in found if group.main and group.row == row.name)
        for row in ROWS
        if target in row.of_target
    }
    assert of_row == {row.name: row.of_target[target].configurations for row in ROWS if target in row.of_target}
    assert sum(size_of(group, target) for group in found) == TOTAL[target]
    assert len(definitions) == len(found)
    assert all(function.src in sources_of(function) for function in functions)
    assert any(len(sources_of(function)) > 1 for function in functions)


def test_the_corpus_has_the_published_kernels_and_formats() -> None:
    found = groups("sm_90")
    assert (len({group.kernel for group in found}), len({group.dtype for group in found})) == (KERNELS, FORMATS)
    assert len(catalogue.kernels_of_rows()["reductions"]) == 16
    assert sum(row.of_target["sm_90"].configurations for row in ROWS) == 13_686


def test_a_configuration_is_found_by_its_id() -> None:
    group = next(group for group in groups("sm_90") if group.kernel == "gemm" and group.dtype == "bf16")
    case = cases_of(group, "sm_90")[100]
    assert case_named(case.id, "sm_90") == case


def test_rows_are_chosen_by_name() -> None:
    table = chosen_groups("sm_90", ["table"])
    assert [group.main for group in table] == [True] * 28
    assert [group.name for group in chosen_groups("gfx942", ["gemm"])] == ["gemm/fp16", "gemm/bf16", "gemm/fp32"]
    assert chosen_groups("sm_90", ["all"])[: len(table)] == table
    with pytest.raises(ValueError, match="no row or kernel gem "):
        chosen_groups("sm_90", ["gem"])


@pytest.mark.usefixtures("without_machine_code")
def test_a_configuration_of_each_kernel_compiles() -> None:
    found = groups("sm_90")
    for place, kernel in enumerate(dict.fromkeys(group.kernel for group in found)):
        mine = [group for group in found if group.kernel == kernel]
        cases = cases_of(mine[place % len(mine)], "sm_90")
        assert compile_case(cases[len(cases) // 3]).extension == "ptx"


def test_stages_are_recalled_and_give_the_same_text(tmp_path: Path) -> None:
    group = next(group for group in groups("sm_90") if group.kernel == "row_dot" and group.dtype == "fp32")
    cases = [case for case in cases_of(group, "sm_90") if case.constants["BLOCK"] == 1024 and case.num_warps == 4]
    with remembered_stages(tmp_path / "recalled") as compilation:
        texts = [compile_case(case).assembly for case in cases]
        assert compilation.binary().startswith(b"\x7fELF")
        compilation.discard()
        ran = compilation.ran
    # Twelve configurations: without and with a limit of registers, without and with fusion; each with three stages.
    assert (len(cases), len(set(texts)), ran, compilation.recalled) == (12, 4, 2 + 4 + 4, 3 * 12 - 10)
    assert not list((tmp_path / "recalled").rglob("*.ptx"))
    with remembered_stages(tmp_path / "alone"):
        assert compile_case(cases[-1]).assembly == texts[-1]


def _entry(name: str, signature: str | None, bytes_: str | None = None, **further: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": name,
        "text": signature or "t",
        "binary": "b",
        "seconds": {"compile": 0.1, "read": 0.2},
    }
    entry |= {"unknown": "a reason", "nondeterministic": False} if signature is None else {"signature": signature}
    return {**entry, **({} if bytes_ is None else {"bytes": bytes_, "repeated": True}), **further}


def _split_entries(*found: tuple[str | None, str | None]) -> list[dict[str, Any]]:
    group = next(group for group in groups("sm_90") if group.kernel == "inductor_splitk_gemm" and group.main)
    definition = definition_of(group, "sm_90")
    cases = cases_of(group, "sm_90")
    return [_entry(case.id, *each, definition=definition) for case, each in zip(cases, found, strict=False)]


def _split_record(folder: Path, entries: list[dict[str, Any]]) -> dict[str, Any]:
    group = next(group for group in groups("sm_90") if group.kernel == "inductor_splitk_gemm" and group.main)
    append(shard_path(folder / "sm_90", group), entries)
    return record_of(folder, "sm_90")


def test_the_record_counts_classes_and_wrong_merges(tmp_path: Path) -> None:
    entries = _split_entries(("1", "x"), ("1", "y"), ("2", "x"), (None, "x"))
    row = _split_record(tmp_path, entries)["rows"]["inductor_splitk_gemm"]
    assert (row["done"], row["planned"], row["classes"], row["unknown"]) == (4, 4, 2, 1)
    assert (row["compared"], row["byte classes"], row["ratio"]) == (3, 2, 1.0)
    assert row["wrong merges"] == [[entries[0]["id"], entries[1]["id"]]]
    assert row["published"] == {"configurations": 4, "classes": 4, "byte_classes": 4}


def test_bytes_that_moved_are_not_compared(tmp_path: Path) -> None:
    entries = _split_entries(("1", "x"), ("1", "y"))
    entries[1]["repeated"] = False
    row = _split_record(tmp_path, entries)["rows"]["inductor_splitk_gemm"]
    assert (row["compared"], row["not repeated"], row["wrong merges"]) == (1, 1, [])


def test_the_table_shows_what_is_partial(tmp_path: Path) -> None:
    record = _split_record(tmp_path, _split_entries(("1", "x"), ("2", "x"), ("3", "y")))
    record["environment"] = {"gpu": "NVIDIA H100", "triton": "3.6.0"}
    lines = published_corpus(record).splitlines()
    assert lines[2 + list(record["rows"]).index("inductor_splitk_gemm")] == (
        "| `inductor_splitk_gemm`, fp16 | 3 of 4 | 3 (4) | 2 (4) | 1.50 (1.00) | 0 | 0 | 100 / 200 |"
    )
    assert lines[2] == "| `reductions`, fp16 | 0 of 2,304 | 0 (204) | - (81) | - (2.52) | - | 0 | 0 / 0 |"
    assert "| whole corpus, 47 kernels, 5 formats | 3 of 51,152 | 3 | 2 | 1.50 | 0 | 0 | 100 / 200 |" in lines
    assert "against the bytes of NVIDIA H100" in lines[-1]


def test_a_torn_shard_is_continued(tmp_path: Path) -> None:
    whole, torn = tmp_path / "whole.jsonl.xz", tmp_path / "torn.jsonl.xz"
    parts = [[_entry(f"k/fp16/{number}", str(number))] for number in range(3)]
    for part in parts:
        append(whole, part)
    content = whole.read_bytes()
    kept = {entry["id"]: entry for part in parts[:2] for entry in part}
    for cut in (1, 20, 63):
        torn.write_bytes(content[:-cut])
        assert read_shard(torn) == kept
        repair(torn)
        append(torn, parts[2])
        assert torn.read_bytes() == content
    assert read_shard(tmp_path / "none.jsonl.xz") == {}


def test_an_incomplete_group_of_another_reader_is_measured_again() -> None:
    def entries(*names: str, definition: str = "d", reader: str = "r") -> dict[str, dict[str, Any]]:
        return {name: {"id": name, "definition": definition, "reader": reader} for name in names}

    complete, part = entries("a", "b"), entries("a")
    assert valid_entries(complete, ["a", "b"], "d", "another") == complete
    assert valid_entries(part, ["a", "b"], "d", "r") == part
    assert valid_entries(part, ["a", "b"], "d", "another") == {}
    assert valid_entries(complete, ["a", "b"], "another", "r") == {}
    mixed = {**entries("a"), **entries("b", reader="another")}
    assert valid_entries(mixed, ["a", "b"], "d", "r") == entries("a")
    assert valid_entries({"a": {"id": "a"}}, ["a", "b"], "d", "r") == {}


def test_entries_are_removed_from_a_shard(tmp_path: Path) -> None:
    path = tmp_path / "shard.jsonl.xz"
    keep_only(path, {})
    append(path, [_entry("a", "1"), _entry("b", "2")])
    keep_only(path, {"b": _entry("b", "2")})
    assert list(read_shard(path)) == ["b"]
    keep_only(path, {})
    assert list(tmp_path.iterdir()) == []


def _without_seconds(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        path.name: sorted(
            ({key: value for key, value in entry.items() if key != "seconds"} for entry in read_shard(path).values()),
            key=lambda entry: str(entry["id"]),
        )
        for path in folder.glob("*.xz")
    }


def test_a_run_that_was_killed_ends_with_the_same_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(records: Path, *more: str) -> None:
        given = ["--rows", "inductor_splitk_gemm", "--sample", "1", "--no-gpu", "--workers", "1"]
        assert main([*given, "--records", str(records), "--out", str(tmp_path / "record.json"), *more]) == 0

    run(tmp_path / "whole")
    whole = _without_seconds(tmp_path / "whole" / "sm_90")
    assert sum(map(len, whole.values())) == 5
    torn = tmp_path / "killed" / "sm_90"
    torn.mkdir(parents=True)
    for path in (tmp_path / "whole" / "sm_90").glob("*.xz"):
        (torn / path.name).write_bytes(path.read_bytes()[:-10])
    run(tmp_path / "killed", "--seconds", "0")
    assert "0 of 5 configurations" in capsys.readouterr().out
    run(tmp_path / "killed")
    assert _without_seconds(torn) == whole
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["total"]["done"] == 5
    assert record["rows"]["inductor_splitk_gemm"]["classes"] == 1


def test_there_is_no_gpu_for_gfx942(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--target", "gfx942", "--records", str(tmp_path)])
    assert "add --no-gpu" in capsys.readouterr().err
