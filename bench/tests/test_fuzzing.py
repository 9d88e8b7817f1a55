"""Fuzzing: every reader reads its valid files, and a campaign counts inputs and finds faults."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from bitwise_bench.fuzzing import campaign as fuzzing
from bitwise_bench.fuzzing.mutations import changed_json, mutated
from bitwise_bench.fuzzing.readers import Reader, readers
from bitwise_core.errors import BitwiseError


@pytest.mark.parametrize("name", sorted(readers()))
def test_a_reader_reads_a_valid_file(name: str, tmp_path: Path) -> None:
    reader, read = readers()[name], 0
    for number, seed in enumerate(reader.seeds):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            reader.read(seed, folder)
        except BitwiseError:  # a valid file that does not fit the launch
            continue
        read += 1
    assert read


def test_changes_are_of_bytes_and_of_values() -> None:
    data = json.dumps({"a": [1, 2, {"b": "c"}]}).encode()
    changed = {mutated(data, (data,), random.Random(seed)) for seed in range(200)}
    assert len(changed - {data}) > 150
    values = {changed_json(data, random.Random(seed)) for seed in range(200)}
    assert all(json.loads(each) is not None for each in values)
    assert len(values) > 50
    nested = b"[[]]"
    for seed in range(5000):  # a value that is put into itself would be no JSON
        nested = changed_json(nested if len(nested) < 1000 else data, random.Random(seed))
    assert changed_json(b"no JSON", random.Random(0)) == b"no JSON"


def broken(data: bytes, folder: Path) -> None:
    if data.startswith(b"x"):
        raise KeyError(data.decode("latin-1"))
    raise BitwiseError("a sentence" if len(data) % 2 else " ")


def test_a_fault_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "readers", lambda: {"toy": Reader("toy", (b"x text", b"y text"), broken, 1)})
    monkeypatch.setattr(fuzzing.resource, "setrlimit", lambda *arguments: None)
    settings = {"seed": 1, "seconds of a batch": 0.3, "found": str(tmp_path)}
    record = fuzzing.record_of({"toy/0": fuzzing.batch("toy/0", settings), "toy/1": {"error": "it died"}}, 1)
    counts = record["readers"]["toy"]
    assert counts["inputs"] == counts["findings"] + counts["refused"] + counts["refused without a sentence"]
    found = {each["error"] for each in record["findings"]}
    assert found == {"KeyError", "process", "no sentence"}
    (kept,) = tmp_path.iterdir()
    assert kept.read_bytes().startswith(b"x")
    assert "toy: process at -: it died (input -)" in list(fuzzing.lines_of(record))
